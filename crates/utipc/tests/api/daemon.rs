//! Situations that only a daemon causes: absence, refusal, its end, and a successor.

use std::path::Path;
use std::sync::mpsc;
use std::thread;

use crate::common::{Home, LIMIT, echo, start_daemon};
use utipc::{Engine, Error, Node, NodeAddr, Scope, ServiceAddress, ServiceRange, Socket, SocketKind};

const SERVICE: ServiceAddress = ServiceAddress::new(5000, 1);

fn attach(socket: &Path) -> Node {
    Node::builder().daemon_at(socket).start().unwrap()
}

fn is_daemon_died(error: &Error) -> bool {
    matches!(error, Error::DaemonDied { .. })
}

#[test]
fn attachments_of_one_daemon_share_its_node() {
    let home = Home::new();
    let path = home.0.join("d.sock");
    let _daemon = start_daemon(&path, |_| {});
    let (red, blue) = (attach(&path), attach(&path));
    assert_eq!((red.address(), blue.address()), (NodeAddr(5), NodeAddr(5)));
    let server = red.rdm().unwrap();
    server.bind(SERVICE, Scope::Node).unwrap();
    assert_eq!(blue.lookup(SERVICE), Some(server.port()));
    let client = blue.rdm().unwrap();
    client.send_to(b"hello", SERVICE).unwrap();
    assert_eq!(server.receive().unwrap().source, client.port());
    assert!(blue.bindings().iter().any(|binding| binding.port == server.port()));
    // Dropping a socket closes it and withdraws its binding.
    drop(server);
    assert_eq!(blue.lookup(SERVICE), None);
}

#[test]
fn calls_fail_when_the_daemon_ends_and_new_sockets_use_its_successor() {
    let home = Home::new();
    let path = home.0.join("d.sock");
    let daemon = start_daemon(&path, |_| {});
    let node = attach(&path);
    let idle = node.rdm().unwrap();
    let listener = node.listen(SocketKind::Stream, SERVICE).unwrap();
    let waiting = node.rdm().unwrap();
    let (started, waits_soon) = mpsc::channel();
    let receiver = thread::spawn(move || {
        started.send(()).unwrap();
        (waiting.receive().unwrap_err(), waiting)
    });
    let acceptor = thread::spawn(move || listener.accept().unwrap_err());
    waits_soon.recv().unwrap();
    daemon.stop();
    let (error, waiting) = receiver.join().unwrap();
    assert!(is_daemon_died(&error), "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert!(is_daemon_died(&acceptor.join().unwrap()));
    assert!(is_daemon_died(&idle.send_to(b"x", SERVICE).unwrap_err()));
    assert!(node.bindings().is_empty() && node.lookup(SERVICE).is_none());
    // No daemon is there yet.
    assert!(matches!(node.rdm().unwrap_err(), Error::Daemon(_)));

    let _next = start_daemon(&path, |_| {});
    let fresh = node.rdm().unwrap();
    fresh.bind(SERVICE, Scope::Node).unwrap();
    node.rdm().unwrap().send_to(b"again", SERVICE).unwrap();
    assert_eq!(fresh.receive().unwrap().data, b"again");
    // Sockets of the first daemon stay dead.
    for dead in [&idle, &waiting] {
        assert!(is_daemon_died(&dead.receive().unwrap_err()));
    }
}

#[test]
fn opening_a_socket_between_two_daemons_waits_for_the_second() {
    let home = Home::new();
    let path = home.0.join("d.sock");
    let daemon = start_daemon(&path, |_| {});
    let node = attach(&path);
    daemon.stop();
    // Each call tries for about a second; repeat it if necessary.
    let opened = thread::spawn(move || {
        loop {
            match node.rdm() {
                Ok(socket) => return socket,
                Err(error) => assert!(matches!(&error, Error::Daemon(why) if why.is_absent()), "{error}"),
            }
        }
    });
    let _next = start_daemon(&path, |_| {});
    let socket: Socket = opened.join().unwrap();
    socket.bind(SERVICE, Scope::Node).unwrap();
}

#[test]
fn auto_uses_the_daemon_unless_the_program_needs_an_embedded_node() {
    let home = Home::new();
    let path = home.0.join("d.sock");
    let auto = || Node::builder().engine(Engine::Auto).daemon_at(&path);
    let daemon = start_daemon(&path, |_| {});
    let hosted = auto().start().unwrap();
    assert_eq!(hosted.address(), NodeAddr(5));
    let embedded = auto().isolated().address(NodeAddr(6)).start().unwrap();
    assert_eq!(embedded.address(), NodeAddr(6));
    assert!(daemon.counters().attached == 1);
    daemon.stop();
    let absent = Node::builder().engine(Engine::Daemon).daemon_at(&path).start().unwrap_err();
    assert!(absent.to_string().contains("utipcd"), "{absent}");
    let refused = Node::builder().daemon_at(&path).isolated().start().unwrap_err();
    assert!(matches!(refused, Error::Engine { engine: Engine::Daemon, .. }), "{refused}");
}

#[test]
fn exceeded_limits_are_named_errors() {
    let home = Home::new();
    let path = home.0.join("d.sock");
    let _daemon = start_daemon(&path, |config| {
        config.limits.sockets_per_attachment = 2;
        config.limits.attachments_per_user = 1;
        config.limits.attachments = 1;
        config.limits.bindings_per_attachment = 1;
    });
    let node = attach(&path);
    let _first = node.rdm().unwrap();
    let second = node.rdm().unwrap();
    let error = node.rdm().unwrap_err();
    assert!(error.to_string().contains("2 sockets"), "{error}");
    second.bind(SERVICE, Scope::Node).unwrap();
    let error = second.bind(ServiceRange::new(6000, 0, 9), Scope::Node).unwrap_err();
    assert!(error.errno() == 12 && error.to_string().contains("limits.bindings_per_process"), "{error}");
    let error = Node::builder().daemon_at(&path).start().unwrap_err();
    assert_eq!(error.errno(), 13, "{error}");
}

#[test]
fn threads_of_one_process_wait_concurrently() {
    const THREADS: u32 = 6;
    const ROUNDS: u32 = 200;
    let home = Home::new();
    let path = home.0.join("d.sock");
    let _daemon = start_daemon(&path, |_| {});
    let node = attach(&path);
    let clients = attach(&path);
    thread::scope(|scope| {
        for instance in 1..=THREADS {
            let service = ServiceAddress::new(5001, instance);
            let server = node.rdm().unwrap();
            server.bind(service, Scope::Node).unwrap();
            scope.spawn(move || echo(&server, ROUNDS));
            let client = clients.rdm().unwrap();
            client.set_receive_timeout(Some(LIMIT));
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    client.send_to(&round.to_be_bytes(), service).unwrap();
                    assert_eq!(client.receive().unwrap().data, round.to_be_bytes());
                }
            });
        }
    });
}
