//! Arriving messages: queues, rejects or drops each. Spec: tipc.md §7.6, §8.2 to §8.7.

use super::endpoint::Endpoint;
use super::error::{ConnectError, SendError};
use super::group::is_group;
use super::multicast_sync::Filtered;
use super::queue::charge;
use super::state::{Event, State};
use super::uplink::Uplink;
use crate::addr::NodeAddr;
use crate::limits::capability;
use crate::time::Time;
use crate::wire::reverse;
use crate::wire::{ErrorCode, Message, MessageType, User};

/// Decision about an arriving message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Queue,
    /// Processed completely.
    Done,
    Reject,
}

impl Endpoint {
    /// Handles a message for this port; of a multicast, a copy.
    pub fn handle_message(&mut self, now: Time, msg: Message, uplink: &mut dyn Uplink) {
        self.group_now(now);
        if !msg.header_fits() {
            self.stats.dropped += 1;
        } else if msg.user() == User::GroupProtocol {
            self.group_control(&msg, uplink);
        } else if msg.user() == User::ConnManager {
            self.connection_control(msg, uplink);
        } else if !msg.is_data() {
            self.stats.dropped += 1;
        } else if let Some(msg) = self.keep(msg, uplink) {
            self.handle_data(now, msg, uplink);
        }
    }

    fn handle_data(&mut self, now: Time, msg: Message, uplink: &mut dyn Uplink) {
        if self.group.is_some() && !self.closed {
            self.group_data(msg, uplink);
        } else if msg.message_type() == MessageType::Mcast && !self.is_returned_multicast(&msg) {
            self.handle_multicast(now, msg, uplink);
        } else {
            self.admit(now, msg, uplink);
        }
    }

    /// Moves a message that may have to wait to the memory of the socket's user; rejects it if that has no room. The
    /// end of a connection must not be lost: it stays where it is.
    fn keep(&mut self, msg: Message, uplink: &mut dyn Uplink) -> Option<Message> {
        let Some(user) = self.user() else { return Some(msg) };
        match msg.moved(|bytes| uplink.keep(user, bytes)) {
            Ok(msg) => Some(msg),
            Err(msg) if msg.error_code() != ErrorCode::Ok && self.kind.is_connection_oriented() => Some(msg),
            Err(msg) => {
                self.count_over_memory();
                self.stats.overloads += 1;
                self.respond(msg, ErrorCode::Overload, uplink);
                None
            }
        }
    }

    /// Moves a message to the memory of the socket's user, or leaves it where it is.
    pub(super) fn keep_any(&self, msg: Message, uplink: &mut dyn Uplink) -> Message {
        let Some(user) = self.user() else { return msg };
        msg.moved(|bytes| uplink.keep(user, bytes)).unwrap_or_else(|msg| msg)
    }

    /// Queues a message for this port that did not come through the node, so that its sender's flow control has not
    /// counted it. The application has already read the first `read` bytes of its data (decision 8).
    pub fn adopt(&mut self, now: Time, msg: Message, read: usize, uplink: &mut dyn Uplink) {
        let (bytes, before) = (msg.size(), self.queue.len());
        if read > 0 && read >= msg.data().len() {
            return; // all of it was read
        }
        self.handle_message(now, msg, uplink);
        if self.queue.len() > before {
            if self.kind.is_connection_oriented() {
                self.flow.prepay(bytes);
            }
            if before == 0 {
                self.queue.read = read;
            }
        }
    }

    /// Ends the connection with an error at both ends.
    pub fn abort(&mut self, uplink: &mut dyn Uplink) {
        if self.state == State::Established {
            self.send_end(ErrorCode::NoPort, uplink);
            self.lost_peer(ErrorCode::NoPort, uplink);
        }
    }

    /// True for a returned multicast. The dummy of a method change also has an error code, but no data.
    fn is_returned_multicast(&self, msg: &Message) -> bool {
        msg.error_code() != ErrorCode::Ok && !(msg.syn() && msg.data().is_empty())
    }

    fn handle_multicast(&mut self, now: Time, mut msg: Message, uplink: &mut dyn Uplink) {
        msg.set_dest_port(self.port);
        if self.kind.is_connection_oriented() {
            return self.respond(msg, ErrorCode::NoPort, uplink);
        }
        if !msg.syn() && self.multicast_sync.is_empty() {
            return self.admit(now, msg, uplink);
        }
        let room = usize::try_from(self.room()).unwrap_or(usize::MAX);
        let limit = self.settings.receive_buffer.min(self.multicast_sync.bytes().saturating_add(room));
        match self.multicast_sync.filter(now, uplink.own_node(), msg, limit) {
            Filtered::Deliver(msg) => self.admit(now, msg, uplink),
            Filtered::Release(all) => all.into_iter().for_each(|msg| self.admit(now, msg, uplink)),
            Filtered::Held => {}
            Filtered::Overflow(msg) => {
                self.stats.overloads += 1;
                self.respond(msg, ErrorCode::Overload, uplink);
            }
        }
    }

    /// Decides about a payload message: queues it or rejects it.
    pub(super) fn admit(&mut self, now: Time, msg: Message, uplink: &mut dyn Uplink) {
        let verdict = match () {
            () if self.closed || is_group(&msg) => Verdict::Reject,
            () if self.kind.is_connection_oriented() => self.filter_connected(now, &msg, uplink),
            () if msg.message_type() == MessageType::Conn => Verdict::Reject,
            () => Verdict::Queue,
        };
        match verdict {
            Verdict::Queue => self.enqueue(now, msg, uplink),
            Verdict::Done => {}
            Verdict::Reject => self.respond(msg, ErrorCode::NoPort, uplink),
        }
    }

