//! The threads of a process.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use utipc::{
    Change, Connection, Destination, Error, Listener, PortId, Received, Scope, ServiceAddress, ServiceRange,
    Socket, SocketKind,
};
use utipc_bench_kit::numbered::{self, Exact, Flows, HEAD, Head, Random};

use crate::actor::Actor;

/// What a message asks of its receiver: nothing, to send the same message back, or to end. The last one is sent by the
/// receiver's own process.
const PLAIN: u8 = 0;
const ECHO: u8 = 1;
const STOP: u8 = 2;

/// The longest message, bytes.
const LONGEST: usize = 66_000;

/// Service types: of requests, multicasts, connections of messages and of bytes.
const REQUESTS: u32 = 7001;
const CASTS: u32 = 7002;
const PACKETS: u32 = 7003;
const BYTES: u32 = 7004;

/// A call that takes longer is stuck: far above any normal time, with 200 processes on two cores that others use too.
const LIMIT: Duration = Duration::from_secs(120);

/// Interval in which a client checks that its server still exists.
const PATIENCE: Duration = Duration::from_secs(3);

/// Receive timeout of servers. It is far longer than [`LIMIT`], so that a lost wake-up is noticed.
const NAP: Duration = Duration::from_secs(600);

/// Interval at which the message that ends a server is repeated.
const REPEAT: Duration = Duration::from_secs(10);

/// One of this many processes subscribes. Not all do, because each subscriber gets an event for each start and
/// end of a process.
const SUBSCRIBERS: u32 = 8;

/// Longest pause of a client between two actions, milliseconds.
const PAUSE_MS: u64 = 1500;

/// If a repeated receive call returns an answer this soon, the answer had arrived before the call.
const AT_ONCE: Duration = Duration::from_millis(5);

/// Maximum number of connections of a server at a time.
const MOST_CONNECTIONS: usize = 8;

/// Instances in the range of a multicast.
const REACH: u32 = 12;

/// A thread that serves until a message ends it.
pub(crate) struct Server {
    thread: JoinHandle<()>,
    stop: Stop,
}

enum Stop {
    /// The socket of a connectionless server.
    Message(PortId),
    /// Kind and type of a listener.
    Connection(SocketKind, u32),
    /// Ends by itself.
    Flag,
}

