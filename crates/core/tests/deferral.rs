//! Memory of early packets over all peers. The peers are not authenticated, so one host can forge any number of them.

mod common;

use common::lan::{Lan, PEER, VICTIM, forged, forged_broadcast, media};
use utipc_core::discovery::{DiscoveryKind, DiscoveryMessage};
use utipc_core::quota::{Amounts, Quotas, Resource, UserId};
use utipc_core::wire::{NameItem, User};
use utipc_core::{
    ClusterId, Destination, Event, LinkInfo, Message, NodeAddr, NodeId, PortId, ServiceRange, SocketKind,
    limits,
};

/// Forged nodes: as many as a node accepts at once.
const FORGED: u32 = 500;
/// Data of a forged packet, bytes: the largest that fits the bearer of [`Lan`].
const DATA: usize = 1400;
/// Maximum amount of memory that early packets may take, bytes: the limit of the node. Spec: tipc.md §14.2.
const LIMIT: usize = 64 << 20;

fn name(n: u32) -> NodeAddr {
    NodeAddr::legacy(1, 2, 1 + n)
}

fn message(user: u8, kind: u8, header: usize, data: &[u8]) -> Message {
    Message::build(User::from(user), kind, header, data)
}

fn data(from: NodeAddr, seqno: u16) -> Message {
    let mut m = forged(message(0, 3, 32, &[7; DATA]));
    m.set_prev_node(from);
    m.set_origin_node(from);
    m.set_seqno(seqno);
    m
}

/// Attacks that collect the events of the node, without the other frames of [`Lan::exchange`].
struct Attack {
    lan: Lan,
    downs: Vec<NodeAddr>,
}

impl Attack {
    fn new() -> Self {
        Self { lan: Lan::linked(), downs: Vec::new() }
    }

    fn give(&mut self, frame: &Message) {
        let victim = &mut self.lan.nodes[0];
        victim.receive(self.lan.now, 0, frame.bytes());
        victim.frames().clear();
        while let Some(event) = victim.poll_event() {
            if let Event::LinkDown { peer, .. } = event {
                self.downs.push(peer);
            }
        }
    }

    /// Brings a link up by three forged frames: nothing that the node sends is needed.
    fn forge_link(&mut self, n: u32) {
        let source = name(n);
        let request = DiscoveryMessage {
            kind: DiscoveryKind::Request,
            dest_domain: NodeAddr::NONE,
            source,
            cluster: ClusterId::default(),
            capabilities: limits::CAPABILITIES,
            signature: 0x1235,
            media: media(100 + n as usize % 100),
            net_hash: 99,
            suggestion: NodeAddr::NONE,
            identity: NodeId::from_legacy(source),
        };
        self.give(&request.build());
        for kind in [1, 2] {
            let mut m = forged(message(7, kind, 40, b"U\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"));
            m.set_prev_node(source);
            m.set_origin_node(source);
            m.set_session(7);
            m.set_max_packet(375);
            self.give(&m);
        }
    }

    fn deferred(&self) -> usize {
        self.lan.nodes[0].stats().deferred_bytes
    }

    fn link_of(&self, peer: NodeAddr) -> LinkInfo {
        self.lan.nodes[0].links().into_iter().find(|link| link.peer == peer).unwrap()
    }

    /// Number of the next packet of the honest peer.
    fn next_of_peer(&self) -> u16 {
        let sent = self.lan.sent.iter().rev().filter(|(from, ..)| *from == 1);
        let frames = sent.filter_map(|(.., bytes)| Message::from_vec(bytes.clone()).ok());
        { frames }.find(|m| m.user() == User::LinkProtocol && m.kind() == 0).unwrap().next_sent()
    }
}

/// Early packets of many forged nodes, each within its own limit.
#[test]
fn early_packets_of_forged_peers_are_bounded_together() {
    let mut attack = Attack::new();
    for n in 0..FORGED {
        attack.forge_link(n);
        for seqno in 2..120 {
            attack.give(&data(name(n), seqno));
        }
    }
    assert!(attack.deferred() > LIMIT / 2, "the attack no longer works: {} bytes", attack.deferred());
    assert!(attack.deferred() <= LIMIT, "{} bytes", attack.deferred());
}

