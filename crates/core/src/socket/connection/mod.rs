//! A socket of a connection-oriented kind that is not a listener: its connection, from the request to its end.
//! Spec: tipc.md §8.2 to §8.6.

mod ending;
mod flow;
mod nagle;
mod probe;
mod session;
mod setup;

use super::base::Base;
use super::built::{Built, Unsent};
use super::error::{ConnectError, RecvError, SendError};
use super::group::is_group;
use super::queue::charge;
use super::reading::{copy, properties};
use super::state::{Event, State};
use super::types::{Destination, Readiness, Received, RecvOptions, SocketKind, WaitReason};
use super::uplink::Uplink;
use crate::addr::{PortId, ServiceAddr};
use crate::rng::Rng;
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType};
use ending::{Closing, Ended};
#[cfg(test)]
pub(super) use flow::INITIAL_WINDOW;
pub(super) use flow::LEGACY_WINDOW;
use session::Session;
use setup::Request;

/// The connection of one socket.
#[derive(Debug)]
pub(super) struct Connection {
    phase: Phase,
    /// The end that the application has asked for, while congestion delays it.
    closing: Option<Closing>,
    /// Randomises the retries of connection requests.
    rng: Rng,
}

#[derive(Debug)]
enum Phase {
    Open,
    Connecting(Request),
    Established(Session),
    Ended(Ended),
}

impl Phase {
    #[inline]
    fn state(&self) -> State {
        match self {
            Self::Open => State::Open,
            Self::Connecting(_) => State::Connecting,
            Self::Established(_) => State::Established,
            Self::Ended(_) => State::Disconnecting,
        }
    }
}

/// Decision about a payload message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Queue,
    /// Processed completely.
    Done,
    Reject,
}

impl Connection {
    /// No connection yet; `seed` randomises the retries of connection requests.
    pub(super) fn new(seed: u64) -> Self {
        Self { phase: Phase::Open, closing: None, rng: Rng::new(seed) }
    }

    #[inline]
    pub(super) fn state(&self) -> State {
        self.phase.state()
    }

    /// Enters a phase; false if the state does not allow the event. All changes of state are made here.
    fn enter(&mut self, event: Event, phase: Phase) -> bool {
        let is_allowed = self.state().next(event) == Some(phase.state());
        if is_allowed {
            self.phase = phase;
        }
        is_allowed
    }

