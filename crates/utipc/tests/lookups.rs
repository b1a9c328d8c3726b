//! Processes of one daemon look services up in its table themselves and send directly to the sockets found.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{Engine, Home, LIMIT, TestNode, alone, pair, start_daemon};
use utipc::{ErrorCode, Node, Scope, ServiceAddress, ServiceRange, Socket, SocketKind};

const SERVICE: ServiceAddress = ServiceAddress::new(9000, 1);
const RANGE: ServiceRange = ServiceRange::new(9000, 0, 99);

/// Tells a copy of this program its role and the daemon's socket.
const ROLE: &str = "UTIPC_TEST_ROLE";
const SOCKET: &str = "UTIPC_TEST_SOCKET";

/// A child process, killed when dropped.
struct Process(Child);

impl Process {
    fn start(role: &str, socket: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "process", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(SOCKET, socket);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Sends it a line of input.
    fn say(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// The lines that it prints, without the output of the test harness.
    fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        lines.filter_map(|line| line.split_once("> ").map(|(_, line)| line.to_owned()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn print(line: &str) {
    println!("> {line}");
}

/// Not a test: the body of a child process; does nothing in an ordinary run.
#[test]
fn process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let socket = std::env::var(SOCKET).unwrap();
    let attach = || Node::builder().daemon_at(&socket).start().unwrap();
    let mut input = std::io::stdin().lines().map(Result::unwrap);
    match role.as_str() {
        "once" => {
            let node = attach();
            let sockets: Vec<Socket> = (0..5).map(|_| node.rdm().unwrap()).collect();
            print("ready");
            input.next();
            for socket in &sockets {
                socket.send_to(b"one", SERVICE).unwrap();
            }
        }
        "look" => {
            let node = attach();
            print("ready");
            for line in input {
                let instance = line.parse().unwrap();
                print(&format!("{:?}", node.lookup(ServiceAddress::new(9000, instance)).map(|p| p.port)));
            }
        }
        "serve" => {
            let server = attach().rdm().unwrap();
            server.bind(SERVICE, Scope::Node).unwrap();
            print("ready");
            // Receives only on demand.
            for line in input {
                for _ in 0..line.parse().unwrap() {
                    server.receive().unwrap();
                }
                print("read");
            }
        }
        "daemon" => {
            let _daemon = start_daemon(Path::new(&socket), |_| {});
            print("ready");
            input.next();
        }
        other => panic!("{other}"),
    }
}

/// A node with two attachments, like those of two processes.
fn host() -> (TestNode, Node) {
    let red = alone(Engine::Daemon);
    let blue = red.again();
    (red, blue)
}

fn server(node: &Node, range: impl Into<ServiceRange>) -> Socket {
    let socket = node.rdm().unwrap();
    socket.bind(range, Scope::Node).unwrap();
    socket.set_receive_timeout(Some(LIMIT));
    socket
}

/// Receives all pending messages.
fn take(socket: &Socket) -> Vec<Vec<u8>> {
    socket.set_nonblocking(true);
    let taken = std::iter::from_fn(|| socket.receive().ok().map(|m| m.data)).collect();
    socket.set_nonblocking(false);
    taken
}

#[test]
fn one_shot_senders_spread_evenly_over_servers() {
    for polled in [false, true] {
        let host = alone(Engine::Daemon);
        let servers: Vec<Socket> = (0..4).map(|_| server(&host, SERVICE)).collect();
        for server in servers.iter().filter(|_| polled) {
            server.descriptor().unwrap();
        }
        let path = host.daemon_socket().unwrap();
        let mut senders: Vec<Process> = (0..20).map(|_| Process::start("once", path)).collect();
        let mut lines: Vec<_> = senders.iter_mut().map(Process::lines).collect();
        assert!(lines.iter_mut().all(|lines| lines.next().is_some_and(|line| line == "ready")));
        senders.iter_mut().for_each(|sender| sender.say("go"));
        for sender in &mut senders {
            assert!(sender.0.wait().unwrap().success());
        }
        let got: Vec<usize> = servers.iter().map(|server| take(server).len()).collect();
        assert_eq!(got.iter().sum::<usize>(), 100, "{got:?}");
        assert!(got.iter().all(|count| (24..=26).contains(count)), "polled {polled}: {got:?}");
    }
}

#[test]
fn binding_is_visible_to_all_processes_when_bind_returns() {
    let host = alone(Engine::Daemon);
    let mut other = Process::start("look", host.daemon_socket().unwrap());
    let mut lines = other.lines();
    assert_eq!(lines.next().unwrap(), "ready");
    let socket = host.rdm().unwrap();
    for instance in 0..200 {
        let service = ServiceAddress::new(9000, instance);
        socket.bind(service, Scope::Node).unwrap();
        other.say(&instance.to_string());
        assert_eq!(lines.next().unwrap(), format!("Some({})", socket.port().port));
        socket.unbind(service, Scope::Node).unwrap();
        other.say(&instance.to_string());
        assert_eq!(lines.next().unwrap(), "None");
    }
}

#[test]
fn anycasts_rotate_over_lanes_without_the_daemon() {
    let (red, blue) = host();
    let servers: Vec<Socket> = (0..3).map(|_| server(&red, SERVICE)).collect();
    let client = blue.rdm().unwrap();
    for _ in 0..12 {
        client.send_to(b"warm", SERVICE).unwrap();
        client.send_to(b"all", RANGE).unwrap();
    }
    servers.iter().for_each(|server| assert_eq!(take(server).len(), 4 + 12));
    let before = red.daemon_counters();
    assert_eq!(before.lanes, 3);
    for round in 0..1000_u32 {
        client.send_to(&round.to_be_bytes(), SERVICE).unwrap();
        client.send_to(b"all", RANGE).unwrap();
        for (index, server) in servers.iter().enumerate() {
            let mut got = take(server);
            // The anycast went to one of them, before the multicast.
            assert_eq!(got.pop().unwrap(), b"all", "round {round}, server {index}");
            assert!(got.iter().all(|data| data == &round.to_be_bytes()));
        }
    }
    // Receivers with empty lanes have polled the node now and then.
    client.send_to(b"x", SERVICE).unwrap();
    let stats = client.stats();
    assert_eq!(stats.sent_messages, 24 + 2000 + 1);
    let before = red.daemon_counters();
    for _ in 0..20 {
        client.send_to(b"all", RANGE).unwrap();
        client.send_to(b"one", SERVICE).unwrap();
    }
    assert_eq!(red.daemon_counters().requests, before.requests, "the daemon got requests");
}

#[test]
fn added_or_removed_server_counts_from_the_next_message() {
    let (red, blue) = host();
    let client = blue.rdm().unwrap();
    let send = |count: usize| (0..count).for_each(|_| assert_eq!(client.send_to(b"x", SERVICE).unwrap(), 1));
    let first = server(&red, SERVICE);
    send(10);
    let second = server(&red, SERVICE);
    send(10);
    assert_eq!((take(&first).len(), take(&second).len()), (15, 5));
    first.unbind(SERVICE, Scope::Node).unwrap();
    send(10);
    assert_eq!((take(&first).len(), take(&second).len()), (0, 10));
    first.bind(SERVICE, Scope::Node).unwrap();
    drop(second);
    send(10);
    assert_eq!(take(&first).len(), 10);
    first.unbind_all().unwrap();
    assert_eq!(client.send_to(b"x", SERVICE).unwrap_err().errno(), 113);
}

/// A socket bound to the range receives its own multicasts as well.
#[test]
fn multicasts_reach_all_members_and_their_sender() {
    let (red, blue) = host();
    let members: Vec<Socket> = (0..6).map(|n| server(if n % 2 == 0 { &red } else { &blue }, RANGE)).collect();
    for round in 0..50_u8 {
        for (index, member) in members.iter().enumerate() {
            member.send_to(&[round, index as u8], RANGE).unwrap();
        }
        for member in &members {
            for index in 0..members.len() {
                let message = member.receive().unwrap();
                // In order from each sender, but senders interleave.
                assert_eq!(message.data[0], round, "{index}");
                assert_eq!(message.destination, Some(RANGE));
            }
        }
    }
    drop(members);
}

/// Two sockets have one message order, however the messages are addressed, while lanes start and end
/// (docs/spec/lanes.md).
#[test]
fn one_order_between_two_sockets_while_receivers_change() {
    const MESSAGES: u32 = 6000;
    let (red, blue) = host();
    let finished = AtomicBool::new(false);
    thread::scope(|scope| {
        for kind in 0..3_u32 {
            let (red, finished) = (&red, &finished);
            scope.spawn(move || {
                let mut round = 0;
                while !finished.load(Ordering::Relaxed) {
                    let node = if round % 2 == 0 { Node::clone(red) } else { red.again() };
                    let socket = server(&node, RANGE);
                    let mut last = None;
                    round += 1;
                    for step in 0..200 * (kind + 1) {
                        if finished.load(Ordering::Relaxed) {
                            break;
                        }
                        // Some are polled after a while, which ends their lanes.
                        if kind == 1 && step == 100 {
                            socket.descriptor().unwrap();
                        }
                        socket.set_receive_timeout(Some(std::time::Duration::from_millis(20)));
                        let Ok(message) = socket.receive() else { continue };
                        let number = u32::from_be_bytes(message.data[..4].try_into().unwrap());
                        assert!(last < Some(number), "{kind}: {number} after {last:?}");
                        last = Some(number);
                    }
                }
            });
        }
        let client = blue.rdm().unwrap();
        let mut sent = 0_u32;
        while sent < MESSAGES {
            let port = blue.lookup(SERVICE);
            let done = match sent % 3 {
                0 => client.send_to(&sent.to_be_bytes(), SERVICE),
                1 => client.send_to(&sent.to_be_bytes(), RANGE),
                _ => port.map_or(Ok(0), |port| client.send_to(&sent.to_be_bytes(), port)),
            };
            // Sometimes no receiver is bound.
            if let Err(error) = done {
                assert_eq!(error.errno(), 113, "{error}");
            }
            sent += 1;
            if sent.is_multiple_of(50) {
                thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        finished.store(true, Ordering::Relaxed);
    });
}

#[test]
fn unread_messages_of_a_killed_server_come_back_and_its_successor_serves() {
    const MESSAGES: usize = 200;
    let host = alone(Engine::Daemon);
    let mut first = Process::start("serve", host.daemon_socket().unwrap());
    let mut lines = first.lines();
    assert_eq!(lines.next().unwrap(), "ready");
    let client = host.rdm().unwrap();
    client.set_returned(true).unwrap();
    client.set_receive_timeout(Some(LIMIT));
    for _ in 0..MESSAGES {
        client.send_to(b"work", SERVICE).unwrap();
    }
    first.say("50");
    assert_eq!(lines.next().unwrap(), "read");
    first.kill();
    for _ in 50..MESSAGES {
        let back = client.receive().unwrap();
        let returned = back.returned.expect("a returned message");
        assert_eq!((returned.code, returned.data.as_slice()), (ErrorCode::NoPort, &b"work"[..]));
    }
    assert_eq!(client.send_to(b"work", SERVICE).unwrap_err().errno(), 113);
    let next = server(&host, SERVICE);
    client.send_to(b"work", SERVICE).unwrap();
    assert_eq!(next.receive().unwrap().data, b"work");
}

/// Each message is received once or returned, whenever its server closes, even after the lookup.
#[test]
fn no_message_is_lost_when_servers_close_concurrently() {
    let (red, blue) = host();
    let finished = AtomicBool::new(false);
    let sent = 4000_usize;
    let (received, returned) = thread::scope(|scope| {
        let serve = |mut limit: usize| {
            let (red, finished) = (&red, &finished);
            scope.spawn(move || {
                let mut received = 0;
                while !finished.load(Ordering::Relaxed) {
                    let socket = server(red, SERVICE);
                    socket.set_receive_timeout(Some(std::time::Duration::from_millis(5)));
                    received += (0..limit).filter(|_| socket.receive().is_ok()).count();
                    limit = limit % 40 + 7;
                }
                received
            })
        };
        let servers = [serve(10), serve(25)];
        let client = blue.rdm().unwrap();
        client.set_returned(true).unwrap();
        let mut returned = 0;
        for number in 0..sent {
            while let Err(error) = client.send_to(&number.to_be_bytes(), SERVICE) {
                assert_eq!(error.errno(), 113, "{error}");
            }
            returned += take(&client).len();
        }
        finished.store(true, Ordering::Relaxed);
        let received: usize = servers.into_iter().map(|server| server.join().unwrap()).sum();
        client.set_receive_timeout(Some(LIMIT));
        while received + returned < sent {
            client.receive().unwrap();
            returned += 1;
        }
        (received, returned)
    });
    assert_eq!(received + returned, sent, "{received} received, {returned} came back");
}

#[test]
fn local_and_remote_receivers_get_each_multicast_once_without_requests() {
    let [red, blue] = pair(Engine::Daemon);
    let local: Vec<Socket> = (0..3).map(|_| server(&red, RANGE)).collect();
    let remote = blue.rdm().unwrap();
    remote.bind(RANGE, Scope::Cluster).unwrap();
    remote.set_receive_timeout(Some(LIMIT));
    let client = red.again().rdm().unwrap();
    while !red.bindings().iter().any(|binding| binding.port == remote.port()) {
        thread::yield_now();
    }
    let mut before = 0;
    for number in 0..100_u8 {
        if number == 50 {
            before = red.daemon_counters().requests;
        }
        client.send_to(&[number], RANGE).unwrap();
        for socket in local.iter().chain([&remote]) {
            assert_eq!(socket.receive().unwrap().data, [number]);
        }
    }
    let asked = red.daemon_counters().requests - before;
    assert!(asked < 10, "the daemon got {asked} requests");
    local.iter().for_each(|socket| assert!(take(socket).is_empty()));
}

#[test]
fn killed_daemon_fails_every_lookup_and_send() {
    let home = Home::new();
    let path = home.0.join("d.sock");
    let mut daemon = Process::start("daemon", &path);
    assert_eq!(daemon.lines().next().unwrap(), "ready");
    let node = Node::builder().daemon_at(&path).start().unwrap();
    let first = server(&node, SERVICE);
    let client = node.rdm().unwrap();
    for _ in 0..5 {
        client.send_to(b"x", SERVICE).unwrap();
        first.receive().unwrap();
    }
    daemon.kill();
    // The table of the dead daemon is still mapped and still lists the server; the client notices within a moment.
    let begun = std::time::Instant::now();
    let error = loop {
        match client.send_to(b"x", SERVICE) {
            Ok(_) => assert!(begun.elapsed() < LIMIT, "sends still succeed"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, utipc::Error::DaemonDied { .. }), "{error}");
    assert!(node.lookup(SERVICE).is_none());
    for unbound in [ServiceAddress::new(9000, 2), ServiceAddress::new(9001, 1)] {
        let error = client.send_to(b"x", unbound).unwrap_err();
        assert!(matches!(error, utipc::Error::DaemonDied { .. }), "{error}");
    }
    assert!(client.send_to(b"x", RANGE).is_err());
    let _next = start_daemon(&path, |_| {});
    let again = server(&node, SERVICE);
    node.rdm().unwrap().send_to(b"again", SERVICE).unwrap();
    assert_eq!(again.receive().unwrap().data, b"again");
}

#[test]
fn lookups_continue_while_the_table_grows() {
    const MANY: u32 = 140_000;
    let home = Home::new();
    let path = home.0.join("d.sock");
    let daemon = start_daemon(&path, |config| config.limits.bindings = 200_000);
    let attach = || Node::builder().daemon_at(&path).start().unwrap();
    let (red, blue) = (attach(), attach());
    let server = server(&red, SERVICE);
    let client = blue.rdm().unwrap();
    let finished = AtomicBool::new(false);
    let service = |instance| ServiceAddress::new(20_000, instance);
    thread::scope(|scope| {
        let looker = scope.spawn(|| {
            while !finished.load(Ordering::Relaxed) {
                assert_eq!(red.lookup(SERVICE), Some(server.port()));
            }
        });
        let mut first = 0;
        while first < MANY {
            let bound = daemon.with(move |stack, now| {
                let port = stack.open(now, SocketKind::Rdm).unwrap();
                for instance in first..first + 1000 {
                    let range = ServiceRange::new(20_000, instance, instance);
                    stack.bind(now, port, range, Scope::Node).unwrap();
                }
                port
            });
            assert_eq!(blue.lookup(service(first + 999)).map(|found| found.port), bound);
            client.send_to(b"x", SERVICE).unwrap();
            assert_eq!(server.receive().unwrap().data, b"x");
            first += 1000;
        }
        finished.store(true, Ordering::Relaxed);
        looker.join().unwrap();
    });
    assert_eq!(red.lookup(service(MANY)), None);
    // A process that attaches now gets the current table.
    assert!(attach().lookup(service(0)).is_some());
}
