//! Processes that are killed at any instant: their peers get an error, and the daemon releases everything of theirs.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{Engine, LIMIT, TestNode, alone};
use utipc::{Change, Error, Node, Scope, ServiceAddress, Socket, SocketKind};
use utipc_os::fork;

/// Set for a process that will be killed: the daemon's socket.
const VICTIM: &str = "UTIPC_TEST_VICTIM";

const THEIRS: ServiceAddress = ServiceAddress::new(9100, 1);
const OURS: ServiceAddress = ServiceAddress::new(9100, 2);
const DATAGRAMS: ServiceAddress = ServiceAddress::new(9100, 3);
const UNREAD: ServiceAddress = ServiceAddress::new(9100, 4);

/// Set for a process that reads datagrams until it is killed: the daemon's socket.
const READER: &str = "UTIPC_TEST_READER";

/// Set for a process that runs a daemon, and for one that shares sockets with its forked child: the daemon's socket.
const HOSTING: &str = "UTIPC_TEST_HOSTING";
const SHARER: &str = "UTIPC_TEST_SHARER";

/// Number of senders, messages of each, and readers that are killed.
const SENDERS: usize = 3;
const EACH: usize = 60;
const READERS: usize = 40;

/// Number of victims; each is killed a little later in its life than the one before.
const KILLS: u64 = 300;

/// The longest life of a victim in microseconds, by which it has repeated everything.
const LIFE_US: u64 = 40_000;

/// Not a test: binds, connects, sends and receives until it is killed.
#[test]
fn victim() {
    let Some(path) = std::env::var_os(VICTIM) else { return };
    let node = Node::builder().daemon_at(path).start().unwrap();
    loop {
        let server = node.rdm().unwrap();
        server.bind(THEIRS, Scope::Node).unwrap();
        let Ok(connection) = node.connect(SocketKind::SeqPacket, OURS) else { continue };
        let client = node.rdm().unwrap();
        for round in 0..40_usize {
            let message = vec![7; 1 + 700 * (round % 8)];
            if connection.send(&message).is_err() || connection.receive().is_err() {
                break;
            }
            let _ = client.send_to(&message, DATAGRAMS);
            let _ = server.send_to(&message, server.port());
            let _ = server.receive();
        }
    }
}

struct Victim(Child);

impl Victim {
    fn start(host: &TestNode) -> Self {
        Self::run(host, "victim", VICTIM, Stdio::null())
    }

