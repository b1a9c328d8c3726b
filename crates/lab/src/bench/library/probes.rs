//! Peers of single measurements: how soon the end of a process breaks its connections, how soon a binding is seen, what
//! many sockets cost.

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use utipc::{Node, Scope, ServiceAddress, SocketKind};

use super::super::job::{EndResult, Job, LIMIT, ServerAddress};
use super::super::parent::{Parent, Retained};
use super::super::traffic::{Gauge, now_ns};
use super::super::variant::Transport;
use super::{node, packets, service};

/// Service type of the bindings that [`watcher`] looks up.
const SEEN: u32 = 19_619;
/// Service type of the bindings of [`bind_many`].
const MANY: u32 = 19_620;
/// Time between two bindings of [`binder`].
const PACE: Duration = Duration::from_millis(2);
/// Messages of each client before the measured ones; the first few go through the daemon.
const WARM_UP: u64 = 3;

/// Accepts a connection and a TCP connection and holds both until this process is killed.
pub(in super::super) fn victim(job: &Job, parent: &Parent) -> Result<EndResult> {
    let node = node(job).context("start a node")?;
    let listener = node.listen(SocketKind::SeqPacket, service(job.index, 0)).context("listen")?;
    let tcp = TcpListener::bind((job.site.local, 0)).context("listen by TCP")?;
    let port = tcp.local_addr().context("query a TCP socket")?.port();
    parent.ready(ServerAddress { ports: vec![port], ..ServerAddress::default() })?;
    let connection = listener.accept().context("accept")?;
    let plain = tcp.accept().context("accept by TCP")?;
    parent.wait_for_end();
    drop((connection, plain));
    Ok(EndResult::default())
}

/// Waits in a receive call until the connection, or for TCP the TCP connection, breaks; `ended` is the time.
pub(in super::super) fn survivor(job: &Job, parent: &Parent) -> Result<EndResult> {
    let node = node(job).context("start a node")?;
    let server = service(job.index, 0);
    node.wait_for_service(server, LIMIT).context("wait for the server")?;
    let connection = node.connect(SocketKind::SeqPacket, server).context("connect")?;
    connection.socket().set_receive_timeout(Some(LIMIT));
    let port = job
        .addresses
        .first()
        .and_then(|address| address.ports.first())
        .context("the server has no TCP port")?;
    let mut plain = TcpStream::connect((job.site.remote, *port)).context("connect by TCP")?;
    plain.set_read_timeout(Some(LIMIT)).context("limit the wait for TCP")?;
    parent.ready_to_go()?;
    // The bytes that the receive call of the survivor returns; an error: the connection has not broken.
    let answer = if job.variant.transport == Transport::Tcp {
        match plain.read(&mut [0; 16]) {
            Err(why) if why.kind() != ErrorKind::WouldBlock => Ok(0),
            answer => answer.context("the TCP connection has not broken"),
        }
    } else {
        match connection.receive_into(&mut [0; 16]) {
            Err(why) if !why.is_temporary() => Ok(0),
            answer => answer.map(|received| received.len).context("the connection has not broken"),
        }
    };
    let ended = now_ns();
    ensure!(answer? == 0, "data from a victim that sends none");
    Ok(EndResult { ended, ..EndResult::default() })
}

/// Answers every datagram until this process is ended.
pub(in super::super) fn welcomer(job: &Job, parent: &Parent) -> Result<EndResult> {
    let node = node(job).context("start a node")?;
    let socket = node.rdm().context("open a socket")?;
    socket.bind(service(0, 0), Scope::Cluster).context("bind")?;
    parent.ready(ServerAddress::default())?;
    loop {
        let message = socket.receive().context("receive")?;
        // A client that has its answer may be gone.
        let _ = socket.send_to(&message.data, message.source);
    }
}

/// Measures the milliseconds from the start of a node until its first message is answered.
pub(in super::super) fn starter(job: &Job, parent: &Parent) -> Result<EndResult> {
    parent.ready_to_go()?;
    let began = now_ns();
    let node = node(job).context("start a node")?;
    let socket = node.rdm().context("open a socket")?;
    socket.set_receive_timeout(Some(LIMIT));
    node.wait_for_service(service(0, 0), LIMIT).context("wait for the server")?;
    socket.send_to(b"hello", service(0, 0)).context("send")?;
    socket.receive().context("receive the answer")?;
    let value = Some((now_ns() - began) as f64 / 1e6);
    Ok(EndResult { value, ..EndResult::default() })
}

/// Binds one address after another; `times` holds the time before and after each call.
pub(in super::super) fn binder(job: &Job, parent: &Parent, retained: &mut Retained) -> Result<EndResult> {
    let node = node(job).context("start a node")?;
    let socket = node.rdm().context("open a socket")?;
    parent.ready_to_go()?;
    let mut times = Vec::new();
    for number in 0..job.messages {
        std::thread::sleep(PACE);
        let asked = now_ns();
        socket.bind(address(SEEN, number), Scope::Cluster).context("bind")?;
        times.push((asked, now_ns()));
    }
    // The bindings stay until the watcher has seen them all.
    retained.push(Box::new(socket));
    Ok(EndResult { times, ..EndResult::default() })
}

