//! Forked children inherit the sockets of a daemon. Each scenario runs in a process of its own, which forks; the daemon
//! and the peer run in the test's process.

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use common::{Engine, LIMIT, TestNode, alone};
use utipc::ordered::{Ended, Ordered, OrderedError};
use utipc::{
    Connection, Error, Group, GroupIncoming, GroupRequest, Incoming, Listener, Node, Scope, ServiceAddress,
    Socket, SocketKind,
};
use utipc_os::fork;

/// Set for a process that runs a scenario: the scenario's name and the daemon's socket.
const SCENARIO: &str = "UTIPC_TEST_SCENARIO";
const DAEMON: &str = "UTIPC_TEST_DAEMON";

/// Bound by the process under test, and by the test.
const THEIRS: ServiceAddress = ServiceAddress::new(9000, 1);
const OURS: ServiceAddress = ServiceAddress::new(9000, 2);

/// Not a test: the body of the process that forks.
#[test]
fn scenario() {
    let Ok(name) = std::env::var(SCENARIO) else { return };
    let node = Node::builder().daemon_at(std::env::var_os(DAEMON).unwrap()).start().unwrap();
    match name.as_str() {
        "a child drops its inherited sockets" => dropping(&node),
        "both send" => both_send(&node),
        "the parent exits first" => exit_before_children(&node, 1),
        "double fork" => exit_before_children(&node, 2),
        "fork and exec" => exec(&node),
        "many threads" => many_threads(&node),
        "several processes accept" => accepting(&node),
        "parent and child read" => reading(&node),
        "the parent closes a socket" => keeping(node),
        "a child dies" => dying(&node),
        "an ordered group" => ordered(&node),
        "a group" => grouped(&node),
        other => panic!("no scenario {other}"),
    }
}

/// A running scenario, which must succeed.
struct Scenario(Child);