    fn run(host: &TestNode, test: &str, variable: &str, out: Stdio) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(variable, host.daemon_socket().unwrap());
        Self(command.stdout(out).stderr(Stdio::null()).spawn().unwrap())
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn set_timeouts(socket: &Socket) {
    socket.set_receive_timeout(Some(LIMIT));
    socket.set_send_timeout(Some(LIMIT));
}

#[test]
fn process_killed_at_any_instant_leaves_nothing_behind() {
    let host = alone(Engine::Daemon);
    let listener = host.listen(SocketKind::SeqPacket, OURS).unwrap();
    let sink = host.rdm().unwrap();
    sink.bind(DATAGRAMS, Scope::Node).unwrap();
    let own = host.again();
    // Echoes until each connection ends, in any way.
    let echo = thread::spawn(move || {
        let mut broken = 0;
        loop {
            let Ok(connection) = listener.accept() else { return broken };
            set_timeouts(connection.socket());
            loop {
                match connection.receive() {
                    Ok(message) if message.data == b"end" => return broken,
                    Ok(message) if message.data.is_empty() => break,
                    Ok(message) => drop(connection.send(&message.data)),
                    Err(error) => {
                        assert!(!error.is_temporary(), "a connection to a dead process hangs: {error}");
                        broken += 1;
                        break;
                    }
                }
            }
        }
    });
    let drain = thread::spawn(move || {
        set_timeouts(&sink);
        while sink.receive().unwrap().data != b"end" {}
        sink
    });
    let mut topology = own.topology().unwrap();
    topology.services(THEIRS).unwrap();
    let before = own_counters(&host);
    let begin = Instant::now();
    for number in 0..KILLS {
        let victim = Victim::start(&host);
        // From before its attachment to the middle of its work.
        thread::sleep(Duration::from_micros(LIFE_US * (number % 75) / 75 + 13 * number));
        victim.kill();
        let killed = Instant::now();
        while own_counters(&host) != before {
            assert!(killed.elapsed() < LIMIT, "after victim {number}: {:?}", host.daemon_counters());
            // Pending replies about lanes are sent with the next calls.
            drop(own.rdm().unwrap());
            thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(own.lookup(THEIRS), None, "a binding outlives victim {number}");
        if begin.elapsed() > 2 * LIMIT {
            break;
        }
    }
    // Every binding was withdrawn as often as it was published.
    let mut names = BTreeMap::new();
    while let Some(event) = topology.next(Duration::from_millis(20)).unwrap() {
        *names.entry(event.port).or_insert(0) += if event.change == Change::ServiceUp { 1 } else { -1 };
    }
    assert!(names.values().all(|open| *open == 0), "{names:?}");
    let end = own.connect(SocketKind::SeqPacket, OURS).unwrap();
    end.send(b"end").unwrap();
    assert!(echo.join().unwrap() > 0, "no victim died in a connection");
    own.rdm().unwrap().send_to(b"end", DATAGRAMS).unwrap();
    let sink = drain.join().unwrap();
    drop((end, sink, topology));
    let done = Instant::now();
    while host.daemon_counters().lanes > 0 {
        assert!(done.elapsed() < LIMIT, "lanes are left: {:?}", host.daemon_counters());
        drop((own.rdm().unwrap(), host.rdm().unwrap()));
        thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(host.daemon_counters().lanes_corrupt, 0);
}

/// Attachments and sockets of the living processes.
fn own_counters(host: &TestNode) -> (usize, usize) {
    let counters = host.daemon_counters();
    (counters.attached, counters.sockets)
}

/// Not a test: reads, and prints what it has read, until it is killed.
#[test]
fn reader() {
    let Some(path) = std::env::var_os(READER) else { return };
    let node = Node::builder().daemon_at(path).start().unwrap();
    let socket = node.rdm().unwrap();
    socket.bind(UNREAD, Scope::Node).unwrap();
    let mut out = std::io::stdout();
    loop {
        let message = socket.receive().unwrap();
        let text = String::from_utf8_lossy(&message.data);
        out.write_all(format!("\n@{}\n", text.trim_end_matches('.')).as_bytes()).unwrap();
        out.flush().unwrap();
        // Slow enough that it dies with unread messages.
        thread::sleep(Duration::from_micros(50));
    }
}

/// Each message that a dead process has not read is returned to its sender once; messages that it has read are not.
#[test]
fn unread_messages_of_a_dead_process_come_back_once() {
    let host = alone(Engine::Daemon);
    let nodes: Vec<Node> = (0..SENDERS).map(|_| host.again()).collect();
    let (mut sent, mut read, mut returned, mut between) = (0, 0, 0, 0);
    for round in 0..READERS {
        let mut reader = Victim::run(&host, "reader", READER, Stdio::piped());
        let lines = BufReader::new(reader.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut lines = lines.filter_map(|line| line.strip_prefix('@').map(str::to_owned));
        host.wait_for_service(UNREAD, LIMIT).unwrap();
        let senders: Vec<Socket> = nodes.iter().map(|node| node.rdm().unwrap()).collect();
        for socket in &senders {
            set_timeouts(socket);
            socket.set_returned(true).unwrap();
        }
        let send = |number: usize, sender: usize| {
            let length = 20 + 97 * (number % 9);
            let message = format!("{sender} {number}{:.<length$}", "");
            senders[sender].send_to(message.as_bytes(), UNREAD).unwrap();
        };
        let all: Vec<(usize, usize)> = (0..EACH).flat_map(|n| (0..SENDERS).map(move |s| (n, s))).collect();
        all.iter().for_each(|(number, sender)| send(*number, *sender));
        // Each reader lives for a few messages longer than the one before.
        let mut seen: Vec<String> = lines.by_ref().take(1 + round * all.len() / READERS).collect();
        reader.kill();
        seen.extend(lines);
        let mut fate: BTreeMap<String, (u32, u32)> = BTreeMap::new();
        for message in &seen {
            fate.entry(message.clone()).or_default().0 += 1;
        }
        // It may have died between reading a message and printing it.
        let least = all.len().saturating_sub(seen.len() + 1);
        let mut back = 0;
        let begun = Instant::now();
        let mut last = None;
        for socket in &senders {
            socket.set_receive_timeout(Some(Duration::from_millis(2)));
        }
        while back < least || last.is_none_or(|at: Instant| at.elapsed() < Duration::from_millis(20)) {
            assert!(
                begun.elapsed() < LIMIT,
                "{back} of {least} messages came back, {} were read",
                seen.len()
            );
            for socket in &senders {
                while let Ok(message) = socket.receive() {
                    let data = message.returned.expect("a returned message").data;
                    let text = String::from_utf8(data).unwrap();
                    fate.entry(text.trim_end_matches('.').to_owned()).or_default().1 += 1;
                    back += 1;
                }
            }
            // Wait a little longer: surplus messages would come now.
            if back >= least && last.is_none() {
                last = Some(Instant::now());
            }
        }
        for (message, (read, returned)) in &fate {
            assert!(read + returned == 1, "message {message}: read {read} times, came back {returned} times");
        }
        let lost = all.len() - fate.len();
        assert!(lost <= 1, "{lost} messages were neither read nor came back");
        (sent, read, returned, between) =
            (sent + all.len(), read + seen.len(), returned + back, between + lost);
    }
    assert!(returned > 0 && read > 0);
    assert_eq!(sent, read + returned + between);
    eprintln!(
        "{sent} messages to {READERS} readers that were killed: {read} read, {returned} came back, {between} lost with \
         their reader"
    );
}

/// Not a test: a daemon in a process that can be killed.
#[test]
fn hosting() {
    if std::env::var_os(HOSTING).is_none() {
        return;
    }
    let host = alone(Engine::Daemon);
    println!("\n@{}", host.daemon_socket().unwrap().display());
    let _ = std::io::stdin().read(&mut [0]);
}

/// Waits in a call; returns whether the daemon's death ends it, and further calls too.
fn ends(socket: &Socket) -> bool {
    println!("\n@waits");
    let died = |_| match socket.receive() {
        Err(Error::DaemonDied { .. }) => true,
        other => {
            eprintln!("a call after the daemon's death: {other:?}");
            false
        }
    };
    (0..3).all(died)
}

/// Not a test: two processes that hold the same sockets, each waiting for one.
#[test]
fn sharer() {
    let Some(path) = std::env::var_os(SHARER) else { return };
    let node = Node::builder().daemon_at(path).start().unwrap();
    let (one, two) = (node.rdm().unwrap(), node.rdm().unwrap());
    let child = fork::run(|| u8::from(!ends(&one))).unwrap();
    assert!(ends(&two), "the parent's call");
    assert_eq!(child.wait(), Some(0), "the child's call");
}

#[test]
fn daemon_death_ends_calls_of_all_holders_of_a_socket() {
    let start = |test: &str, variable: &str, value: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(variable, value);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        (Victim(child), lines.filter_map(|line| line.strip_prefix('@').map(str::to_owned)))
    };
    let (daemon, mut said) = start("hosting", HOSTING, "1");
    let path = said.next().unwrap();
    let (mut sharer, mut said) = start("sharer", SHARER, &path);
    assert_eq!(said.by_ref().take(2).collect::<Vec<_>>(), ["waits", "waits"]);
    daemon.kill();
    let killed = Instant::now();
    let status = loop {
        if let Some(status) = sharer.0.try_wait().unwrap() {
            break status;
        }
        assert!(killed.elapsed() < LIMIT, "a call does not return");
        thread::sleep(Duration::from_millis(1));
    };
    assert!(status.success(), "{status}");
    // Remove what a killed daemon leaves behind.
    let _ = std::fs::remove_dir_all(std::path::Path::new(&path).parent().unwrap());
}
