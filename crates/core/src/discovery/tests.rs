use std::collections::BTreeMap;

use super::*;
use crate::addr::ClusterId;
use crate::error::WireError;
use crate::limits::{CAPABILITIES, MAX_PEERS};
use crate::rng::Rng;
use crate::time::Time;
use crate::wire::{MediaAddr, Message, View};

/// A message given by its header words, as captures and the reference print them.
fn frame(words: &str) -> Message {
    let word = |w| u32::from_str_radix(w, 16).unwrap().to_be_bytes();
    Message::from_vec(words.split_whitespace().flat_map(word).collect()).unwrap()
}

fn mac(last: u8) -> MediaAddr {
    MediaAddr::Ethernet([2, 0, 0, 0, 0, last])
}

/// A peer on one bearer, as a node layer stores it.
#[derive(Clone, Debug, Default)]
struct Peer {
    id: NodeId,
    signature: Option<u16>,
    media: Option<MediaAddr>,
    up: bool,
}

#[derive(Default)]
struct Nodes(BTreeMap<NodeAddr, Peer>);

impl KnownNodes for Nodes {
    fn identity_of(&self, addr: NodeAddr) -> Option<NodeId> {
        self.0.get(&addr).map(|p| p.id)
    }
    fn address_of(&self, id: &NodeId) -> Option<NodeAddr> {
        self.0.iter().find(|(_, p)| p.id == *id).map(|(a, _)| *a)
    }
    fn has_room(&self) -> bool {
        self.0.len() < MAX_PEERS
    }
}

struct Node {
    own: OwnAddress,
    disc: Discoverer,
    known: Nodes,
    out: Vec<Output>,
    refusals: Vec<Refusal>,
    log: Vec<(u64, DiscoveryKind)>,
    duplicates: usize,
}

impl Node {
    fn new(now: Time, mut own: OwnAddress, media: MediaAddr, domain: NodeAddr) -> Self {
        let mut out = Vec::new();
        let disc = Discoverer::new(now, DiscovererConfig { media, domain }, &mut own, &mut out);
        let (known, refusals, log) = Default::default();
        Self { own, disc, known, out, refusals, log, duplicates: 0 }
    }

    fn take(&mut self, now: Time, bytes: &[u8]) {
        let view = View::parse(bytes).unwrap();
        let got = self.disc.receive(now, view, &mut self.own, &self.known, &mut self.out);
        self.refusals.extend(got.err());
    }

    /// Acts as the node layer, following the table of §4.5.
    fn meet(&mut self, seen: Neighbour) {
        let peer = self.known.0.entry(seen.addr).or_insert(Peer { id: seen.id, ..Peer::default() });
        let signature_same = peer.signature == Some(seen.signature);
        let todo = evaluate(signature_same, peer.media == Some(seen.media), peer.up);
        self.duplicates += usize::from(todo.duplicate);
        if todo.store_signature {
            peer.signature = Some(seen.signature);
        }
        if todo.accept_address {
            peer.media = Some(seen.media);
        }
        if todo.respond
            && let Some(answer) = self.disc.respond(&self.own, &seen)
        {
            self.out.push(Output::Unicast(seen.media, answer));
        }
    }
}

/// Nodes on one medium, in virtual time; a frame arrives 1 ms after it was sent.
struct TestNetwork {
    now: Time,
    nodes: Vec<Node>,
}

impl TestNetwork {
    fn new(nodes: Vec<Node>) -> Self {
        Self { now: Time::ZERO, nodes }
    }

