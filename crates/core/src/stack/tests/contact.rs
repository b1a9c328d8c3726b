//! Links and contacts that come up and go down while the node runs: bearers, restarts, events of subscribers.

use super::*;
use crate::addr::ClusterId;
use crate::discovery::{DiscoveryKind, DiscoveryMessage};
use crate::limits::{CAPABILITIES, LINK_STATE, TOPOLOGY_SERVER, capability};
use crate::link::DownReason;
use crate::wire::{
    ByteOrder, Filter, INTERFACE_NAME_LEN, INTERNAL_HEADER, LinkProtocolType, Message, Subscription,
    TopologyEvent, User, View,
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
    let mut reset = reset_of(peer, own);
    reset.set_session(session.wrapping_add(1));
    reset.set_bearer_id(2);
    let now = lan.now;
    lan.nodes[0].receive(now, 0, reset.bytes());
    assert_eq!(link_bindings(&lan, 0), 0);
    lan.run(10_000);
    assert_eq!((link_bindings(&lan, 0), link_bindings(&lan, 1)), (1, 1));
}

/// A request in the name of a node.
fn request_of(peer: NodeAddr, media: MediaAddr) -> DiscoveryMessage {
    DiscoveryMessage {
        kind: DiscoveryKind::Request,
        dest_domain: NodeAddr::NONE,
        source: peer,
        cluster: ClusterId::default(),
        capabilities: CAPABILITIES,
        signature: 0x1235,
        media,
        net_hash: 99,
        suggestion: NodeAddr::NONE,
        identity: NodeId::from_legacy(peer),
    }
}

/// A RESET of a node that was in no session yet, for another node.
fn reset_of(peer: NodeAddr, own: NodeAddr) -> Message {
    let name = [0; INTERFACE_NAME_LEN];
    let kind = LinkProtocolType::Reset.into();
    let mut reset = Message::build(User::LinkProtocol, kind, INTERNAL_HEADER, &name);
    reset.set_prev_node(peer);
    reset.set_origin_node(peer);
    reset.set_dest_node(own);
    reset.set_max_packet(1472 / 4);
    reset
}

/// Runs node 0 alone. Returns the number of its timeouts, and the setup messages that it has sent, with their times.
fn setup_messages(lan: &mut Lan, millis: u64) -> (usize, Vec<(u64, LinkProtocolType)>) {
    let (begun, end) = (lan.now, lan.now.plus_millis(millis));
    let (mut calls, mut sent) = (0, Vec::new());
    let node = &mut lan.nodes[0];
    loop {
        let batch = core::mem::take(node.frames());
        for frame in batch.frames() {
            let bytes = batch.frame(frame);
            let view = View::parse(&bytes).unwrap();
            if view.user() == User::LinkProtocol {
                sent.push((lan.now.as_millis() - begun.as_millis(), view.link_type()));
            }
        }
        let Some(next) = node.deadline().filter(|next| *next <= end) else { break };
        lan.now = lan.now.max(next);
        node.handle_timeout(lan.now);
        calls += 1;
    }
    lan.now = end;
    (calls, sent)
}

/// Forged discovery messages can make a node know thousands of nodes that do not exist.
#[test]
fn invented_node_costs_few_messages_and_few_timeouts() {
    let mut lan = Lan::new(1);
    lan.run(3000);
    let now = lan.now;
    let request = request_of(NodeAddr::legacy(1, 1, 77), media(9, 0));
    lan.nodes[0].receive(now, 0, request.build().bytes());
    let (calls, sent) = setup_messages(&mut lan, 310_000);
    let expected = [0, 1, 2, 16, 160].map(|tick| (375 * tick, LinkProtocolType::Reset));
    assert_eq!(sent, expected);
    assert!(lan.nodes[0].nodes().is_empty(), "it is forgotten");
    // Discovery asks every second. The last timeout forgets the node.
    assert!(calls <= 310 + sent.len() + 1, "{calls} timeouts");
}

#[test]
fn silent_node_that_appears_gets_its_link_at_once() {
    let mut lan = Lan::new(2);
    lan.cut.push((1, 0));
    lan.run(3000);
    let (now, peer) = (lan.now, lan.nodes[1].own_node());
    lan.nodes[0].receive(now, 0, request_of(peer, media(1, 0)).build().bytes());
    lan.run(100_000);
    assert_eq!((lan.up(0), lan.up(1)), (0, 0));
    lan.cut.clear();
    lan.run(1000); // an interval of its discovery
    assert_eq!((lan.up(0), lan.up(1)), (1, 1), "{:?}", lan.events);
}

