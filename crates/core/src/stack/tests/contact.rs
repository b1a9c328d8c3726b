//! Links and contacts that come up and go down while the node runs: bearers, restarts, events of subscribers.

use super::*;
use crate::addr::ClusterId;
use crate::discovery::{DiscoveryKind, DiscoveryMessage};
use crate::limits::{CAPABILITIES, LINK_STATE, TOPOLOGY_SERVER, capability};
use crate::link::DownReason;
use crate::wire::{
    ByteOrder, Filter, INTERFACE_NAME_LEN, INTERNAL_HEADER, LinkProtocolType, Message, Subscription,
    TopologyEvent, User,
};

fn link_bindings(lan: &Lan, node: usize) -> usize {
    lan.nodes[node].bindings().iter().filter(|b| b.range.service == LINK_STATE).count()
}

fn downs(lan: &Lan, node: usize) -> usize {
    lan.events[node].iter().filter(|e| matches!(e, Event::LinkDown { .. })).count()
}

#[test]
fn disabling_a_bearer_removes_its_links_and_their_bindings() {
    let mut lan = Lan::with_networks(2, 2);
    lan.run(5000);
    assert_eq!((link_bindings(&lan, 0), link_bindings(&lan, 1)), (2, 2));
    let now = lan.now;
    lan.nodes[0].disable_bearer(now, 0);
    lan.run(1000);
    assert_eq!((link_bindings(&lan, 0), link_bindings(&lan, 1)), (1, 1));
    assert_eq!((downs(&lan, 0), downs(&lan, 1)), (1, 1), "{:?}", lan.events);
    let again = BearerConfig::new("udp:U", media(0, 0), 1472);
    assert_eq!(lan.nodes[0].enable_bearer(lan.now, again), Ok(0));
    lan.run(5000);
    assert_eq!((link_bindings(&lan, 0), link_bindings(&lan, 1)), (2, 2), "{:?}", lan.events);
    for bearer in [0, 1] {
        let now = lan.now;
        lan.nodes[0].disable_bearer(now, bearer);
    }
    lan.run(10);
    assert_eq!((link_bindings(&lan, 0), link_bindings(&lan, 1)), (0, 0), "the peer withdraws them at once");
    assert!(lan.events[0].iter().any(|e| matches!(e, Event::NodeDown(_))));
}

#[test]
fn peer_that_returns_on_another_bearer_leaves_no_binding() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let (own, peer) = (lan.nodes[0].own_node(), lan.nodes[1].own_node());
    let session = lan.nodes[0].switch.link(peer, 0).unwrap().peer_session().unwrap();
    let mut reset = Message::build(
        User::LinkProtocol,
        LinkProtocolType::Reset.into(),
        INTERNAL_HEADER,
        &[0; INTERFACE_NAME_LEN],
    );
    reset.set_prev_node(peer);
    reset.set_origin_node(peer);
    reset.set_dest_node(own);
    reset.set_session(session.wrapping_add(1));
    reset.set_max_packet(1472 / 4);
    reset.set_bearer_id(2);
    let now = lan.now;
    lan.nodes[0].receive(now, 0, reset.bytes());
    assert_eq!(link_bindings(&lan, 0), 0);
    lan.run(10_000);
    assert_eq!((link_bindings(&lan, 0), link_bindings(&lan, 1)), (1, 1));
}

/// A restarted node may run another version of the software.
#[test]
fn restarted_peer_may_have_other_capabilities() {
    let mut lan = Lan::new(1);
    lan.run(3000);
    let peer = NodeAddr::legacy(1, 1, 77);
    let mut request = DiscoveryMessage {
        kind: DiscoveryKind::Request,
        dest_domain: NodeAddr::NONE,
        source: peer,
        cluster: ClusterId::default(),
        capabilities: CAPABILITIES,
        signature: 0x1235,
        media: media(9, 0),
        net_hash: 99,
        suggestion: NodeAddr::NONE,
        identity: NodeId::from_legacy(peer),
    };
    let now = lan.now;
    let known = |lan: &Lan| lan.nodes[0].switch.link(peer, 0).unwrap().config().peer_capabilities;
    lan.nodes[0].receive(now, 0, request.build().bytes());
    assert_eq!(known(&lan), CAPABILITIES);
    request.capabilities = CAPABILITIES & !capability::GAP_ACK_BLOCK;
    request.signature = 0x2345;
    lan.nodes[0].receive(now, 0, request.build().bytes());
    assert_eq!(known(&lan), CAPABILITIES & !capability::GAP_ACK_BLOCK);
    assert_eq!(lan.nodes[0].nodes()[0].capabilities, CAPABILITIES & !capability::GAP_ACK_BLOCK);
}

