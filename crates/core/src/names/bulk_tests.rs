//! A bulk in portions, with updates in between, leads to the table of its sender.

use super::*;
use crate::addr::{Binding, NodeAddr, PortId, Scope, ServiceRange};
use crate::rng::Rng;
use crate::wire::Message;

const OWN: NodeAddr = NodeAddr(0x0100_1001);
const PEER: NodeAddr = NodeAddr(0x0100_1002);

/// A node with bindings, and the receiving side of its new peer.
struct Contact {
    rng: Rng,
    table: NameTable,
    numbers: Distributor,
    alive: Vec<Binding>,
    made: u32,
    peer_table: NameTable,
    receiver: NameReceiver,
    report: NameReport,
}

impl Contact {
    fn new(seed: u64, first: u16) -> Self {
        Self {
            rng: Rng::new(seed),
            table: NameTable::new(OWN, false),
            numbers: Distributor::new(first),
            alive: Vec::new(),
            made: 0,
            peer_table: NameTable::new(PEER, false),
            receiver: NameReceiver::new(),
            report: NameReport::default(),
        }
    }

    /// Publishes or withdraws a binding; the update for peers, if there is one.
    fn change(&mut self, grows: bool, withdrawals: Option<&mut Withdrawals>) -> Option<Message> {
        let change = if grows || self.alive.is_empty() {
            self.made += 1;
            let scope = if self.rng.below(4) == 0 { Scope::Node } else { Scope::Cluster };
            let lower = self.rng.below(30) as u32;
            let range = ServiceRange::new(1000, lower, lower + self.rng.below(9) as u32);
            let port = PortId { port: 1 + self.rng.below(9) as u32, node: OWN };
            let binding = Binding { range, scope, port, key: self.made };
            self.alive.push(binding);
            self.table.publish(binding).unwrap()
        } else {
            let gone = self.alive.swap_remove(self.rng.below(self.alive.len() as u64) as usize);
            if let Some(withdrawals) = withdrawals.filter(|_| gone.scope == Scope::Cluster) {
                withdrawals.push(gone);
            }
            self.table.withdraw(gone.range, gone.port, gone.key).unwrap()
        };
        self.numbers.announce(OWN, &change)
    }

    fn receive(&mut self, message: Message) {
        let Self { peer_table, receiver, report, .. } = self;
        let mut changes = Vec::new();
        receiver.receive(OWN, message, peer_table, &mut changes, report).unwrap();
        while receiver.apply_due(OWN, peer_table, &mut changes, report).is_some() {}
    }

    fn agree(&self) -> bool {
        let mut expected = self.table.own_cluster_bindings_from(0, usize::MAX).0;
        let mut found = self.peer_table.bindings();
        expected.sort();
        found.sort();
        expected == found
    }
}

#[test]
fn portions_have_the_bindings_of_an_undivided_bulk() {
    for seed in 0..50 {
        let mut contact = Contact::new(seed, 9);
        for _ in 0..seed * 20 {
            let grows = contact.rng.below(3) > 0;
            contact.change(grows, None);
        }
        let Contact { rng, table, numbers, .. } = &mut contact;
        let most = 1 + rng.below(100) as usize;
        let none = Withdrawals::default();
        let (mut bulk, mut messages) = (Bulk::new(table, &none, most), Vec::new());
        loop {
            let (part, is_over) = numbers.next_of_bulk((table, &none), (PEER, 1424), &mut bulk);
            assert!(part.iter().map(|message| message.data().len() / 20).sum::<usize>() <= most);
            messages.extend(part);
            if is_over {
                break;
            }
        }
        let items =
            |all: &[Message]| all.iter().flat_map(|message| message.data().to_vec()).collect::<Vec<u8>>();
        let undivided = numbers.bulk(table, PEER, 1424);
        assert_eq!(items(&messages), items(&undivided), "seed {seed}");
        let last = messages.pop().unwrap();
        assert!(last.name_last_bulk() && messages.iter().all(|message| !message.name_last_bulk()));
        assert_eq!(last.name_seqno(), undivided.last().unwrap().name_seqno());
    }
}

#[test]
fn peer_has_the_table_whatever_changes_between_the_portions() {
    for seed in 0..200 {
        let mut contact = Contact::new(seed, [0, 65_500][seed as usize % 2]);
        for _ in 0..400 {
            let grows = contact.rng.below(4) > 0;
            contact.change(grows, None);
        }
        let most = 1 + contact.rng.below(80) as usize;
        let mut withdrawals = Withdrawals::default();
        let mut bulk = Bulk::new(&contact.table, &withdrawals, most);
        // Updates take another path: some overtake the bulk, and all arrive at last.
        let mut under_way: Vec<Message> = Vec::new();
        let mut is_over = false;
        while !is_over {
            let Contact { table, numbers, .. } = &contact;
            let (part, over) = numbers.next_of_bulk((table, &withdrawals), (PEER, 500), &mut bulk);
            is_over = over;
            withdrawals.forget(Some(&bulk));
            part.into_iter().for_each(|message| contact.receive(message));
            for _ in 0..contact.rng.below(30) {
                let grows = contact.rng.below(2) == 0;
                under_way.extend(contact.change(grows, (!is_over).then_some(&mut withdrawals)));
            }
            while contact.rng.below(3) > 0 && !under_way.is_empty() {
                let at = contact.rng.below(under_way.len() as u64) as usize;
                let update = under_way.remove(at);
                contact.receive(update);
            }
        }
        assert!(contact.receiver.is_open());
        for update in under_way {
            contact.receive(update);
        }
        assert_eq!(contact.receiver.waiting(), 0);
        assert!(contact.agree(), "seed {seed}");
        assert_eq!(contact.report.duplicate, 0, "seed {seed}");
    }
}
