//! Sockets: one type for all kinds, with the calls and semantics of BSD sockets.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use utipc_core::socket::{OptionError, OptionValue, SocketOption, State};

use utipc_client::{Pollable, Readiness};
use utipc_os::Left;

use crate::engine::{self, Wait};
use crate::{
    Call, Destination, Error, GroupPolicy, GroupRequest, Importance, MemberInfo, Method, Node, PortId,
    Received, RecvOptions, Result, Returned, Scope, ServiceRange, SocketKind, SocketStats, Spin, WaitReason,
};

/// A TIPC socket of any kind; opened by [`Node::rdm`], [`Node::dgram`], [`Node::seqpacket`] or [`Node::stream`].
///
/// All calls take `&self`: threads may share a socket, for example one that receives while another sends. A call that
/// has to wait does so until its timeout ([`Socket::set_receive_timeout`], [`Socket::set_send_timeout`]), without limit
/// by default, or not at all ([`Socket::set_nonblocking`]). [`Socket::wait_reason`] tells what it waits for.
///
/// A message without a connection waits up to 80 ms for a receiver that reads and is full; then it is returned or
/// dropped. A receiver that does not read is waited for once, 40 ms.
///
/// Dropping the socket closes it: unread messages are returned to their senders, its connection breaks, its bindings
/// are withdrawn.
#[derive(Debug)]
pub struct Socket {
    node: Node,
    kind: SocketKind,
    engine: engine::Socket,
    receive_limit: AtomicTimeout,
    send_limit: AtomicTimeout,
    nonblocking: AtomicBool,
    /// It has sent with a destination: no later message requests a connection.
    is_beyond_open: AtomicBool,
}

/// A timeout that any thread may change, in nanoseconds; [`u64::MAX`] for none.
#[derive(Debug)]
pub(crate) struct AtomicTimeout(AtomicU64);

impl AtomicTimeout {
    pub(crate) const fn none() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    pub(crate) fn set(&self, limit: Option<Duration>) {
        let ns = limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.0.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<Duration> {
        let ns = self.0.load(Ordering::Relaxed);
        (ns != u64::MAX).then(|| Duration::from_nanos(ns))
    }
}

/// A received message that owns its data; see [`Socket::receive`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Incoming {
    /// The payload.
    pub data: Vec<u8>,
    /// The sender's socket: the destination of a reply.
    pub source: PortId,
    /// The service that the sender addressed, if any; distinguishes the bindings of a server with several.
    pub destination: Option<ServiceRange>,
    /// Set if this is an undeliverable message of this socket that was returned: the reason and the start of its data.
    pub returned: Option<Returned>,
    /// Importance of the message.
    pub importance: Importance,
}

impl Socket {
    pub(crate) fn open(node: &Node, kind: SocketKind) -> Result<Self> {
        let engine = node.engine().open(kind)?;
        if node.sets_exact_hang_up() && kind.is_connection_oriented() {
            engine.set_option(SocketOption::ExactHangUp, OptionValue::Number(1))?;
        }
        Ok(Self::new(node, kind, engine))
    }

    fn new(node: &Node, kind: SocketKind, engine: engine::Socket) -> Self {
        Self {
            node: node.clone(),
            kind,
            engine,
            receive_limit: AtomicTimeout::none(),
            send_limit: AtomicTimeout::none(),
            nonblocking: AtomicBool::new(false),
            is_beyond_open: AtomicBool::new(false),
        }
    }

    /// The node that the socket belongs to.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The kind of the socket.
    #[must_use]
    pub fn kind(&self) -> SocketKind {
        self.kind
    }

    /// The socket's address, unique in the cluster: receivers see it as [`Incoming::source`].
    #[must_use]
    pub fn port(&self) -> PortId {
        PortId { port: self.engine.port(), node: self.node.address() }
    }

    /// The peer of the connection, if there is one.
    #[must_use]
    pub fn peer(&self) -> Option<PortId> {
        self.engine.peer()
    }

