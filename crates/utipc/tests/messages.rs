//! Connectionless messages between two nodes.

mod common;

use common::{Engine, LIMIT, join, makers, on_each_engine, pair};
use utipc::{Destination, Error, ErrorCode, Importance, Scope, ServiceAddress, ServiceRange, Socket};

on_each_engine!(
    request_goes_to_a_service_and_reply_to_the_socket,
    anycast_takes_turns_and_multicast_reaches_all,
    undeliverable_messages_come_back,
    importance_and_default_destination,
    refused_bindings_report_their_errno,
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
