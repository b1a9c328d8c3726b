//! Requests and replies: one message to a service, one message back, within a time limit.

use std::time::{Duration, Instant};

use crate::{
    Call, Destination, Error, ErrorCode, Incoming, Node, PortId, RecvError, Result, Scope, SendError,
    ServiceRange, Socket, SocketKind,
};

/// Longest wait for the request of a client that has only connected.
const SILENT: Duration = Duration::from_secs(1);
/// Pause before a returned request is sent again: until then an overloaded server may have read some, and the binding
/// of a server that is gone is withdrawn.
const RETRY: Duration = Duration::from_millis(1);

/// Sends requests and waits for the reply of each; the servers use [`Responder`] with the same kind of socket, or plain
/// sockets.
///
/// * [`SocketKind::Rdm`]: two messages a request. A request that no server has read is returned, and goes to another
///   server of the service. A server that dies while it works on a request is noticed by the time limit only.
/// * [`SocketKind::SeqPacket`]: a connection for each request. The death of the server is an error at once,
///   [`Error::Receive`]. Such a request is not repeated, because the server may have carried it out.
///
/// ```
/// use std::time::Duration;
/// use utipc::{Node, Requester, Responder, Service, SocketKind};
///
/// const UPPER: Service = Service::new(2100, 1);
///
/// # fn main() -> utipc::Result<()> {
/// # let node = Node::builder().isolated().start()?;
/// let server = Responder::new(&node, SocketKind::Rdm, UPPER)?;
/// let serving = std::thread::spawn(move || -> utipc::Result<()> {
///     let request = server.next()?;
///     let reply = request.data.to_ascii_uppercase();
///     request.reply(&reply)
/// });
/// let requester = Requester::new(&node, SocketKind::Rdm, Duration::from_secs(5))?;
/// assert_eq!(requester.request(UPPER, b"hello")?, b"HELLO");
/// # serving.join().unwrap()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Requester {
    node: Node,
    kind: SocketKind,
    limit: Duration,
    /// Sockets without an open request. A socket whose request has failed is closed, so that a late reply is never
    /// taken for that of another request.
    idle: std::sync::Mutex<Vec<Socket>>,
}

/// Maximum number of sockets kept for later requests.
const IDLE: usize = 16;

impl Requester {
    /// Makes requests with sockets of `kind`; each waits at most for `limit`. Threads may share it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a kind other than [`SocketKind::Rdm`] and [`SocketKind::SeqPacket`].
    pub fn new(node: &Node, kind: SocketKind, limit: Duration) -> Result<Self> {
        check(kind)?;
        Ok(Self { node: node.clone(), kind, limit, idle: std::sync::Mutex::default() })
    }

    /// Sends a request and returns the reply.
    ///
    /// # Errors
    /// [`Error::Send`] or [`Error::Connect`] if there is no server ([`Error::is_unreachable`]),
    /// [`Error::TimedOut`] without a reply in time, [`Error::Receive`] if the connection broke.
    pub fn request(&self, to: impl Into<Destination>, data: &[u8]) -> Result<Vec<u8>> {
        let (to, end) = (to.into(), Instant::now() + self.limit);
        if self.kind == SocketKind::SeqPacket {
            return self.by_connection(to, data, end);
        }
        let socket = utipc_os::lock(&self.idle).pop().map_or_else(|| self.open(), Ok)?;
        let reply = self.by_message(&socket, to, data, end)?;
        let mut idle = utipc_os::lock(&self.idle);
        // The other servers of a range reply too.
        if idle.len() < IDLE && !matches!(to, Destination::Range(_)) {
            idle.push(socket);
        }
        Ok(reply)
    }

    fn open(&self) -> Result<Socket> {
        let socket = self.node.socket(self.kind)?;
        socket.set_returned(true)?;
        Ok(socket)
    }

    fn by_connection(&self, to: Destination, data: &[u8], end: Instant) -> Result<Vec<u8>> {
        let socket = self.node.socket(self.kind)?;
        // The request travels with the connection request.
        socket.within(left(end)).send_to(data, to)?;
        let reply = self.receive(&socket, end)?;
        if reply.returned.is_some() || reply.data.is_empty() {
            return Err(Error::Receive(RecvError::ConnectionReset));
        }
        // The server may have closed the connection already.
        let _ = socket.shutdown();
        Ok(reply.data)
    }