/// Subscribers learn that a node's services are gone before they learn that its link is down.
#[test]
fn services_of_a_lost_node_are_withdrawn_before_its_link() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let now = lan.now;
    let server = lan.nodes[1].open(now, SocketKind::Rdm).unwrap();
    lan.nodes[1].bind(now, server, RANGE, Scope::Cluster).unwrap();
    let client = lan.nodes[0].open(now, SocketKind::SeqPacket).unwrap();
    let to = Destination::service(TOPOLOGY_SERVER, TOPOLOGY_SERVER);
    lan.nodes[0].connect(now, client, Some(to)).unwrap();
    for service in [RANGE.service, LINK_STATE] {
        let subscription = Subscription {
            range: ServiceRange::new(service, 0, u32::MAX),
            timeout_ms: u32::MAX,
            filter: Filter::PORTS,
            handle: [0; 8],
        };
        lan.nodes[0].send(lan.now, client, &subscription.to_bytes(ByteOrder::NATIVE), None).unwrap();
    }
    lan.run(100);
    let events = |lan: &mut Lan| {
        let mut buffer = [0; 100];
        let mut types = Vec::new();
        while let Ok(got) = lan.nodes[0].recv(lan.now, client, &mut buffer, RecvOptions::default()) {
            let event = TopologyEvent::from_bytes(&buffer[..got.len], ByteOrder::NATIVE).unwrap();
            types.push(event.subscription.range.service);
        }
        types
    };
    events(&mut lan);
    lan.cut.push((1, 0));
    lan.run(5000);
    assert_eq!(events(&mut lan), [RANGE.service, LINK_STATE]);
}

#[test]
fn accepted_connection_is_probed_from_the_start() {
    let mut node = Lan::new(1);
    node.run(2000);
    let now = node.now;
    let stack = &mut node.nodes[0];
    let listener = stack.open(now, SocketKind::SeqPacket).unwrap();
    stack.bind(now, listener, RANGE, Scope::Cluster).unwrap();
    stack.listen(now, listener).unwrap();
    let client = stack.open(now, SocketKind::SeqPacket).unwrap();
    stack.connect(now, client, Some(Destination::service(18888, 17))).unwrap();
    let (server, _) = stack.accept(now, listener).unwrap();
    for port in [client, server] {
        assert_eq!(stack.due.get(&port).copied(), stack.endpoint(port).unwrap().deadline(), "port {port}");
        assert!(stack.due.contains_key(&port));
    }
}

#[test]
fn neighbour_that_left_its_medium_is_lost_at_once_and_may_return() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    assert_eq!((lan.nodes[0].informed_peers(), link_bindings(&lan, 0)), (1, 1));
    let now = lan.now;
    lan.nodes[0].lose_neighbour(now, 0, media(7, 0));
    assert_eq!(downs(&lan, 0), 0, "no link has that address");
    lan.nodes[0].lose_neighbour(now, 0, media(1, 0));
    lan.nodes[0].frames().clear();
    while let Some(event) = lan.nodes[0].poll_event() {
        lan.events[0].push(event);
    }
    let left =
        |event: &Event| matches!(event, Event::LinkDown { reason, .. } if *reason == DownReason::PeerLeft);
    assert!(lan.events[0].iter().any(left), "{:?}", lan.events[0]);
    assert_eq!((lan.nodes[0].informed_peers(), link_bindings(&lan, 0)), (0, 0));
    assert_eq!(lan.now, now);
    // It has not left after all.
    lan.run(60_000);
    assert_eq!((lan.nodes[0].informed_peers(), link_bindings(&lan, 0)), (1, 1));
}

#[test]
fn assigned_address_needs_no_trial() {
    let identity = Some(NodeId::from_text("assigned"));
    for is_assigned in [true, false] {
        let config = StackConfig { identity, address_is_assigned: is_assigned, ..StackConfig::default() };
        let first = config.first_address().unwrap();
        let mut node = Stack::new(Time::from_millis(1), config);
        node.enable_bearer(Time::from_millis(1), BearerConfig::new("udp:U", media(0, 0), 1472)).unwrap();
        assert_eq!(node.address_is_final(), is_assigned);
        assert_eq!(node.own_node(), if is_assigned { first } else { NodeAddr::NONE });
    }
}