impl Server {
    /// Ends the server by a message.
    pub(crate) fn end(self, actor: &Actor) -> Result<()> {
        let stop = Head { flow: actor.flow(), number: 0, len: HEAD, kind: STOP }.message();
        let mut sent_at = None::<Instant>;
        while !self.thread.is_finished() {
            // A server with a full queue may have lost it.
            if sent_at.is_none_or(|at| at.elapsed() > REPEAT) {
                sent_at = Some(Instant::now());
                match self.stop {
                    Stop::Message(port) => drop(actor.node.rdm()?.send_to(&stop, port)),
                    Stop::Connection(kind, service) => {
                        let own = ServiceAddress::new(service, actor.life.place);
                        drop(actor.node.connect(kind, own));
                    }
                    Stop::Flag => {}
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.thread.join().is_err() {
            actor.book.violation("a server's thread panicked".to_owned());
        }
        Ok(())
    }
}

/// Starts the servers and the subscriber.
pub(crate) fn serve(actor: &Actor) -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    for service in [REQUESTS, CASTS] {
        let socket = actor.node.rdm().context("open a server's socket")?;
        socket.bind(ServiceAddress::new(service, actor.life.place), Scope::Cluster).context("bind")?;
        let (own, port) = (actor.clone(), socket.port());
        let thread = std::thread::spawn(move || datagrams(&own, &socket));
        servers.push(Server { thread, stop: Stop::Message(port) });
    }
    for (kind, service) in [(SocketKind::SeqPacket, PACKETS), (SocketKind::Stream, BYTES)] {
        let listener = actor.node.listen(kind, ServiceAddress::new(service, actor.life.place));
        let listener = listener.context("listen")?;
        let own = actor.clone();
        let thread = std::thread::spawn(move || accept(&own, &listener));
        servers.push(Server { thread, stop: Stop::Connection(kind, service) });
    }
    if actor.life.place.is_multiple_of(SUBSCRIBERS) {
        let own = actor.clone();
        let thread = std::thread::spawn(move || follow(&own));
        servers.push(Server { thread, stop: Stop::Flag });
    }
    Ok(servers)
}

fn received(actor: &Actor, head: &Head) {
    actor.book.note(|tally| {
        tally.received += 1;
        tally.bytes += head.len as u64;
    });
}

/// Serves a datagram socket: answers requests and receives multicasts.
fn datagrams(actor: &Actor, socket: &Socket) {
    let mut flows = Flows::default();
    let mut buffer = vec![0; LONGEST];
    socket.set_receive_timeout(Some(NAP));
    socket.set_send_timeout(Some(LIMIT));
    loop {
        let Received { len, source, returned, .. } = match socket.receive_into(&mut buffer) {
            Ok(received) => received,
            Err(error) if error.is_temporary() => continue,
            Err(error) => return actor.book.violation(format!("a server cannot receive: {error}")),
        };
        if returned.is_some() {
            continue;
        }
        let head = match numbered::check(&buffer[..len]) {
            Ok(head) => head,
            Err(why) => {
                actor.book.violation(format!("a datagram from {source}: {why}"));
                continue;
            }
        };
        match flows.see(&head) {
            Ok(gap) => actor.book.note(|tally| tally.gaps += gap),
            Err(why) => actor.book.violation(format!("datagrams from {source} out of order: {why}")),
        }
        received(actor, &head);
        match head.kind {
            STOP => return,
            ECHO => match socket.send_to(&buffer[..len], source) {
                Ok(_) => actor.book.note(|tally| tally.sent += 1),
                Err(error) if error.is_temporary() => {
                    actor.book.violation(format!("an answer to {source} blocks forever: {error}"));
                }
                // The client is gone.
                Err(_) => actor.book.note(|tally| tally.refused += 1),
            },
            _ => {}
        }
    }
}

fn accept(actor: &Actor, listener: &Listener) {
    listener.socket().set_receive_timeout(Some(NAP));
    let busy = Arc::new(AtomicUsize::new(0));
    let mut threads: Vec<JoinHandle<bool>> = Vec::new();
    loop {
        let connection = match listener.accept() {
            Ok(connection) => connection,
            Err(error) if error.is_temporary() => continue,
            Err(error) => return actor.book.violation(format!("a server cannot accept: {error}")),
        };
        if actor.is_over() {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        // Close at once: the client sees the end of the connection.
        if busy.load(Ordering::SeqCst) >= MOST_CONNECTIONS {
            continue;
        }
        busy.fetch_add(1, Ordering::SeqCst);
        let (own, busy) = (actor.clone(), Arc::clone(&busy));
        threads.push(std::thread::spawn(move || {
            let whole = converse(&own, &connection);
            busy.fetch_sub(1, Ordering::SeqCst);
            whole
        }));
    }
    for thread in threads {
        if thread.join().is_err() {
            actor.book.violation("a connection's thread panicked".to_owned());
        }
    }
}

/// A connection of any kind as a sequence of messages.
struct Talk<'a> {
    connection: &'a Connection,
    stream: bool,
    /// Received bytes of a stream that are not yet a whole message.
    rest: Vec<u8>,
    buffer: Vec<u8>,
    exact: Exact,
}

/// The result of a receive call on a connection.
enum Incoming {
    Message(Head, Vec<u8>),
    End,
    /// The peer has ended without closing the connection.
    Broken,
}

impl<'a> Talk<'a> {
    fn new(connection: &'a Connection) -> Self {
        let stream = connection.socket().kind() == SocketKind::Stream;
        connection.socket().set_receive_timeout(Some(LIMIT));
        connection.socket().set_send_timeout(Some(LIMIT));
        Self { connection, stream, rest: Vec::new(), buffer: vec![0; LONGEST], exact: Exact::default() }
    }

    /// The next message; `Err` for a violation.
    fn receive(&mut self) -> std::result::Result<Incoming, String> {
        loop {
            let whole = if self.stream { self.whole()? } else { None };
            let bytes = match whole {
                Some(bytes) => bytes,
                None => {
                    let got = match self.connection.receive_into(&mut self.buffer) {
                        Ok(got) => got,
                        Err(Error::Receive(_)) => return Ok(Incoming::Broken),
                        Err(error) => return Err(format!("no message from a living peer: {error}")),
                    };
                    if got.returned.is_some() {
                        return Ok(Incoming::Broken);
                    }
                    let new = &self.buffer[..got.len];
                    match new {
                        [] if self.rest.is_empty() => return Ok(Incoming::End),
                        [] => return Ok(Incoming::Broken),
                        _ if self.stream => {
                            self.rest.extend(new);
                            continue;
                        }
                        _ => new.to_vec(),
                    }
                }
            };
            let head = numbered::check(&bytes)?;
            self.exact.see(&head)?;
            return Ok(Incoming::Message(head, bytes));
        }
    }

    fn whole(&mut self) -> std::result::Result<Option<Vec<u8>>, String> {
        if self.rest.len() < HEAD {
            return Ok(None);
        }
        let len = Head::read(&self.rest)?.len;
        if self.rest.len() < len {
            return Ok(None);
        }
        let rest = self.rest.split_off(len);
        Ok(Some(std::mem::replace(&mut self.rest, rest)))
    }

    /// Whether the peer still exists.
    fn send(&mut self, bytes: &[u8]) -> std::result::Result<bool, String> {
        match self.connection.send(bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.is_temporary() => Err(format!("a living peer does not receive: {error}")),
            Err(_) => Ok(false),
        }
    }
}

/// The server's end of a connection; returns whether it ended in order.
fn converse(actor: &Actor, connection: &Connection) -> bool {
    let mut talk = Talk::new(connection);
    let mut work = || loop {
        match talk.receive()? {
            Incoming::End => return Ok(true),
            Incoming::Broken => return Ok(false),
            Incoming::Message(head, bytes) => {
                received(actor, &head);
                match head.kind {
                    STOP => return Ok(true),
                    ECHO if talk.send(&bytes)? => actor.book.note(|tally| tally.sent += 1),
                    ECHO => return Ok(false),
                    _ => {}
                }
            }
        }
    };
    let done: std::result::Result<bool, String> = work();
    done.unwrap_or_else(|why| {
        let (kind, peer) = (connection.socket().kind(), connection.peer());
        actor.book.violation(format!("server of a {kind:?} connection to {peer:?}: {why}"));
        false
    })
}

/// Subscribes to the servers of requests, and checks that each appears once and disappears once.
fn follow(actor: &Actor) {
    'subscribe: loop {
        let topology = actor.node.topology().and_then(|mut topology| {
            topology.services(ServiceRange::new(REQUESTS, 0, u32::MAX))?;
            Ok(topology)
        });
        let mut topology = match topology {
            Ok(topology) => topology,
            Err(error) => return actor.book.violation(format!("cannot subscribe: {error}")),
        };
        let mut up = BTreeSet::new();
        while !actor.is_over() {
            let event = match topology.next(Duration::from_millis(500)) {
                Ok(None) => continue,
                Ok(Some(event)) => event,
                Err(Error::TopologyClosed { .. }) => {
                    actor.book.note(|tally| tally.resubscribed += 1);
                    continue 'subscribe;
                }
                Err(error) => return actor.book.violation(format!("a subscriber cannot receive: {error}")),
            };
            actor.book.note(|tally| tally.events += 1);
            let fits = match event.change {
                Change::ServiceUp => up.insert(event.port),
                Change::ServiceDown => up.remove(&event.port),
                _ => false,
            };
            if !fits {
                actor.book.violation(format!("an event that cannot be: {event:?}"));
            }
        }
        return;
    }
}

/// Runs the client: communicates with other processes until the end.
pub(crate) fn run_client(actor: &Actor) {
    let mut random = actor.random();
    while !actor.is_over() {
        let place = random.below(actor.life.places.into()) as u32;
        let done = match random.below(8) {
            0..=2 => request(actor, &mut random, place),
            3 | 4 => connect(actor, &mut random, SocketKind::SeqPacket, PACKETS, place),
            5 | 6 => connect(actor, &mut random, SocketKind::Stream, BYTES, place),
            _ => multicast(actor, &mut random, place),
        };
        if let Err(why) = done {
            actor.book.violation(why);
        }
        std::thread::sleep(Duration::from_millis(random.below(PAUSE_MS)));
    }
}

type Done = std::result::Result<(), String>;

/// A random length: most messages are short, a few have the largest length.
fn length(random: &mut Random) -> usize {
    let most = match random.below(20) {
        0 => LONGEST,
        1..=3 => 9000,
        _ => 700,
    };
    HEAD + random.below((most - HEAD) as u64 + 1) as usize
}

/// Requests to one server in sequence, waiting in the receive call or on the descriptor.
fn request(actor: &Actor, random: &mut Random, place: u32) -> Done {
    let service = ServiceAddress::new(REQUESTS, place);
    let socket = actor.node.rdm().map_err(|e| e.to_string())?;
    socket.set_returned(true).map_err(|e| e.to_string())?;
    let polls = random.below(4) == 0;
    socket.set_nonblocking(polls);
    socket.set_receive_timeout(Some(PATIENCE));
    socket.set_send_timeout(Some(LIMIT));
    let Some(server) = actor.node.lookup(service) else {
        actor.book.note(|tally| tally.refused += 1);
        return Ok(());
    };
    let flow = actor.flow();
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; LONGEST]);
    for number in 0..1 + random.below(20) {
        Head { flow, number, len: length(random), kind: ECHO }.write(&mut bytes);
        // By service address and by socket address: the service has one server, which may have died.
        let by_name = random.below(2) == 0;
        let to = if by_name { Destination::from(service) } else { Destination::from(server) };
        match socket.send_to(&bytes, to) {
            Ok(_) => actor.book.note(|tally| tally.sent += 1),
            Err(error) if error.is_temporary() && !polls => {
                return Err(format!("a request to {server} blocks forever: {error}"));
            }
            Err(_) => {
                actor.book.note(|tally| tally.refused += 1);
                return Ok(());
            }
        }
        let got = answer(actor, &socket, server, polls, &mut buffer)?;
        match got {
            Ok(got) if got.returned.is_some() => {
                actor.book.note(|tally| tally.returned += 1);
                return Ok(());
            }
            Ok(got) if buffer.get(..got.len) == Some(&bytes[..]) => {
                received(actor, &numbered::check(&bytes)?);
            }
            Ok(got) => {
                let what = numbered::check(&buffer[..got.len]);
                return Err(format!("an answer to number {number} of flow {flow} from {server}: {what:?}"));
            }
            Err(error) if error.is_temporary() => {
                // Another server may have the service address now.
                if !by_name && actor.node.bindings().iter().any(|b| b.port == server) {
                    return Err(format!(
                        "{server} is alive and does not answer number {number} of flow {flow}"
                    ));
                }
                actor.book.note(|tally| tally.unanswered += 1);
                return Ok(());
            }
            Err(error) => return Err(format!("a client cannot receive: {error}")),
        }
    }
    Ok(())
}