    fn by_message(&self, socket: &Socket, to: Destination, data: &[u8], end: Instant) -> Result<Vec<u8>> {
        loop {
            socket.within(left(end)).send_to(data, to)?;
            let reply = self.receive(socket, end)?;
            let Some(returned) = reply.returned else { return Ok(reply.data) };
            // No server has read it.
            let may_retry = returned.code == ErrorCode::Overload || matches!(to, Destination::Service { .. });
            if !may_retry || left(end).is_zero() {
                return Err(Error::Send { to: Some(to), why: SendError::HostUnreachable });
            }
            std::thread::sleep(RETRY.min(left(end)));
        }
    }

    fn receive(&self, socket: &Socket, end: Instant) -> Result<Incoming> {
        match socket.within(left(end)).receive() {
            Err(error) if error.is_temporary() => {
                let node = self.node.explain_timeout(self.limit);
                Err(Error::TimedOut { call: Call::Request, reason: None, node })
            }
            received => received,
        }
    }
}

fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

fn check(kind: SocketKind) -> Result<()> {
    match kind {
        SocketKind::Rdm | SocketKind::SeqPacket => Ok(()),
        _ => Err(Error::OutOfRange { what: "the kind of socket for requests", remedy: "Rdm or SeqPacket" }),
    }
}

/// A server of requests; see [`Requester`].
///
/// Threads may share it, each with a call of [`Responder::next`]. A request can be answered later and by any thread.
#[derive(Debug)]
pub struct Responder {
    socket: Socket,
}

/// A request that waits for its reply. Dropping it leaves the client without one: with [`SocketKind::SeqPacket`] the
/// client learns it at once.
#[derive(Debug)]
pub struct Request<'a> {
    /// The data of the request.
    pub data: Vec<u8>,
    /// The socket of the client.
    pub source: PortId,
    /// The service that the client addressed.
    pub destination: Option<ServiceRange>,
    reply_by: ReplyBy<'a>,
}

#[derive(Debug)]
enum ReplyBy<'a> {
    Message(&'a Socket),
    Connection(Socket),
}

impl Responder {
    /// Serves a service in the whole cluster.
    ///
    /// # Errors
    /// As [`Requester::new`]; [`Error::Bind`].
    pub fn new(node: &Node, kind: SocketKind, service: impl Into<ServiceRange>) -> Result<Self> {
        check(kind)?;
        if kind == SocketKind::SeqPacket {
            return Ok(Self { socket: node.listen(kind, service)?.into() });
        }
        let socket = node.socket(kind)?;
        socket.bind(service, Scope::Cluster)?;
        Ok(Self { socket })
    }

    /// Waits for the next request, at most for the receive timeout of [`Responder::socket`].
    ///
    /// # Errors
    /// [`Error::Receive`], [`Error::Accept`], [`Error::TimedOut`].
    pub fn next(&self) -> Result<Request<'_>> {
        loop {
            if self.socket.kind() == SocketKind::SeqPacket {
                let (socket, source) = self.socket.accept()?;
                // A client that only connects, or is gone, is not an error of the server.
                let Ok(Incoming { data, destination, returned: None, .. }) = socket.within(SILENT).receive()
                else {
                    continue;
                };
                if !data.is_empty() {
                    return Ok(Request { data, source, destination, reply_by: ReplyBy::Connection(socket) });
                }
                continue;
            }
            let Incoming { data, source, destination, returned, .. } = self.socket.receive()?;
            if returned.is_none() {
                return Ok(Request { data, source, destination, reply_by: ReplyBy::Message(&self.socket) });
            }
        }
    }

    /// The socket, for timeouts, more bindings and polling.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl Request<'_> {
    /// Sends the reply, of at least one byte.
    ///
    /// # Errors
    /// [`Error::Send`] if the client is gone, [`Error::OutOfRange`] for an empty reply, which TIPC does not deliver.
    pub fn reply(self, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Err(Error::OutOfRange { what: "an empty reply", remedy: "send at least one byte" });
        }
        match self.reply_by {
            ReplyBy::Message(socket) => socket.send_to(data, self.source)?,
            ReplyBy::Connection(socket) => {
                let sent = socket.send(data)?;
                // The client may have closed the connection already.
                let _ = socket.shutdown();
                sent
            }
        };
        Ok(())
    }
}