    /// The connection while it is established.
    #[inline]
    pub(super) fn session(&self) -> Option<&Session> {
        match &self.phase {
            Phase::Established(session) => Some(session),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.phase {
            Phase::Established(session) => Some(session),
            _ => None,
        }
    }

    /// The peer, or the destination of the request.
    fn remote(&self) -> Option<PortId> {
        match &self.phase {
            Phase::Open => None,
            Phase::Connecting(request) => Some(request.peer),
            Phase::Established(session) => Some(session.peer()),
            Phase::Ended(ended) => Some(ended.peer),
        }
    }

    /// Port of the peer, or of the destination of the request.
    pub(super) fn remote_port(&self) -> Option<u32> {
        self.remote().map(|remote| remote.port)
    }

    /// The peer of the connection, also after its end. A request that failed had no peer.
    pub(super) fn peer(&self) -> Option<PortId> {
        let was_established = match &self.phase {
            Phase::Open | Phase::Connecting(_) => false,
            Phase::Established(_) => true,
            Phase::Ended(ended) => ended.was_established,
        };
        self.remote().filter(|peer| was_established && peer.port != 0)
    }

    /// The service address by which the connection was set up.
    pub(super) fn service(&self) -> Option<ServiceAddr> {
        match &self.phase {
            Phase::Open => None,
            Phase::Connecting(request) => request.service,
            Phase::Established(session) => session.service(),
            Phase::Ended(ended) => ended.service,
        }
    }

    /// Bytes of the messages that the connection keeps beside the queue.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        match &self.phase {
            Phase::Connecting(request) => charge(&request.syn) as u64,
            Phase::Established(session) => session.bytes(),
            Phase::Open | Phase::Ended(_) => 0,
        }
    }

    /// Whether collected data has not been sent yet.
    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        self.session().is_some_and(Session::has_unsent)
    }

    pub(super) fn set_no_delay(&mut self, no_delay: bool) {
        if let Some(session) = self.session_mut() {
            session.set_no_delay(no_delay);
        }
    }

    /// A message of `bytes` arrived over another path: the peer did not count it.
    pub(super) fn prepay(&mut self, bytes: usize) {
        if let Some(session) = self.session_mut() {
            session.prepay(bytes);
        }
    }

    pub(super) fn readiness(&self, base: &Base) -> Readiness {
        let received = !base.queue.is_empty();
        let is_clear = base.congestion.is_empty();
        match &self.phase {
            Phase::Open => Readiness { writable: is_clear, ..Readiness::default() },
            Phase::Connecting(_) => Readiness { readable: received, ..Readiness::default() },
            Phase::Established(session) => {
                let writable = is_clear && session.window_wait().is_none() && self.closing.is_none();
                Readiness { readable: received, writable, ..Readiness::default() }
            }
            Phase::Ended(_) => {
                let hung_up = !self.defers_hang_up(base, false);
                // A sender that waits learns of the end: its next send fails.
                Readiness { readable: true, writable: !hung_up, hung_up, read_closed: false }
            }
        }
    }

    /// Whether the connection has ended and its hang-up waits until the last message is read.
    pub(super) fn defers_hang_up(&self, base: &Base, in_lanes: bool) -> bool {
        let is_deferred = !base.is_shut_down() && !base.settings.exact_hang_up;
        let has_unread = || base.queue.front().is_some_and(|msg| msg.error_code() == ErrorCode::Ok);
        matches!(self.phase, Phase::Ended(_)) && is_deferred && (in_lanes || has_unread())
    }

    /// What the last call would still wait for, if that concerns the connection.
    pub(super) fn wait_reason(&self, reason: WaitReason, base: &Base) -> Option<WaitReason> {
        match (reason, &self.phase) {
            (WaitReason::PeerWindow { .. }, Phase::Established(session)) => session.window_wait(),
            (WaitReason::Connecting { .. }, Phase::Connecting(request)) => Some(request.wait(base)),
            _ => None,
        }
    }

    /// Time when [`Self::handle_timeout`] is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::Connecting(request) => Some(request.due()),
            Phase::Established(session) => {
                let closing = self.closing.as_ref().map_or(Time::NEVER, Closing::deadline);
                Some(session.probe_due().min(closing))
            }
            Phase::Open | Phase::Ended(_) => None,
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time, base: &mut Base, uplink: &mut dyn Uplink) {
        if let Some(closing) = self.closing.take_if(|closing| closing.deadline() <= now) {
            self.finish(closing, base, uplink);
        }
        let is_lost = match &mut self.phase {
            Phase::Connecting(request) if request.due() <= now => {
                return self.request_timeout(now, base, uplink);
            }
            Phase::Established(session) if session.probe_due() <= now => !session.probe(now, base, uplink),
            _ => false,
        };
        if is_lost {
            self.end(Event::ProbeLost, None, Some(ConnectError::Aborted), base, uplink);
            self.continue_closing(base, uplink);
        }
    }

    /// Sends `data`, or a connection request that carries it.
    pub(super) fn send(
        &mut self,
        now: Time,
        data: &[u8],
        to: Option<Destination>,
        base: &mut Base,
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        match (&mut self.phase, to) {
            _ if base.is_shut_down() => Err(SendError::Broken),
            (Phase::Established(session), _) => session.send(data, base, uplink),
            (Phase::Open, Some(to)) => self.request(now, to, data, base, uplink),
            (Phase::Open | Phase::Connecting(_), _) => Err(SendError::NotConnected),
            (Phase::Ended(ended), _) => Err(match ended.error.take() {
                Some(ConnectError::Send(e)) => e,
                Some(ConnectError::TimedOut) => SendError::TimedOut,
                Some(ConnectError::Aborted) => SendError::Aborted,
                Some(ConnectError::Refused) => SendError::Refused,
                _ => SendError::Broken,
            }),
        }
    }

    /// Sends a message that was built for the connection.
    pub(super) fn send_built(
        &mut self,
        message: Built,
        base: &mut Base,
        uplink: &mut dyn Uplink,
    ) -> Result<(), Unsent> {
        let Some(session) = self.session_mut().filter(|_| !base.is_shut_down()) else {
            return Err(Unsent::Over);
        };
        if let Some(reason) = session.send_wait(base) {
            base.note_wait(reason);
            return Err(Unsent::Blocked(message));
        }
        let message = message.into_message();
        let len = message.data().len();
        session.send_built(message, base, uplink).map_err(|_| Unsent::Over)?;
        base.stats.sent_bytes += len as u64;
        Ok(())
    }

    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        options: RecvOptions,
        base: &mut Base,
        uplink: &mut dyn Uplink,
    ) -> Result<Received, RecvError> {
        if matches!(self.phase, Phase::Open) {
            return Err(RecvError::NotConnected);
        }
        if let Some(error) = self.take_error() {
            return Err(error.into());
        }
        let Some(first) = base.queue.front() else { return self.nothing_received(base) };
        let code = first.error_code();
        let is_reset = !matches!(code, ErrorCode::Ok | ErrorCode::ConnShutdown);
        if is_reset && !options.control {
            return Err(RecvError::ConnectionReset); // stays queued, so that every call returns the error
        }
        let mut received = properties(first, self.service());
        if code != ErrorCode::Ok {
            base.read_returned(&mut received, options);
        } else if base.kind() != SocketKind::Stream {
            if let Some(msg) = base.read_message(&mut received, buffer, options) {
                self.consumed(msg, base, uplink);
            }
        } else if options.peek {
            received.len = peek_stream(buffer, base);
        } else {
            received.len = self.read_stream(buffer, base, uplink);
        }
        Ok(received)
    }

    fn nothing_received(&self, base: &mut Base) -> Result<Received, RecvError> {
        match &self.phase {
            _ if base.is_shut_down() => Err(RecvError::NotConnected),
            Phase::Ended(Ended { code: Some(ErrorCode::ConnShutdown), peer, .. }) => {
                Ok(Received { source: *peer, ..Received::default() })
            }
            Phase::Ended(_) => Err(RecvError::NotConnected),
            Phase::Connecting(request) => base.nothing_received(request.wait(base)),
            Phase::Open | Phase::Established(_) => base.nothing_received(WaitReason::NothingReceived),
        }
    }

    fn read_stream(&mut self, buffer: &mut [u8], base: &mut Base, uplink: &mut dyn Uplink) -> usize {
        let mut copied = 0;
        while let Some(msg) = base.queue.front() {
            let room = buffer.get_mut(copied..).unwrap_or_default();
            if msg.error_code() != ErrorCode::Ok || room.is_empty() {
                break;
            }
            let unread = base.queue.unread();
            let n = copy(unread, room);
            copied += n;
            if n < unread.len() {
                base.queue.set_read(base.queue.read() + n);
                break;
            }
            if let Some(msg) = base.take_read() {
                self.consumed(msg, base, uplink);
            }
        }
        base.stats.received_bytes += copied as u64;
        copied
    }

    /// The application has consumed a message.
    pub(super) fn consumed(&mut self, msg: Message, base: &mut Base, uplink: &mut dyn Uplink) {
        if let Some(session) = self.session_mut() {
            session.consumed(msg.size(), base, uplink);
        }
        uplink.recycle(msg);
    }

    /// Handles a payload message for the port.
    pub(super) fn handle_data(&mut self, now: Time, msg: Message, base: &mut Base, uplink: &mut dyn Uplink) {
        let verdict = match &self.phase {
            _ if base.is_closed() || is_group(&msg) => Verdict::Reject,
            Phase::Open | Phase::Ended(_) => Verdict::Reject,
            Phase::Connecting(_) => self.filter_connecting(now, &msg, base, uplink),
            Phase::Established(_) => self.filter_established(&msg, base, uplink),
        };
        let is_end = msg.error_code() != ErrorCode::Ok;
        match verdict {
            Verdict::Done => {}
            Verdict::Reject => base.respond(msg, ErrorCode::NoPort, uplink),
            // not delivered to the application
            Verdict::Queue if !is_end && msg.data().is_empty() => {}
            // the end of a connection must not be lost; there is only one
            Verdict::Queue if is_end => {
                base.stats.returned_to_us += 1;
                base.queue.push(msg);
            }
            Verdict::Queue => {
                let is_legacy = self.session().is_some_and(Session::is_legacy);
                base.enqueue(msg, is_legacy, self.bytes(), uplink);
            }
        }
    }

    fn filter_established(&mut self, msg: &Message, base: &mut Base, uplink: &mut dyn Uplink) -> Verdict {
        if let Some(session) = self.session_mut() {
            session.note_payload();
        }
        self.push_collected(base, uplink);
        let own = uplink.own_node();
        let Some(session) = self.session_mut().filter(|session| session.is_from_peer(msg, own)) else {
            return Verdict::Reject;
        };
        if msg.error_code() != ErrorCode::Ok {
            self.end(Event::PeerEnd, Some(msg.error_code()), None, base, uplink);
            self.continue_closing(base, uplink);
            return if base.is_closed() { Verdict::Done } else { Verdict::Queue };
        }
        if msg.message_type() != MessageType::Conn {
            return Verdict::Reject;
        }
        if msg.ack_required() {
            session.acknowledge(true, base, uplink);
        }
        Verdict::Queue
    }

    /// Handles a CONN_MANAGER message for the port.
    pub(super) fn handle_control(&mut self, msg: Message, base: &mut Base, uplink: &mut dyn Uplink) {
        let own = uplink.own_node();
        let Some(session) = self.session_mut().filter(|session| session.is_from_peer(&msg, own)) else {
            base.stats.dropped += 1;
            return;
        };
        if msg.error_code() != ErrorCode::Ok {
            base.stats.returned_to_us += 1;
            self.lose_peer(msg.error_code(), base, uplink);
            return;
        }
        if session.control(msg, base, uplink).is_err() {
            self.lose_peer(ErrorCode::NoNode, base, uplink);
        }
        self.continue_closing(base, uplink);
    }

    /// Sends collected data, unless a link is congested.
    fn push_collected(&mut self, base: &mut Base, uplink: &mut dyn Uplink) {
        if self.session_mut().is_some_and(|session| session.push_collected(base, uplink).is_err()) {
            self.lose_peer(ErrorCode::NoNode, base, uplink);
        }
    }

    /// A link accepts messages again.
    pub(super) fn wakeup(&mut self, base: &mut Base, uplink: &mut dyn Uplink) {
        self.push_collected(base, uplink);
        self.continue_closing(base, uplink);
    }
}

fn peek_stream(buffer: &mut [u8], base: &Base) -> usize {
    let mut copied = 0;
    let mut read = base.queue.read();
    for msg in base.queue.iter().take_while(|m| m.error_code() == ErrorCode::Ok) {
        let room = buffer.get_mut(copied..).unwrap_or_default();
        copied += copy(msg.data().get(read..).unwrap_or_default(), room);
        read = 0;
    }
    copied
}
