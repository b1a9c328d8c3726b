//! Messages that travel over lanes instead of through the node, and messages taken back from lanes.

use super::*;
use crate::wire::{ErrorCode, Message};

/// A node, a sender and two receivers of the same service.
fn three() -> (Stack, [u32; 3]) {
    let now = Time::ZERO;
    let config = StackConfig { address: Some(NodeAddr(1)), ..StackConfig::default() };
    let mut node = Stack::new(now, config);
    let ports = [0; 3].map(|_| node.open(now, SocketKind::Rdm).unwrap());
    for port in &ports[1..] {
        node.bind(now, *port, RANGE, Scope::Cluster).unwrap();
    }
    (node, ports)
}

/// A message as an endpoint sends it.
fn message(node: &mut Stack, from: u32, to: u32, data: &[u8]) -> Vec<u8> {
    let mut message = Message::build(crate::wire::User::from(0), 3, 32, data);
    message.set_prev_node(node.own_node());
    message.set_origin_node(node.own_node());
    message.set_dest_node(node.own_node());
    message.set_origin_port(from);
    message.set_dest_port(to);
    message.into_bytes()
}

fn received(node: &mut Stack, port: u32) -> Option<Vec<u8>> {
    let mut buffer = [0; 100];
    let got = node.recv(Time::ZERO, port, &mut buffer, RecvOptions::default()).ok()?;
    Some(buffer[..got.len].to_vec())
}

#[test]
fn messages_with_a_lane_are_diverted_from_every_kind_of_send() {
    let (mut node, [from, first, second]) = three();
    let now = Time::ZERO;
    node.add_lane(from, first);
    let to = PortId { port: first, node: node.own_node() };
    for (to, others) in [
        (Destination::Port(to), 0),
        (Destination::service(RANGE.service, RANGE.lower), 0),
        (Destination::service(RANGE.service, RANGE.lower), 1),
        (Destination::Range(RANGE), 1),
    ] {
        node.send(now, from, b"x", Some(to)).unwrap();
        let diverted = node.take_diverted();
        let direct = received(&mut node, second).is_some();
        assert!(received(&mut node, first).is_none());
        match to {
            // One of the two, in round-robin order.
            Destination::Service { .. } => assert_eq!(diverted.len() + usize::from(direct), 1),
            _ => assert_eq!((diverted, direct), (vec![first], others == 1)),
        }
    }
    // Messages of other senders, and returned messages, go through the node.
    node.send(now, second, b"y", Some(to.into())).unwrap();
    assert_eq!((node.take_diverted(), received(&mut node, first)), (vec![], Some(b"y".to_vec())));
    node.remove_lane(from, first);
    node.send(now, from, b"z", Some(to.into())).unwrap();
    assert_eq!((node.take_diverted(), received(&mut node, first)), (vec![], Some(b"z".to_vec())));
}

#[test]
fn message_goes_to_the_socket_that_its_sender_found() {
    let (mut node, [from, first, second]) = three();
    let now = Time::ZERO;
    let own = node.own_node();
    let at = |port| PortId { port, node: own };
    let service = Destination::service(RANGE.service, RANGE.lower);
    for to in [service, Destination::Range(RANGE)] {
        for _ in 0..3 {
            node.send_found(now, from, b"x", to, at(second)).unwrap();
            assert_eq!(received(&mut node, second), Some(b"x".to_vec()), "{to:?}");
            assert_eq!(received(&mut node, first), None);
        }
        node.add_lane(from, second);
        node.send_found(now, from, b"y", to, at(second)).unwrap();
        assert_eq!((node.take_diverted(), received(&mut node, second)), (vec![second], None));
        node.remove_lane(from, second);
    }
    // The socket has gone since it was found: an anycast is looked up again, a copy has no receiver.
    node.close(now, second);
    node.send_found(now, from, b"z", service, at(second)).unwrap();
    assert_eq!(received(&mut node, first), Some(b"z".to_vec()));
    let refused = node.send_found(now, from, b"z", Destination::Range(RANGE), at(second));
    assert_eq!(refused, Err(SendError::HostUnreachable));
    let refused = node.send_found(now, from, b"z", at(first).into(), at(first));
    assert_eq!(refused, Err(SendError::InvalidDestination));
    assert_eq!(received(&mut node, first), None);
}

#[test]
fn only_messages_that_the_sender_may_send_are_adopted() {
    let (mut node, [from, to, other]) = three();
    let now = Time::ZERO;
    let good = message(&mut node, from, to, b"good");
    assert!(node.adopt(now, from, to, good.clone(), 0));
    assert!(!node.adopt(now, other, to, good.clone(), 0), "another origin");
    assert!(!node.adopt(now, from, other, good.clone(), 0), "another destination");
    assert!(!node.adopt(now, from, 17, good.clone(), 0), "no such socket");
    let change = |f: &dyn Fn(&mut Message)| {
        let mut message = Message::from_vec(good.clone()).unwrap();
        f(&mut message);
        message.into_bytes()
    };
    for bad in [
        change(&|m| m.set_origin_node(NodeAddr(2))),
        change(&|m| m.set_error_code(ErrorCode::NoPort)),
        change(&|m| m.set_syn(true)),
        change(&|m| m.set_kind(0)),
        change(&|m| m.set_user(crate::wire::User::ConnManager)),
        good[..20].to_vec(),
        Vec::new(),
    ] {
        assert!(!node.adopt(now, from, to, bad.clone(), 0), "{bad:?}");
    }
    assert_eq!(received(&mut node, to), Some(b"good".to_vec()));
    assert!(node.adopt(now, from, to, good.clone(), 2));
    assert_eq!(received(&mut node, to), Some(b"od".to_vec()));
    assert!(node.adopt(now, from, to, good, 4));
    assert_eq!(received(&mut node, to), None);
}

#[test]
fn aborted_connection_ends_with_an_error_at_both_ends() {
    let mut node = three().0;
    let now = Time::ZERO;
    let listener = node.open(now, SocketKind::SeqPacket).unwrap();
    node.listen(now, listener).unwrap();
    let client = node.open(now, SocketKind::SeqPacket).unwrap();
    let to = PortId { port: listener, node: node.own_node() };
    node.connect(now, client, Some(to.into())).unwrap();
    let (server, _) = node.accept(now, listener).unwrap();
    node.abort(now, server);
    for port in [client, server] {
        let options = RecvOptions { control: true, ..RecvOptions::default() };
        let end = node.recv(now, port, &mut [0; 10], options).unwrap();
        assert_eq!(end.returned.unwrap().code, ErrorCode::NoPort);
        assert!(node.endpoint(port).unwrap().readiness().hung_up);
    }
}

/// The sockets of a process end together; their bindings are withdrawn first.
#[test]
fn sockets_of_a_process_end_together() {
    let (mut node, ports) = three();
    let now = Time::ZERO;
    node.close_all(now, &ports[1..]);
    assert!(node.bindings().iter().all(|b| b.range != RANGE));
    assert_eq!(node.sockets().count(), 1);
}
