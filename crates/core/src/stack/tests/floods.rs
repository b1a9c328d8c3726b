//! Floods from peers and local sockets: no recursion, no loss, no delivery outside the scope.

use super::*;
use crate::wire::{INTERNAL_HEADER, MULTICAST_HEADER, Message, MessageType, SHORT_HEADER, User};

/// A sequenced packet of node 1 for node 0, `ahead` places after the next one.
fn packet(lan: &Lan, mut message: Message, ahead: u16) -> Message {
    let (own, peer) = (lan.nodes[0].own_node(), lan.nodes[1].own_node());
    let link = lan.nodes[0].switch.link(peer, 0).unwrap();
    message.set_prev_node(peer);
    if message.header_size() > SHORT_HEADER {
        message.set_dest_node(own);
    }
    message.set_seqno(link.rcv_nxt().wrapping_add(ahead));
    message.set_ack(link.snd_nxt().wrapping_sub(1));
    message
}

/// Each message for a closed port is rejected while the others wait; the calls must not nest.
#[test]
fn flood_for_a_closed_port_does_not_recurse() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let mut stray = Message::build(User::Low, MessageType::Conn.into(), SHORT_HEADER, &[]);
    stray.set_prev_node(lan.nodes[1].own_node());
    stray.set_origin_port(7);
    stray.set_dest_port(9);
    let strays = stray.bytes().repeat(2700);
    let bundle = Message::build(User::Bundler, 0, INTERNAL_HEADER, &strays);
    let packets: Vec<Message> = (0..12).rev().map(|ahead| packet(&lan, bundle.clone(), ahead)).collect();
    let now = lan.now;
    for packet in packets {
        lan.nodes[0].receive(now, 0, packet.bytes());
    }
    assert!(lan.nodes[0].stats().messages_returned > 10_000, "{:?}", lan.nodes[0].stats());
    lan.run(10_000);
    assert_eq!((lan.up(0), lan.up(1)), (1, 1));
}

/// The end of a connection is a system message: on a busy link it must not overtake data written before it.
#[test]
fn close_does_not_overtake_waiting_data() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let now = lan.now;
    let listener = lan.nodes[0].open(now, SocketKind::Stream).unwrap();
    lan.nodes[0].bind(now, listener, RANGE, Scope::Cluster).unwrap();
    lan.nodes[0].listen(now, listener).unwrap();
    let bulk = lan.nodes[0].open(now, SocketKind::Rdm).unwrap();
    lan.run(10);
    let [(first, _), (second, reader)] = [(); 2].map(|()| {
        let now = lan.now;
        let client = lan.nodes[1].open(now, SocketKind::Stream).unwrap();
        let to = Destination::service(RANGE.service, RANGE.lower);
        lan.nodes[1].connect(now, client, Some(to)).unwrap();
        lan.run(10);
        (lan.nodes[0].accept(lan.now, listener).unwrap().0, client)
    });
    lan.run(10);

    let (now, peer) = (lan.now, lan.nodes[1].own_node());
    let nobody = Destination::Port(PortId { port: 7, node: peer });
    while lan.nodes[0].send(now, bulk, &[1; 1400], Some(nobody)).is_ok() {}
    lan.nodes[0].close(now, first);
    let written = [2; 5000];
    assert_eq!(lan.nodes[0].send(now, second, &written, None), Ok(5000));
    lan.nodes[0].close(now, second);
    lan.run(1000);
    assert_eq!(lan.recv(1, reader), written);
    let mut buffer = [0; 10];
    let end = lan.nodes[1].recv(lan.now, reader, &mut buffer, RecvOptions::default());
    assert_eq!(end.unwrap_err(), RecvError::ConnectionReset);
}

/// A peer must not reach sockets of node scope by using this node's address as the origin.
#[test]
fn sockets_of_node_scope_get_no_multicasts_of_peers() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let now = lan.now;
    let private = lan.nodes[0].open(now, SocketKind::Rdm).unwrap();
    lan.nodes[0].bind(now, private, RANGE, Scope::Node).unwrap();
    let public = lan.nodes[0].open(now, SocketKind::Rdm).unwrap();
    lan.nodes[0].bind(now, public, RANGE, Scope::Cluster).unwrap();
    lan.run(10);
    let (own, peer) = (lan.nodes[0].own_node(), lan.nodes[1].own_node());
    for origin in [peer, own, NodeAddr::NONE] {
        let mut message = Message::build(User::Low, MessageType::Mcast.into(), MULTICAST_HEADER, b"data");
        message.set_origin_node(origin);
        message.set_origin_port(7);
        message.set_name_type(RANGE.service);
        message.set_name_lower(RANGE.lower);
        message.set_name_upper(RANGE.upper);
        let frame = packet(&lan, message, 0);
        let now = lan.now;
        lan.nodes[0].receive(now, 0, frame.bytes());
    }
    assert_eq!(lan.recv(0, public), b"data");
    let mut buffer = [0; 10];
    assert!(lan.nodes[0].recv(lan.now, private, &mut buffer, RecvOptions::default()).is_err());
}

