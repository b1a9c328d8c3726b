//! Hostile frames against a whole node: each is counted, dropped and reported, the link stays up, and nothing panics.
//! `docs/spec/bad-input.md` lists all rules.

mod common;

use common::lan::{Lan, PEER, VICTIM, forged, forged_broadcast, media};
use utipc_core::discovery::{DiscoveryKind, DiscoveryMessage};
use utipc_core::wire::User;
use utipc_core::{
    BearerConfig, ClusterId, Destination, Drop, Event, Message, NodeAddr, NodeId, Scope, ServiceRange,
    SocketKind, Stack, StackConfig, Time, limits,
};

fn message(user: u8, kind: u8, header: usize, data: &[u8]) -> Message {
    Message::build(User::from(user), kind, header, data)
}

#[test]
fn frames_that_are_not_messages() {
    let mut lan = Lan::linked();
    let good = forged(message(0, 3, 32, b"hello")).into_bytes();
    for cut in 0..good.len() {
        assert!(matches!(lan.refused(&good[..cut]), Drop::Malformed(_)), "{cut} bytes");
    }
    for noise in [vec![0; 60], vec![0xff; 24], vec![0x55; 1500]] {
        lan.refused(&noise);
    }
    assert_eq!(lan.refused(&[0xe0; 76]), Drop::Encrypted);
    lan.run(60_000);
    assert!(lan.is_linked());
}

#[test]
fn headers_too_small_are_dropped() {
    let mut lan = Lan::linked();
    let too_small =
        [(0, 1, 40), (0, 2, 32), (0, 3, 28), (0, 5, 40), (7, 0, 24), (7, 1, 36), (11, 0, 36), (13, 0, 56)];
    for (user, kind, header) in too_small {
        let m = forged(message(user, kind, header, &[0; 60]));
        assert!(matches!(lan.refused(m.bytes()), Drop::Malformed(_)), "user {user} type {kind}");
    }
}

#[test]
fn users_and_types_that_never_arrive() {
    let mut lan = Lan::linked();
    for user in [4, 13, 14, 15] {
        let m = forged(message(user, 0, 60, &[0; 60]));
        assert_eq!(lan.refused(m.bytes()), Drop::IllegalUser(user));
    }
    let event = forged(message(0, 4, 44, &[0; 48]));
    assert_eq!(lan.refused(event.bytes()), Drop::IllegalUser(0));
    lan.run(60_000);
    assert!(lan.is_linked());
}

#[test]
fn messages_that_may_not_be_broadcast() {
    let mut lan = Lan::linked();
    for (user, kind) in
        [(0, 0), (0, 2), (3, 3), (0, 4), (7, 0), (7, 1), (8, 2), (9, 0), (10, 0), (14, 0), (15, 0)]
    {
        let m = forged_broadcast(message(user, kind, 44, &[0; 16]));
        assert_eq!(lan.refused(m.bytes()), Drop::IllegalUser(user), "user {user} type {kind}");
    }
    let mut other_cluster = forged_broadcast(message(0, 1, 44, b"hello"));
    other_cluster.set_cluster_id(ClusterId(9999));
    assert!(matches!(lan.refused(other_cluster.bytes()), Drop::Broadcast(_)));
    lan.run(60_000);
    assert!(lan.is_linked());
}

#[test]
fn messages_from_unknown_nodes_and_for_other_nodes() {
    let mut lan = Lan::linked();
    let mut stranger = forged(message(0, 3, 32, b"hello"));
    stranger.set_prev_node(NodeAddr::legacy(1, 1, 77));
    assert_eq!(lan.refused(stranger.bytes()), Drop::UnknownPeer);
    let mut own = forged(message(0, 3, 32, b"hello"));
    own.set_prev_node(VICTIM);
    lan.refused(own.bytes());
    let mut other = forged(message(0, 3, 32, b"hello"));
    other.set_dest_node(NodeAddr::legacy(1, 1, 77));
    assert_eq!(lan.refused(other.bytes()), Drop::NotForUs);
    let mut broadcast = forged_broadcast(message(0, 1, 44, b"hello"));
    broadcast.set_prev_node(NodeAddr::legacy(1, 1, 77));
    assert_eq!(lan.refused(broadcast.bytes()), Drop::UnknownPeer);
}

