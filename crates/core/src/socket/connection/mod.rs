//! A socket of a connection-oriented kind that is not a listener: its connection, from the request to its end.
//! Spec: tipc.md §8.2 to §8.6.

mod ending;
mod flow;
mod nagle;
mod probe;
mod receive;
mod session;
mod setup;

use super::base::Base;
use super::built::{Built, Unsent};
use super::call::Call;
use super::error::{ConnectError, SendError};
use super::queue::charge;
use super::state::{Event, State};
use super::types::{Destination, Readiness, WaitReason};
use crate::addr::{PortId, ServiceAddr};
use crate::rng::Rng;
use crate::time::Time;
use crate::wire::ErrorCode;
use ending::{Closing, Ended};
#[cfg(test)]
pub(super) use flow::INITIAL_WINDOW;
pub(super) use flow::LEGACY_WINDOW;
pub(super) use session::Session;
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

impl Connection {
    /// No connection yet; `seed` randomises the retries of connection requests.
    pub(super) fn new(seed: u64) -> Self {
        Self { phase: Phase::Open, closing: None, rng: Rng::new(seed) }
    }

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

    pub(super) fn handle_timeout(&mut self, now: Time, call: &mut Call<'_>) {
        if let Some(closing) = self.closing.take_if(|closing| closing.deadline() <= now) {
            self.finish(closing, call);
        }
        let is_lost = match &mut self.phase {
            Phase::Connecting(request) if request.due() <= now => {
                return self.request_timeout(now, call);
            }
            Phase::Established(session) if session.probe_due() <= now => !session.probe(now, call),
            _ => false,
        };
        if is_lost {
            self.end(Event::ProbeLost, None, Some(ConnectError::Aborted), call);
            self.continue_closing(call);
        }
    }

    /// Sends `data`, or a connection request that carries it.
    pub(super) fn send(
        &mut self,
        now: Time,
        data: &[u8],
        to: Option<Destination>,
        call: &mut Call<'_>,
    ) -> Result<usize, SendError> {
        match (&mut self.phase, to) {
            _ if call.base.is_shut_down() => Err(SendError::Broken),
            (Phase::Established(session), _) => session.send(data, call),
            (Phase::Open, Some(to)) => self.request(now, to, data, call),
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
    pub(super) fn send_built(&mut self, message: Built, call: &mut Call<'_>) -> Result<(), Unsent> {
        let Some(session) = self.session_mut().filter(|_| !call.base.is_shut_down()) else {
            return Err(Unsent::Over);
        };
        if let Some(reason) = session.send_wait(call.base) {
            call.base.note_wait(reason);
            return Err(Unsent::Blocked(message));
        }
        let message = message.into_message();
        let len = message.data().len();
        session.send_built(message, call).map_err(|_| Unsent::Over)?;
        call.base.stats.sent_bytes += len as u64;
        Ok(())
    }
}