    /// The state of the socket.
    #[must_use]
    pub fn state(&self) -> State {
        self.engine.state()
    }

    /// Binds the socket to a service address or range: from now on it receives messages to that service. A socket may
    /// have many bindings, and many sockets may have the same one.
    ///
    /// # Errors
    /// [`Error::Bind`] for a service type below 64, an inverted range, a connected socket, or too many bindings.
    pub fn bind(&self, to: impl Into<ServiceRange>, scope: Scope) -> Result<()> {
        self.engine.bind(to.into(), scope)
    }

    /// Withdraws one binding.
    ///
    /// # Errors
    /// [`Error::Unbind`] if the socket has no such binding.
    pub fn unbind(&self, from: impl Into<ServiceRange>, scope: Scope) -> Result<()> {
        self.engine.unbind(Some((from.into(), scope)))
    }

    /// Withdraws all bindings.
    ///
    /// # Errors
    /// [`Error::Unbind`] if the socket has none.
    pub fn unbind_all(&self) -> Result<()> {
        self.engine.unbind(None)
    }

    /// Joins a group, for [`Group`](crate::Group) and for programs that use the calls of sockets: a message without a
    /// destination then goes to all members, to a service address to one with this instance, to a range to all with its
    /// lower instance, to a [`PortId`] to that member. [`Received::group`] tells what was received.
    ///
    /// # Errors
    /// [`Error::Join`].
    pub fn join(&self, request: GroupRequest) -> Result<()> {
        self.engine.join(request, GroupPolicy::LINUX)
    }

    /// [`Socket::join`] with a policy for slow members, which concerns what this socket sends.
    ///
    /// # Errors
    /// As [`Socket::join`]; [`JoinError::Policy`](crate::JoinError::Policy) for values out of range, and
    /// [`JoinError::PolicyUnsupported`](crate::JoinError::PolicyUnsupported) on the kernel engine.
    pub fn join_with_policy(&self, request: GroupRequest, policy: GroupPolicy) -> Result<()> {
        self.engine.join(request, policy)
    }

