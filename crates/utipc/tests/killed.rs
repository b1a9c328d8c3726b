//! Processes that are killed at any instant: the others learn it by an error, and the daemon keeps nothing of them.

mod common;

use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use common::{Engine, LIMIT, TestNode, alone};
use utipc::{Change, Node, Scope, ServiceAddress, Socket, SocketKind};

/// Set for a process that shall be killed: the daemon's socket.
const VICTIM: &str = "UTIPC_TEST_VICTIM";

const THEIRS: ServiceAddress = ServiceAddress::new(9100, 1);
const OURS: ServiceAddress = ServiceAddress::new(9100, 2);
const DATAGRAMS: ServiceAddress = ServiceAddress::new(9100, 3);

/// Victims; each is killed a little later in its life than the one before.
const KILLS: u64 = 300;

/// The longest life of a victim, microseconds: by then it does everything again and again.
const LIFE_US: u64 = 40_000;

/// Not a test of its own: binds, connects, sends and receives until it is killed.
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
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "victim", "--nocapture"]).env(VICTIM, host.daemon_socket().unwrap());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        Self(command.spawn().unwrap())
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

fn patient(socket: &Socket) {
    socket.set_receive_timeout(Some(LIMIT));
    socket.set_send_timeout(Some(LIMIT));
}

#[test]
fn whoever_is_killed_at_any_instant_leaves_nothing_behind() {
    let host = alone(Engine::Daemon);
    let listener = host.listen(SocketKind::SeqPacket, OURS).unwrap();
    let sink = host.rdm().unwrap();
    sink.bind(DATAGRAMS, Scope::Node).unwrap();
    let own = host.again();
    // Echoes until each connection ends, one way or another.
    let echo = thread::spawn(move || {
        let mut broken = 0;
        loop {
            let Ok(connection) = listener.accept() else { return broken };
            patient(connection.socket());
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
        patient(&sink);
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
            // The last answers about lanes are given by the next calls.
            drop(own.rdm().unwrap());
            thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(own.lookup(THEIRS), None, "a name outlives victim {number}");
        if begin.elapsed() > 2 * LIMIT {
            break;
        }
    }
    // No event came before the table was as it says: each name went as often as it came.
    let mut names = std::collections::BTreeMap::new();
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

/// Sockets and lanes of those who live.
fn own_counters(host: &TestNode) -> (usize, usize) {
    let counters = host.daemon_counters();
    (counters.attached, counters.sockets)
}