/// One small packet at the far end of the window costs no more than its own memory.
#[test]
fn memory_of_an_early_packet_does_not_depend_on_its_distance() {
    let mut attack = Attack::new();
    attack.forge_link(0);
    attack.give(&data(name(0), 2));
    let near = attack.deferred();
    attack.forge_link(1);
    attack.give(&data(name(1), limits::MAX_WINDOW));
    assert!(near > DATA && attack.deferred() == 2 * near);
}

/// A peer with contact keeps its early packets at the cost of peers that never delivered anything; its own link and
/// those of other established peers stay up.
#[test]
fn established_peer_displaces_peers_that_never_came_up() {
    let mut attack = Attack::new();
    for n in 0..FORGED {
        attack.forge_link(n);
        for seqno in 2..120 {
            attack.give(&data(name(n), seqno));
        }
    }
    attack.lan.run(400);
    let next = attack.next_of_peer();
    let before = attack.link_of(PEER).stats;
    attack.downs.clear();
    for early in 1..500 {
        attack.give(&data(PEER, next.wrapping_add(early)));
    }
    let after = attack.link_of(PEER).stats;
    assert_eq!((after.rx_deferred - before.rx_deferred, after.refused), (499, before.refused));
    assert!(attack.deferred() <= LIMIT);
    assert!(!attack.downs.is_empty() && !attack.downs.contains(&PEER));
    assert!(attack.link_of(PEER).up);
    assert!(attack.lan.nodes[0].stats().deferrals_evicted > 0);
    let victims = attack.downs.len();
    assert!(victims < 20, "{victims} links were reset for 700 KB");
}

/// Forged nodes that deliver a packet in order are not displaced, but an established peer keeps an assured share.
#[test]
fn established_peer_has_an_assured_share() {
    let mut attack = Attack::new();
    for n in 0..FORGED {
        attack.forge_link(n);
        let mut state = data(name(n), 1);
        attack.give(&state);
        state.set_seqno(2);
        for seqno in 3..120 {
            attack.give(&data(name(n), seqno));
        }
    }
    attack.lan.run(400);
    let next = attack.next_of_peer();
    let before = attack.link_of(PEER).stats.rx_deferred;
    for early in 1..10 {
        attack.give(&data(PEER, next.wrapping_add(early)));
    }
    assert_eq!(attack.link_of(PEER).stats.rx_deferred - before, 9);
    assert!(attack.deferred() <= LIMIT + (FORGED as usize + 1) * (16 << 10));
    assert!(attack.link_of(PEER).up);
}

/// Largest memory that forged nodes that delivered packets in order may take beyond the limit, bytes each: a message
/// and some early packets.
const ASSURED: usize = (16 << 10) + 66_060;

/// Messages whose last fragment never comes.
#[test]
fn unfinished_messages_of_forged_peers_are_bounded_together() {
    let mut attack = Attack::new();
    // Every link keeps two: one of its own and one of the broadcasts.
    for n in 0..FORGED {
        attack.forge_link(n);
        let mut start = forged(message(5, 0, 40, &[]));
        start.set_prev_node(name(n));
        start.set_origin_node(name(n));
        start.set_seqno(1);
        attack.give(&start);
        let whole = message(0, 3, 32, &[7; 60_000]);
        for part in 0..46 {
            let (kind, slice) = (u8::from(part > 0), &whole.bytes()[..1300]);
            let mut unicast = forged(message(12, kind, 40, slice));
            unicast.set_prev_node(name(n));
            unicast.set_origin_node(name(n));
            unicast.set_seqno(2 + part);
            attack.give(&unicast);
            let mut broadcast = forged_broadcast(message(12, kind, 40, slice));
            broadcast.set_prev_node(name(n));
            broadcast.set_origin_node(name(n));
            broadcast.set_seqno(1 + part);
            attack.give(&broadcast);
        }
    }
    assert!(attack.deferred() > LIMIT / 2, "the attack no longer works: {} bytes", attack.deferred());
    // Without the limit: 2 * 66,000 bytes of each.
    assert!(attack.deferred() < LIMIT + 16 * ASSURED, "{} bytes", attack.deferred());
    assert!(attack.link_of(PEER).up && !attack.downs.contains(&PEER));
}