    /// The members of the socket's group, by address, and what each of them did not get because it is slow.
    ///
    /// # Errors
    /// [`Error::Leave`] if the socket is in no group, [`Error::Engine`] on the kernel engine.
    pub fn group_members(&self) -> Result<Vec<MemberInfo>> {
        self.engine.group_members()
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// [`Error::Leave`] if the socket is in none.
    pub fn leave(&self) -> Result<()> {
        self.engine.leave()
    }

    /// Sends a message.
    ///
    /// * To a [`ServiceAddress`](crate::ServiceAddress): to *one* of the sockets bound to it, in turn ("anycast").
    ///   Without a connection a less loaded socket is preferred to the next one, and full ones are passed over. If all
    ///   are full, the call waits until any of them reads, as for one full receiver, and [`Socket::wait_reason`] is
    ///   [`WaitReason::ReceiversFull`]. Not on the kernel engine, which has strict turns.
    /// * To a [`ServiceRange`]: to *all* sockets bound to an instance in it ("multicast").
    /// * To a [`PortId`]: to that socket, for example a reply.
    /// * [`Destination::service`] with [`Destination::on`]: to the service, if it is bound on that node.
    ///
    /// On a [`SocketKind::SeqPacket`] or [`SocketKind::Stream`] socket the first call requests a connection, and `data`
    /// travels with the request. If it may wait and `data` is not empty, it returns when the server has accepted, when
    /// the connect timeout or the send timeout ends, or at a refusal; the following calls ignore the address. A request
    /// whose send timeout has ended stays pending, and sends fail until it is answered. See
    /// [`Connection::open_with`](crate::Connection::open_with) for one that does not wait.
    ///
    /// Returns the number of bytes sent. A message has at most 66000 bytes; a stream may take only a part.
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
    /// [`Error::Send`] if no socket is bound there or the message is too large, [`Error::WouldBlock`],
    /// [`Error::TimedOut`]; [`Error::Connect`] if the server refuses the connection or does not answer in time.
    #[inline]
    pub fn send_to(&self, data: &[u8], to: impl Into<Destination>) -> Result<usize> {
        self.send_to_waiting(data, to.into(), self.send_wait())
    }

    /// [`Socket::send_to`] with a limit.
    #[inline]
    pub(crate) fn send_to_waiting(&self, data: &[u8], to: Destination, wait: Wait) -> Result<usize> {
        if self.kind.is_connection_oriented() && wait != Wait::Never && !data.is_empty() {
            return self.send_and_connect(data, to, wait);
        }
        self.send_waiting(data, Some(to), wait)
    }

    /// Sends; if the message requests a connection, waits for the reply.
    #[cold]
    fn send_and_connect(&self, data: &[u8], to: Destination, wait: Wait) -> Result<usize> {
        if self.is_beyond_open.load(Ordering::Relaxed) {
            return self.send_waiting(data, Some(to), wait);
        }
        let requests = self.state() == State::Open;
        let end = wait.start();
        let sent = self.send_waiting(data, Some(to), wait)?;
        self.is_beyond_open.store(true, Ordering::Relaxed);
        if requests && let Left::Time(left) = end.left() {
            // A request that is not answered in time stays pending.
            self.engine.wait_connected(left.map_or(Wait::Forever, Wait::AtMost))?;
        }
        Ok(sent)
    }

    /// Sends on a connection, or to the default destination that [`Socket::connect`] set.
    ///
    /// # Errors
    /// As [`Socket::send_to`].
    #[inline]
    pub fn send(&self, data: &[u8]) -> Result<usize> {
        self.send_waiting(data, None, self.send_wait())
    }

    /// Sends in a group, without a destination to all members, with a key: for a slow member the message replaces the
    /// one with the same key, if the socket joined with [`SlowMember::Conflate`](crate::SlowMember::Conflate).
    /// Otherwise the key has no effect. Other calls send with key 0.
    ///
    /// # Errors
    /// As [`Socket::send_to`].
    pub fn send_keyed(&self, data: &[u8], to: Option<Destination>, key: u64) -> Result<usize> {
        self.send_keyed_waiting(data, to, key, self.send_wait())
    }

    pub(crate) fn send_keyed_waiting(
        &self,
        data: &[u8],
        to: Option<Destination>,
        key: u64,
        wait: Wait,
    ) -> Result<usize> {
        self.engine.send_keyed(data, to, key, wait)?.ok_or_else(|| self.overdue(Call::Send, wait))
    }

    /// The limit of a call that sends.
    pub(crate) fn send_wait(&self) -> Wait {
        self.wait(self.send_limit.get())
    }

    #[inline]
    pub(crate) fn send_waiting(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<usize> {
        self.engine.send(data, to, wait)?.ok_or_else(|| self.overdue(Call::Send, wait))
    }

    /// Receives a message into `buffer`; on a stream, whatever has arrived. A message that does not fit is truncated
    /// ([`Received::truncated`]).
    ///
    /// # Errors
    /// [`Error::Receive`] if the connection broke, [`Error::WouldBlock`], [`Error::TimedOut`].
    #[inline]
    pub fn receive_into(&self, buffer: &mut [u8]) -> Result<Received> {
        self.receive_with(buffer, RecvOptions::default())
    }

    /// As [`Socket::receive_into`], with options: peek, wait for all, keep the remainder.
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
        received.ok_or_else(|| self.overdue(Call::Receive, wait))
    }

    /// Receives a message with its source. A returned message of this socket has [`Incoming::returned`] set.
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
        self.receive_waiting(self.receive_wait())
    }

    /// The limit of a call that receives.
    pub(crate) fn receive_wait(&self) -> Wait {
        self.wait(self.receive_limit.get())
    }

    /// Receives one message into `data`, which is resized, with its properties.
    pub(crate) fn receive_all_of(&self, data: &mut Vec<u8>, wait: Wait) -> Result<Received> {
        self.engine.receive_whole(data, wait)?.ok_or_else(|| self.overdue(Call::Receive, wait))
    }

