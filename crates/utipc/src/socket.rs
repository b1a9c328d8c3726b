//! Sockets: one type for all kinds, with the calls and the meaning of BSD sockets.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use utipc_core::socket::{OptionValue, SocketOption, State};

use crate::engine::{self, Wait};
use crate::{
    Destination, Error, Importance, Method, Node, PortId, Received, RecvOptions, Result, Returned, Scope,
    ServiceRange, SocketKind, SocketStats, Spin, WaitReason,
};

/// A TIPC socket of any kind; see [`Node::rdm`] and its sisters.
///
/// All calls take `&self`: a socket may be shared among threads, one of which receives while another sends. A call that
/// has to wait does so until its timeout ([`Socket::set_receive_timeout`], [`Socket::set_send_timeout`]), for ever by
/// default, or not at all ([`Socket::set_nonblocking`]). [`Socket::wait_reason`] says what it waits for.
///
/// Dropping the socket closes it: unread messages go back to their senders, a connection breaks, bindings vanish.
#[derive(Debug)]
pub struct Socket {
    node: Node,
    kind: SocketKind,
    engine: engine::Socket,
    receive_limit: Limit,
    send_limit: Limit,
    nonblocking: AtomicBool,
}

/// A timeout that threads may change, nanoseconds; [`u64::MAX`] for none.
#[derive(Debug)]
struct Limit(AtomicU64);

impl Limit {
    const fn none() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    fn set(&self, limit: Option<Duration>) {
        let ns = limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.0.store(ns, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        let ns = self.0.load(Ordering::Relaxed);
        (ns != u64::MAX).then(|| Duration::from_nanos(ns))
    }
}

/// A received message with memory of its own; see [`Socket::receive`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Incoming {
    /// What was sent.
    pub data: Vec<u8>,
    /// The socket that sent it: the place for an answer.
    pub source: PortId,
    /// The service that the sender addressed, if it addressed one; for a server that is bound to several.
    pub destination: Option<ServiceRange>,
    /// Set if this is an own message that could not be delivered: why, and the start of its data.
    pub returned: Option<Returned>,
    /// Importance of the message.
    pub importance: Importance,
}

impl Socket {
    pub(crate) fn open(node: &Node, kind: SocketKind) -> Result<Self> {
        Ok(Self::new(node, kind, node.engine().open(kind)?))
    }

    fn new(node: &Node, kind: SocketKind, engine: engine::Socket) -> Self {
        Self {
            node: node.clone(),
            kind,
            engine,
            receive_limit: Limit::none(),
            send_limit: Limit::none(),
            nonblocking: AtomicBool::new(false),
        }
    }

