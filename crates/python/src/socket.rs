//! Sockets.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use utipc::{RecvOptions, Scope, SocketKind, State};

use crate::address::{Bindable, PortId, Target};
use crate::data::{Outgoing, Room};
use crate::error::{closed, exception};
use crate::message::{Message, importance};
use crate::waiting::{Limit, wait};

/// A TIPC socket of any kind; see `Node.rdm` and its sisters.
///
/// Calls wait until the timeout that `settimeout` gives, for ever by default, and let other threads run meanwhile.
/// Several threads may use one socket at once. Closing it, or leaving its `with` block, withdraws its bindings, breaks its
/// connection, and returns unread messages to their senders.
#[pyclass(frozen, weakref, module = "utipc")]
pub(crate) struct Socket {
    open: Mutex<Option<Arc<utipc::Socket>>>,
    /// Nanoseconds; `u64::MAX` for none.
    timeout: AtomicU64,
}

/// A timeout of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timeout {
    /// What the socket has.
    Own,
    /// This instead.
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
        Self { open: Mutex::new(Some(Arc::new(socket))), timeout: AtomicU64::new(u64::MAX) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<utipc::Socket>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The socket, for the time of a call.
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

    /// A call that waits at most so long.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        limit: Limit,
        mut call: impl FnMut(&utipc::Socket, Duration) -> utipc::Result<T> + Send,
    ) -> PyResult<T> {
        let socket = self.get(py)?;
        let gone = || if self.closed() { Err(closed(py, "socket")) } else { Ok(()) };
        let done = wait(py, limit, |slice| call(&socket, slice), gone);
        // If another thread has closed it meanwhile, the last handle goes here.
        py.detach(|| drop(socket));
        done
    }

    /// A call that does not wait.
    fn ask<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&utipc::Socket) -> T + Send) -> PyResult<T> {
        let socket = self.get(py)?;
        Ok(py.detach(|| call(&socket)))
    }

    /// The same for one that may be refused.
    fn tell<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&utipc::Socket) -> utipc::Result<T> + Send,
    ) -> PyResult<T> {
        self.ask(py, call)?.map_err(|error| exception(py, &error))
    }

    /// Receives at most `len` bytes; with `fill` as many, unless the stream ends.
    fn receive_bytes(
        &self,
        py: Python<'_>,
        len: usize,
        peek: bool,
        fill: bool,
        timeout: Timeout,
    ) -> PyResult<Vec<u8>> {
        let mut buffer = vec![0; len];
        let mut have = 0;
        let fill = fill && self.ask(py, |socket| socket.kind() == SocketKind::Stream)?;
        let options = RecvOptions { peek, ..RecvOptions::default() };
        self.wait(py, self.limit(timeout), |socket, slice| {
            loop {
                let room = &mut buffer[have..];
                match socket.within(slice).receive_with(room, options) {
                    Ok(part) => {
                        have += part.len;
                        if !fill || peek || part.len == 0 || have == len {
                            return Ok(());
                        }
                    }
                    // What is there of a stream that broke is given out first; its error comes with the next call.
                    Err(error) if have > 0 && !error.is_temporary() => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        })
        // What came in time is better than nothing; an interrupt stays one.
        .or_else(|error| {
            if have > 0 && error.is_instance_of::<PyOSError>(py) { Ok(()) } else { Err(error) }
        })?;
        buffer.truncate(have);
        Ok(buffer)
    }

    pub(crate) fn describe(&self, py: Python<'_>) -> String {
        match self.ask(py, |socket| (socket.kind(), socket.port(), socket.peer())) {
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
        self.ask(py, |socket| kind_name(socket.kind()))
    }

    /// Its own address: what others see as the source of its messages.
    #[getter]
    pub(crate) fn port(&self, py: Python<'_>) -> PyResult<PortId> {
        self.ask(py, |socket| PortId(socket.port()))
    }

    /// The other end of its connection.
    #[getter]
    fn peer(&self, py: Python<'_>) -> PyResult<Option<PortId>> {
        self.ask(py, |socket| socket.peer().map(PortId))
    }

    /// `"open"`, `"listen"`, `"connecting"`, `"established"` or `"disconnecting"`.
    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.ask(py, |socket| match socket.state() {
            State::Open => "open",
            State::Listen => "listen",
            State::Connecting => "connecting",
            State::Established => "established",
            State::Disconnecting => "disconnecting",
        })
    }

    /// Binds to a service address or range: from now on messages to it arrive here. `scope`: `"cluster"` or `"node"`.
    #[pyo3(signature = (service, *, scope = "cluster"))]
    fn bind(&self, py: Python<'_>, service: Bindable, scope: &str) -> PyResult<()> {
        let scope = scope_named(scope)?;
        self.tell(py, |socket| socket.bind(service, scope))
    }

    /// Withdraws one binding; all of them without an argument.
    #[pyo3(signature = (service = None, *, scope = "cluster"))]
    fn unbind(&self, py: Python<'_>, service: Option<Bindable>, scope: &str) -> PyResult<()> {
        let scope = scope_named(scope)?;
        self.tell(py, |socket| match service {
            Some(service) => socket.unbind(service, scope),
            None => socket.unbind_all(),
        })
    }

    /// Sends a message: to one of those bound to a `ServiceAddress` (with `node`: only on that node), to all bound in a
    /// `ServiceRange`, or to the socket with a `PortId`. On a connection-oriented socket it requests a connection whose first
    /// message this is. The number of bytes taken.
    #[pyo3(signature = (data, to, *, node = None))]
    fn send_to(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        to: Target,
        node: Option<u32>,
    ) -> PyResult<usize> {
        let (data, to) = (Outgoing::new(data)?, to.on(node)?);
        let bytes = data.get();
        self.wait(py, self.limit(Timeout::Own), |socket, slice| socket.within(slice).send_to(bytes, to))
    }

    /// Sends on a connection, or to the default destination that `connect` has set. The number of bytes taken: all of a
    /// message, perhaps less of a stream.
    fn send(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let data = Outgoing::new(data)?;
        let bytes = data.get();
        self.wait(py, self.limit(Timeout::Own), |socket, slice| socket.within(slice).send(bytes))
    }

    /// Sends all of the data of a stream; after an exception nobody knows how much was sent.
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

    /// Receives a message, or of a stream what is there, with its origin.
    #[pyo3(signature = (*, timeout = Timeout::Own))]
    fn receive(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Message> {
        let incoming = self.wait(py, self.limit(timeout), |socket, slice| socket.within(slice).receive())?;
        Message::new(py, incoming)
    }

    /// Receives at most `size` bytes. What does not fit of a message is lost, of a stream it stays. `peek`: it stays in any
    /// case. `wait_all`: waits until a stream has given `size` bytes, or ends.
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

    /// As `recv`, into memory of the caller's; the number of bytes.
    #[pyo3(signature = (buffer, *, peek = false, wait_all = false, timeout = Timeout::Own))]
    fn recv_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        peek: bool,
        wait_all: bool,
        timeout: Timeout,
    ) -> PyResult<usize> {
        let room = Room::new(buffer)?;
        let data = self.receive_bytes(py, room.len(), peek, wait_all, timeout)?;
        room.fill(&data)?;
        Ok(data.len())
    }

    /// Makes this a server's socket; see `Listener`.
    pub(crate) fn listen(&self, py: Python<'_>) -> PyResult<()> {
        self.tell(py, utipc::Socket::listen)
    }

    /// Accepts a connection: a socket for it, and who asked.
    #[pyo3(signature = (*, timeout = Timeout::Own))]
    pub(crate) fn accept(&self, py: Python<'_>, timeout: Timeout) -> PyResult<(Self, PortId)> {
        let limit = self.limit(timeout);
        let (socket, peer) = self.wait(py, limit, |socket, slice| socket.within(slice).accept())?;
        Ok((Self::new(socket), PortId(peer)))
    }

    /// Connects to a server and waits for its answer. On a connectionless socket it sets the default destination of `send`.
    /// Without time to wait it raises `WouldBlock`, and `finish_connect` says how it went.
    #[pyo3(signature = (to, *, node = None, timeout = Timeout::Own))]
    fn connect(&self, py: Python<'_>, to: Target, node: Option<u32>, timeout: Timeout) -> PyResult<()> {
        let to = to.on(node)?;
        let mut asked = false;
        self.wait(py, self.limit(timeout), |socket, slice| {
            if std::mem::replace(&mut asked, true) {
                socket.within(slice).finish_connect()
            } else {
                socket.within(slice).connect(to)
            }
        })
    }

    /// Waits for the answer to a request that `connect` has sent.
    #[pyo3(signature = (*, timeout = Timeout::Own))]
    fn finish_connect(&self, py: Python<'_>, timeout: Timeout) -> PyResult<()> {
        self.wait(py, self.limit(timeout), |socket, slice| socket.within(slice).finish_connect())
    }

    /// Forgets the default destination of a connectionless socket.
    fn disconnect(&self, py: Python<'_>) -> PyResult<()> {
        self.tell(py, utipc::Socket::disconnect)
    }

    /// Ends the connection in good order: the peer reads what was sent, then the end.
    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        self.tell(py, utipc::Socket::shutdown)
    }

    /// How long calls wait, in seconds; `None`: for ever, 0: not at all.
    pub(crate) fn settimeout(&self, seconds: Option<f64>) -> PyResult<()> {
        let ns = Limit::from_seconds(seconds)?
            .0
            .map_or(u64::MAX, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.timeout.store(ns, Ordering::Relaxed);
        Ok(())
    }

    /// What `settimeout` has set.
    pub(crate) fn gettimeout(&self) -> Option<f64> {
        self.limit(Timeout::Own).seconds()
    }

    /// `False` is `settimeout(0)`, `True` is `settimeout(None)`.
    fn setblocking(&self, blocking: bool) {
        self.timeout.store(if blocking { u64::MAX } else { 0 }, Ordering::Relaxed);
    }

    /// How long `connect` waits, in seconds: 8 by default, 65 at most.
    fn set_connect_timeout(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let limit = Limit::from_seconds(Some(seconds))?.0.unwrap_or(Duration::MAX);
        self.tell(py, |socket| socket.set_connect_timeout(limit))
    }

    /// Importance of the messages sent from now on: `"low"`, `"medium"`, `"high"` or `"critical"`.
    #[pyo3(name = "set_importance")]
    fn change_importance(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let value =
            importance(name).ok_or_else(|| unknown("importance", name, "low, medium, high or critical"))?;
        self.tell(py, |socket| socket.set_importance(value))
    }

    /// Whether own messages that cannot be delivered come back (`Message.returned`) instead of vanishing.
    fn set_returned(&self, py: Python<'_>, returned: bool) -> PyResult<()> {
        self.tell(py, |socket| socket.set_returned(returned))
    }

    /// On a stream: send each write at once.
    fn set_nodelay(&self, py: Python<'_>, nodelay: bool) -> PyResult<()> {
        self.tell(py, |socket| socket.set_nodelay(nodelay))
    }

    /// How multicasts travel: `"broadcast"` or `"replicast"`. Without this the node chooses.
    fn set_multicast_method(&self, py: Python<'_>, method: &str) -> PyResult<()> {
        let method = match method {
            "broadcast" => utipc::Method::Broadcast,
            "replicast" => utipc::Method::Replicast,
            other => return Err(unknown("multicast method", other, "broadcast or replicast")),
        };
        self.tell(py, |socket| socket.set_multicast_method(method))
    }

    /// Why a call on this socket would wait now, or waits now in another thread.
    fn wait_reason(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.ask(py, |socket| socket.wait_reason().map(|reason| reason.to_string()))
    }

    /// Counters since the socket was opened.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.ask(py, utipc::Socket::stats)?;
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
    /// writable while a send would not. It is there to be polled, not to be read. -1 once the socket is closed.
    pub(crate) fn fileno(&self, py: Python<'_>) -> PyResult<RawFd> {
        if self.closed() {
            return Ok(-1);
        }
        self.tell(py, |socket| Ok(socket.descriptor()?.as_raw_fd()))
    }

    /// Closes the socket. A call that waits in another thread ends with an error.
    pub(crate) fn close(&self, py: Python<'_>) {
        let socket = self.lock().take();
        py.detach(|| drop(socket));
    }

    /// Whether it is closed.
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

/// Names of kinds, as Python gives and gets them.
const KINDS: [(&str, SocketKind); 4] = [
    ("rdm", SocketKind::Rdm),
    ("dgram", SocketKind::Dgram),
    ("seqpacket", SocketKind::SeqPacket),
    ("stream", SocketKind::Stream),
];

fn kind_name(kind: SocketKind) -> &'static str {
    KINDS.iter().find(|(_, known)| *known == kind).map_or("", |(name, _)| name)
}

/// The kind of this name.
pub(crate) fn kind_named(name: &str) -> PyResult<SocketKind> {
    let found = KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    found.ok_or_else(|| unknown("kind of socket", name, "rdm, dgram, seqpacket or stream"))
}

fn scope_named(name: &str) -> PyResult<Scope> {
    match name {
        "cluster" => Ok(Scope::Cluster),
        "node" => Ok(Scope::Node),
        other => Err(unknown("scope", other, "cluster or node")),
    }
}

/// A name that is not one of those there are.
pub(crate) fn unknown(what: &str, name: &str, known: &str) -> PyErr {
    PyValueError::new_err(format!("there is no {what} {name:?} (it is {known})"))
}