    pub(crate) fn receive_waiting(&self, wait: Wait) -> Result<Incoming> {
        let mut data = Vec::new();
        let received = self.receive_all_of(&mut data, wait)?;
        let Received { source, destination, returned, importance, .. } = received;
        Ok(Incoming { data, source, destination, returned, importance })
    }

    /// Makes the socket a listener: connection requests to its bindings wait for [`Socket::accept`].
    ///
    /// # Errors
    /// [`Error::Listen`] for a kind without connections or a connected socket.
    pub fn listen(&self) -> Result<()> {
        self.engine.listen()
    }

    /// Accepts a connection: returns its socket and the peer's address.
    ///
    /// # Errors
    /// [`Error::Accept`] if the socket does not listen, [`Error::WouldBlock`], [`Error::TimedOut`].
    pub fn accept(&self) -> Result<(Socket, PortId)> {
        self.accept_waiting(self.wait(self.receive_limit.get()))
    }

    pub(crate) fn accept_waiting(&self, wait: Wait) -> Result<(Socket, PortId)> {
        let accepted = self.engine.accept(wait)?;
        let (socket, peer) = accepted.ok_or_else(|| self.overdue(Call::Accept, wait))?;
        Ok((Self::new(&self.node, self.kind, socket), peer))
    }

    /// Connects to a server and waits for its reply, at most for the connect timeout. On a connectionless socket it
    /// sets the default destination of [`Socket::send`].
    ///
    /// # Errors
    /// [`Error::Connect`] if no socket is bound there, the server refuses or does not answer in time, or the socket is
    /// itself bound. A non-blocking socket gets [`Error::WouldBlock`] and becomes writable once connected.
    pub fn connect(&self, to: impl Into<Destination>) -> Result<()> {
        self.request(to.into())?;
        self.wait_connected()
    }

    /// Sends a connection request, or sets the default destination.
    pub(crate) fn request(&self, to: Destination) -> Result<()> {
        self.engine.connect(Some(to))
    }

    /// Waits for the reply to a connection request that an earlier, non-blocking [`Socket::connect`] sent.
    ///
    /// # Errors
    /// As [`Socket::connect`], [`Error::WouldBlock`] if a non-blocking socket still has to wait.
    pub fn wait_connected(&self) -> Result<()> {
        // No limit here: the endpoint enforces the connect timeout.
        self.wait_connected_waiting(self.wait(None))
    }

    pub(crate) fn wait_connected_waiting(&self, wait: Wait) -> Result<()> {
        if !self.kind.is_connection_oriented() {
            return Ok(());
        }
        self.engine.wait_connected(wait)?.ok_or_else(|| self.overdue(Call::Connect, wait))
    }

    /// Clears the default destination of a connectionless socket.
    ///
    /// # Errors
    /// [`Error::Connect`] on a connection.
    pub fn disconnect(&self) -> Result<()> {
        self.engine.connect(None)
    }

    /// Shuts the connection down in order: the peer reads everything that was sent, then the end.
    ///
    /// # Errors
    /// [`Error::Shutdown`] if there is no connection.
    pub fn shutdown(&self) -> Result<()> {
        self.engine.shutdown()
    }

    /// Sets how long [`Socket::receive`] and [`Socket::accept`] wait; `None`: no limit.
    pub fn set_receive_timeout(&self, limit: Option<Duration>) {
        self.receive_limit.set(limit);
    }

    /// Sets how long [`Socket::send`] waits; `None`: no limit.
    pub fn set_send_timeout(&self, limit: Option<Duration>) {
        self.send_limit.set(limit);
    }

    /// Makes calls return [`Error::WouldBlock`] instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Sets whether a thread spins or sleeps while a call on this socket waits for another process of this host. It has
    /// no effect on an embedded node, where the waiting thread drives the node.
    pub fn set_spin(&self, spin: Spin) {
        self.engine.set_spin(spin);
    }

