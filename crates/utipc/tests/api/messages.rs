//! Connectionless messages between two nodes.

use crate::common::{Engine, LIMIT, join, makers, on_each_engine, pair};
use std::time::Duration;

use utipc::{
    Change, Destination, Error, ErrorCode, Importance, Requester, Responder, Scope, Service, ServiceAddress,
    ServiceRange, Socket, SocketKind,
};

on_each_engine!(
    request_goes_to_a_service_and_reply_to_the_socket,
    anycast_takes_turns_and_multicast_reaches_all,
    undeliverable_messages_come_back,
    importance_and_default_destination,
    refused_bindings_report_their_errno,
    requests_are_answered_by_name,
    request_without_a_server_fails,
    request_goes_on_with_another_server,
    endless_events_end_with_the_server_of_topology,
);

const SERVICE: ServiceAddress = ServiceAddress::new(1000, 7);

fn receiver(node: &utipc::Node) -> Socket {
    let socket = node.rdm().unwrap();
    socket.set_receive_timeout(Some(LIMIT));
    socket
}

fn request_goes_to_a_service_and_reply_to_the_socket(engine: Engine) {
    let [red, blue] = pair(engine);
    let server = receiver(&blue);
    server.bind(SERVICE, Scope::Cluster).unwrap();
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    let client = receiver(&red);
    for size in [0, 1, 1_400, 1_500, 20_000, 66_000] {
        let data: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        if data.is_empty() {
            // An empty message may be sent, but is not delivered.
            assert_eq!(client.send_to(&data, SERVICE).unwrap(), 0);
            continue;
        }
        client.send_to(&data, SERVICE).unwrap();
        let request = server.receive().unwrap();
        assert_eq!((request.data.len(), request.source), (size, client.port()));
        assert!(request.data == data);
        assert_eq!(request.destination, Some(SERVICE.into()));
        server.send_to(&data, request.source).unwrap();
        assert!(client.receive().unwrap().data == data);
    }
}

fn anycast_takes_turns_and_multicast_reaches_all(engine: Engine) {
    // Implicit addresses: nodes with an explicit one would prefer their own sockets.
    let [red, blue] = join(makers(engine));
    let (here, there) = (receiver(&red), receiver(&blue));
    here.bind(SERVICE, Scope::Cluster).unwrap();
    there.bind(SERVICE, Scope::Cluster).unwrap();
    let mut topology = red.topology().unwrap();
    topology.services(SERVICE).unwrap();
    assert_eq!(topology.events(LIMIT).take(2).filter(|event| event.as_ref().unwrap().is_up()).count(), 2);
    let sender = red.rdm().unwrap();
    for _ in 0..4 {
        sender.send_to(b"one", SERVICE).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(here.receive().unwrap().data, b"one");
        assert_eq!(there.receive().unwrap().data, b"one");
    }
    let range = ServiceRange::new(1000, 0, 99);
    sender.send_to(b"all", range).unwrap();
    for socket in [&here, &there] {
        let message = socket.receive().unwrap();
        assert_eq!((message.data.as_slice(), message.destination), (&b"all"[..], Some(range)));
    }
    // With a node, the lookup is limited to it.
    for _ in 0..3 {
        sender.send_to(b"blue", Destination::from(SERVICE).on(blue.address())).unwrap();
        assert_eq!(there.receive().unwrap().data, b"blue");
    }
}

fn undeliverable_messages_come_back(engine: Engine) {
    let [red, blue] = pair(engine);
    let gone = blue.rdm().unwrap().port();
    let client = receiver(&red);
    client.set_returned(true).unwrap();
    client.send_to(b"are you there?", gone).unwrap();
    let back = client.receive().unwrap();
    let returned = back.returned.expect("the message comes back");
    assert_eq!((returned.code, returned.data.as_slice()), (ErrorCode::NoPort, &b"are you there?"[..]));
    assert!(back.data.is_empty());

    let error = client.send_to(b"x", ServiceAddress::new(4242, 1)).unwrap_err();
    assert_eq!(error.errno(), 113);
    assert!(error.to_string().contains("{4242,1}"), "{error}");
    let error = client.send_to(&vec![0; 66_001], SERVICE).unwrap_err();
    assert_eq!(error.errno(), 90);
}

fn importance_and_default_destination(engine: Engine) {
    let [red, blue] = pair(engine);
    let server = receiver(&blue);
    server.bind(SERVICE, Scope::Cluster).unwrap();
    red.wait_for_service(SERVICE, LIMIT).unwrap();
    let client = red.rdm().unwrap();
    client.set_importance(Importance::High).unwrap();
    client.connect(SERVICE).unwrap();
    client.send(b"to the default").unwrap();
    assert_eq!(server.receive().unwrap().importance, Importance::High);
    client.disconnect().unwrap();
    assert_eq!(client.send(b"nowhere").unwrap_err().errno(), 89);
}