#[test]
fn reset_of_a_silent_node_is_answered_as_often_as_its_request() {
    let mut lan = Lan::new(1);
    lan.run(3000);
    let peer = NodeAddr::legacy(1, 1, 77);
    let now = lan.now;
    lan.nodes[0].receive(now, 0, request_of(peer, media(9, 0)).build().bytes());
    setup_messages(&mut lan, 100_000);
    let (now, own) = (lan.now, lan.nodes[0].own_node());
    lan.nodes[0].receive(now, 0, reset_of(peer, own).bytes());
    let (_, sent) = setup_messages(&mut lan, 200_000);
    let expected = [0, 1, 2, 16, 160].map(|tick| (375 * tick, LinkProtocolType::Activate));
    assert_eq!(sent, expected);
}

/// Bytes that node 0 sends in five minutes, alone, for one frame.
fn answers_to(lan: &mut Lan, frame: &Message) -> usize {
    let end = lan.now.plus_millis(300_000);
    lan.nodes[0].frames().clear();
    lan.nodes[0].receive(lan.now, 0, frame.bytes());
    let mut bytes = 0;
    loop {
        let batch = core::mem::take(lan.nodes[0].frames());
        let unicast = batch.frames().iter().filter(|frame| frame.to != Target::Broadcast);
        bytes += unicast.map(|frame| frame.len()).sum::<usize>();
        let Some(next) = lan.nodes[0].deadline().filter(|next| *next <= end) else { break };
        lan.now = lan.now.max(next);
        lan.nodes[0].handle_timeout(lan.now);
    }
    bytes
}

/// The address that a forged frame names must not get much more than the frame has.
#[test]
fn forged_frame_is_answered_with_few_bytes() {
    let mut lan = Lan::new(1);
    lan.run(3000);
    let (peer, own) = (NodeAddr::legacy(1, 1, 77), lan.nodes[0].own_node());
    let request = |place, signature| {
        let mut request = request_of(peer, media(place, 0));
        request.signature = signature;
        request.build()
    };
    let mut resets = (1..20).map(|session| {
        let mut reset = reset_of(peer, own);
        reset.set_session(session);
        reset
    });
    let reset = resets.next().unwrap();
    let rest: Vec<Message> = resets.collect();
    let again = [request(9, 1), request(9, 1), request(9, 2), request(10, 2), request(11, 3), reset];
    for frame in again.iter().chain(&rest) {
        let (sent, got) = (answers_to(&mut lan, frame), frame.size());
        assert!(sent <= 5 * got, "{sent} bytes for {got}: {:?}", View::parse(frame.bytes()));
    }
}

/// A kind of flood by its name, and the place that its frames claim.
type Flood = (&'static str, fn(u32) -> MediaAddr);

/// 1000 forged requests per second, each of another node, fill the table of known nodes.
#[test]
fn newcomer_has_contact_during_a_flood_of_invented_nodes() {
    let floods: [Flood; 2] = [
        ("one host", |_| media(77, 0)),
        ("invented hosts", |n| MediaAddr::Udp((std::net::Ipv4Addr::from(0x0a00_0000 + n), 6118).into())),
    ];
    for (name, place) in floods {
        let mut lan = Lan::new(3);
        lan.cut.push((2, 0));
        lan.run(3000);
        assert_eq!(lan.up(0), 1);
        let mut invented = 0;
        let mut flood = |lan: &mut Lan, millis: u64| {
            for _ in 0..millis {
                invented += 1;
                let forged = request_of(NodeAddr(0x0500_0000 + invented), place(invented)).build();
                for node in 0..lan.nodes.len() {
                    lan.nodes[node].receive(lan.now, 0, forged.bytes());
                }
                lan.run(1);
            }
        };
        flood(&mut lan, 10_000);
        let known = lan.nodes[0].nodes().len();
        assert!(known <= crate::limits::MAX_PEERS, "{name}: {known} nodes are known");
        lan.cut.clear();
        flood(&mut lan, 2000);
        assert_eq!((lan.up(0), lan.up(1), lan.up(2)), (2, 2, 2), "{name}");
        flood(&mut lan, 10_000);
        assert!(!lan.events.iter().flatten().any(|e| matches!(e, Event::LinkDown { .. })), "{name}");
    }
}

/// A restarted node may run another version of the software.
#[test]
fn restarted_peer_may_have_other_capabilities() {
    let mut lan = Lan::new(1);
    lan.run(3000);
    let peer = NodeAddr::legacy(1, 1, 77);
    let mut request = request_of(peer, media(9, 0));
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
        assert_eq!(
            stack.endpoints.deadline_of(port),
            stack.endpoint(port).unwrap().deadline(),
            "port {port}"
        );
        assert!(stack.endpoints.deadline_of(port).is_some());
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
