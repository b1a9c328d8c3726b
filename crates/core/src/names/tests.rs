//! Tests of single rules of the table and of distribution.

use super::*;
use crate::addr::{Binding, NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use crate::wire::{Message, User};

const OWN: NodeAddr = NodeAddr(0x0100_1001);
const PEER: NodeAddr = NodeAddr(0x0100_1002);

fn table() -> NameTable {
    NameTable::new(OWN, false)
}

fn range(lower: u32, upper: u32) -> ServiceRange {
    ServiceRange::new(1000, lower, upper)
}

fn address(instance: u32) -> ServiceAddr {
    ServiceAddr { service: 1000, instance }
}

fn remote(lower: u32, upper: u32, port: u32) -> Binding {
    Binding {
        range: range(lower, upper),
        scope: Scope::Cluster,
        port: PortId { port, node: PEER },
        key: port + 1,
    }
}

#[test]
fn binding_keys_count_all_bindings_ever_made() {
    let mut t = table();
    let keys: Vec<u32> =
        (0..3).map(|i| t.bind(500, range(i, i), Scope::Cluster).unwrap().binding.key).collect();
    assert_eq!(keys, [501, 502, 503]);
    t.unbind(500, None).unwrap();
    assert_eq!(t.bind(500, range(9, 9), Scope::Node).unwrap().binding.key, 504);
    t.forget_port(500);
    assert!(t.is_empty());
    assert_eq!(t.bind(500, range(9, 9), Scope::Node).unwrap().binding.key, 501);
}

#[test]
fn unbind_is_by_range_and_scope_newest_first() {
    let mut t = table();
    for _ in 0..2 {
        t.bind(7, range(1, 5), Scope::Cluster).unwrap();
    }
    t.bind(7, range(1, 5), Scope::Node).unwrap();
    assert_eq!(t.unbind(7, Some((range(1, 6), Scope::Cluster))), Err(UnbindError::NotBound(7)));
    assert_eq!(t.unbind(8, None), Ok(Vec::new()));
    let one = t.unbind(7, Some((range(1, 5), Scope::Cluster))).unwrap();
    assert_eq!(one.iter().map(|c| c.binding.key).collect::<Vec<_>>(), [9]);
    let rest = t.unbind(7, None).unwrap();
    assert_eq!(rest.iter().map(|c| (c.binding.key, c.edge)).collect::<Vec<_>>(), [(10, false), (8, true)]);
}

#[test]
fn invalid_bindings_are_refused() {
    let mut t = table();
    assert_eq!(t.bind(1, range(5, 4), Scope::Cluster), Err(PublishError::Inverted(range(5, 4))));
    t.publish(remote(1, 1, 10)).unwrap();
    assert!(matches!(t.publish(remote(1, 1, 10)), Err(PublishError::Duplicate(..))));
    assert_eq!(t.len(), 1);
}

#[test]
fn node_state_fits_when_user_bindings_are_at_the_limit() {
    let mut t = table();
    for i in 0..USER_BINDINGS as u32 {
        t.bind(1 + i % 100, range(i, i), Scope::Cluster).unwrap();
    }
    assert_eq!(t.bind(1, range(0, 9), Scope::Cluster), Err(PublishError::TooMany(USER_BINDINGS)));
    t.bind(0, ServiceRange::new(0, OWN.0, OWN.0), Scope::Cluster).unwrap();
    t.unbind(1, None).unwrap();
    t.bind(1, range(0, 9), Scope::Cluster).unwrap();
}

#[test]
fn limit_of_user_bindings_can_be_set() {
    let mut t = table();
    for (limit, fit) in [(10, 10), (5, 10), (12, 12)] {
        t.set_limit(limit);
        let bound =
            (0..20).filter(|i| t.bind(1, range(i + 100 * limit as u32, 9999), Scope::Cluster).is_ok());
        bound.for_each(drop);
        assert_eq!(t.len(), fit);
        assert_eq!(t.bind(1, range(0, 9), Scope::Cluster), Err(PublishError::TooMany(limit)));
    }
    t.set_limit(usize::MAX);
    t.bind(1, range(0, 9), Scope::Cluster).unwrap();
}

#[test]
fn one_peer_cannot_fill_the_table() {
    let mut t = table();
    for i in 0..MAX_PEER_BINDINGS as u32 {
        t.publish(remote(i % 7, 7 + i, 1 + i)).unwrap();
    }
    assert_eq!(t.publish(remote(1, 2, 300_000)), Err(PublishError::TooMany(MAX_PEER_BINDINGS)));
    t.bind(1, range(0, 9), Scope::Cluster).unwrap();
    assert_eq!(t.withdraw_node(PEER).len(), MAX_PEER_BINDINGS);
    assert_eq!(t.len(), 1);
}

#[test]
fn domain_of_the_own_node_finds_only_local_sockets() {
    let mut t = table();
    t.publish(remote(0, 100, 1)).unwrap();
    assert_eq!(t.lookup(address(5), OWN), None);
    t.bind(3, range(5, 9), Scope::Node).unwrap();
    assert_eq!(t.lookup(address(5), OWN), Some(Lookup { port: 3, node: OWN, scope: 3 }));
    assert_eq!(t.lookup(address(5), NodeAddr(0)), Some(Lookup { port: 1, node: PEER, scope: 2 }));
    assert_eq!(t.lookup(address(5), PEER), Some(Lookup { port: 0, node: PEER, scope: 3 }));
}

#[test]
fn legacy_lookups_prefer_the_own_node_and_support_masks() {
    let mut t = NameTable::new(OWN, true);
    t.bind(3, range(5, 5), Scope::Cluster).unwrap();
    t.publish(remote(5, 5, 1)).unwrap();
    for _ in 0..3 {
        assert_eq!(t.lookup(address(5), NodeAddr(0)).unwrap().port, 3);
    }
    let masked: Vec<u32> =
        (0..4).map(|_| t.lookup(address(5), NodeAddr(0x0100_1000)).unwrap().port).collect();
    assert_eq!(masked, [1, 3, 1, 3]);
    assert_eq!(t.lookup(address(5), NodeAddr(0x0200_0000)).unwrap().port, 0);
    assert_eq!(t.lookup(address(6), NodeAddr(0x0100_0000)), None);
}

#[test]
fn bindings_made_before_the_address_get_the_address() {
    let mut t = NameTable::new(NodeAddr::NONE, false);
    t.bind(3, range(5, 5), Scope::Cluster).unwrap();
    assert_eq!(t.lookup(address(5), NodeAddr(0)).unwrap().node, NodeAddr::NONE);
    t.set_own_node(OWN);
    assert_eq!(t.lookup(address(5), NodeAddr(0)).unwrap().node, OWN);
    assert_eq!(t.lookup(address(5), OWN).unwrap().port, 3);
    assert_eq!(t.own_cluster_bindings_from(0, usize::MAX).0.len(), 1);
    let gone = t.unbind(3, Some((range(5, 5), Scope::Cluster))).unwrap();
    assert_eq!(gone[0].binding.port.node, OWN);
    assert!(t.is_empty());
}

/// A peer's distributor, and this node's table that receives from it.
struct Feed {
    sender: NameTable,
    numbers: Distributor,
    table: NameTable,
    receiver: NameReceiver,
    report: NameReport,
    changes: Vec<Change>,
}

impl Feed {
    fn new(first: u16) -> Self {
        Self {
            sender: NameTable::new(PEER, false),
            numbers: Distributor::new(first),
            table: table(),
            receiver: NameReceiver::new(),
            report: NameReport::default(),
            changes: Vec::new(),
        }
    }

    fn bind(&mut self, instance: u32) -> Message {
        let change = self.sender.bind(1 + instance, range(instance, instance), Scope::Cluster).unwrap();
        self.numbers.announce(PEER, &change).unwrap()
    }

    fn unbind(&mut self, instance: u32) -> Message {
        let change = self.sender.unbind(1 + instance, None).unwrap();
        self.numbers.announce(PEER, &change[0]).unwrap()
    }

    fn receive(&mut self, message: Message) {
        let Self { table, receiver, report, changes, .. } = self;
        receiver.receive(PEER, message, table, changes, report).unwrap();
        while receiver.apply_due(PEER, table, changes, report).is_some() {}
        assert!(!receiver.has_due());
    }

    fn bulk(&mut self, mss: usize) {
        for message in self.numbers.bulk(&self.sender, OWN, mss) {
            self.receive(message);
        }
    }

    fn agree(&self) -> bool {
        let clean = |t: &NameTable| {
            let mut all = t.bindings();
            all.sort();
            all
        };
        clean(&self.table) == clean(&self.sender)
    }
}

#[test]
fn updates_wait_for_the_bulk_and_for_lower_numbers() {
    for first in [0, 65_530] {
        let mut feed = Feed::new(first);
        let before = feed.bind(1);
        let bulk = feed.numbers.bulk(&feed.sender, OWN, 1424);
        let later: Vec<Message> = (2..12).map(|i| feed.bind(i)).collect();
        let gone = feed.unbind(3);
        feed.receive(later[1].clone());
        feed.receive(before);
        assert!(feed.table.is_empty() && !feed.receiver.is_open());
        bulk.into_iter().for_each(|m| feed.receive(m));
        assert!(feed.receiver.is_open());
        assert_eq!(feed.table.len(), 1);
        feed.receive(gone);
        later.iter().rev().for_each(|m| feed.receive(m.clone()));
        assert!(feed.agree());
        assert_eq!(feed.receiver.waiting(), 0);
        assert_eq!(feed.report.repeated, 1, "the duplicate of the waiting update");
        feed.receive(later[5].clone());
        assert_eq!(feed.report.repeated, 2);
        assert_eq!((feed.report.duplicate, feed.report.unknown), (0, 0));
    }
}

#[test]
fn new_contact_starts_with_a_new_bulk() {
    let mut feed = Feed::new(0);
    feed.bulk(1424);
    let lost: Vec<Message> = (0..3).map(|i| feed.bind(i)).collect();
    feed.receive(lost[1].clone());
    feed.table.withdraw_node(PEER);
    feed.receiver.reset();
    assert_eq!(feed.receiver.waiting(), 0);
    let early = feed.bind(7);
    let Feed { numbers, sender, .. } = &feed;
    let bulk = numbers.bulk(sender, OWN, 100);
    assert_eq!(bulk.len(), 2);
    feed.receive(early);
    assert_eq!(feed.table.len(), 0);
    bulk.into_iter().for_each(|m| feed.receive(m));
    assert!(feed.agree());
    let last = feed.bind(8);
    feed.receive(last);
    assert!(feed.agree());
}

#[test]
fn bulk_of_an_empty_table_carries_the_number() {
    let mut feed = Feed::new(44);
    let bulk = feed.numbers.bulk(&feed.sender, OWN, 1424);
    assert_eq!(bulk.len(), 1);
    assert!(bulk[0].name_last_bulk() && bulk[0].name_seqno() == 44 && bulk[0].data().is_empty());
    feed.bulk(1424);
    assert!(feed.receiver.is_open());
}

#[test]
fn bindings_of_node_scope_are_not_announced() {
    let mut feed = Feed::new(0);
    let change = feed.sender.bind(1, range(1, 1), Scope::Node).unwrap();
    assert!(feed.numbers.announce(PEER, &change).is_none());
    assert_eq!(feed.numbers.next_number(), 0);
    feed.bulk(1424);
    assert!(feed.table.is_empty());
}

#[test]
fn hostile_updates_change_nothing() {
    let mut feed = Feed::new(0);
    feed.bulk(1424);
    let mut inverted = feed.bind(1);
    let mut bytes = inverted.clone().into_bytes();
    bytes[44..48].copy_from_slice(&9u32.to_be_bytes());
    inverted = Message::from_vec(bytes).unwrap();
    feed.receive(inverted);
    assert_eq!(feed.report.inverted, 1);
    let mut foreign = feed.bind(2);
    foreign.set_origin_node(NodeAddr(99));
    feed.receive(foreign);
    feed.receive(Message::build(User::NameDistributor, 0, 24, &[0; 20]));
    assert_eq!(feed.report.foreign, 2);
    let mut legacy = feed.unbind(2);
    legacy.set_name_numbered(false);
    feed.receive(legacy.clone());
    assert_eq!(feed.report.unknown, 1);
    legacy.set_kind(5);
    legacy.append(&[1; 13]);
    feed.receive(legacy);
    assert_eq!(feed.report.foreign, 3);
    assert!(feed.table.is_empty() && feed.changes.is_empty());
}

#[test]
fn missing_update_is_reported_while_memory_is_bounded() {
    let mut feed = Feed::new(0);
    feed.bulk(1424);
    let template = feed.bind(1);
    let mut failed = None;
    for number in 1..=MAX_WAITING_UPDATES as u16 + 1 {
        let mut message = template.clone();
        message.set_name_seqno(number);
        let Feed { table, receiver, report, changes, .. } = &mut feed;
        if let Err(out_of_step) = receiver.receive(PEER, message, table, changes, report) {
            failed = Some(out_of_step);
        }
    }
    assert_eq!(failed, Some(NamesOutOfStep { missing: 0 }));
    assert_eq!(feed.receiver.waiting(), MAX_WAITING_UPDATES);
}

#[test]
fn arbitrary_name_messages_do_not_panic() {
    let mut rng = crate::rng::Rng::new(5);
    let mut feed = Feed::new(0);
    for _ in 0..20_000 {
        let len = rng.below(120) as usize;
        let data: Vec<u8> =
            (0..len).map(|_| if rng.below(3) == 0 { rng.below(256) as u8 } else { 0 }).collect();
        let mut message = Message::build(User::NameDistributor, rng.below(4) as u8, 40, &data);
        message.set_word(1, message.word(1) & 0xe000_0000 | rng.next_u32() & 0x1fff_ffff);
        message.set_word(4, rng.below(70_000) as u32);
        message.set_origin_node(PEER);
        feed.receive(message);
    }
    let learned = feed.table.len();
    assert_eq!(feed.table.withdraw_node(PEER).len(), learned);
    assert!(feed.table.is_empty());
}