/// Numbered updates that wait for one that never comes.
#[test]
fn waiting_updates_of_forged_peers_are_bounded_together() {
    let mut attack = Attack::new();
    for n in 0..100 {
        attack.forge_link(n);
        for update in 1..800 {
            let at = u32::from(update);
            let item = NameItem { range: ServiceRange::new(1000, at, at), port: at, key: at };
            let mut names = forged(message(11, 0, 40, &item.to_bytes().repeat(68)));
            names.set_prev_node(name(n));
            names.set_origin_node(name(n));
            names.set_name_numbered(true);
            names.set_bcast_ack_invalid(true);
            names.set_name_seqno(update);
            names.set_seqno(update);
            attack.give(&names);
        }
    }
    assert!(attack.deferred() > LIMIT / 2, "the attack no longer works: {} bytes", attack.deferred());
    assert!(attack.deferred() < LIMIT + 100 * ASSURED, "{} bytes", attack.deferred());
    assert!(attack.link_of(PEER).up && !attack.downs.contains(&PEER));
}

/// The memory is free again after the links have gone down, by silence or with the peer.
#[test]
fn deferred_bytes_are_released_with_the_link() {
    let mut attack = Attack::new();
    for n in 0..20 {
        attack.forge_link(n);
        attack.give(&data(name(n), 9));
        let mut broadcast = forged_broadcast(message(0, 1, 44, &[7; DATA]));
        broadcast.set_prev_node(name(n));
        broadcast.set_origin_node(name(n));
        broadcast.set_seqno(40);
        attack.give(&broadcast);
    }
    assert!(attack.deferred() > 20 * DATA);
    attack.lan.run(60_000);
    assert_eq!(attack.deferred(), 0);
    assert_eq!(attack.lan.nodes[0].own_node(), VICTIM);
}

/// Sockets of one user send more than a link takes; the peer acknowledges nothing. What the link takes beyond its limit
/// is charged to the user, and within its quota.
#[test]
fn messages_beyond_the_limit_of_a_link_are_charged_to_their_user() {
    const SOCKETS: usize = 400;
    const SIZE: usize = 60_000;
    const QUOTA: u64 = 6_000_000;
    let mut lan = Lan::linked();
    let (now, node) = (lan.now, &mut lan.nodes[0]);
    let mut user = Amounts::all(u64::MAX);
    user.set(Resource::Memory, QUOTA);
    node.ledger_mut().set_quotas(Quotas { user, ..Quotas::unlimited() });
    let to = Destination::Port(PortId { port: 77, node: PEER });
    let mut send = |user: u32| {
        let port = node.open(now, SocketKind::Rdm).unwrap();
        node.set_user(port, UserId(user));
        node.send(now, port, &[7; SIZE], Some(to)).is_ok()
    };
    let sent = (0..SOCKETS).filter(|_| send(1)).count();
    // The limit of the link is three messages; an eighth of the sockets would fill the quota twice.
    let most = 4 + QUOTA as usize / SIZE;
    assert!((most / 2..=most).contains(&sent), "{sent} of {SOCKETS} messages, at most {most}");
    assert!(send(2), "another user cannot send");
    assert!(node.ledger().used_by(UserId(1), Resource::Memory) <= QUOTA);
    assert!(node.ledger().refused_to(UserId(1), Resource::Memory) > 0);
    assert!(node.is_balanced());
    // The peer acknowledges everything.
    lan.run(5000);
    let node = &mut lan.nodes[0];
    while node.poll_ready().is_some() {}
    assert_eq!(node.ledger().used_by(UserId(2), Resource::Memory), 0);
    assert!(node.is_balanced());
}