fn bound(lan: &Lan, node: usize) -> usize {
    lan.nodes[node].bindings().iter().filter(|b| b.range.service == 5000).count()
}

/// A program binds faster than the peers acknowledge: the peer's table must follow without a reset.
#[test]
fn burst_of_bindings_reaches_the_peers() {
    let mut lan = Lan::new(3);
    lan.run(3000);
    let now = lan.now;
    let port = lan.nodes[0].open(now, SocketKind::Rdm).unwrap();
    for instance in 0..40_000 {
        let range = ServiceRange::new(5000, instance, instance);
        lan.nodes[0].bind(now, port, range, Scope::Cluster).unwrap();
    }
    lan.run(5000);
    assert_eq!((bound(&lan, 1), bound(&lan, 2)), (40_000, 40_000));
    let unrest = |e: &&Event| matches!(e, Event::LinkDown { .. });
    assert_eq!(lan.events.iter().flatten().find(unrest), None);
    lan.nodes[0].unbind(lan.now, port, None).unwrap();
    lan.run(5000);
    assert_eq!((bound(&lan, 1), bound(&lan, 2)), (0, 0));
    assert_eq!(lan.events.iter().flatten().find(unrest), None);
}

/// The bulk of a node that uses all its bindings exceeds a backlog of ordinary size.
#[test]
fn largest_bulk_reaches_a_new_peer() {
    let mut lan = Lan::new(2);
    lan.cut.push((1, 0));
    lan.run(2000);
    let now = lan.now;
    let port = lan.nodes[0].open(now, SocketKind::Rdm).unwrap();
    lan.nodes[0].set_binding_limit(crate::names::MAX_USER_BINDINGS);
    for instance in 0..crate::names::MAX_USER_BINDINGS as u32 {
        let range = ServiceRange::new(5000, instance, instance);
        lan.nodes[0].bind(now, port, range, Scope::Cluster).unwrap();
    }
    lan.cut.clear();
    lan.run(5000);
    assert_eq!((lan.up(0), lan.up(1)), (1, 1));
    assert_eq!(bound(&lan, 1), crate::names::MAX_USER_BINDINGS);
    assert!(!lan.events.iter().flatten().any(|e| matches!(e, Event::LinkDown { .. })), "{:?}", lan.events);
}

/// Applications may repeat a call at each report of their socket, even while the link is congested.
#[test]
fn refused_call_is_not_reported() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let now = lan.now;
    let server = lan.nodes[0].open(now, SocketKind::Rdm).unwrap();
    lan.nodes[0].bind(now, server, RANGE, Scope::Cluster).unwrap();
    lan.run(10);
    let (now, to) = (lan.now, Some(Destination::service(18888, 17)));
    let node = &mut lan.nodes[1];
    let client = node.open(now, SocketKind::Rdm).unwrap();
    while node.send(now, client, &[0; 1000], to).is_ok() {}
    assert_eq!(node.poll_ready(), Some(client), "the socket is not writable any more");
    assert_eq!(node.poll_ready(), None);
    assert_eq!(node.send(now, client, &[0; 1000], to), Err(SendError::WouldBlock));
    assert!(node.recv(now, client, &mut [0; 10], RecvOptions::default()).is_err());
    assert_eq!(node.poll_ready(), None);
    lan.run(100);
    assert!(lan.nodes[1].endpoint(client).unwrap().readiness().writable);
    assert!(lan.nodes[1].send(lan.now, client, &[0; 1000], to).is_ok());
    assert_eq!(lan.nodes[1].poll_ready(), Some(client));
}

#[test]
fn topology_server_limits_connections_per_node() {
    use crate::topology::MAX_NODE_CONNECTIONS;
    let mut lan = Lan::new(3);
    lan.run(3000);
    let server = lan.nodes[0].own_node();
    let subscribe = |lan: &mut Lan, node: usize| {
        let port = lan.nodes[node].open(lan.now, SocketKind::SeqPacket).unwrap();
        let to = Destination::service(1, 1).on(server);
        lan.nodes[node].connect(lan.now, port, Some(to)).unwrap();
        lan.run(10);
        port
    };
    let ports: Vec<u32> = (0..MAX_NODE_CONNECTIONS + 5).map(|_| subscribe(&mut lan, 1)).collect();
    let open = |lan: &Lan, node: usize, port| !lan.nodes[node].endpoint(port).unwrap().readiness().hung_up;
    assert_eq!(ports.iter().filter(|port| open(&lan, 1, **port)).count(), MAX_NODE_CONNECTIONS);
    assert_eq!(lan.nodes[0].topology_stats().closed_at_limit, 5);
    // Other nodes can connect, and so can the same node after it closed a connection.
    for node in [0, 2] {
        let port = subscribe(&mut lan, node);
        assert!(open(&lan, node, port));
    }
    let now = lan.now;
    lan.nodes[1].close(now, ports[0]);
    lan.run(10);
    let again = subscribe(&mut lan, 1);
    assert!(open(&lan, 1, again));
}
