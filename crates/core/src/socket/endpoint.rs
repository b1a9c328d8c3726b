//! The state of one socket: what all roles have, and its role. The other files of this folder implement its behaviour.

use super::base::Base;
use super::call::Call;
use super::connection::{Connection, Session};
use super::datagram::Datagram;
use super::error::ConnectError;
use super::state::State;
use super::types::{Destination, EndpointStats, Readiness, SocketKind, WaitReason};
use super::uplink::Uplink;
use crate::addr::{PortId, ServiceAddr};
use crate::quota::UserId;
use crate::time::Time;
use crate::wire::Message;

/// One socket: kind, state, queues and flow control. Spec: tipc.md §8.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) base: Base,
    pub(super) role: Role,
}

/// What a socket does, besides what all do. A socket of a connection-oriented kind may become a listener.
#[derive(Debug)]
pub(super) enum Role {
    Datagram(Datagram),
    Connection(Connection),
    /// Connection requests wait in the receive queue.
    Listener,
}

impl Endpoint {
    /// A socket of `kind` with port number `port`; `seed` randomises the retries of connection requests.
    #[must_use]
    pub fn new(_now: Time, kind: SocketKind, port: u32, seed: u64) -> Self {
        let role = match kind.is_connection_oriented() {
            true => Role::Connection(Connection::new(seed)),
            false => Role::Datagram(Datagram::default()),
        };
        Self { base: Base::new(kind, port), role }
    }

    /// The socket for a connection request that [`Self::next_request`] of `listener` returned; replies to the client.
    #[must_use]
    pub fn accepted(
        now: Time,
        port: u32,
        seed: u64,
        listener: &Endpoint,
        syn: Message,
        uplink: &mut dyn Uplink,
    ) -> Self {
        let mut base = Base::new(listener.kind(), port);
        base.settings.receive_buffer = listener.base.settings.receive_buffer;
        base.settings.exact_hang_up = listener.base.settings.exact_hang_up;
        let connection = Connection::accepted(now, seed, syn, &mut Call::new(&mut base, uplink));
        Self { base, role: Role::Connection(connection) }
    }

