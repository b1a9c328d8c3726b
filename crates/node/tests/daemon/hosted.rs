//! Sockets of processes without lanes.

use utipc_attach::{Failure, Notice, ProcessCall, Reply, Request, SocketCall};
use utipc_core::addr::{NodeAddr, ServiceAddr, ServiceRange};
use utipc_core::socket::{AcceptError, Destination, RecvError, SocketKind, State};
use utipc_core::wire::ErrorCode;

use crate::client::{Client, Host};

const SERVICE: ServiceRange = ServiceRange::new(18888, 17, 17);
const TO: Option<Destination> = Some(Destination::service(18888, 17));

#[test]
fn datagrams_go_from_process_to_process() {
    let host = Host::new();
    let (mut server, mut client) = (host.client(), host.client());
    let port = server.server(SocketKind::Rdm, SERVICE);
    let from = client.open(SocketKind::Rdm);
    assert_eq!(server.receive(port), Err(Failure::Receive(RecvError::WouldBlock)));
    let rung = server.sequence();
    assert_eq!(client.send(from, TO, b"hello"), Ok(5));
    let (received, data) = server.receive_soon(port);
    assert_eq!((received.source.port, &data[..]), (from, &b"hello"[..]));
    assert_ne!(server.sequence(), rung);
    assert_eq!(server.notices, [Notice::Readiness { port }]);
    server.notices.clear();
    assert_eq!(server.send(port, Some(received.source.into()), b"hi"), Ok(2));
    assert_eq!(client.receive_soon(from).1, b"hi");
    // No change since: no ring, no notice.
    assert_eq!((server.sequence(), server.notices.len()), (rung.wrapping_add(1), 0));
    let big = vec![9; 66_000];
    assert_eq!(client.send(from, TO, &big), Ok(66_000));
    assert_eq!(server.receive_soon(port).1, big);
}

/// A connected pair: the client's socket and the server's.
fn connect(server: &mut Client, client: &mut Client, kind: SocketKind) -> (u32, u32) {
    let listener = server.server(kind, SERVICE);
    assert_eq!(server.call(&SocketCall::Accept.on(listener)), Err(Failure::Accept(AcceptError::WouldBlock)));
    let from = client.open(kind);
    assert_eq!(client.call(&SocketCall::Connect { to: TO }.on(from)), Ok(Reply::Done));
    let accepted = server.wait(|s| s.call(&SocketCall::Accept.on(listener)).ok());
    let Reply::Accepted { port, peer } = accepted else { panic!("{accepted:?}") };
    assert_eq!(peer.port, from);
    client.wait(|c| match c.call(&SocketCall::Look.on(from)).unwrap() {
        Reply::Socket(view) => (view.state == State::Established).then_some(()),
        other => panic!("{other:?}"),
    });
    (from, port)
}

#[test]
fn connections_carry_messages_and_streams_and_end() {
    for kind in [SocketKind::SeqPacket, SocketKind::Stream] {
        let host = Host::new();
        let (mut server, mut client) = (host.client(), host.client());
        let (from, port) = connect(&mut server, &mut client, kind);
        for round in 0..200u32 {
            assert_eq!(client.send(from, None, &round.to_be_bytes()), Ok(4));
            assert_eq!(server.receive_soon(port).1, round.to_be_bytes());
            assert_eq!(server.send(port, None, b"pong"), Ok(4));
            assert_eq!(client.receive_soon(from).1, b"pong");
        }
        assert_eq!(client.call(&SocketCall::Shutdown.on(from)), Ok(Reply::Done));
        let (end, _) = server.receive_soon(port);
        assert_eq!((end.len, end.returned.map(|r| r.code)), (0, Some(ErrorCode::ConnShutdown)));
    }
}

#[test]
fn sender_blocks_while_the_receiver_does_not_read_and_is_notified_of_room() {
    let host = Host::new();
    let (mut server, mut client) = (host.client(), host.client());
    let (from, port) = connect(&mut server, &mut client, SocketKind::SeqPacket);
    let data = vec![1; 60_000];
    let mut sent = 0;
    while client.send(from, None, &data).is_ok() {
        sent += 1;
        assert!(sent < 1000);
    }
    client.notices.clear();
    for _ in 0..sent {
        assert_eq!(server.receive_soon(port).1.len(), 60_000);
    }
    client.wait(|c| c.send(from, None, &data).ok());
    assert!(client.notices.contains(&Notice::Readiness { port: from }), "{:?}", client.notices);
}

#[test]
fn lookup_finds_the_bound_socket() {
    let host = Host::new();
    let mut client = host.client();
    assert_eq!(client.welcome.node, NodeAddr(0x1001));
    let port = client.server(SocketKind::Rdm, SERVICE);
    let lookup = Request::Process(ProcessCall::Lookup {
        to: ServiceAddr { service: 18888, instance: 17 },
        domain: NodeAddr::NONE,
    });
    match client.call(&lookup).unwrap() {
        Reply::Found(Some(found)) => assert_eq!((found.port, found.node), (port, NodeAddr(0x1001))),
        other => panic!("{other:?}"),
    }
    assert_eq!(host.daemon().counters().sockets, 1);
}

#[test]
fn second_daemon_at_the_same_path_does_not_start() {
    let host = Host::new();
    let config = utipc_node::daemon::DaemonConfig { socket: host.path.clone(), ..Default::default() };
    let refused = utipc_node::daemon::Daemon::start(config).unwrap_err().to_string();
    assert!(refused.contains("lock"), "{refused}");
    host.client().open(SocketKind::Rdm);
}

#[test]
fn processes_notice_the_end_of_the_daemon() {
    let mut host = Host::new();
    let mut client = host.client();
    let port = client.open(SocketKind::Rdm);
    let rung = client.sequence();
    drop(host.daemon.take());
    assert_ne!(client.sequence(), rung);
    assert!(client.try_call(&SocketCall::Look.on(port), &[]).is_none());
    assert!(!host.path.exists());
}