/// A RESET of another session, a STATE of another session, and a STATE that acknowledges packets never sent.
#[test]
fn forged_link_protocol_leaves_the_link_up() {
    let mut lan = Lan::linked();
    for kind in [0, 3, 5, 7] {
        for session in [0, 1, 0x7fff, 0xffff] {
            let mut m = forged(message(7, kind, 40, &[0, 4, 0, 0]));
            m.set_session(session);
            m.set_ack(0x4000);
            m.set_seq_gap(0x1fff);
            m.set_last_bcast(0x7000);
            m.set_bcast_ack(0x7000);
            m.set_bcast_gap(0x3ff);
            lan.attack(m.bytes());
        }
    }
    lan.run(60_000);
    assert!(lan.is_linked());
    assert!(!lan.events.iter().any(|e| matches!(e, Event::LinkDown { .. })), "{:?}", lan.events);
    assert_still_carries(&mut lan);
}

/// A broadcast packet forged far ahead opens a gap at each node that is never closed. Each STATE reports it. If
/// each report were answered at once, two frames would start an endless exchange.
#[test]
fn two_open_gaps_do_not_cause_a_storm() {
    let mut lan = Lan::linked();
    for (victim, peer) in [(0, PEER), (1, VICTIM)] {
        let mut ahead = forged_broadcast(message(0, 1, 44, b"hello"));
        ahead.set_prev_node(peer);
        ahead.set_origin_node(peer);
        ahead.set_seqno(20);
        lan.nodes[victim].receive(lan.now, 0, ahead.bytes());
    }
    lan.run(500);
    lan.sent.clear();
    lan.run(10_000);
    assert!(lan.sent.len() < 500, "{} frames in 10 s", lan.sent.len());
}

/// Checks that a datagram arrives in both directions.
fn assert_still_carries(lan: &mut Lan) {
    for (from, to, service) in [(0, 1, 5000), (1, 0, 5001)] {
        let server = lan.nodes[to].open(lan.now, SocketKind::Rdm).unwrap();
        lan.nodes[to].bind(lan.now, server, ServiceRange::new(service, 1, 1), Scope::Cluster).unwrap();
        lan.run(500);
        let client = lan.nodes[from].open(lan.now, SocketKind::Rdm).unwrap();
        let sent =
            lan.nodes[from].send(lan.now, client, b"still here", Some(Destination::service(service, 1)));
        sent.unwrap();
        lan.run(500);
        let mut buffer = [0; 100];
        let got = lan.nodes[to].recv(lan.now, server, &mut buffer, Default::default()).unwrap();
        assert_eq!(&buffer[..got.len], b"still here");
    }
}

fn request(source: NodeAddr, media_of: usize) -> DiscoveryMessage {
    DiscoveryMessage {
        kind: DiscoveryKind::Request,
        dest_domain: NodeAddr::NONE,
        source,
        cluster: ClusterId::default(),
        capabilities: limits::CAPABILITIES,
        signature: 0x1235,
        media: media(media_of),
        net_hash: 99,
        suggestion: NodeAddr::NONE,
        identity: NodeId::from_legacy(source),
    }
}

#[test]
fn flood_of_unknown_nodes_is_bounded() {
    let mut lan = Lan::linked();
    for n in 0..20_000 {
        let source = NodeAddr::legacy(1, 2 + n / 4000, 1 + n % 4000);
        lan.nodes[0].receive(lan.now, 0, request(source, 100 + n as usize % 100).build().bytes());
        lan.nodes[0].frames().clear();
        while lan.nodes[0].poll_event().is_some() {}
    }
    let known = lan.nodes[0].nodes().len();
    assert!(known <= limits::MAX_PEERS, "{known} nodes");
    assert!(known < 20_000);
    lan.run(20_000);
    assert!(lan.is_linked());
}

#[test]
fn another_node_with_the_address_of_the_node_or_its_peer() {
    let mut lan = Lan::linked();
    lan.refused_or_reported(request(VICTIM, 8).build().bytes());
    lan.attack(request(PEER, 8).build().bytes());
    lan.attack(DiscoveryMessage { kind: DiscoveryKind::TrialFail, ..request(PEER, 1) }.build().bytes());
    lan.run(60_000);
    assert!(lan.is_linked());
    assert!(!lan.events.iter().any(|e| matches!(e, Event::LinkDown { .. })), "{:?}", lan.events);
    assert_eq!(lan.nodes[0].own_node(), VICTIM);
}

