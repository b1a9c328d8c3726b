//! One socket.

use super::error::{AcceptError, ConnectError, OptionError, RecvError, SendError, StateError};
use super::options::{OptionValue, SocketOption};
use super::state::State;
use super::types::{Destination, EndpointStats, Readiness, Received, RecvOptions, SocketKind, WaitReason};
use super::uplink::{BindError, Uplink};
use crate::addr::{NodeAddr, PortId, Scope, ServiceRange};
use crate::time::Time;
use crate::wire::Message;

/// One socket: kind, state, queues and flow control. Spec: tipc.md §8.
#[derive(Debug)]
pub struct Endpoint {
    port: u32,
    kind: SocketKind,
    state: State,
}

#[expect(unused_variables, clippy::unused_self, reason = "behaviour follows")]
impl Endpoint {
    /// A socket of `kind` with port number `port`; `seed` randomises the retries of connection requests.
    #[must_use]
    pub fn new(now: Time, kind: SocketKind, port: u32, seed: u64) -> Self {
        Self { port, kind, state: State::Open }
    }

    /// The socket for a connection request that [`Self::next_request`] of `listener` gave; tells the client.
    #[must_use]
    pub fn accepted(
        now: Time,
        port: u32,
        seed: u64,
        listener: &Endpoint,
        syn: Message,
        uplink: &mut dyn Uplink,
    ) -> Self {
        Self { port, kind: listener.kind, state: State::Established }
    }

    /// Port number.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Kind.
    #[must_use]
    pub fn kind(&self) -> SocketKind {
        self.kind
    }

    /// State.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// The other end of the connection, or of a connectionless socket's default destination if that is a port.
    #[must_use]
    pub fn peer(&self) -> Option<PortId> {
        None
    }

    /// Binds to a range.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(
        &mut self,
        range: ServiceRange,
        scope: Scope,
        uplink: &mut dyn Uplink,
    ) -> Result<(), BindError> {
        uplink.bind(self.port, range, scope)
    }

    /// Withdraws one binding, or all.
    ///
    /// # Errors
    /// [`BindError::NotBound`] if there is none such.
    pub fn unbind(
        &mut self,
        which: Option<(ServiceRange, Scope)>,
        uplink: &mut dyn Uplink,
    ) -> Result<(), BindError> {
        uplink.unbind(self.port, which)
    }

    /// Makes it a listener.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn listen(&mut self) -> Result<(), StateError> {
        Err(StateError::InUse)
    }

    /// Requests a connection: on success the state is [`State::Connecting`], and it becomes
    /// [`State::Established`] or (see [`Self::take_error`]) [`State::Disconnecting`]. On a connectionless socket
    /// sets the default destination instead; `None` removes it.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(
        &mut self,
        now: Time,
        to: Option<Destination>,
        uplink: &mut dyn Uplink,
    ) -> Result<(), ConnectError> {
        Err(ConnectError::Refused)
    }

    /// The oldest connection request of a listener, for [`Self::accepted`].
    ///
    /// # Errors
    /// See [`AcceptError`].
    pub fn next_request(&mut self) -> Result<Message, AcceptError> {
        Err(AcceptError::WouldBlock)
    }

    /// Sends `data`, on a STREAM possibly only its start; returns the bytes accepted.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(
        &mut self,
        now: Time,
        data: &[u8],
        to: Option<Destination>,
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        Err(SendError::NotConnected)
    }

    /// Receives into `buffer`.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn recv(
        &mut self,
        now: Time,
        buffer: &mut [u8],
        options: RecvOptions,
        uplink: &mut dyn Uplink,
    ) -> Result<Received, RecvError> {
        Err(RecvError::NotConnected)
    }

    /// A message for this port (multicast: a copy of it) has arrived.
    pub fn handle_message(&mut self, now: Time, msg: Message, uplink: &mut dyn Uplink) {}

    /// The link to `node` (the broadcast link: [`NodeAddr::NONE`]) takes messages again.
    pub fn wakeup(&mut self, now: Time, node: NodeAddr, uplink: &mut dyn Uplink) {}

    /// Call at [`Self::deadline`].
    pub fn handle_timeout(&mut self, now: Time, uplink: &mut dyn Uplink) {}

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        None
    }

    /// What it can do without blocking.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        Readiness::default()
    }

    /// Why the last call would have blocked, if it still would.
    #[must_use]
    pub fn wait_reason(&self) -> Option<WaitReason> {
        None
    }

    /// The error that ended connection setup or the connection, once (SO_ERROR).
    pub fn take_error(&mut self) -> Option<ConnectError> {
        None
    }

    /// Ends the connection in both directions.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn shutdown(&mut self, now: Time, uplink: &mut dyn Uplink) -> Result<(), StateError> {
        Ok(())
    }

    /// Closes: returns unread messages, ends the connection, withdraws all bindings. The endpoint is done when
    /// [`Self::is_closed`]; until then (at most 8 s, waiting for congestion to clear) it wants messages, wake-ups
    /// and timeouts as before.
    pub fn close(&mut self, now: Time, uplink: &mut dyn Uplink) {}

    /// True if nothing is left to do after [`Self::close`]; the owner may drop it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        true
    }

    /// Sets an option.
    ///
    /// # Errors
    /// See [`OptionError`].
    pub fn set_option(
        &mut self,
        option: SocketOption,
        value: OptionValue,
        uplink: &mut dyn Uplink,
    ) -> Result<(), OptionError> {
        Err(OptionError::NoSuchOption)
    }

    /// Value of an option.
    ///
    /// # Errors
    /// See [`OptionError`].
    pub fn option(&self, option: SocketOption) -> Result<u32, OptionError> {
        Err(OptionError::NoSuchOption)
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        EndpointStats::default()
    }
}