    /// Sets how long [`Socket::connect`] waits: 8 seconds by default, 1 ms to 65.535 s, rounded up to milliseconds.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it is zero or longer.
    pub fn set_connect_timeout(&self, limit: Duration) -> Result<()> {
        let ms = limit.as_nanos().div_ceil(1_000_000);
        match u16::try_from(ms) {
            Ok(ms @ 1..) => self.set_option(SocketOption::ConnectTimeout, OptionValue::Number(ms.into())),
            _ => Err(Error::OutOfRange { what: "the connect timeout", remedy: "1 ms to 65.535 s" }),
        }
    }

    /// Sets the importance of messages sent from now on: under congestion, less important ones wait first.
    ///
    /// # Errors
    /// [`Error::Option`], never for a socket that is open.
    pub fn set_importance(&self, importance: Importance) -> Result<()> {
        self.set_option(SocketOption::Importance, OptionValue::Number(importance as u32))
    }

    /// Sets whether undeliverable messages are returned, with the reason, instead of being dropped; off by default on
    /// connectionless sockets. See [`Incoming::returned`].
    ///
    /// # Errors
    /// As [`Socket::set_importance`].
    pub fn set_returned(&self, returned: bool) -> Result<()> {
        self.set_option(SocketOption::DestDroppable, OptionValue::Number((!returned).into()))
    }

    /// On a stream: sends each write at once instead of gathering small ones while data is in flight.
    ///
    /// # Errors
    /// [`Error::Option`] on other kinds.
    pub fn set_nodelay(&self, nodelay: bool) -> Result<()> {
        self.set_option(SocketOption::NoDelay, OptionValue::Number(nodelay.into()))
    }

    /// Sets how multicasts of this socket travel: over the broadcast link, or as copies. By default the node chooses.
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

    /// Sets any socket option; the setters above are short forms of this. Spec: tipc.md §8.9.
    ///
    /// # Errors
    /// [`Error::Option`] for an option that the kind of socket does not have, or an invalid value.
    pub fn set_option(&self, option: SocketOption, value: OptionValue) -> Result<()> {
        match (option, value) {
            // Linux accepts it on any socket, without effect.
            (SocketOption::NoDelay, _) if self.kind != SocketKind::Stream => {
                Err(Error::Option(OptionError::NoSuchOption))
            }
            // The attach protocol and Linux keep the low 16 bits.
            (SocketOption::ConnectTimeout, OptionValue::Number(ms)) if ms > u16::MAX.into() => {
                Err(Error::Option(OptionError::Invalid))
            }
            _ => self.engine.set_option(option, value),
        }
    }

    /// Reads any socket option: a number, for booleans 0 or 1. Spec: tipc.md §8.9.
    ///
    /// ```
    /// # use utipc::{Importance, Node, SocketOption};
    /// # let node = Node::builder().isolated().start()?;
    /// let socket = node.rdm()?;
    /// socket.set_importance(Importance::High)?;
    /// assert_eq!(socket.importance()?, Importance::High);
    /// assert_eq!(socket.option(SocketOption::Importance)?, 2);
    /// # Ok::<(), utipc::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] for an option that cannot be read, [`Error::Daemon`] or [`Error::DaemonDied`] without a daemon
    /// that answers. The getters below share these errors.
    pub fn option(&self, option: SocketOption) -> Result<u32> {
        self.engine.option(option)
    }

    /// The importance of messages sent; see [`Socket::set_importance`].
    ///
    /// # Errors
    /// As [`Socket::option`].
    pub fn importance(&self) -> Result<Importance> {
        let number = self.option(SocketOption::Importance)?;
        Importance::from_number(number).ok_or(Error::Option(OptionError::Invalid))
    }

    /// How long [`Socket::connect`] waits, 1 ms to 65.535 s; see [`Socket::set_connect_timeout`].
    ///
    /// # Errors
    /// As [`Socket::option`].
    pub fn connect_timeout(&self) -> Result<Duration> {
        Ok(Duration::from_millis(self.option(SocketOption::ConnectTimeout)?.into()))
    }