fn refused_bindings_report_their_errno(engine: Engine) {
    let [red, _blue] = pair(engine);
    let socket = red.rdm().unwrap();
    let reserved = socket.bind(ServiceAddress::new(63, 1), Scope::Cluster).unwrap_err();
    assert_eq!(reserved.errno(), 13);
    let inverted = socket.bind(ServiceRange::new(1000, 2, 1), Scope::Cluster).unwrap_err();
    assert_eq!(inverted.errno(), 22);
    assert!(matches!(socket.unbind(SERVICE, Scope::Cluster), Err(Error::Unbind(_))));
    socket.bind(SERVICE, Scope::Node).unwrap();
    assert!(red.bindings().iter().any(|b| b.port == socket.port() && b.range == SERVICE.into()));
    socket.unbind_all().unwrap();
    assert!(!red.bindings().iter().any(|b| b.port == socket.port()));
}

const UPPER: Service = Service::new(1001, 3);

fn requests_are_answered_by_name(engine: Engine) {
    let [red, blue] = pair(engine);
    for kind in [SocketKind::Rdm, SocketKind::SeqPacket] {
        let server = Responder::new(&blue, kind, UPPER).unwrap();
        red.wait_for_service(UPPER, LIMIT).unwrap();
        let requester = Requester::new(&red, kind, LIMIT).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..40 {
                    let request = server.next().unwrap();
                    if kind == SocketKind::Rdm {
                        assert_eq!(request.destination, Some(UPPER.into()));
                    }
                    let reply = request.data.to_ascii_uppercase();
                    request.reply(&reply).unwrap();
                }
            });
            for client in 0..4 {
                let requester = &requester;
                scope.spawn(move || {
                    for round in 0..10 {
                        let text = format!("client {client}, round {round}");
                        let reply = requester.request(UPPER, text.as_bytes()).unwrap();
                        assert_eq!(reply, text.to_ascii_uppercase().as_bytes());
                    }
                });
            }
        });
        drop(server);
        gone(&red);
    }
    let refused = Requester::new(&red, SocketKind::Stream, LIMIT).unwrap_err();
    assert!(matches!(refused, Error::OutOfRange { .. }), "{refused}");
}

fn request_without_a_server_fails(engine: Engine) {
    let [red, blue] = pair(engine);
    for kind in [SocketKind::Rdm, SocketKind::SeqPacket] {
        let requester = Requester::new(&red, kind, Duration::from_millis(300)).unwrap();
        let error = requester.request(UPPER, b"?").unwrap_err();
        assert!(error.is_unreachable(), "{kind:?}: {error}");
        let server = Responder::new(&blue, kind, UPPER).unwrap();
        red.wait_for_service(UPPER, LIMIT).unwrap();
        let error = requester.request(UPPER, b"unread").unwrap_err();
        assert!(error.is_timeout(), "{kind:?}: {error}");
        // The late reply is not taken for that of the next request.
        let requester = Requester::new(&red, kind, LIMIT).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut last = Vec::new();
                while last != b"next" {
                    let request = server.next().unwrap();
                    last = request.data.clone();
                    // The client of the first request is gone.
                    let _ = request.reply(&last);
                }
            });
            assert_eq!(requester.request(UPPER, b"next").unwrap(), b"next");
        });
        drop(server);
        gone(&red);
    }
    // A server that closes the connection without a reply.
    let server = Responder::new(&blue, SocketKind::SeqPacket, UPPER).unwrap();
    red.wait_for_service(UPPER, LIMIT).unwrap();
    let requester = Requester::new(&red, SocketKind::SeqPacket, LIMIT).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(server.next().unwrap()));
        let error = requester.request(UPPER, b"?").unwrap_err();
        assert!(matches!(error, Error::Receive(_)), "{error}");
    });
}

/// Waits until no socket is bound to the service.
fn gone(node: &utipc::Node) {
    let start = std::time::Instant::now();
    while node.lookup(UPPER.address().unwrap()).is_some() {
        assert!(start.elapsed() < LIMIT, "the service stays");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn request_goes_on_with_another_server(engine: Engine) {
    let [red, blue] = pair(engine);
    let unread = Responder::new(&blue, SocketKind::Rdm, UPPER).unwrap();
    red.wait_for_service(UPPER, LIMIT).unwrap();
    let requester = Requester::new(&red, SocketKind::Rdm, LIMIT).unwrap();
    std::thread::scope(|scope| {
        let reply = scope.spawn(|| requester.request(UPPER, b"hello").unwrap());
        while unread.socket().unread_messages().unwrap() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let server = Responder::new(&blue, SocketKind::Rdm, UPPER).unwrap();
        server.socket().set_receive_timeout(Some(LIMIT));
        // Its unread request is returned to the client.
        drop(unread);
        let request = server.next().unwrap();
        assert_eq!(request.data, b"hello");
        request.reply(b"there").unwrap();
        assert_eq!(reply.join().unwrap(), b"there");
    });
}

fn endless_events_end_with_the_server_of_topology(engine: Engine) {
    let [red, blue] = pair(engine);
    let mut topology = red.topology_of(blue.address()).unwrap();
    topology.services(UPPER).unwrap();
    let server = blue.rdm().unwrap();
    server.bind(UPPER, Scope::Cluster).unwrap();
    let mut events = (&mut topology).into_iter();
    assert_eq!(events.next().unwrap().unwrap().change, Change::ServiceUp);
    drop(server);
    assert_eq!(events.next().unwrap().unwrap().change, Change::ServiceDown);
    // The node is lost: one error, then the end.
    drop(blue);
    assert!(matches!(events.next(), Some(Err(Error::TopologyClosed { .. }))));
    assert!(events.next().is_none());
}