    /// The node that the socket belongs to.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> SocketKind {
        self.kind
    }

    /// Its own address, unique in the cluster: what others see as [`Incoming::source`].
    #[must_use]
    pub fn port(&self) -> PortId {
        PortId { port: self.engine.port(), node: self.node.address() }
    }

    /// The other end of its connection.
    #[must_use]
    pub fn peer(&self) -> Option<PortId> {
        self.engine.peer()
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> State {
        self.engine.state()
    }

    /// Binds to a service address or range: from now on messages to it arrive here. A socket may have many bindings,
    /// and many sockets may have the same one.
    ///
    /// # Errors
    /// [`Error::Bind`]: a service type below 64, an inverted range, a connected socket, too many bindings.
    pub fn bind(&self, to: impl Into<ServiceRange>, scope: Scope) -> Result<()> {
        self.engine.bind(to.into(), scope)
    }

    /// Withdraws one binding.
    ///
    /// # Errors
    /// [`Error::Unbind`] if there is none such.
    pub fn unbind(&self, from: impl Into<ServiceRange>, scope: Scope) -> Result<()> {
        self.engine.unbind(Some((from.into(), scope)))
    }

    /// Withdraws all bindings.
    ///
    /// # Errors
    /// [`Error::Unbind`] if there are none.
    pub fn unbind_all(&self) -> Result<()> {
        self.engine.unbind(None)
    }

    /// Sends a message.
    ///
    /// * To a [`ServiceAddress`](crate::ServiceAddress): to *one* of the sockets bound to it, in turn ("anycast").
    /// * To a [`ServiceRange`]: to *all* sockets bound to an instance in it ("multicast").
    /// * To a [`PortId`]: to that socket, for an answer.
    /// * [`Destination::service`] with [`Destination::on`] looks for the service on one node only.
    ///
    /// On a [`SocketKind::SeqPacket`] or [`SocketKind::Stream`] socket it requests a connection whose first message
    /// this is; see [`Connection::open_with`](crate::Connection::open_with). At most 66000 bytes, except on a stream.
    ///
    /// ```
    /// # use utipc::{Node, Scope, ServiceAddress, ServiceRange};
    /// # let node = Node::builder().isolated().start()?;
    /// let (red, blue) = (node.rdm()?, node.rdm()?);
    /// red.bind(ServiceAddress::new(3000, 1), Scope::Cluster)?;
    /// blue.bind(ServiceAddress::new(3000, 2), Scope::Cluster)?;
    /// node.rdm()?.send_to(b"all of you", ServiceRange::new(3000, 0, 99))?;
    /// assert_eq!(red.receive()?.data, b"all of you");
    /// assert_eq!(blue.receive()?.data, b"all of you");
    /// # Ok::<(), utipc::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Send`] if nobody is bound there or the message is too large, [`Error::WouldBlock`],
    /// [`Error::TimedOut`].
    #[inline]
    pub fn send_to(&self, data: &[u8], to: impl Into<Destination>) -> Result<usize> {
        self.send_any(data, Some(to.into()))
    }

    /// Sends on a connection, or to the default destination that [`Socket::connect`] set.
    ///
    /// # Errors
    /// As [`Socket::send_to`].
    #[inline]
    pub fn send(&self, data: &[u8]) -> Result<usize> {
        self.send_any(data, None)
    }

    #[inline]
    fn send_any(&self, data: &[u8], to: Option<Destination>) -> Result<usize> {
        self.send_waiting(data, to, self.wait(self.send_limit.get()))
    }

    #[inline]
    pub(crate) fn send_waiting(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<usize> {
        self.engine.send(data, to, wait)?.ok_or_else(|| self.overdue("send", wait))
    }

    /// Receives a message, or on a stream what is there, into `buffer`. What does not fit is cut off
    /// ([`Received::truncated`]).
    ///
    /// # Errors
    /// [`Error::Receive`] if the connection broke, [`Error::WouldBlock`], [`Error::TimedOut`].
    #[inline]
    pub fn receive_into(&self, buffer: &mut [u8]) -> Result<Received> {
        self.receive_with(buffer, RecvOptions::default())
    }

    /// [`Socket::receive_into`] with options: peek, wait for all, keep what does not fit.
    ///
    /// # Errors
    /// As [`Socket::receive_into`].
    #[inline]
    pub fn receive_with(&self, buffer: &mut [u8], options: RecvOptions) -> Result<Received> {
        self.receive_with_waiting(buffer, options, self.wait(self.receive_limit.get()))
    }

    #[inline]
    pub(crate) fn receive_with_waiting(
        &self,
        buffer: &mut [u8],
        options: RecvOptions,
        wait: Wait,
    ) -> Result<Received> {
        let received = self.engine.receive(buffer, options, wait)?;
        received.ok_or_else(|| self.overdue("receive", wait))
    }

    /// Receives a message with its origin. An own message that came back has [`Incoming::returned`] set.
    ///
    /// ```
    /// # use utipc::{ErrorCode, Node, PortId};
    /// # let node = Node::builder().isolated().start()?;
    /// let gone = node.rdm()?.port(); // closed at once
    /// let socket = node.rdm()?;
    /// socket.set_returned(true)?;
    /// socket.send_to(b"anybody there?", gone)?;
    /// let back = socket.receive()?.returned.expect("the message comes back");
    /// assert_eq!(back.code, ErrorCode::NoPort);
    /// assert_eq!(back.data, b"anybody there?");
    /// # Ok::<(), utipc::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Socket::receive_into`].
    pub fn receive(&self) -> Result<Incoming> {
        self.receive_waiting(self.wait(self.receive_limit.get()))
    }

    pub(crate) fn receive_waiting(&self, wait: Wait) -> Result<Incoming> {
        let mut data = Vec::new();
        let received = self.engine.receive_whole(&mut data, wait)?;
        let received = received.ok_or_else(|| self.overdue("receive", wait))?;
        let Received { source, destination, returned, importance, .. } = received;
        Ok(Incoming { data, source, destination, returned, importance })
    }

    /// Makes this a server's socket; connection requests to its bindings wait for [`Socket::accept`].
    ///
    /// # Errors
    /// [`Error::Listen`] for a kind without connections or a connected socket.
    pub fn listen(&self) -> Result<()> {
        self.engine.listen()
    }

    /// Accepts a connection: a socket for it, and who asked.
    ///
    /// # Errors
    /// [`Error::Accept`] if the socket does not listen, [`Error::WouldBlock`], [`Error::TimedOut`].
    pub fn accept(&self) -> Result<(Socket, PortId)> {
        self.accept_waiting(self.wait(self.receive_limit.get()))
    }

    pub(crate) fn accept_waiting(&self, wait: Wait) -> Result<(Socket, PortId)> {
        let accepted = self.engine.accept(wait)?;
        let (socket, peer) = accepted.ok_or_else(|| self.overdue("accept", wait))?;
        Ok((Self::new(&self.node, self.kind, socket), peer))
    }

    /// Connects to a server and waits for its answer, at most for the connect timeout. On a connectionless socket it
    /// sets the default destination of [`Socket::send`].
    ///
    /// # Errors
    /// [`Error::Connect`]: nobody bound, refused, timed out, the socket bound itself. A non-blocking socket gets
    /// [`Error::WouldBlock`] and becomes writable when the connection is there.
    pub fn connect(&self, to: impl Into<Destination>) -> Result<()> {
        self.request(to.into())?;
        self.wait_connected()
    }

    /// Sends a connection request, or sets the default destination.
    pub(crate) fn request(&self, to: Destination) -> Result<()> {
        self.engine.connect(Some(to))
    }

    /// Waits for the answer to a connection request, for who has made it without waiting; at once if it is there.
    ///
    /// # Errors
    /// As [`Socket::connect`], [`Error::WouldBlock`] if a non-blocking socket still has to wait.
    pub fn wait_connected(&self) -> Result<()> {
        // The endpoint itself knows the connect timeout and gives up.
        self.wait_connected_waiting(self.wait(None))
    }

    pub(crate) fn wait_connected_waiting(&self, wait: Wait) -> Result<()> {
        if !self.kind.is_connection_oriented() {
            return Ok(());
        }
        self.engine.wait_connected(wait)?.ok_or_else(|| self.overdue("connect", wait))
    }

    /// Forgets the default destination of a connectionless socket.
    ///
    /// # Errors
    /// [`Error::Connect`] on a connection.
    pub fn disconnect(&self) -> Result<()> {
        self.engine.connect(None)
    }

    /// Ends the connection in good order: the peer reads what was sent, then the end.
    ///
    /// # Errors
    /// [`Error::Shutdown`] if there is no connection.
    pub fn shutdown(&self) -> Result<()> {
        self.engine.shutdown()
    }

    /// How long [`Socket::receive`] and [`Socket::accept`] wait; `None`: for ever.
    pub fn set_receive_timeout(&self, limit: Option<Duration>) {
        self.receive_limit.set(limit);
    }

    /// How long [`Socket::send`] waits; `None`: for ever.
    pub fn set_send_timeout(&self, limit: Option<Duration>) {
        self.send_limit.set(limit);
    }

    /// Whether calls return [`Error::WouldBlock`] instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// What a thread does with its core while a call on this socket waits for another process of this host. It has no
    /// effect on an embedded node, where the thread that waits drives the node.
    pub fn set_spin(&self, spin: Spin) {
        self.engine.set_spin(spin);
    }

    /// How long [`Socket::connect`] waits, 8 seconds by default, 65 at most.
    ///
    /// # Errors
    /// [`Error::Option`] if it is longer.
    pub fn set_connect_timeout(&self, limit: Duration) -> Result<()> {
        let ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        self.set_option(SocketOption::ConnectTimeout, OptionValue::Number(ms))
    }

    /// Importance of the messages sent from now on: under congestion, the less important wait first.
    ///
    /// # Errors
    /// [`Error::Option`], never for a socket that is open.
    pub fn set_importance(&self, importance: Importance) -> Result<()> {
        self.set_option(SocketOption::Importance, OptionValue::Number(importance as u32))
    }

    /// Whether messages that cannot be delivered come back, with the reason, instead of vanishing; off by default on
    /// connectionless sockets. See [`Incoming::returned`].
    ///
    /// # Errors
    /// As [`Socket::set_importance`].
    pub fn set_returned(&self, returned: bool) -> Result<()> {
        self.set_option(SocketOption::DestDroppable, OptionValue::Number((!returned).into()))
    }

    /// On a stream: send each write at once instead of gathering small ones while data is on its way.
    ///
    /// # Errors
    /// [`Error::Option`] on other kinds.
    pub fn set_nodelay(&self, nodelay: bool) -> Result<()> {
        self.set_option(SocketOption::NoDelay, OptionValue::Number(nodelay.into()))
    }

    /// How multicasts of this socket travel: over the broadcast link, or as copies. Without this the node chooses.
    ///
    /// # Errors
    /// As [`Socket::set_importance`].
    pub fn set_multicast_method(&self, method: Method) -> Result<()> {
        let option = match method {
            Method::Broadcast => SocketOption::MulticastBroadcast,
            Method::Replicast => SocketOption::MulticastReplicast,
        };
        self.set_option(option, OptionValue::None)
    }

    /// Sets an option by its number; see tipc.md §8.9.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn set_option(&self, option: SocketOption, value: OptionValue) -> Result<()> {
        self.engine.set_option(option, value)
    }

    /// Why a call on this socket would wait now, or waits now in another thread.
    #[must_use]
    pub fn wait_reason(&self) -> Option<WaitReason> {
        self.engine.wait_reason()
    }

    /// Counters since the socket was opened.
    #[must_use]
    pub fn stats(&self) -> SocketStats {
        self.engine.stats()
    }

    /// A descriptor for poll loops, whose level is the readiness of the socket: POLLIN while a receive or accept would
    /// not wait, POLLOUT while a send would not, POLLHUP when the connection is over.
    ///
    /// It is there to be polled, not to be read or written. Calls on the socket bring it up to date, and the node's
    /// thread does when something arrives. Use it with [`Socket::set_nonblocking`].
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        self.engine.descriptor()
    }

    fn wait(&self, limit: Option<Duration>) -> Wait {
        match limit {
            _ if self.nonblocking.load(Ordering::Relaxed) => Wait::Never,
            Some(limit) => Wait::AtMost(limit),
            None => Wait::Forever,
        }
    }

    /// The error of a call that has not been done in its time.
    fn overdue(&self, call: &'static str, wait: Wait) -> Error {
        let reason = self.wait_reason();
        match wait {
            Wait::AtMost(_) => Error::TimedOut { call, reason },
            Wait::Never | Wait::Forever => Error::WouldBlock { call, reason },
        }
    }
}

impl AsFd for Socket {
    /// [`Socket::descriptor`], for what takes `AsFd`. Call that one first if the process may run out of descriptors.
    ///
    /// # Panics
    /// If the descriptor is not there yet and the process has none left.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.descriptor() {
            Ok(fd) => fd,
            Err(error) => panic!("{error}"),
        }
    }
}