/// Looks each of these addresses up until it is found; `times` holds when it began and when it succeeded.
pub(in super::super) fn watcher(job: &Job, parent: &Parent) -> Result<EndResult> {
    let node = node(job).context("start a node")?;
    parent.ready_to_go()?;
    let mut times = Vec::new();
    for number in 0..job.messages {
        let (since, began) = (Instant::now(), now_ns());
        while node.lookup(address(SEEN, number)).is_none() {
            ensure!(since.elapsed() < LIMIT, "a binding has not been seen within {LIMIT:?}");
        }
        times.push((began, now_ns()));
    }
    Ok(EndResult { times, ..EndResult::default() })
}

fn address(service: u32, number: u64) -> ServiceAddress {
    ServiceAddress::new(service, u32::try_from(number).unwrap_or(u32::MAX))
}

/// The server of `warmup` clients: receives [`WARM_UP`] datagrams of each of them, so that all of them run, then
/// measures
/// `messages`. `times` holds (client, number of its messages).
pub(in super::super) fn crowd_server(job: &Job, parent: &Parent) -> Result<EndResult> {
    let node = node(job).context("start a node")?;
    let socket = node.rdm().context("open a socket")?;
    socket.bind(service(0, 0), Scope::Cluster).context("bind")?;
    socket.set_receive_timeout(Some(LIMIT));
    parent.ready(ServerAddress::default())?;
    let mut buffer = vec![0; job.size as usize];
    let mut served = vec![0_u64; usize::try_from(job.warmup)?];
    let mut serve = |served: &mut [u64]| -> Result<u64> {
        socket.receive_into(&mut buffer).context("receive")?;
        // The message carries the number of its client: a lookup by sender would cost more with more senders.
        let number = buffer.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let count = number.and_then(|number| served.get_mut(number as usize));
        let count = count.context("a message of an unknown client")?;
        *count += 1;
        Ok(*count)
    };
    let (since, mut silent) = (Instant::now(), served.len());
    while silent > 0 {
        ensure!(
            since.elapsed() < LIMIT,
            "{silent} clients have not sent {WARM_UP} messages within {LIMIT:?}"
        );
        silent -= usize::from(serve(&mut served)? == WARM_UP);
    }
    served.fill(0);
    let gauge = Gauge::new(packets(&node));
    let began = gauge.begin();
    for _ in 0..job.messages {
        serve(&mut served)?;
    }
    let ended = gauge.end();
    let times = (0..).zip(served).collect();
    let mut part = EndResult { messages: job.messages, began, ended, times, ..EndResult::default() };
    gauge.fill(&mut part);
    Ok(part)
}

/// `connections` clients in one process, which send in turn until the process ends. The first bytes of a message are
/// the number of its client.
pub(in super::super) fn crowd_clients(job: &Job, parent: &Parent) -> Result<EndResult> {
    let node = node(job).context("start a node")?;
    let server = service(0, 0);
    node.wait_for_service(server, LIMIT).context("wait for the server")?;
    let open = |number: u32| -> utipc::Result<_> {
        let socket = node.rdm()?;
        socket.set_nonblocking(true);
        Ok((job.index * job.connections + number, socket))
    };
    let sockets =
        (0..job.connections).map(open).collect::<utipc::Result<Vec<_>>>().context("open sockets")?;
    let mut message = vec![7; job.size as usize];
    parent.ready_to_go()?;
    loop {
        let mut moved = false;
        for (number, socket) in &sockets {
            *message.first_chunk_mut().context("the message is too small for a number")? =
                number.to_le_bytes();
            match socket.send_to(&message, server) {
                Ok(_) => moved = true,
                Err(why) if why.is_temporary() => {}
                Err(why) => return Err(why).context("send"),
            }
        }
        if !moved {
            std::thread::yield_now();
        }
    }
}

/// Opens `connections` sockets with `messages` bindings each and keeps them.
pub(in super::super) fn bind_many(job: &Job, parent: &Parent) -> Result<EndResult> {
    let node = node(job).context("start a node")?;
    let each = u32::try_from(job.messages).unwrap_or(u32::MAX);
    let first = job.index * job.connections * each;
    let open = |number: u32| -> utipc::Result<utipc::Socket> {
        let socket = node.rdm()?;
        for instance in 0..each {
            let address = ServiceAddress::new(MANY, first + number * each + instance);
            socket.bind(address, Scope::Cluster)?;
        }
        Ok(socket)
    };
    let sockets = (0..job.connections).map(open).collect::<utipc::Result<Vec<_>>>();
    let sockets = sockets.context("open and bind sockets")?;
    parent.ready(ServerAddress::default())?;
    parent.wait_for_end();
    drop(sockets);
    Ok(EndResult::default())
}

/// Measures the nanoseconds of a lookup among `connections` bindings of one type.
pub(in super::super) fn look_up_all(job: &Job, parent: &Parent) -> Result<EndResult> {
    let node: Node = node(job).context("start a node")?;
    parent.ready_to_go()?;
    let value = Some(look_up(&node, MANY, job.connections, job.messages)?);
    Ok(EndResult { value, ..EndResult::default() })
}

/// Mean nanoseconds per lookup, over `lookups` lookups among the `bindings` of a service type.
pub(in super::super) fn look_up(node: &Node, service: u32, bindings: u32, lookups: u64) -> Result<f64> {
    let mut instance = 1_u32;
    let began = now_ns();
    for _ in 0..lookups {
        // A full-period sequence: consecutive lookups are not neighbours in the table.
        instance = instance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let found = node.lookup(ServiceAddress::new(service, instance % bindings));
        ensure!(found.is_some(), "a binding is missing");
    }
    Ok((now_ns() - began) as f64 / lookups as f64)
}
