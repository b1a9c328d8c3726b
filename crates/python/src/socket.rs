//! Sockets.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use utipc::{BusyPoll, Destination, GroupIncoming, Polled, RecvOptions, Scope, SocketKind, State};

use crate::address::{Bindable, PortId, Target};
use crate::buffer::{Outgoing, WritableBuffer};
use crate::error::{closed, exception};
use crate::message::{Message, importance};
use crate::waiting::{Clock, Limit, wait};

/// A TIPC socket of any kind; opened by `Node.rdm`, `dgram`, `seqpacket` or `stream`.
///
/// Calls wait up to the timeout set by `settimeout`, without limit by default, and release the GIL while they wait.
/// Several threads may use one socket. Closing it, or leaving its `with` block, withdraws its bindings, breaks its
/// connection, and returns unread messages to their senders.
#[pyclass(frozen, weakref, module = "utipc")]
pub(crate) struct Socket {
    open: Mutex<Option<Arc<utipc::Socket>>>,
    /// In nanoseconds; `u64::MAX` for none.
    timeout: AtomicU64,
    /// How long a task polls for messages before it waits.
    busy: Mutex<BusyPoll>,
}

/// The timeout of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timeout {
    /// The socket's own timeout.
    Own,
    /// An explicit timeout.
    Of(Limit),
}

impl<'py> FromPyObject<'_, 'py> for Timeout {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Limit::from_seconds(object.extract()?).map(Self::Of)
    }
}