/// Waits for an answer of `server`, up to [`LIMIT`] or until the server has died, and counts it if it is late.
fn answer(
    actor: &Actor,
    socket: &Socket,
    server: PortId,
    polls: bool,
    buffer: &mut [u8],
) -> std::result::Result<utipc::Result<Received>, String> {
    let begun = Instant::now();
    let mut looked;
    let got = loop {
        looked = Instant::now();
        match socket.receive_into(buffer) {
            Err(error) if error.is_temporary() && begun.elapsed() < LIMIT => {
                // A server that has read the request and died never answers.
                if begun.elapsed() >= PATIENCE && !actor.node.bindings().iter().any(|b| b.port == server) {
                    break Err(error);
                }
                if polls {
                    actor.book.note(|tally| tally.polled += 1);
                    wait_readable(socket, PATIENCE)?;
                }
            }
            other => break other,
        }
    };
    if got.is_ok() && begun.elapsed() >= PATIENCE {
        let at_once = looked.elapsed() < AT_ONCE;
        actor.book.note(|tally| {
            tally.late += 1;
            tally.late_at_look += u64::from(at_once && !polls);
        });
    }
    Ok(got)
}

fn wait_readable(socket: &Socket, limit: Duration) -> Done {
    let descriptor = socket.descriptor().map_err(|e| e.to_string())?;
    let mut set = [PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN)];
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
    // A signal or the timeout: the caller checks anyway.
    let _ = poll(&mut set, Some(&limit));
    Ok(())
}