    /// Port number.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.base.port()
    }

    /// Kind.
    #[must_use]
    pub fn kind(&self) -> SocketKind {
        self.base.kind()
    }

    /// State.
    #[must_use]
    #[inline]
    pub fn state(&self) -> State {
        match &self.role {
            Role::Datagram(_) => State::Open,
            Role::Connection(connection) => connection.state(),
            Role::Listener => State::Listen,
        }
    }

    #[inline]
    pub(super) fn connection(&self) -> Option<&Connection> {
        match &self.role {
            Role::Connection(connection) => Some(connection),
            Role::Datagram(_) | Role::Listener => None,
        }
    }

    #[inline]
    /// The connection while it is established.
    pub(super) fn session(&self) -> Option<&Session> {
        self.connection()?.session()
    }

    pub(super) fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.role {
            Role::Connection(connection) => connection.session_mut(),
            Role::Datagram(_) | Role::Listener => None,
        }
    }

    pub(super) fn datagram(&self) -> Option<&Datagram> {
        match &self.role {
            Role::Datagram(datagram) => Some(datagram),
            Role::Connection(_) | Role::Listener => None,
        }
    }

    /// The peer of the connection, also after its end. A request that failed had no peer.
    #[must_use]
    pub fn peer(&self) -> Option<PortId> {
        self.connection()?.peer()
    }

    /// The result of the connection request; `None` while it is pending. A connection that was set up stays so after
    /// its end: its data can still be read. Takes the error.
    pub fn take_setup(&mut self) -> Option<Result<(), ConnectError>> {
        match &mut self.role {
            Role::Connection(connection) => connection.take_setup(),
            Role::Datagram(_) | Role::Listener => Some(Err(ConnectError::Refused)),
        }
    }

    /// The error that ended connection setup or the connection; returned once (SO_ERROR).
    pub fn take_error(&mut self) -> Option<ConnectError> {
        match &mut self.role {
            Role::Connection(connection) => connection.take_error(),
            Role::Datagram(_) | Role::Listener => None,
        }
    }

    /// The error that ended connection setup or the connection; it stays for [`Self::take_error`].
    #[must_use]
    pub fn error(&self) -> Option<ConnectError> {
        self.connection()?.error()
    }

    /// The service address by which the connection was set up, if any.
    #[must_use]
    pub fn connected_service(&self) -> Option<ServiceAddr> {
        self.connection()?.service()
    }

    /// Destination of sends without one, on a connectionless socket.
    #[must_use]
    pub fn default_destination(&self) -> Option<Destination> {
        self.datagram()?.default_to()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        self.base.stats
    }

    /// The user that the socket is charged to.
    #[must_use]
    pub fn user(&self) -> Option<UserId> {
        self.base.account.user()
    }

    pub(crate) fn set_user(&mut self, user: UserId) {
        self.base.account.set_user(user);
    }

    /// Number of its bindings.
    pub(crate) fn binding_count(&self) -> u32 {
        self.base.bindings()
    }

    /// True if the socket has a binding.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.base.bindings() > 0
    }

    /// Bytes of the messages that it keeps, a connection request among them, of those that congested links have taken
    /// from it beyond their limits, and of their bookkeeping.
    #[must_use]
    #[inline]
    pub fn memory(&self) -> u64 {
        let kept = match &self.role {
            Role::Datagram(datagram) => datagram.bytes(),
            Role::Connection(connection) => connection.bytes(),
            Role::Listener => 0,
        };
        self.base.bytes() + kept
    }

    /// Limits by how many bytes [`Self::memory`] may grow from now on; messages beyond it are rejected with OVERLOAD,
    /// and further members of its group stay unknown.
    pub(crate) fn set_room(&mut self, bytes: u64) {
        self.base.account.set_room(self.memory(), bytes);
        if let Some(group) = self.group_mut() {
            group.limit_members(bytes);
        }
    }

    /// Messages rejected because of [`Self::set_room`] since the last call.
    pub(crate) fn take_refused(&mut self) -> u64 {
        self.base.account.take_refused()
    }

    /// The operations that do not block now. Spec: tipc.md §8.11.
    #[must_use]
    #[inline]
    pub fn readiness(&self) -> Readiness {
        let mut readiness = match &self.role {
            Role::Datagram(datagram) => datagram.readiness(&self.base),
            Role::Connection(connection) => connection.readiness(&self.base),
            Role::Listener => Readiness { readable: !self.base.queue.is_empty(), ..Readiness::default() },
        };
        let is_shut_down = self.base.is_shut_down();
        readiness.readable |= is_shut_down;
        readiness.read_closed |= is_shut_down;
        readiness.hung_up |= is_shut_down;
        readiness
    }

    /// Whether the connection has ended and its hang-up waits until the last message is read. `in_lanes`: messages of
    /// it wait outside the endpoint.
    #[must_use]
    pub fn defers_hang_up(&self, in_lanes: bool) -> bool {
        self.connection().is_some_and(|connection| connection.defers_hang_up(&self.base, in_lanes))
    }

    /// Number of messages received since the socket was opened.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.base.queue.taken()
    }

    /// Value of [`Self::taken`] when everything now queued has been received.
    #[must_use]
    pub fn taken_with_queue(&self) -> u64 {
        let overflowing = self.datagram().map_or(0, Datagram::overflowing);
        self.taken() + (self.base.queue.len() + overflowing) as u64
    }

    /// True if collected data has not been sent yet (Nagle).
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.session().is_some_and(Session::has_unsent)
    }

    /// Reason why the last call would have blocked, if it still would.
    #[must_use]
    pub fn wait_reason(&self) -> Option<WaitReason> {
        let (base, reason) = (&self.base, self.base.wait()?);
        match (reason, &self.role) {
            (WaitReason::NothingReceived, _) => (base.queue.is_empty() && !self.is_over()).then_some(reason),
            (WaitReason::LinkCongested { node, .. }, _) => {
                base.congestion.contains(node).then(|| base.link_reason(node))
            }
            (_, Role::Datagram(datagram)) => datagram.wait_reason(reason),
            (_, Role::Connection(connection)) => connection.wait_reason(reason, base),
            (_, Role::Listener) => None,
        }
    }

    /// True if nothing can be received except what is queued.
    pub(super) fn is_over(&self) -> bool {
        self.base.is_shut_down() || self.state() == State::Disconnecting
    }

    /// Time when [`Self::handle_timeout`] is due.
    #[must_use]
    #[inline]
    pub fn deadline(&self) -> Option<Time> {
        match &self.role {
            Role::Datagram(datagram) => datagram.deadline(),
            Role::Connection(connection) => connection.deadline(),
            Role::Listener => None,
        }
    }

    /// Handles the timers that are due; call it at [`Self::deadline`].
    pub fn handle_timeout(&mut self, now: Time, uplink: &mut dyn Uplink) {
        let call = &mut Call::new(&mut self.base, uplink);
        match &mut self.role {
            Role::Datagram(datagram) => datagram.handle_timeout(now, call),
            Role::Connection(connection) => connection.handle_timeout(now, call),
            Role::Listener => {}
        }
    }
}
