//! What a node tells an endpoint: arriving messages and wake-ups. What it asks: load, and whether senders wait.
//! Spec: tipc.md §7.6, §8.2 to §8.7.

use super::call::Call;
use super::congestion::Congestion;
use super::datagram::Anycast;
use super::endpoint::{Endpoint, Role};
use super::listener;
use super::types::WaitReason;
use super::uplink::Uplink;
use crate::Load;
use crate::addr::{Importance, NodeAddr};
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType, User};

impl Endpoint {
    /// Handles a message for this port; of a multicast, a copy.
    pub fn handle_message(&mut self, now: Time, msg: Message, uplink: &mut dyn Uplink) {
        self.group_now(now);
        let call = &mut Call::new(&mut self.base, uplink);
        match (msg.user(), &mut self.role) {
            _ if !msg.header_fits() => call.base.stats.dropped += 1,
            _ if msg.is_data() => self.handle_data(now, msg, uplink),
            (User::GroupProtocol, Role::Datagram(datagram)) => match datagram.group_call(call) {
                Some(mut call) => call.handle_control(&msg),
                None => call.base.stats.dropped += 1,
            },
            (User::ConnManager, Role::Connection(connection)) => connection.handle_control(msg, call),
            _ => call.base.stats.dropped += 1,
        }
    }

    fn handle_data(&mut self, now: Time, msg: Message, uplink: &mut dyn Uplink) {
        let call = &mut Call::new(&mut self.base, uplink);
        let mut msg = match call.keep(msg) {
            Ok(msg) => msg,
            // The end of a connection must not be lost: it stays where it is.
            Err(msg) if msg.error_code() != ErrorCode::Ok && call.base.kind().is_connection_oriented() => msg,
            Err(msg) => {
                call.base.account.refuse();
                return call.respond_overload(msg);
            }
        };
        // The dummy of a method change also has an error code, but no data.
        let is_returned = msg.error_code() != ErrorCode::Ok && !(msg.syn() && msg.data().is_empty());
        let is_multicast = msg.message_type() == MessageType::Mcast && !is_returned;
        if is_multicast {
            msg.set_dest_port(call.base.port());
        }
        match &mut self.role {
            Role::Datagram(datagram) if is_multicast => datagram.handle_multicast(now, msg, call),
            Role::Datagram(datagram) => datagram.handle_data(now, msg, call),
            Role::Connection(_) | Role::Listener if is_multicast => {
                call.respond(msg, ErrorCode::NoPort);
            }
            Role::Connection(connection) => connection.handle_data(now, msg, call),
            Role::Listener => listener::handle_data(msg, call),
        }
    }

    /// Queues a message for this port that did not come through the node, so that its sender's flow control has not
    /// counted it. The application has already read the first `read` bytes of its data (decision 8).
    pub fn adopt(&mut self, now: Time, msg: Message, read: usize, uplink: &mut dyn Uplink) {
        let (bytes, before) = (msg.size(), self.base.queue.len());
        if read > 0 && read >= msg.data().len() {
            return; // all of it was read
        }
        self.handle_message(now, msg, uplink);
        if self.base.queue.len() > before {
            if let Some(session) = self.session_mut() {
                session.prepay(bytes);
            }
            if before == 0 {
                self.base.queue.set_read(read);
            }
        }
    }

    /// Ends the connection with an error at both ends.
    pub fn abort(&mut self, uplink: &mut dyn Uplink) {
        if let Role::Connection(connection) = &mut self.role {
            connection.abort(&mut Call::new(&mut self.base, uplink));
        }
    }

    /// The link to `node` ([`NodeAddr::NONE`]: the broadcast link) accepts messages again.
    pub fn wakeup(&mut self, _now: Time, node: NodeAddr, uplink: &mut dyn Uplink) {
        let call = &mut Call::new(&mut self.base, uplink);
        call.base.congestion.end(node);
        match &mut self.role {
            Role::Datagram(datagram) => datagram.wakeup(call),
            Role::Connection(connection) => connection.wakeup(call),
            Role::Listener => {}
        }
    }

    /// The nodes to which it sends nothing now.
    pub(crate) fn congestion(&self) -> &Congestion {
        &self.base.congestion
    }

    pub(crate) fn congestion_mut(&mut self) -> &mut Congestion {
        &mut self.base.congestion
    }

    /// Whether its messages have no connection and no group, so that the node chooses the receivers of its anycasts.
    pub(crate) fn sends_datagrams(&self) -> bool {
        self.datagram().is_some_and(|datagram| datagram.group().is_none())
    }

    /// Importance of its messages.
    pub(crate) fn importance(&self) -> Importance {
        self.base.settings.send.importance
    }

    /// Before a message is sent: whether its receiver was chosen among several.
    #[inline]
    pub(crate) fn set_choice(&mut self, from_several: bool) {
        if let Role::Datagram(datagram) = &mut self.role {
            datagram.set_anycast(if from_several { Anycast::Several } else { Anycast::One });
        }
    }

    /// Whether the last message had several receivers.
    pub(crate) fn chooses(&self) -> bool {
        self.datagram().is_some_and(|datagram| datagram.anycast() != Anycast::One)
    }

    /// All receivers of a message are full: the socket waits until any of them takes messages.
    pub(crate) fn wait_for_any(&mut self, reason: WaitReason) {
        if let Role::Datagram(datagram) = &mut self.role {
            datagram.set_anycast(Anycast::AllFull);
            self.base.note_wait(reason);
        }
    }

    /// Whether the receive queue is full and senders shall wait: until [`Self::handle_timeout`] or a receive changes
    /// it.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.datagram().is_some_and(|datagram| datagram.is_full())
    }

    /// Moves messages that wait for room to the queue, as far as there is room.
    pub(crate) fn refill(&mut self, now: Time) {
        if let Role::Datagram(datagram) = &mut self.role {
            datagram.refill(now, &mut self.base);
        }
    }

    /// Bytes charged for the queue, and their limit for messages of the lowest importance.
    pub(crate) fn queue_usage(&self) -> (usize, usize) {
        (self.base.queue.charged(), self.base.settings.receive_buffer)
    }

    /// Its load as the sender of a message of so many bytes without a connection sees it, unless senders wait for it.
    pub(crate) fn load(&self, bytes: usize, importance: Importance) -> Load {
        self.datagram().map_or(Load::IDLE, |datagram| datagram.load(bytes, importance, &self.base))
    }
}