    fn exchange(&mut self) {
        let mut frames = Vec::new();
        for n in 0..self.nodes.len() {
            while !self.nodes[n].out.is_empty() {
                match self.nodes[n].out.remove(0) {
                    Output::Broadcast(m) => frames.push((n, None, m)),
                    Output::Unicast(to, m) => frames.push((n, Some(to), m)),
                    Output::AddressFinal(addr) => assert_eq!(addr, self.nodes[n].own.address()),
                    Output::Neighbour(seen) => self.nodes[n].meet(seen),
                }
            }
        }
        for (from, to, m) in frames {
            let kind = DiscoveryMessage::parse(m.view()).unwrap().kind;
            self.nodes[from].log.push((self.now.as_millis(), kind));
            for node in &mut self.nodes {
                // A broadcast also returns to its sender, as with UDP multicast.
                if to.is_none_or(|to| to == node.disc.config().media) {
                    node.take(self.now, m.bytes());
                }
            }
        }
    }

    fn run_until(&mut self, millis: u64) {
        while self.now.as_millis() < millis {
            self.exchange();
            self.now = self.now.plus_millis(1);
            for n in &mut self.nodes {
                n.disc.handle_timeout(self.now, &mut n.own, &mut n.out);
            }
        }
    }
}

fn identity(text: &str, seed: u64) -> OwnAddress {
    OwnAddress::from_identity(NodeId::from_text(text), ClusterId::default(), &mut Rng::new(seed))
}

fn explicit(n: u32, seed: u64) -> OwnAddress {
    OwnAddress::explicit(NodeAddr::legacy(1, 1, n), ClusterId::default(), &mut Rng::new(seed))
}