    /// Whether undeliverable messages come back; see [`Socket::set_returned`].
    ///
    /// # Errors
    /// As [`Socket::option`].
    pub fn returned(&self) -> Result<bool> {
        Ok(self.option(SocketOption::DestDroppable)? == 0)
    }

    /// Number of messages that wait to be received.
    ///
    /// # Errors
    /// As [`Socket::option`].
    pub fn unread_messages(&self) -> Result<u32> {
        self.option(SocketOption::ReceiveQueueDepth)
    }

    /// The reason why a call on this socket would wait now, or waits now in another thread.
    #[must_use]
    pub fn wait_reason(&self) -> Option<WaitReason> {
        self.engine.wait_reason()
    }

    /// The counters since the socket was opened.
    #[must_use]
    pub fn stats(&self) -> SocketStats {
        self.engine.stats()
    }

    /// A descriptor for poll loops that shows the readiness of the socket: POLLIN while a receive or accept would not
    /// wait, POLLOUT while a send would not, POLLHUP when the connection is over.
    ///
    /// Poll it, but do not read or write it. Calls on the socket update it, and the node's thread does when something
    /// arrives. Use it with [`Socket::set_nonblocking`], and before the program sleeps with a
    /// [`BusyPoll`](crate::BusyPoll):
    ///
    /// ```
    /// # use rustix::event::{PollFd, PollFlags, Timespec, poll};
    /// # let node = utipc::Node::builder().isolated().start()?;
    /// # let socket = node.rdm()?;
    /// # socket.send_to(b"hello", socket.port())?;
    /// socket.set_nonblocking(true);
    /// let descriptor = socket.descriptor()?;
    /// let mut busy = utipc::BusyPoll::new();
    /// let mut set = [PollFd::new(&descriptor, PollFlags::IN)];
    /// // Without waiting: are there events?
    /// let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    /// let found = busy.before_sleep([&socket], || poll(&mut set, Some(&now)).ok().filter(|count| *count > 0));
    /// if found.is_none() {
    ///     poll(&mut set, None).expect("no signal comes");
    ///     busy.slept();
    /// }
    /// assert_eq!(socket.receive()?.data, b"hello");
    /// # Ok::<(), utipc::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        if let Some(readiness) = self.readiness() {
            readiness.forbid_lazy();
        }
        self.engine.descriptor()
    }

    #[cfg(feature = "tokio")]
    /// [`Socket::descriptor`] for a wait of this library, which may leave it stale (`utipc_client::Readiness`).
    pub(crate) fn watched_descriptor(&self) -> Result<BorrowedFd<'_>> {
        self.engine.descriptor()
    }

    fn wait(&self, limit: Option<Duration>) -> Wait {
        match limit {
            _ if self.nonblocking.load(Ordering::Relaxed) => Wait::Never,
            Some(limit) => Wait::AtMost(limit),
            None => Wait::Forever,
        }
    }

    /// The error of a call that ran out of time.
    fn overdue(&self, call: Call, wait: Wait) -> Error {
        let reason = self.wait_reason();
        match wait {
            Wait::AtMost(limit) => Error::TimedOut { call, reason, node: self.node.explain_timeout(limit) },
            Wait::Never | Wait::Forever => Error::WouldBlock { call, reason },
        }
    }
}

impl Pollable for Socket {
    #[inline]
    fn readiness(&self) -> Option<&Readiness> {
        self.engine.attached().map(utipc_client::Socket::readiness)
    }
}

impl AsFd for Socket {
    /// [`Socket::descriptor`] as `AsFd`. If the process may run out of descriptors, call that one first.
    ///
    /// # Panics
    /// If the socket has no descriptor yet and the process has none left.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.descriptor() {
            Ok(fd) => fd,
            Err(error) => panic!("{error}"),
        }
    }
}