impl Lan {
    fn refused_or_reported(&mut self, frame: &[u8]) {
        let events = self.attack(frame);
        assert!(
            events.iter().any(|e| matches!(e, Event::Dropped { .. } | Event::DuplicateAddress(_))),
            "{events:?}"
        );
    }
}

/// CVE-2023-1390: a link is brought up by two packets; the second leaves nothing to reply with.
#[test]
fn packets_of_cve_2023_1390() {
    let mut lan = Lan::apart();
    lan.attack(request(PEER, 1).build().bytes());
    for kind in [1, 2, 0] {
        let mut m = forged(message(7, kind, 40, b"U\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"));
        m.set_session(7);
        m.set_max_packet(375);
        lan.attack(m.bytes());
        let mut probe = forged(message(7, 0, 40, &[]));
        probe.set_session(7);
        probe.set_probe(true);
        lan.attack(probe.bytes());
    }
    lan.run(20_000);
    assert!(lan.is_linked());
}

/// CVE-2010-1187: traffic before there is an address or a bearer.
#[test]
fn node_without_an_address_is_safe() {
    let now = Time::from_millis(1000);
    let mut node = Stack::new(now, StackConfig::default());
    let frame = forged(message(0, 3, 32, b"hello"));
    node.receive(now, 0, frame.bytes());
    node.receive(now, 200, frame.bytes());
    node.enable_bearer(now, BearerConfig::new("udp:U", media(0), 1472)).unwrap();
    assert!(node.own_node().is_none());
    for user in 0..16 {
        let mut m = forged(message(user, 0, 60, &[0; 60]));
        m.set_dest_node(NodeAddr::NONE);
        node.receive(now, 0, m.bytes());
        node.receive(now, 0, forged_broadcast(m).bytes());
    }
    let port = node.open(now, SocketKind::Rdm).unwrap();
    let to = Destination::Port(utipc_core::PortId { port: 1, node: PEER });
    assert!(node.send(now, port, b"hello", Some(to)).is_err());
    assert!(node.stats().frames_dropped > 30);
}

#[test]
fn bearer_mtu_below_the_minimum_is_refused() {
    let now = Time::from_millis(1000);
    let mut node = Stack::new(now, StackConfig::default());
    for mtu in [0, 1, 40, 99, 127] {
        assert!(node.enable_bearer(now, BearerConfig::new("udp:U", media(0), mtu)).is_err(), "{mtu}");
    }
    let undercut = BearerConfig { min_mtu: 0, ..BearerConfig::new("udp:U", media(0), 60) };
    assert!(node.enable_bearer(now, undercut).is_err());
}

#[test]
fn bearer_mtu_beyond_16_bits_is_safe() {
    let now = Time::from_millis(1000);
    let mut node = Stack::new(now, StackConfig::default());
    for mtu in [65_536, 65_537, 65_636, u32::MAX] {
        assert!(node.enable_bearer(now, BearerConfig::new("udp:U", media(0), mtu)).is_err(), "{mtu}");
    }
    node.enable_bearer(now, BearerConfig::new("udp:U", media(0), 65_535)).unwrap();
}

/// Every captured packet, unchanged and with one bit flipped, as if from the peer or from another node.
#[test]
fn captured_packets_with_one_wrong_bit() {
    let mut lan = Lan::linked();
    let mut sent = 0u64;
    for name in common::pcap::names() {
        for frame in common::pcap::read(&name).unwrap() {
            let mut bytes = frame.bytes;
            sent += 1;
            let at = (sent * 7919) as usize % (bytes.len().min(80) * 8);
            bytes[at / 8] ^= 1 << (at % 8);
            lan.nodes[0].receive(lan.now, 0, &bytes);
            lan.exchange();
            if sent.is_multiple_of(16) {
                lan.run(100);
                lan.sent.clear();
                lan.events.clear();
            }
        }
    }
    assert!(sent > 5000);
    // Some of the packets may have reset the link; the nodes establish it again.
    lan.run(60_000);
    assert!(lan.is_linked(), "{:?}", lan.nodes[0].nodes());
    assert_still_carries(&mut lan);
}