#[test]
fn request_equals_the_reference_byte_for_byte() {
    let want = frame(
        "5bf0004c 07ffab3c 00000000 66020012 00001267 00000001 52540012 34560000 00000000 00000000 \
         00000000 00000000 00000000 11223344 00000000 52540012 34560000 00000000 00000000",
    );
    let media = MediaAddr::Ethernet([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
    let id = OwnAddress::identity_of_bearer(&media);
    let request = DiscoveryMessage {
        kind: DiscoveryKind::Request,
        dest_domain: NodeAddr::NONE,
        source: id.trial_address(),
        cluster: ClusterId::default(),
        capabilities: CAPABILITIES,
        signature: 0x2b3c,
        media,
        net_hash: 0x1122_3344,
        suggestion: NodeAddr::NONE,
        identity: id,
    };
    assert_eq!(request.source, NodeAddr(0x6602_0012));
    assert_eq!(request.build().bytes(), want.bytes());
    let back = DiscoveryMessage::parse(want.view()).unwrap();
    assert_eq!(back, DiscoveryMessage { signature: 0xab3c, ..request });
    assert_eq!(back.build().bytes(), want.bytes());
}

#[test]
fn kernel_refusal_changes_the_trial_as_in_the_kernel() {
    // eth-address-clash: b tries an address that a owns; a refuses it; b tries the suggestion.
    let trial = "5bf0004c 47ff9878 0 4546474c 1267 1 2000000 20000 0 0 0 0 0 27a81b56 0 \
                 41424344 41424344 45464748 45464748";
    let refusal = frame(
        "5bf0004c 67ffbe0b 4546474c 4546474c 1267 1 2000000 10000 0 0 0 0 0 406b13e9 bfc47947 \
         41424344 45464748 45464748 41424344",
    );
    let trial = frame(trial);
    let heard = DiscoveryMessage::parse(trial.view()).unwrap();
    let mut b = Node::new(Time::ZERO, identity("ABCDABCDEFGHEFGH", 1), mac(2), NodeAddr::NONE);
    assert_eq!(b.own.trial_address(), NodeAddr(0x4546_474c));
    let Some(Output::Broadcast(sent)) = b.out.pop() else { panic!("no trial message") };
    let sent = DiscoveryMessage::parse(sent.view()).unwrap();
    let same_marks = DiscoveryMessage { signature: heard.signature, net_hash: heard.net_hash, ..sent };
    assert_eq!(same_marks.build().bytes(), trial.bytes(), "the trial differs from the kernel's");

    b.take(Time::from_millis(2), refusal.bytes());
    assert_eq!(b.own.trial_address(), NodeAddr(0xbfc4_7947));
    assert_eq!(b.own.address(), NodeAddr::NONE);
    b.take(Time::from_millis(3), refusal.bytes());
    assert_eq!(b.refusals, [Refusal::Phase], "a refusal of an address no longer tried counts");
    // The trial period restarted with the refusal, at 2 ms.
    for at in (0..=1125).step_by(125) {
        b.disc.handle_timeout(Time::from_millis(at), &mut b.own, &mut b.out);
        assert_eq!(b.own.is_final(), at >= 1002, "at {at} ms");
    }
    b.take(Time::from_millis(1200), refusal.bytes());
    assert_eq!(b.own.address(), NodeAddr(0xbfc4_7947), "a refusal after the trial must not count");
}

#[test]
fn trial_of_a_used_address_is_refused_with_a_free_one() {
    let a = Node::new(Time::ZERO, identity("ABCDEFGHEFGHABCD", 1), mac(1), NodeAddr::NONE);
    let mut network = TestNetwork::new(vec![a]);
    network.run_until(2500);
    let before = network.now.as_millis();
    network.nodes.push(Node::new(network.now, identity("ABCDABCDEFGHEFGH", 2), mac(2), NodeAddr::NONE));
    network.run_until(before + 2500);
    let (a, b) = (&network.nodes[0], &network.nodes[1]);
    assert_eq!(a.own.address(), NodeAddr(0x4546_474c));
    assert!(b.own.is_final() && b.own.address() != a.own.address());
    assert_eq!(a.log.iter().filter(|l| l.1 == DiscoveryKind::TrialFail).count(), 1);
    assert_eq!(a.known.identity_of(b.own.address()), Some(b.own.identity()));
    assert_eq!(b.known.identity_of(a.own.address()), Some(a.own.identity()));
}

#[test]
fn nodes_find_each_other_after_their_trial() {
    let a = Node::new(Time::ZERO, identity("alpha", 1), mac(1), NodeAddr::NONE);
    let b = Node::new(Time::ZERO, identity("beta", 2), mac(2), NodeAddr::NONE);
    let mut network = TestNetwork::new(vec![a, b]);
    network.run_until(3000);
    for (own, peer) in [(0, 1), (1, 0)] {
        let (own, peer) = (&network.nodes[own], &network.nodes[peer]);
        let at = |kind| own.log.iter().filter(|l| l.1 == kind).map(|l| l.0).collect::<Vec<_>>();
        assert_eq!(at(DiscoveryKind::Trial), [0, 125, 250, 375, 500, 625, 750, 875]);
        assert_eq!(at(DiscoveryKind::Request), [1125, 1375, 1875, 2875]);
        assert!(own.known.0[&peer.own.address()].media.is_some());
        assert!(own.refusals.contains(&Refusal::Own), "own broadcasts come back on this network");
        assert_eq!(own.duplicates, 0);
    }
}

#[test]
fn explicit_address_skips_the_trial_and_requests_slow_down_once_linked() {
    let a = Node::new(Time::ZERO, explicit(1, 1), mac(1), NodeAddr::NONE);
    let b = Node::new(Time::ZERO, explicit(2, 2), mac(2), NodeAddr::NONE);
    let mut network = TestNetwork::new(vec![a, b]);
    network.run_until(100);
    assert!(network.nodes[0].known.0.contains_key(&NodeAddr::legacy(1, 1, 2)));
    assert_eq!(network.nodes[0].own.identity(), NodeId::from_text("1001001"));
    for (n, peer) in [(0, NodeAddr::legacy(1, 1, 2)), (1, NodeAddr::legacy(1, 1, 1))] {
        network.nodes[n].disc.link_up();
        network.nodes[n].known.0.get_mut(&peer).unwrap().up = true;
    }
    network.run_until(300_000);
    let requests: Vec<u64> =
        network.nodes[0].log.iter().filter(|l| l.1 == DiscoveryKind::Request).map(|l| l.0).collect();
    assert_eq!(requests[..5], [0, 125, 375, 875, 1875]);
    let last = requests.windows(2).last().unwrap();
    assert_eq!(last[1] - last[0], 60_000);
    let slow = network.nodes[0].disc.deadline().unwrap();
    network.nodes[0].disc.link_down(network.now);
    assert!(network.nodes[0].disc.deadline().unwrap() < slow);
    assert_eq!(network.nodes[0].disc.deadline().unwrap(), network.now.plus_millis(125));
}

#[test]
fn exact_domain_stops_requests_once_its_node_is_linked() {
    let wanted = NodeAddr::legacy(1, 1, 2);
    let mut a = Node::new(Time::ZERO, explicit(1, 1), mac(1), wanted);
    a.disc.link_up();
    a.disc.handle_timeout(Time::from_millis(125), &mut a.own, &mut a.out);
    assert_eq!(a.disc.deadline(), None);
    a.disc.link_down(Time::from_millis(500));
    assert_eq!(a.disc.deadline(), Some(Time::from_millis(625)));

    let stranger = Node::new(Time::ZERO, explicit(3, 3), mac(3), NodeAddr::NONE);
    let Some(Output::Broadcast(m)) = stranger.out.first() else { panic!("no request") };
    a.take(Time::from_millis(600), m.bytes());
    assert_eq!(a.refusals, [Refusal::OutsideDomain(NodeAddr::legacy(1, 1, 3))]);
}

#[test]
fn domains_cover_their_nodes() {
    let a = NodeAddr::legacy(1, 2, 3);
    for (domain, modern, legacy) in [
        (NodeAddr::NONE, true, true),
        (a, true, true),
        (NodeAddr::legacy(1, 2, 0), false, true),
        (NodeAddr::legacy(1, 0, 0), false, true),
        (NodeAddr::legacy(1, 3, 0), false, false),
        (NodeAddr::legacy(2, 0, 0), false, false),
        (NodeAddr::legacy(1, 2, 4), false, false),
    ] {
        assert_eq!((in_domain(domain, a, false), in_domain(domain, a, true)), (modern, legacy), "{domain}");
    }
}

#[test]
fn messages_of_another_cluster_are_ignored() {
    // eth-other-cluster: node 1.1.2 of cluster 9999.
    let request =
        frame("5bf0004c 7ff845d 0 1001002 270f 1 2000000 20000 0 0 0 0 0 732fa22f 0 31303031 30303200 0 0");
    let mut a = Node::new(Time::ZERO, explicit(1, 1), mac(1), NodeAddr::NONE);
    a.out.clear();
    a.take(Time::ZERO, request.bytes());
    assert_eq!(a.refusals, [Refusal::OtherCluster(9999)]);
    assert_eq!(a.out, []);
}

#[test]
fn requests_are_ignored_during_the_trial() {
    let request =
        frame("5bf0004c 7ffd03e 0 1001001 1267 1 2000000 10000 0 0 0 0 0 1bb222ae 0 31303031 30303100 0 0");
    let mut b = Node::new(Time::ZERO, identity("beta", 2), mac(2), NodeAddr::NONE);
    b.take(Time::from_millis(999), request.bytes());
    assert_eq!(b.refusals, [Refusal::Phase]);
    b.out.clear();
    b.take(Time::from_millis(1000), request.bytes());
    let [Output::AddressFinal(addr), Output::Neighbour(seen)] = &b.out[..] else { panic!("{:?}", b.out) };
    assert_eq!((*addr, seen.relation), (b.own.address(), Relation::New));
    assert_eq!((seen.id, seen.media), (NodeId::from_text("1001001"), mac(1)));
    assert!(seen.is_request && seen.capabilities == CAPABILITIES);
}

#[test]
fn duplicate_address_is_reported() {
    let mut a = Node::new(Time::ZERO, explicit(1, 1), mac(1), NodeAddr::NONE);
    let twin = Node::new(Time::ZERO, explicit(1, 9), mac(9), NodeAddr::NONE);
    let Some(Output::Broadcast(m)) = twin.out.first() else { panic!("no request") };
    a.take(Time::ZERO, m.bytes());
    assert_eq!(a.refusals, [Refusal::DuplicateAddress(mac(9))]);
}

#[test]
fn messages_of_the_nodes_other_bearer_are_recognised() {
    let mut a = Node::new(Time::ZERO, identity("alpha", 1), mac(1), NodeAddr::NONE);
    let config = DiscovererConfig { media: mac(2), domain: NodeAddr::NONE };
    let mut out = Vec::new();
    let _second = Discoverer::new(Time::ZERO, config, &mut a.own, &mut out);
    let Some(Output::Broadcast(m)) = out.first() else { panic!("no trial message") };
    a.take(Time::ZERO, m.bytes());
    assert_eq!(a.refusals, [Refusal::Own]);
}

#[test]
fn known_identity_gets_its_previous_address_back() {
    let mut known = Nodes::default();
    let beta = NodeId::from_text("beta");
    known.0.insert(NodeAddr(77), Peer { id: beta, ..Peer::default() });
    let own = identity("alpha", 1);
    let stranger = NodeId::from_text("stranger");
    assert_eq!(own.object_to(&beta, NodeAddr(77), &known), None);
    assert_eq!(own.object_to(&beta, NodeAddr(78), &known), Some(NodeAddr(77)));
    assert_eq!(own.object_to(&stranger, NodeAddr(78), &known), None);
    let first = own.object_to(&stranger, NodeAddr(77), &known).unwrap();
    known.0.insert(first, Peer { id: NodeId::from_text("x"), ..Peer::default() });
    assert_eq!(own.object_to(&stranger, NodeAddr(77), &known), Some(NodeAddr(first.0.wrapping_add(1))));
    let clash = own.object_to(&stranger, own.trial_address(), &known).unwrap();
    assert_ne!(clash, own.trial_address());
}

#[test]
fn unknown_nodes_are_limited_in_rate_and_number() {
    let mut a = Node::new(Time::ZERO, explicit(1, 1), mac(1), NodeAddr::NONE);
    a.out.clear();
    let request = |n: u32, a: &mut Node, now| {
        let media = mac(2); // all on one host
        let b = Node::new(Time::ZERO, explicit(n, u64::from(n)), media, NodeAddr::NONE);
        let Some(Output::Broadcast(m)) = b.out.first() else { panic!("no request") };
        a.take(now, m.bytes());
    };
    for n in 2..1002 {
        request(n, &mut a, Time::ZERO);
    }
    assert_eq!(a.out.len(), 576);
    assert_eq!(a.refusals.len(), 1000 - 576);
    assert_eq!(a.refusals[0], Refusal::TooFast(NodeAddr::legacy(1, 1, 578)));
    request(578, &mut a, Time::from_millis(1000));
    assert_eq!(a.out.len(), 577, "tokens are refilled over time");

    for n in 0..MAX_PEERS as u32 {
        a.known.0.insert(NodeAddr(0x7000_0000 + n), Peer::default());
    }
    a.refusals.clear();
    request(579, &mut a, Time::from_millis(9000));
    assert_eq!(a.refusals, [Refusal::TooMany(NodeAddr::legacy(1, 1, 579))]);
}

#[test]
fn acceptance_table_covers_all_cases() {
    let mut table = String::new();
    for n in 0..8 {
        let (signature, address, up) = (n & 4 == 0, n & 2 == 0, n & 1 == 0);
        let Assessment { store_signature, accept_address, respond, duplicate } =
            evaluate(signature, address, up);
        let yn = |b: bool| if b { 'y' } else { 'n' };
        let mut todo = vec![];
        for (what, on) in [
            ("store", store_signature),
            ("accept", accept_address),
            ("respond", respond),
            ("duplicate", duplicate),
        ] {
            todo.extend(on.then_some(what));
        }
        table += &format!("{} {} {} {}\n", yn(signature), yn(address), yn(up), todo.join(" "));
    }
    let want = "y y y \ny y n respond\ny n y duplicate\ny n n accept respond\n\
                n y y store\nn y n store respond\nn n y duplicate\nn n n store accept respond\n";
    assert_eq!(table, want);
}

#[test]
fn malformed_messages_are_refused_with_the_rule() {
    let good = "5bf0004c 7ffd03e 0 1001001 1267 1 2000000 10000 0 0 0 0 0 1bb222ae 0 31303031 30303100 0 0";
    let parse = |words: &str| DiscoveryMessage::parse(frame(words).view());
    assert!(parse(good).is_ok());
    let bad = |from: &str, to: &str| parse(&good.replacen(from, to, 1)).unwrap_err();
    assert_eq!(bad("5bf0004c", "5be0004c"), WireError::User(13)); // sequenced
    assert_eq!(bad("5bf0004c", "5b50004c"), WireError::HeaderSize { need: 60, have: 40 });
    assert_eq!(bad("7ffd03e", "87ffd03e"), WireError::Type { user: 13, kind: 4 });
    assert!(matches!(bad("1001001", "0"), WireError::Malformed(_)));
    assert_eq!(bad(" 1 2000000", " 1 3000000"), WireError::MediaAddress); // a multicast MAC
    assert_eq!(bad(" 1 2000000", " 2 2000000"), WireError::MediaAddress);
    assert_eq!(bad(" 1 2000000 10000", " 1 0 0"), WireError::MediaAddress);
    assert_eq!(bad(" 1 2000000 10000", " 3 80017e6 0"), WireError::MediaAddress); // 0.0.0.0
    assert_eq!(bad(" 1 2000000 10000", " 3 8000000 a000001"), WireError::MediaAddress); // port 0
    assert!(matches!(bad("31303031 30303100", "0 0"), WireError::Malformed(_)));
    let short = "5bf0003c 7ffd03e 0 1001001 1267 1 2000000 10000 0 0 0 0 0 1bb222ae 0";
    assert_eq!(parse(short).unwrap_err(), WireError::Truncated { need: 16, have: 0 });
    let old = parse(&short.replacen("7ffd03e", "8503e", 1)).unwrap(); // no 128-bit identities yet
    assert_eq!(old.identity, NodeId::from_text("1001001"));
    let udp = parse(&good.replacen(" 1 2000000 10000", " 3 80017e6 a000001", 1)).unwrap();
    assert_eq!(udp.media, MediaAddr::Udp("10.0.0.1:6118".parse().unwrap()));
    let mut a = Node::new(Time::ZERO, explicit(2, 1), mac(1), NodeAddr::NONE);
    a.take(Time::ZERO, udp.build().bytes());
    assert_eq!(a.refusals, [Refusal::OtherMedium(udp.media)]);
}

#[test]
fn arbitrary_bytes_do_not_panic() {
    let mut rng = Rng::new(7);
    let mut a = Node::new(Time::ZERO, identity("alpha", 1), mac(1), NodeAddr::NONE);
    let good = a.disc.respond(&a.own, &neighbour());
    assert_eq!(good, None, "no answer before the address is final");
    let Some(Output::Broadcast(good)) = a.out.pop() else { panic!("no trial message") };
    for n in 0..20_000u64 {
        let mut bytes = good.bytes().to_vec();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u32() as u8;
        }
        bytes.truncate(rng.below(100) as usize);
        if let Ok(view) = View::parse(&bytes) {
            let now = Time::from_millis(n);
            let _ = a.disc.receive(now, view, &mut a.own, &a.known, &mut a.out);
        }
        a.out.clear();
    }
}

fn neighbour() -> Neighbour {
    Neighbour {
        addr: NodeAddr(1),
        id: NodeId([1; 16]),
        capabilities: 0,
        signature: 0,
        net_hash: 0,
        media: mac(7),
        is_request: true,
        relation: Relation::New,
    }
}