impl Socket {
    pub(crate) fn new(socket: utipc::Socket) -> Self {
        Self {
            open: Mutex::new(Some(Arc::new(socket))),
            timeout: AtomicU64::new(u64::MAX),
            busy: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<utipc::Socket>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The socket, for the duration of a call.
    fn get(&self, py: Python<'_>) -> PyResult<Arc<utipc::Socket>> {
        self.lock().clone().ok_or_else(|| closed(py, "socket"))
    }

    fn limit(&self, timeout: Timeout) -> Limit {
        match (timeout, self.timeout.load(Ordering::Relaxed)) {
            (Timeout::Of(limit), _) => limit,
            (Timeout::Own, u64::MAX) => Limit(None),
            (Timeout::Own, ns) => Limit(Some(Duration::from_nanos(ns))),
        }
    }

    /// Makes a call that waits up to `limit`.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        limit: Limit,
        mut call: impl FnMut(&utipc::Socket, Duration) -> utipc::Result<T> + Send,
    ) -> PyResult<T> {
        let socket = self.get(py)?;
        let gone = || if self.closed() { Err(closed(py, "socket")) } else { Ok(()) };
        let done = wait(py, limit, |slice| call(&socket, slice), gone);
        // If another thread has closed the socket in between, this is the last handle.
        py.detach(|| drop(socket));
        done
    }

    /// Makes a call that does not wait.
    fn query<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&utipc::Socket) -> T + Send) -> PyResult<T> {
        let socket = self.get(py)?;
        Ok(py.detach(|| call(&socket)))
    }

    /// As `query`, for a call that may fail.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&utipc::Socket) -> utipc::Result<T> + Send,
    ) -> PyResult<T> {
        self.query(py, call)?.map_err(|error| exception(py, &error))
    }

    /// Receives at most `len` bytes; with `fill`, exactly `len` unless the stream ends.
    fn receive_bytes(
        &self,
        py: Python<'_>,
        len: usize,
        peek: bool,
        fill: bool,
        timeout: Timeout,
    ) -> PyResult<Vec<u8>> {
        let mut buffer = vec![0; len];
        let mut received = 0;
        let fill = fill && self.query(py, |socket| socket.kind() == SocketKind::Stream)?;
        let options = RecvOptions { peek, ..RecvOptions::default() };
        self.wait(py, self.limit(timeout), |socket, slice| {
            loop {
                let rest = &mut buffer[received..];
                match socket.within(slice).receive_with(rest, options) {
                    Ok(part) => {
                        received += part.len;
                        if !fill || peek || part.len == 0 || received == len {
                            return Ok(());
                        }
                    }
                    // Return the data received before a stream broke; the next call reports the error.
                    Err(error) if received > 0 && !error.is_temporary() => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        })
        // On a timeout, return the data received so far; an interrupt stays an error.
        .or_else(|error| {
            if received > 0 && error.is_instance_of::<PyOSError>(py) { Ok(()) } else { Err(error) }
        })?;
        buffer.truncate(received);
        Ok(buffer)
    }

    /// Sends a message, waiting up to the socket's timeout.
    pub(crate) fn send_bytes_to(&self, py: Python<'_>, data: &Outgoing, to: Destination) -> PyResult<usize> {
        let bytes = data.get();
        let limit = self.limit(Timeout::Own);
        let clock = Clock::start(limit);
        let sent = self.wait(py, limit, |socket, slice| socket.within(slice).send_to(bytes, to))?;
        let is_pending = |socket: &utipc::Socket| {
            socket.kind().is_connection_oriented() && socket.state() == State::Connecting
        };
        if limit != Limit::NEVER && !bytes.is_empty() && self.query(py, is_pending)? {
            // The slice of time that sent the connection request was too short for the reply.
            self.wait(py, limit, |socket, slice| match socket.within(slice).finish_connect() {
                // A request that is not answered in time stays pending.
                Err(error) if error.is_temporary() && clock.slice().is_none() => Ok(()),
                done => done,
            })?;
        }
        Ok(sent)
    }

    /// Sends to a group, without a destination to all members, with a key.
    pub(crate) fn send_bytes_keyed(
        &self,
        py: Python<'_>,
        data: &Outgoing,
        to: Option<Destination>,
        key: u64,
    ) -> PyResult<usize> {
        let bytes = data.get();
        self.wait(py, self.limit(Timeout::Own), |socket, slice| {
            socket.within(slice).send_keyed(bytes, to, key)
        })
    }

    /// Receives a message or an event of the socket's group, and whether messages before it are missing.
    pub(crate) fn receive_in_group(
        &self,
        py: Python<'_>,
        timeout: Timeout,
    ) -> PyResult<(GroupIncoming, bool)> {
        self.wait(py, self.limit(timeout), |socket, slice| socket.within(slice).receive_in_group_with_loss())
    }

    /// The members of the socket's group.
    pub(crate) fn group_members(&self, py: Python<'_>) -> PyResult<Vec<utipc::MemberInfo>> {
        self.call(py, utipc::Socket::group_members)
    }

    /// Leaves the socket's group.
    pub(crate) fn leave_group(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, utipc::Socket::leave)
    }

    pub(crate) fn describe(&self, py: Python<'_>) -> String {
        match self.query(py, |socket| (socket.kind(), socket.port(), socket.peer())) {
            Err(_) => "closed".to_owned(),
            Ok((kind, port, None)) => format!("{} {port}", kind_name(kind)),
            Ok((kind, port, Some(peer))) => format!("{} {port} connected to {peer}", kind_name(kind)),
        }
    }
}

#[pymethods]
impl Socket {
    /// `"rdm"`, `"dgram"`, `"seqpacket"` or `"stream"`.
    #[getter]
    fn kind(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.query(py, |socket| kind_name(socket.kind()))
    }

    /// The socket's address: receivers see it as the source of its messages.
    #[getter]
    pub(crate) fn port(&self, py: Python<'_>) -> PyResult<PortId> {
        self.query(py, |socket| PortId(socket.port()))
    }

    /// The address of the connection's peer.
    #[getter]
    fn peer(&self, py: Python<'_>) -> PyResult<Option<PortId>> {
        self.query(py, |socket| socket.peer().map(PortId))
    }

