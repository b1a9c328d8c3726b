//! The channels of utipc: connections, datagrams, multicast.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use utipc::{Connection, Destination, Node, PortId, Received, Scope, ServiceRange, Socket, SocketKind};

use super::super::channel::{Channel, Opened, Spinner, Waiting};
use super::super::job::{Job, LIMIT, ServerAddress, Test};
use super::super::traffic::END;
use super::super::variant::Kind;
use super::{SERVICE, SOCKETS, members, node, ordered, packets, prepare, retry, service};

/// Bytes and messages to one receiver that may be unconfirmed: far below the limits at which it returns them (tipc.md
/// §8.7), far above what it receives between two sleeps.
const WINDOW: (usize, u64) = (512 << 10, 1024);

fn kind(job: &Job) -> SocketKind {
    match job.variant.kind {
        Kind::Rdm | Kind::Group | Kind::Ordered | Kind::Safe => SocketKind::Rdm,
        Kind::Seqpacket => SocketKind::SeqPacket,
        Kind::Stream => SocketKind::Stream,
    }
}

/// Opens the server's end: a listener, or a bound socket for each connection.
pub(in super::super) fn serve(job: &Job) -> Result<Waiting> {
    ensure!(job.connections <= SOCKETS, "at most {SOCKETS} connections to one server");
    let node = node(job).context("start a node")?;
    match job.variant.kind {
        Kind::Group => return members::serve(node, job),
        Kind::Ordered | Kind::Safe => return ordered::serve(node, job),
        Kind::Rdm | Kind::Seqpacket | Kind::Stream => {}
    }
    let job = job.clone();
    let count = if job.variant.kind == Kind::Rdm { job.connections } else { 1 };
    let mut sockets = Vec::new();
    let mut listener = None;
    for number in 0..count {
        let address = service(job.index, number);
        if job.variant.kind == Kind::Rdm {
            let socket = node.rdm().context("open a socket")?;
            socket.bind(address, Scope::Cluster).with_context(|| format!("bind to {address}"))?;
            sockets.push(socket);
        } else {
            let listening = node.listen(kind(&job), address);
            listener = Some(listening.with_context(|| format!("listen at {address}"))?);
        }
    }
    let accept = move || {
        let channels = match listener {
            None => sockets
                .into_iter()
                .map(|socket| Datagrams::boxed(socket, None, &job))
                .collect::<Result<Vec<_>>>()?,
            Some(listener) => {
                listener.socket().set_receive_timeout(Some(LIMIT));
                let accepted = |_| Connected::boxed(listener.accept().context("accept")?, &job);
                (0..job.connections).map(accepted).collect::<Result<Vec<_>>>()?
            }
        };
        Ok(Opened { channels, packets: packets(&node) })
    };
    Ok(Waiting { address: ServerAddress::default(), accept: Box::new(accept) })
}

/// Opens the driver's end.
pub(in super::super) fn drive(job: &Job) -> Result<Opened> {
    let node = node(job).context("start a node")?;
    match job.variant.kind {
        Kind::Group => return members::drive(&node, job),
        Kind::Ordered | Kind::Safe => return ordered::drive(&node, job),
        Kind::Rdm | Kind::Seqpacket | Kind::Stream => {}
    }
    let servers = if job.servers > 1 { 0..job.servers } else { job.index..job.index + 1 };
    for server in servers {
        node.wait_for_service(service(server, 0), LIMIT).context("wait for a server")?;
    }
    let mut channels = Vec::new();
    if job.servers > 1 {
        channels.push(Multicast::boxed(&node, job)?);
    }
    for number in (0..job.connections).filter(|_| job.servers == 1) {
        channels.push(if job.variant.kind == Kind::Rdm {
            let to = service(job.index, number);
            node.wait_for_service(to, LIMIT).context("wait for a server")?;
            Datagrams::boxed(node.rdm().context("open a socket")?, Some(to.into()), job)?
        } else {
            Connected::boxed(node.connect(kind(job), service(job.index, 0)).context("connect")?, job)?
        });
    }
    Ok(Opened { channels, packets: packets(&node) })
}

