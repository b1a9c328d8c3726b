//! Socket options, time limits and the errors that their documentation promises.

use std::time::Duration;

use crate::common::{Engine, LIMIT, alone, connected, on_each_engine};
use utipc::{
    BindError, Error, Importance, Node, OptionError, OptionValue, Scope, ServiceAddress, ServiceRange,
    SocketKind, SocketOption,
};

on_each_engine!(
    options_are_read_back,
    an_accepted_socket_has_the_importance_of_its_client,
    options_of_other_kinds_and_values_out_of_range_are_errors,
    withdrawing_all_of_no_bindings_is_an_error,
    inverted_subscription_is_an_error,
    largest_time_limit_waits_without_a_panic,
);

const SERVICE: ServiceAddress = ServiceAddress::new(1300, 7);
const KINDS: [SocketKind; 4] =
    [SocketKind::Stream, SocketKind::SeqPacket, SocketKind::Rdm, SocketKind::Dgram];

fn options_are_read_back(engine: Engine) {
    let node = alone(engine);
    for kind in KINDS {
        let socket = node.socket(kind).unwrap();
        assert_eq!(socket.importance().unwrap(), Importance::Low);
        socket.set_importance(Importance::Critical).unwrap();
        assert_eq!(socket.importance().unwrap(), Importance::Critical);
        assert_eq!(socket.option(SocketOption::Importance).unwrap(), 3);

        assert_eq!(socket.connect_timeout().unwrap(), Duration::from_secs(8));
        socket.set_connect_timeout(Duration::from_micros(1_500)).unwrap();
        assert_eq!(socket.connect_timeout().unwrap(), Duration::from_millis(2), "rounded up");

        let connects = matches!(kind, SocketKind::Stream | SocketKind::SeqPacket);
        assert_eq!(socket.returned().unwrap(), connects, "{kind:?}");
        socket.set_returned(true).unwrap();
        assert!(socket.returned().unwrap());

        socket.set_option(SocketOption::ReceiveBuffer, OptionValue::Number(1 << 20)).unwrap();
        assert_eq!(socket.option(SocketOption::ReceiveBuffer).unwrap(), 1 << 20);
        for write_only in [SocketOption::NoDelay, SocketOption::MulticastBroadcast, SocketOption::GroupLeave]
        {
            let refused = socket.option(write_only);
            assert!(matches!(refused, Err(Error::Option(OptionError::Invalid))), "{write_only:?}");
        }
    }
    let (sender, receiver) = (node.rdm().unwrap(), node.rdm().unwrap());
    for waiting in 0..3 {
        assert_eq!(receiver.unread_messages().unwrap(), waiting);
        sender.send_to(b"x", receiver.port()).unwrap();
        let mut first = [0];
        let peek = utipc::RecvOptions { peek: true, ..utipc::RecvOptions::default() };
        receiver.within(LIMIT).receive_with(&mut first, peek).unwrap();
    }
}

fn an_accepted_socket_has_the_importance_of_its_client(engine: Engine) {
    let node = alone(engine);
    let listener = node.listen(SocketKind::SeqPacket, SERVICE).unwrap();
    let client = node.seqpacket().unwrap();
    client.set_importance(Importance::High).unwrap();
    client.within(Duration::ZERO).connect(SERVICE).unwrap_err();
    let server = listener.accept().unwrap();
    assert_eq!(server.socket().importance().unwrap(), Importance::High);
}

fn options_of_other_kinds_and_values_out_of_range_are_errors(engine: Engine) {
    let node = alone(engine);
    for kind in KINDS {
        let socket = node.socket(kind).unwrap();
        let set = socket.set_nodelay(true);
        assert_eq!(set.is_ok(), kind == SocketKind::Stream, "{kind:?}");
        for limit in [Duration::ZERO, Duration::from_millis(65_536), Duration::MAX] {
            let error = socket.set_connect_timeout(limit).unwrap_err();
            assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
            assert!(error.to_string().contains("1 ms to 65.535 s"), "{error}");
        }
        let long = socket.set_option(SocketOption::ConnectTimeout, OptionValue::Number(65_536));
        assert!(matches!(long, Err(Error::Option(OptionError::Invalid))));
        socket.set_connect_timeout(Duration::from_millis(65_535)).unwrap();
        assert_eq!(socket.connect_timeout().unwrap(), Duration::from_millis(65_535));
    }
}

fn withdrawing_all_of_no_bindings_is_an_error(engine: Engine) {
    let node = alone(engine);
    let socket = node.rdm().unwrap();
    let none = |error| matches!(error, Error::Unbind(BindError::NotBound));
    assert!(none(socket.unbind_all().unwrap_err()));
    socket.bind(SERVICE, Scope::Cluster).unwrap();
    socket.unbind_all().unwrap();
    assert!(none(socket.unbind_all().unwrap_err()));
}

fn inverted_subscription_is_an_error(engine: Engine) {
    let node = alone(engine);
    let mut topology = node.topology().unwrap();
    let error = topology.services(ServiceRange::new(1300, 9, 1)).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    topology.services(SERVICE).unwrap();
    node.rdm().unwrap().bind(SERVICE, Scope::Cluster).unwrap();
    assert!(topology.next(LIMIT).unwrap().is_some(), "the server is still connected");
}

/// Calls that wait, each for something that another thread does a little later.
fn largest_time_limit_waits_without_a_panic(engine: Engine) {
    let node = alone(engine);
    let again: Node = node.again();
    let socket = node.rdm().unwrap();
    let port = socket.port();
    let later = |act: Box<dyn FnOnce() + Send>| {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            act();
        })
    };
    let send = || {
        let sender = again.rdm().unwrap();
        later(Box::new(move || assert_eq!(sender.send_to(b"x", port).unwrap(), 1)))
    };
    let thread = send();
    assert_eq!(socket.within(Duration::MAX).receive().unwrap().data, b"x");
    thread.join().unwrap();
    socket.set_receive_timeout(Some(Duration::MAX));
    socket.set_send_timeout(Some(Duration::MAX));
    let thread = send();
    assert_eq!(socket.receive().unwrap().data, b"x");
    socket.send_to(b"x", port).unwrap();
    thread.join().unwrap();

    let server = again.rdm().unwrap();
    let thread = later(Box::new(move || {
        server.bind(SERVICE, Scope::Cluster).unwrap();
        std::thread::sleep(LIMIT / 100);
    }));
    node.wait_for_service(SERVICE, Duration::MAX).unwrap();
    thread.join().unwrap();
    let mut topology = node.topology().unwrap();
    topology.subscribe(SERVICE, utipc::Filter::PORTS, Some(Duration::MAX)).unwrap();
    let server = again.rdm().unwrap();
    server.bind(SERVICE, Scope::Cluster).unwrap();
    assert!(topology.next(Duration::MAX).unwrap().unwrap().is_up());
    let _ = topology.events(Duration::MAX);

    let ends = connected(SocketKind::SeqPacket, ServiceAddress::new(1301, 1), &node, &again);
    let thread = later(Box::new(move || drop(ends)));
    thread.join().unwrap();
}

#[test]
fn largest_busy_poll_ends_with_the_call() {
    let node = Node::builder().isolated().busy_poll(Duration::MAX).start().unwrap();
    let (socket, sender) = (node.rdm().unwrap(), node.rdm().unwrap());
    let port = socket.port();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        sender.send_to(b"x", port).unwrap();
    });
    assert_eq!(socket.receive().unwrap().data, b"x");
    thread.join().unwrap();
    assert!(socket.within(Duration::from_millis(20)).receive().unwrap_err().is_timeout());
}