    /// `"open"`, `"listen"`, `"connecting"`, `"established"` or `"disconnecting"`.
    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.query(py, |socket| match socket.state() {
            State::Open => "open",
            State::Listen => "listen",
            State::Connecting => "connecting",
            State::Established => "established",
            State::Disconnecting => "disconnecting",
        })
    }

    /// Binds the socket to a service address or range: from now on it receives messages to that service. `scope`:
    /// `"cluster"` or `"node"`.
    #[pyo3(signature = (service, *, scope = "cluster"))]
    fn bind(&self, py: Python<'_>, service: Bindable, scope: &str) -> PyResult<()> {
        let scope = scope_named(scope)?;
        self.call(py, |socket| socket.bind(service, scope))
    }

    /// Binds the socket to a service address or range to which no socket is bound, in the cluster or on the node. Of
    /// all programs that do so, on any nodes in contact, at most one succeeds; the others get an `OSError` with errno
    /// `EADDRINUSE`. `bind` does not ask. `timeout`: in seconds; then `Timeout` is raised.
    #[pyo3(signature = (service, *, scope = "cluster", timeout = 5.0))]
    fn bind_exclusive(&self, py: Python<'_>, service: Bindable, scope: &str, timeout: f64) -> PyResult<()> {
        let (scope, limit) = (scope_named(scope)?, Limit::from_seconds(Some(timeout))?);
        let limit = limit.0.unwrap_or(Duration::MAX);
        self.call(py, |socket| socket.bind_exclusive(service, scope, limit))
    }

    /// Withdraws one binding, or all of them without an argument. Raises an error if the binding does not exist.
    #[pyo3(signature = (service = None, *, scope = "cluster"))]
    fn unbind(&self, py: Python<'_>, service: Option<Bindable>, scope: &str) -> PyResult<()> {
        let scope = scope_named(scope)?;
        self.call(py, |socket| match service {
            Some(service) => socket.unbind(service, scope),
            None => socket.unbind_all(),
        })
    }

    /// Sends a message: to one socket bound to a `ServiceAddress` (with `node`: on that node), to all sockets bound in
    /// a `ServiceRange`, or to the socket with a `PortId`. On a connection-oriented socket the call requests a
    /// connection, and the data travels with the request. Returns the number of bytes sent.
    #[pyo3(signature = (data, to, *, node = None))]
    fn send_to(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        to: Target,
        node: Option<u32>,
    ) -> PyResult<usize> {
        let to = to.on(node)?;
        self.send_bytes_to(py, &Outgoing::new(data)?, to)
    }

    /// Sends on a connection, or to the default destination set by `connect`. Returns the number of bytes sent: all of
    /// a message, possibly only a part on a stream.
    pub(crate) fn send(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let data = Outgoing::new(data)?;
        let bytes = data.get();
        self.wait(py, self.limit(Timeout::Own), |socket, slice| socket.within(slice).send(bytes))
    }

    /// Sends all of the data on a stream. After an exception it is unknown how much was sent.
    fn sendall(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = Outgoing::new(data)?;
        let mut left = data.get();
        self.wait(py, self.limit(Timeout::Own), |socket, slice| {
            loop {
                let sent = socket.within(slice).send(left)?;
                left = left.get(sent..).unwrap_or_default();
                if left.is_empty() {
                    return Ok(());
                }
            }
        })
    }

    /// Receives a message with its source; on a stream, whatever has arrived.
    #[pyo3(signature = (*, timeout = Timeout::Own))]
    fn receive(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Message> {
        let incoming = self.wait(py, self.limit(timeout), |socket, slice| socket.within(slice).receive())?;
        Message::new(py, incoming)
    }

    /// Receives at most `size` bytes. The rest of a longer message is lost; on a stream it stays. `peek`: leaves all
    /// data in the socket. `wait_all`: waits until a stream has delivered `size` bytes or ends.
    #[pyo3(signature = (size, *, peek = false, wait_all = false, timeout = Timeout::Own))]
    fn recv<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        peek: bool,
        wait_all: bool,
        timeout: Timeout,
    ) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.receive_bytes(py, size, peek, wait_all, timeout)?))
    }

    /// As `recv`, into a buffer; returns the number of bytes.
    #[pyo3(signature = (buffer, *, peek = false, wait_all = false, timeout = Timeout::Own))]
    fn recv_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        peek: bool,
        wait_all: bool,
        timeout: Timeout,
    ) -> PyResult<usize> {
        let target = WritableBuffer::new(buffer)?;
        let data = self.receive_bytes(py, target.len(), peek, wait_all, timeout)?;
        target.fill(&data)?;
        Ok(data.len())
    }

    /// Makes the socket a listener; see `Listener`.
    pub(crate) fn listen(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, utipc::Socket::listen)
    }

    /// Accepts a connection: returns its socket and the peer's address.
    #[pyo3(signature = (*, timeout = Timeout::Own))]
    pub(crate) fn accept(&self, py: Python<'_>, timeout: Timeout) -> PyResult<(Self, PortId)> {
        let limit = self.limit(timeout);
        let (socket, peer) = self.wait(py, limit, |socket, slice| socket.within(slice).accept())?;
        Ok((Self::new(socket), PortId(peer)))
    }

    /// Connects to a server and waits for its reply; on a connectionless socket sets the default destination of `send`.
    /// With a timeout of 0 it raises `WouldBlock`, and `finish_connect` reports the result.
    #[pyo3(signature = (to, *, node = None, timeout = Timeout::Own))]
    fn connect(&self, py: Python<'_>, to: Target, node: Option<u32>, timeout: Timeout) -> PyResult<()> {
        let to = to.on(node)?;
        let mut requested = false;
        self.wait(py, self.limit(timeout), |socket, slice| {
            if std::mem::replace(&mut requested, true) {
                socket.within(slice).finish_connect()
            } else {
                socket.within(slice).connect(to)
            }
        })
    }

    /// Waits for the reply to a request that `connect` sent.
    #[pyo3(signature = (*, timeout = Timeout::Own))]
    fn finish_connect(&self, py: Python<'_>, timeout: Timeout) -> PyResult<()> {
        self.wait(py, self.limit(timeout), |socket, slice| socket.within(slice).finish_connect())
    }

    /// Clears the default destination of a connectionless socket.
    fn disconnect(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, utipc::Socket::disconnect)
    }

    /// Shuts the connection down in order: the peer reads everything that was sent, then the end.
    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, utipc::Socket::shutdown)
    }

    /// Sets how long calls wait, in seconds; `None`: no limit, 0: do not wait.
    pub(crate) fn settimeout(&self, seconds: Option<f64>) -> PyResult<()> {
        let ns = Limit::from_seconds(seconds)?
            .0
            .map_or(u64::MAX, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.timeout.store(ns, Ordering::Relaxed);
        Ok(())
    }

    /// The timeout set by `settimeout`.
    pub(crate) fn gettimeout(&self) -> Option<f64> {
        self.limit(Timeout::Own).seconds()
    }

    /// `False` is `settimeout(0)`, `True` is `settimeout(None)`.
    fn setblocking(&self, blocking: bool) {
        self.timeout.store(if blocking { u64::MAX } else { 0 }, Ordering::Relaxed);
    }

    /// Sets how long `connect` waits, in seconds: 8 by default, 0.001 to 65.535. Other times raise an error.
    fn set_connect_timeout(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let limit = Limit::from_seconds(Some(seconds))?.0.unwrap_or(Duration::MAX);
        self.call(py, |socket| socket.set_connect_timeout(limit))
    }

    /// Sets the importance of messages sent from now on: `"low"`, `"medium"`, `"high"` or `"critical"`.
    #[pyo3(name = "set_importance")]
    fn change_importance(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let value =
            importance(name).ok_or_else(|| unknown("importance", name, "low, medium, high or critical"))?;
        self.call(py, |socket| socket.set_importance(value))
    }

    /// Sets whether undeliverable messages are returned (`Message.returned`) instead of being dropped.
    fn set_returned(&self, py: Python<'_>, returned: bool) -> PyResult<()> {
        self.call(py, |socket| socket.set_returned(returned))
    }

    /// On a stream: sends each write at once.
    fn set_nodelay(&self, py: Python<'_>, nodelay: bool) -> PyResult<()> {
        self.call(py, |socket| socket.set_nodelay(nodelay))
    }

    /// Sets how multicasts travel: `"broadcast"` or `"replicast"`. By default the node chooses.
    fn set_multicast_method(&self, py: Python<'_>, method: &str) -> PyResult<()> {
        let method = match method {
            "broadcast" => utipc::Method::Broadcast,
            "replicast" => utipc::Method::Replicast,
            other => return Err(unknown("multicast method", other, "broadcast or replicast")),
        };
        self.call(py, |socket| socket.set_multicast_method(method))
    }

    /// The reason why a call on this socket would wait now, or waits now in another thread.
    fn wait_reason(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.query(py, |socket| socket.wait_reason().map(|reason| reason.to_string()))
    }

    /// The counters since the socket was opened.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.query(py, utipc::Socket::stats)?;
        let dict = PyDict::new(py);
        let all = [
            ("sent_messages", stats.sent_messages),
            ("sent_bytes", stats.sent_bytes),
            ("received_messages", stats.received_messages),
            ("received_bytes", stats.received_bytes),
            ("window_waits", stats.window_waits),
            ("link_waits", stats.link_waits),
            ("returned_to_us", stats.returned_to_us),
            ("rejected", stats.rejected),
            ("dropped", stats.dropped),
            ("overloads", stats.overloads),
            ("acks_sent", stats.acks_sent),
            ("syn_retries", stats.syn_retries),
        ];
        for (name, count) in all {
            dict.set_item(name, count)?;
        }
        Ok(dict)
    }

    /// A descriptor for `select`, `poll`, `selectors` and `asyncio`: readable while a receive or accept would not wait,
    /// writable while a send would not. Poll it, but do not read or write it. -1 once the socket is closed.
    pub(crate) fn fileno(&self, py: Python<'_>) -> PyResult<RawFd> {
        if self.closed() {
            return Ok(-1);
        }
        self.call(py, |socket| Ok(socket.descriptor()?.as_raw_fd()))
    }

    /// Polls for a message for a few microseconds, for `utipc.aio`. `True`: a receive finds one; `None`: nothing yet,
    /// poll again after the event loop's other work; `False`: wait for the descriptor.
    fn _poll_busily(&self, py: Python<'_>) -> PyResult<Option<bool>> {
        let socket = self.get(py)?;
        // If another thread polls, this one waits for the descriptor.
        let turn = || self.busy.try_lock().map_or(Polled::Over, |mut busy| busy.turn(&*socket));
        Ok(match py.detach(turn) {
            Polled::Found => Some(true),
            Polled::Again => None,
            Polled::Over => Some(false),
        })
    }

    /// Notes that the wait after `_poll_busily` has ended.
    fn _slept(&self) {
        if let Ok(mut busy) = self.busy.try_lock() {
            busy.slept();
        }
    }

    /// Closes the socket. Calls that wait in other threads end with an error.
    pub(crate) fn close(&self, py: Python<'_>) {
        let socket = self.lock().take();
        py.detach(|| drop(socket));
    }

    /// Whether the socket is closed.
    #[getter]
    pub(crate) fn closed(&self) -> bool {
        self.lock().is_none()
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        self.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<utipc.Socket {}>", self.describe(py))
    }
}

/// Names of socket kinds.
const KINDS: [(&str, SocketKind); 4] = [
    ("rdm", SocketKind::Rdm),
    ("dgram", SocketKind::Dgram),
    ("seqpacket", SocketKind::SeqPacket),
    ("stream", SocketKind::Stream),
];

fn kind_name(kind: SocketKind) -> &'static str {
    KINDS.iter().find(|(_, known)| *known == kind).map_or("", |(name, _)| name)
}

/// The kind with this name.
pub(crate) fn kind_named(name: &str) -> PyResult<SocketKind> {
    let found = KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    found.ok_or_else(|| unknown("kind of socket", name, "rdm, dgram, seqpacket or stream"))
}

pub(crate) fn scope_named(name: &str) -> PyResult<Scope> {
    match name {
        "cluster" => Ok(Scope::Cluster),
        "node" => Ok(Scope::Node),
        other => Err(unknown("scope", other, "cluster or node")),
    }
}

/// The exception for an unknown name.
pub(crate) fn unknown(what: &str, name: &str, known: &str) -> PyErr {
    PyValueError::new_err(format!("unknown {what} {name:?} (use {known})"))
}