impl Scenario {
    fn start(host: &TestNode, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "scenario", "--nocapture"]).env(SCENARIO, name);
        Self(command.env(DAEMON, host.daemon_socket().unwrap()).spawn().unwrap())
    }

    fn end(mut self) {
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            if let Some(status) = self.0.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the scenario does not exit");
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn with_timeouts(socket: Socket) -> Socket {
    socket.set_receive_timeout(Some(LIMIT));
    socket.set_send_timeout(Some(LIMIT));
    socket
}

fn rdm(node: &Node, service: ServiceAddress) -> Socket {
    let socket = with_timeouts(node.rdm().unwrap());
    socket.bind(service, Scope::Node).unwrap();
    socket
}

fn accept(listener: &Listener) -> Connection {
    listener.socket().set_receive_timeout(Some(LIMIT));
    let connection = listener.accept().unwrap();
    connection.socket().set_receive_timeout(Some(LIMIT));
    connection.socket().set_send_timeout(Some(LIMIT));
    connection
}

fn connect(node: &Node, service: ServiceAddress) -> Connection {
    node.wait_for_service(service, LIMIT).unwrap();
    let connection = loop {
        match node.connect(SocketKind::SeqPacket, service) {
            // Bound, but not listening yet.
            Err(Error::Connect(utipc_core::socket::ConnectError::Refused)) => {}
            connection => break connection.unwrap(),
        }
    };
    connection.socket().set_receive_timeout(Some(LIMIT));
    connection.socket().set_send_timeout(Some(LIMIT));
    connection
}

fn text(message: &Incoming) -> &str {
    std::str::from_utf8(&message.data).unwrap()
}

fn assert_success(child: fork::Child) {
    assert_eq!(child.wait(), Some(0), "the child");
}

/// Waits until the daemon's counters satisfy a condition.
fn until(host: &TestNode, condition: impl Fn(&utipc_node::daemon::DaemonCounters) -> bool) {
    let start = Instant::now();
    while !condition(&host.daemon_counters()) {
        assert!(start.elapsed() < LIMIT, "{:?}", host.daemon_counters());
        // Pending replies about lanes are sent with the next calls.
        drop(host.rdm().unwrap());
        thread::sleep(Duration::from_millis(2));
    }
}

/// Echoes messages until the connection ends; returns their number.
fn echo(connection: &Connection) -> usize {
    let mut count = 0;
    while let Ok(message) = connection.receive()
        && !message.data.is_empty()
    {
        connection.send(&message.data).unwrap();
        count += 1;
    }
    count
}

fn round_trip(connection: &Connection, request: &str) {
    connection.send(request.as_bytes()).unwrap();
    assert_eq!(text(&connection.receive().unwrap()), request);
}

#[test]
fn child_that_drops_inherited_sockets_closes_none() {
    let host = alone(Engine::Daemon);
    let listener = host.listen(SocketKind::SeqPacket, OURS).unwrap();
    let before = host.daemon_counters().sockets;
    let scenario = Scenario::start(&host, "a child drops its inherited sockets");
    let client = with_timeouts(host.rdm().unwrap());
    let connection = accept(&listener);
    assert_eq!(echo(&connection), 6);
    host.wait_for_service(THEIRS, LIMIT).unwrap();
    client.send_to(b"still there?", THEIRS).unwrap();
    assert_eq!(text(&client.receive().unwrap()), "yes");
    scenario.end();
    drop((connection, client));
    until(&host, |c| c.sockets == before && c.lanes == 0);
}

fn dropping(node: &Node) {
    let mut both = Some((rdm(node, THEIRS), connect(node, OURS)));
    round_trip(&both.as_ref().unwrap().1, "before");
    for round in ["one", "two"] {
        let child = fork::run(|| {
            drop(both.take());
            0
        });
        assert_success(child.unwrap());
        round_trip(&both.as_ref().unwrap().1, round);
    }
    // A child that makes no call, and one that opens a socket of its own.
    assert_success(fork::run(|| 0).unwrap());
    round_trip(&both.as_ref().unwrap().1, "three");
    assert_success(fork::run(|| u8::from(node.rdm().is_err())).unwrap());
    let (server, connection) = both.unwrap();
    round_trip(&connection, "four");
    round_trip(&connection, "five");
    drop(connection);
    let request = server.receive().unwrap();
    server.send_to(b"yes", request.source).unwrap();
}

#[test]
fn parent_and_child_each_keep_their_send_order() {
    const EACH: u32 = 500;
    let host = alone(Engine::Daemon);
    let listener = host.listen(SocketKind::SeqPacket, OURS).unwrap();
    let scenario = Scenario::start(&host, "both send");
    let connection = accept(&listener);
    let mut next = [0; 3];
    let total = EACH * 3;
    for _ in 0..total {
        let message = connection.receive().unwrap();
        let (who, number) = text(&message).split_once(' ').unwrap();
        let who = ["before", "parent", "child"].iter().position(|name| *name == who).unwrap();
        assert_eq!(number.parse(), Ok(next[who]), "{who}");
        assert!(who == 0 || next[0] == EACH, "a message from before the fork came late");
        next[who] += 1;
    }
    assert_eq!(next, [EACH; 3]);
    // Now only the parent holds the socket, so it uses lanes again.
    assert_eq!(echo(&connection), 200);
    scenario.end();
}

fn both_send(node: &Node) {
    let connection = connect(node, OURS);
    let send = |who: &str| (0..500).for_each(|n| connection.send(format!("{who} {n}").as_bytes()).unwrap());
    send("before");
    let child = fork::run(|| {
        send("child");
        0
    });
    send("parent");
    assert_success(child.unwrap());
    for number in 0..200 {
        round_trip(&connection, &number.to_string());
    }
}

#[test]
fn sole_holder_uses_lanes_again() {
    let host = alone(Engine::Daemon);
    let listener = host.listen(SocketKind::SeqPacket, OURS).unwrap();
    let scenario = Scenario::start(&host, "fork and exec");
    let connection = accept(&listener);
    // The child stays alive, but its exec closed what it had inherited. Lanes from before the fork may exist a little
    // longer; the new ones are in use as soon as rounds cost no requests.
    let mut before = host.daemon_counters().requests;
    let mut quiet = 0;
    for round in 0_u32.. {
        let message = connection.receive().unwrap();
        connection.send(&message.data).unwrap();
        let now = host.daemon_counters().requests;
        quiet = if now == before && round > 0 { quiet + 1 } else { 0 };
        before = now;
        if quiet == 10 {
            break;
        }
        assert!(round < 100_000, "no lanes: {:?}", host.daemon_counters());
    }
    for _ in 0..1000 {
        let message = connection.receive().unwrap();
        connection.send(&message.data).unwrap();
    }
    let asked = host.daemon_counters().requests - before;
    assert!(asked < 100, "{asked} requests for 1000 rounds over lanes");
    connection.shutdown().unwrap();
    scenario.end();
}

fn exec(node: &Node) {
    let connection = connect(node, OURS);
    round_trip(&connection, "before");
    let child = fork::run(|| {
        let error = Command::new("sleep").arg("1000").exec();
        panic!("{error}");
    })
    .unwrap();
    for number in 0_u32.. {
        let sent = connection.send(&number.to_le_bytes());
        if sent.is_err() || connection.receive().is_ok_and(|m| m.data.is_empty()) {
            break;
        }
    }
    child.kill();
    assert_eq!(child.wait(), None);
}

#[test]
fn child_continues_to_serve_after_its_parent_exits() {
    for name in ["the parent exits first", "double fork"] {
        let host = alone(Engine::Daemon);
        let scenario = Scenario::start(&host, name);
        host.wait_for_service(THEIRS, LIMIT).unwrap();
        let client = with_timeouts(host.rdm().unwrap());
        client.send_to(b"sent before", THEIRS).unwrap();
        scenario.end();
        for request in ["who?", "again?", "end"] {
            client.send_to(request.as_bytes(), THEIRS).unwrap();
        }
        for answer in ["sent before", "who?", "again?", "end"] {
            assert_eq!(text(&client.receive().unwrap()), answer, "{name}");
        }
        // The last holder has gone, and its binding with it.
        until(&host, |c| c.sockets == 1);
        assert_eq!(host.lookup(THEIRS), None);
    }
}

fn exit_before_children(node: &Node, forks: u32) {
    let server = rdm(node, THEIRS);
    let _children: Vec<_> =
        (0..forks).take(1).map(|_| fork::run(|| serve_in_the_background(&server, forks))).collect();
}

fn serve_in_the_background(server: &Socket, forks: u32) -> u8 {
    if forks > 1 {
        return u8::from(fork::run(|| serve_in_the_background(server, forks - 1)).is_err());
    }
    loop {
        let request = server.receive().unwrap();
        server.send_to(&request.data, request.source).unwrap();
        if text(&request) == "end" {
            return 0;
        }
    }
}

#[test]
fn fork_does_not_disturb_connections_of_other_threads() {
    let host = alone(Engine::Daemon);
    let listener = host.listen(SocketKind::SeqPacket, OURS).unwrap();
    let scenario = Scenario::start(&host, "many threads");
    thread::scope(|scope| {
        for _ in 0..4 {
            let connection = accept(&listener);
            scope.spawn(move || assert!(echo(&connection) > 0));
        }
    });
    scenario.end();
    until(&host, |c| c.sockets == 1 && c.lanes == 0);
}

fn many_threads(node: &Node) {
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..4 {
            let stop = &stop;
            scope.spawn(move || {
                let connection = connect(node, OURS);
                for number in 0_u32.. {
                    round_trip(&connection, &format!("{thread} {number}"));
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for round in 0..30 {
            let child = fork::run(|| match round % 3 {
                0 => 0,
                1 => u8::from(node.rdm().is_err()),
                _ => {
                    let own = rdm(node, ServiceAddress::new(9001, round));
                    own.send_to(b"to myself", own.port()).unwrap();
                    u8::from(own.receive().unwrap().data != b"to myself")
                }
            });
            assert_success(child.unwrap());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Processes that accept from one listener.
const ACCEPTING: usize = 3;

#[test]
fn processes_share_a_listener() {
    let host = alone(Engine::Daemon);
    let scenario = Scenario::start(&host, "several processes accept");
    for round in 0..10 {
        // Each process keeps its connection until it gets the answer.
        let connections: Vec<Connection> = (0..ACCEPTING).map(|_| connect(&host, THEIRS)).collect();
        let by = connections.iter().map(|connection| text(&connection.receive().unwrap()).to_owned());
        let by: std::collections::BTreeSet<String> = by.collect();
        assert_eq!(by.len(), ACCEPTING, "round {round}: {by:?}");
        for connection in &connections {
            connection.send(b"thanks").unwrap();
        }
    }
    let client = with_timeouts(host.rdm().unwrap());
    client.send_to(b"end", OURS).unwrap();
    scenario.end();
    // The client may have a lane by now; it ends with the client.
    drop(client);
    until(&host, |c| c.sockets == 0 && c.lanes == 0);
}

fn accepting(node: &Node) {
    let end = rdm(node, OURS);
    let listener = node.listen(SocketKind::SeqPacket, THEIRS).unwrap();
    let children: Vec<_> = (0..ACCEPTING)
        .map(|_| {
            fork::run(|| {
                loop {
                    let connection = accept(&listener);
                    connection.send(std::process::id().to_string().as_bytes()).unwrap();
                    assert_eq!(text(&connection.receive().unwrap()), "thanks");
                }
            })
            .unwrap()
        })
        .collect();
    end.receive().unwrap();
    for child in children {
        child.kill();
        assert_eq!(child.wait(), None);
    }
}

#[test]
fn messages_queued_before_a_fork_are_read_once() {
    let host = alone(Engine::Daemon);
    let listener = host.listen(SocketKind::SeqPacket, OURS).unwrap();
    let scenario = Scenario::start(&host, "parent and child read");
    let connection = accept(&listener);
    for number in 0..20_u8 {
        connection.send(&[number]).unwrap();
    }
    assert_eq!(text(&connection.receive().unwrap()), "forked");
    for number in 20..40_u8 {
        connection.send(&[number]).unwrap();
    }
    scenario.end();
}

fn reading(node: &Node) {
    let connection = connect(node, OURS);
    let read =
        |range: std::ops::Range<u8>| range.for_each(|n| assert_eq!(connection.receive().unwrap().data, [n]));
    read(0..5);
    let child = fork::run(|| {
        read(5..15);
        connection.send(b"forked").unwrap();
        0
    });
    assert_success(child.unwrap());
    read(15..40);
}

#[test]
fn child_keeps_a_socket_that_its_parent_closes() {
    let host = alone(Engine::Daemon);
    let listener = host.listen(SocketKind::SeqPacket, OURS).unwrap();
    let scenario = Scenario::start(&host, "the parent closes a socket");
    let connection = accept(&listener);
    assert_eq!(text(&connection.receive().unwrap()), "closed by the parent");
    // The child claims the socket only now, after its parent has released it, and soon gets lanes for it.
    let mut before = 0;
    for round in 0..100 {
        if round == 50 {
            before = host.daemon_counters().requests;
        }
        let message = connection.receive().unwrap();
        connection.send(&message.data).unwrap();
    }
    let asked = host.daemon_counters().requests - before;
    assert!(asked < 50, "{asked} requests for 50 rounds over lanes");
    scenario.end();
    until(&host, |c| c.attached == 1);
}

fn keeping(node: Node) {
    let connection = connect(&node, OURS);
    let (mut go, tell) = std::io::pipe().unwrap();
    let child = fork::run(|| {
        std::io::Read::read_exact(&mut go, &mut [0]).unwrap();
        // Opens other sockets first, so the child learns that it is the sole holder before it uses the connection.
        (0..20).for_each(|_| drop(node.rdm().unwrap()));
        for number in 0..100 {
            round_trip(&connection, &number.to_string());
        }
        0
    });
    connection.send(b"closed by the parent").unwrap();
    drop((connection, node));
    std::io::Write::write_all(&mut &tell, &[1]).unwrap();
    assert_success(child.unwrap());
}

#[test]
fn child_is_not_a_member_of_its_parents_ordered_group() {
    let host = alone(Engine::Daemon);
    Scenario::start(&host, "an ordered group").end();
}

fn ordered(node: &Node) {
    let member = Ordered::builder(9000).founder().join(node).unwrap();
    member.set_receive_timeout(Some(LIMIT));
    assert!(member.receive().unwrap().view().is_some());
    let mut inherited = Some(member);
    let child = fork::run(|| {
        let member = inherited.take().unwrap();
        let forked = |error| matches!(error, Error::Ordered { why: OrderedError::Ended(Ended::Forked), .. });
        let refused = member.multicast(b"x").is_err_and(forked) && member.receive().is_err_and(forked);
        u8::from(!(refused && member.view().is_none() && member.leave().is_err_and(forked)))
    });
    assert_success(child.unwrap());
    let member = inherited.unwrap();
    member.multicast(b"on").unwrap();
    assert_eq!(member.receive().unwrap().message().unwrap().data, b"on");
    member.leave().unwrap();
}

#[test]
fn member_of_a_group_that_forks_loses_nothing() {
    const MESSAGES: u32 = 60;
    let host = alone(Engine::Daemon);
    let member = Group::join(&host, GroupRequest::new(9100, 1).with_events()).unwrap();
    member.socket().set_receive_timeout(Some(LIMIT));
    member.socket().set_send_timeout(Some(LIMIT));
    let scenario = Scenario::start(&host, "a group");
    assert!(member.receive().unwrap().joined().is_some());
    // Some are in its lane when it forks.
    for number in 0..MESSAGES {
        member.broadcast(&number.to_le_bytes()).unwrap();
    }
    for number in 0..MESSAGES {
        let GroupIncoming::Message { data, .. } = member.receive().unwrap() else { panic!("no message") };
        assert_eq!(data, number.to_le_bytes());
    }
    scenario.end();
    assert!(member.receive().unwrap().left().is_some());
}

/// Returns all messages, and forks twice meanwhile.
fn grouped(node: &Node) {
    let member = Group::join(node, GroupRequest::new(9100, 2)).unwrap();
    member.socket().set_receive_timeout(Some(LIMIT));
    member.socket().set_send_timeout(Some(LIMIT));
    for number in 0..60_u32 {
        let GroupIncoming::Message { data, .. } = member.receive().unwrap() else { panic!("no message") };
        assert_eq!(data, number.to_le_bytes());
        member.broadcast(&data).unwrap();
        if number % 20 == 10 {
            assert_success(fork::run(|| 0).unwrap());
        }
    }
}

#[test]
fn killed_child_does_not_affect_its_parents_sockets() {
    let host = alone(Engine::Daemon);
    let listener = host.listen(SocketKind::SeqPacket, OURS).unwrap();
    let scenario = Scenario::start(&host, "a child dies");
    let connection = accept(&listener);
    assert_eq!(echo(&connection), 2 + 10 * 2);
    scenario.end();
}

fn dying(node: &Node) {
    let connection = connect(node, OURS);
    for round in 0..10 {
        let (mut ready, tell) = std::io::pipe().unwrap();
        let child = fork::run(|| {
            if round % 2 == 0 {
                // The child holds the socket by its own attachment when it dies.
                round_trip(&connection, "claimed");
            }
            std::io::Write::write_all(&mut &tell, &[1]).unwrap();
            loop {
                thread::park();
            }
        })
        .unwrap();
        std::io::Read::read_exact(&mut ready, &mut [0]).unwrap();
        round_trip(&connection, "both");
        child.kill();
        assert_eq!(child.wait(), None);
        if round % 2 == 1 {
            round_trip(&connection, "one");
        }
    }
    round_trip(&connection, "last");
    round_trip(&connection, "of all");
}

#[test]
fn embedded_node_is_a_clear_error_in_a_child() {
    let node = alone(Engine::Embedded);
    let mut server = Some(rdm(&node, THEIRS));
    let child = fork::run(|| {
        let Err(error @ Error::Forked) = node.rdm() else { return 1 };
        let Err(Error::Forked) = server.as_ref().unwrap().receive() else { return 2 };
        drop(server.take());
        u8::from(!error.to_string().contains("UTIPC_ENGINE=daemon")) * 3
    });
    assert_success(child.unwrap());
    let server = server.unwrap();
    server.send_to(b"unharmed", THEIRS).unwrap();
    assert_eq!(text(&server.receive().unwrap()), "unharmed");
}