    fn enqueue(&mut self, now: Time, msg: Message, uplink: &mut dyn Uplink) {
        let error = msg.error_code() != ErrorCode::Ok;
        if !error && msg.data().is_empty() && self.state != State::Listen {
            return; // not delivered to the application
        }
        // the end of a connection must not be lost; there is only one
        let must_fit = error && self.kind.is_connection_oriented();
        let may_wait = !error && !self.kind.is_connection_oriented();
        let has_room = charge(&msg) as u64 <= self.room() && self.queue.has_place();
        if !must_fit && !has_room {
            self.count_over_memory();
            self.stats.overloads += 1;
            return self.respond(msg, ErrorCode::Overload, uplink);
        }
        let has_room = self.queue.has_room(&msg, self.settings.receive_buffer, self.flow.is_legacy());
        if !must_fit && !has_room || may_wait && self.full.len() > 0 {
            let refused = if may_wait { self.keep_waiting(now, msg) } else { Err(msg) };
            if let Err(msg) = refused {
                self.stats.overloads += 1;
                self.respond(msg, ErrorCode::Overload, uplink);
            }
            return;
        }
        self.stats.returned_to_us += u64::from(error);
        self.queue.push(msg);
    }

    /// Rejects `msg` unless its sender does not want it back.
    pub(super) fn respond(&mut self, msg: Message, code: ErrorCode, uplink: &mut dyn Uplink) {
        let Some(back) = reverse(uplink.own_node(), msg, code) else {
            self.stats.dropped += 1;
            return;
        };
        let to = back.dest_node().unwrap_or(NodeAddr::NONE);
        // an unreachable sender does not need the rejected message
        let _ = uplink.submit(to, back);
        self.stats.rejected += 1;
    }

    fn filter_connected(&mut self, now: Time, msg: &Message, uplink: &mut dyn Uplink) -> Verdict {
        self.nagle.peer_message();
        match self.state {
            State::Open | State::Disconnecting => Verdict::Reject,
            State::Listen => self.filter_listening(msg, uplink),
            State::Connecting => self.filter_connecting(now, msg, uplink),
            State::Established => self.filter_established(msg, uplink),
        }
    }

    fn filter_listening(&self, msg: &Message, uplink: &mut dyn Uplink) -> Verdict {
        let old_node = || uplink.capabilities(msg.origin_node()) & capability::SYN_BIT == 0;
        let request = matches!(msg.message_type(), MessageType::Named | MessageType::Direct)
            && msg.error_code() == ErrorCode::Ok
            && (msg.syn() || msg.origin_node() != uplink.own_node() && old_node());
        if request && self.closing.is_none() { Verdict::Queue } else { Verdict::Reject }
    }

    fn filter_connecting(&mut self, now: Time, msg: &Message, uplink: &mut dyn Uplink) -> Verdict {
        let on_connection = msg.message_type() == MessageType::Conn;
        if on_connection && msg.error_code() == ErrorCode::Ok {
            self.enter(Event::Answer);
            self.establish(now, msg.origin(), uplink);
            self.settings.importance = msg.importance();
            return if msg.data().is_empty() { Verdict::Done } else { Verdict::Queue };
        }
        if !on_connection && !self.is_returned_request(msg) {
            return Verdict::Reject;
        }
        if !on_connection && msg.error_code() == ErrorCode::Overload {
            self.retry_request(now);
            return Verdict::Done;
        }
        let is_lost = on_connection && msg.error_code() == ErrorCode::NoNode;
        let error = if is_lost { SendError::HostUnreachable.into() } else { ConnectError::Refused };
        self.end_request(Event::Refuse, error, uplink);
        self.end = Some(msg.error_code());
        Verdict::Queue
    }

    fn filter_established(&mut self, msg: &Message, uplink: &mut dyn Uplink) -> Verdict {
        self.push_collected(uplink);
        if !self.is_from_peer(msg, uplink.own_node()) {
            return Verdict::Reject;
        }
        if msg.error_code() != ErrorCode::Ok {
            self.end = Some(msg.error_code());
            self.enter(Event::PeerEnd);
            self.probe_at = None;
            uplink.unregister_connection(self.port);
            self.continue_closing(uplink);
            return if self.closed { Verdict::Done } else { Verdict::Queue };
        }
        if msg.message_type() != MessageType::Conn {
            return Verdict::Reject;
        }
        if msg.ack_required() {
            self.acknowledge(true, uplink);
        }
        Verdict::Queue
    }

    /// The peer is gone without a message that ends the connection: queues such a message.
    pub(super) fn lost_peer(&mut self, code: ErrorCode, uplink: &mut dyn Uplink) {
        if !self.enter(Event::PeerEnd) {
            return;
        }
        self.end = Some(code);
        self.probe_at = None;
        uplink.unregister_connection(self.port);
        let mut abort = self.connection_message(&[], self.peer.node);
        abort.set_origin_port(self.peer.port);
        abort.set_dest_port(self.port);
        abort.set_error_code(code);
        self.queue.push(abort);
        self.continue_closing(uplink);
    }

    /// The link to `node` ([`NodeAddr::NONE`]: the broadcast link) accepts messages again.
    pub fn wakeup(&mut self, _now: Time, node: NodeAddr, uplink: &mut dyn Uplink) {
        if !(self.spreads && node == uplink.own_node()) {
            self.congested.remove(&node);
        }
        self.waits_for_any = false;
        self.settle_beyond(node);
        if self.state == State::Established {
            self.push_collected(uplink);
        }
        self.send_kept(uplink);
        self.continue_closing(uplink);
    }
}