fn window(size: usize) -> u64 {
    ((WINDOW.0 / size.max(1)) as u64).clamp(2, WINDOW.1)
}

/// A connection, of messages or of bytes.
struct Connected {
    connection: Connection,
    stream: bool,
    busy: Option<Spinner>,
}

impl Connected {
    fn boxed(connection: Connection, job: &Job) -> Result<Box<dyn Channel>> {
        let busy = prepare(connection.socket(), job);
        let stream = job.variant.kind == Kind::Stream;
        if stream && job.variant.transport.is_own() && job.test == Test::Echo {
            connection.socket().set_nodelay(true).context("send each write at once")?;
        }
        Ok(Box::new(Self { connection, stream, busy }))
    }
}

impl Channel for Connected {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        let socket = self.connection.socket();
        let mut sent = 0;
        while sent < data.len() {
            sent += retry(self.busy, || socket.send(&data[sent..]))?;
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        let received = retry(self.busy, || self.connection.receive_into(buffer))?;
        if received.len == 0 {
            bail!("the other end has closed the connection");
        }
        Ok(Some(received.len))
    }

    fn is_stream(&self) -> bool {
        self.stream
    }
}

/// A reliable datagram socket: a driver sends to a service, a server to the source of its last message.
struct Datagrams {
    socket: Socket,
    service: Option<Destination>,
    source: Option<PortId>,
    busy: Option<Spinner>,
}

impl Datagrams {
    fn boxed(socket: Socket, service: Option<Destination>, job: &Job) -> Result<Box<dyn Channel>> {
        let busy = prepare(&socket, job);
        // Messages that the receiver has no space for are returned instead of dropped.
        socket.set_returned(true).context("ask for undeliverable messages")?;
        Ok(Box::new(Self { socket, service, source: None, busy }))
    }
}

impl Channel for Datagrams {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        let to = self
            .service
            .or(self.source.map(Destination::Port))
            .context("a server sends before it has received")?;
        retry(self.busy, || self.socket.send_to(data, to))?;
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        let received = retry(self.busy, || self.socket.receive_into(buffer))?;
        check_not_returned(&received)?;
        self.source = Some(received.source);
        Ok(Some(received.len))
    }

    fn is_stream(&self) -> bool {
        false
    }

    fn window(&self, size: usize) -> Option<u64> {
        Some(window(size))
    }
}

fn check_not_returned(received: &Received) -> Result<()> {
    match &received.returned {
        Some(back) => bail!("a message was returned: {:?}", back.code),
        None => Ok(()),
    }
}

/// One socket that sends to all servers. It receives their confirmations, and reports each once all servers have sent
/// it.
struct Multicast {
    socket: Socket,
    to: ServiceRange,
    servers: usize,
    confirmed: BTreeMap<PortId, u64>,
    reported: u64,
    ended: usize,
    busy: Option<Spinner>,
}

impl Multicast {
    fn boxed(node: &Node, job: &Job) -> Result<Box<dyn Channel>> {
        let socket = node.rdm().context("open a socket")?;
        let busy = prepare(&socket, job);
        let to = ServiceRange::new(SERVICE, 0, job.servers * SOCKETS - 1);
        let (servers, confirmed) = (job.servers as usize, BTreeMap::new());
        Ok(Box::new(Self { socket, to, servers, confirmed, reported: 0, ended: 0, busy }))
    }
}

impl Channel for Multicast {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        retry(self.busy, || self.socket.send_to(data, self.to))?;
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        loop {
            let received = retry(self.busy, || self.socket.receive_into(buffer))?;
            check_not_returned(&received)?;
            if buffer.first() == Some(&END) {
                self.ended += 1;
                if self.ended == self.servers {
                    return Ok(Some(received.len));
                }
                continue;
            }
            *self.confirmed.entry(received.source).or_default() += 1;
            let slowest = self.confirmed.values().min().copied().unwrap_or(0);
            if self.confirmed.len() == self.servers && slowest > self.reported {
                self.reported += 1;
                return Ok(Some(received.len));
            }
        }
    }

    fn is_stream(&self) -> bool {
        false
    }

    fn window(&self, size: usize) -> Option<u64> {
        Some(window(size))
    }
}