/// A connection with bursts of messages, some of which are echoed.
fn connect(actor: &Actor, random: &mut Random, kind: SocketKind, service: u32, place: u32) -> Done {
    let service = ServiceAddress::new(service, place);
    let socket = actor.node.socket(kind).map_err(|e| e.to_string())?;
    let connection = match Connection::open(socket, service) {
        Ok(connection) => connection,
        Err(_) => {
            actor.book.note(|tally| tally.refused += 1);
            return Ok(());
        }
    };
    actor.book.note(|tally| tally.connections += 1);
    let wrong = |why: String| format!("client of a {kind:?} connection to {:?}: {why}", connection.peer());
    let whole = exchange(actor, random, &connection).map_err(wrong)?;
    if !whole {
        actor.book.note(|tally| tally.broken += 1);
    } else if random.below(2) == 0 {
        let _ = connection.shutdown();
    }
    Ok(())
}

/// Whether the connection held.
fn exchange(
    actor: &Actor,
    random: &mut Random,
    connection: &Connection,
) -> std::result::Result<bool, String> {
    let mut talk = Talk::new(connection);
    let flow = actor.flow();
    let (mut number, mut bytes) = (0, Vec::new());
    // Echoes have a separate flow without gaps: requests for an echo are counted separately.
    for _ in 0..1 + random.below(10) {
        let plain = random.below(30);
        for part in 0..=plain {
            let kind = if part == plain { ECHO } else { PLAIN };
            Head { flow, number, len: length(random), kind }.write(&mut bytes);
            number += 1;
            if !talk.send(&bytes)? {
                return Ok(false);
            }
            actor.book.note(|tally| tally.sent += 1);
        }
        talk.exact = Exact::at(flow, number - 1);
        match talk.receive()? {
            Incoming::Message(head, echo) if echo == bytes => received(actor, &head),
            Incoming::Message(head, _) => {
                return Err(format!("{head:?} is not the echo of number {}", number - 1));
            }
            Incoming::End | Incoming::Broken => return Ok(false),
        }
    }
    Ok(true)
}

/// Multicasts to all servers of a range.
fn multicast(actor: &Actor, random: &mut Random, place: u32) -> Done {
    let socket = actor.node.rdm().map_err(|e| e.to_string())?;
    socket.set_send_timeout(Some(LIMIT));
    let to = ServiceRange::new(CASTS, place, place + REACH - 1);
    let flow = actor.flow();
    let mut bytes = Vec::new();
    for number in 0..1 + random.below(8) {
        Head { flow, number, len: length(random), kind: PLAIN }.write(&mut bytes);
        match socket.send_to(&bytes, to) {
            Ok(_) => actor.book.note(|tally| {
                tally.sent += 1;
                tally.multicasts += 1;
            }),
            Err(error) if error.is_temporary() => {
                return Err(format!("a multicast blocks forever: {error}"));
            }
            Err(_) => actor.book.note(|tally| tally.refused += 1),
        }
    }
    Ok(())
}
