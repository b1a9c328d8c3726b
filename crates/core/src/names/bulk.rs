//! The bulk: all bindings of cluster scope, which a peer gets on contact. Spec: tipc.md §6.4, §6.5.
//!
//! A large bulk is sent in portions, between which the table changes. Bindings that are made meanwhile are in a later
//! portion, because the oldest ones come first. Those that are withdrawn may have been sent, so the next portion
//! withdraws them. So the bulk has all updates before the one that its last message names, as if it were sent at once.

use super::distribute::{Distributor, PUBLICATION, WITHDRAWAL, build};
use super::table::NameTable;
use crate::addr::{Binding, NodeAddr};
use crate::collections::Queue;
use crate::planted::{self, Fault};
use crate::wire::{INTERNAL_HEADER, Message, NAME_ITEM_LEN, NameItem};

/// Bindings of one portion. Ours: some 0.1 ms.
pub(crate) const BULK_PORTION: usize = 1024;

/// What is left of a bulk.
#[derive(Clone, Debug)]
pub(crate) struct Bulk {
    /// Age of the next binding.
    from: u64,
    /// Age of the first binding that was made after the bulk began.
    new: u64,
    /// Bindings of the next portion. They become more when new bindings are reached, so that the bulk ends however
    /// many are made meanwhile.
    most: usize,
    /// Number of the next withdrawal.
    withdrawal: u64,
}

/// Bindings of cluster scope that were withdrawn while bulks were being sent.
#[derive(Debug, Default)]
pub(crate) struct Withdrawals {
    /// Number of the first one.
    first: u64,
    all: Queue<Binding>,
}

impl Withdrawals {
    /// Adds one.
    pub(crate) fn push(&mut self, binding: Binding) {
        self.all.push_back(binding);
    }

    fn next(&self) -> u64 {
        self.first + self.all.len() as u64
    }

    fn from(&self, number: u64) -> Vec<Binding> {
        let skipped = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        (skipped..self.all.len()).filter_map(|index| self.all.get(index)).copied().collect()
    }

    /// Forgets those before the next one of this bulk, the one that waits longest; all if there is none.
    pub(crate) fn forget(&mut self, oldest: Option<&Bulk>) {
        let needed = oldest.map_or(self.next(), |bulk| bulk.withdrawal);
        while self.first < needed && self.all.pop_front().is_some() {
            self.first += 1;
        }
    }
}

impl Bulk {
    /// The bulk of a table. `portion`: bindings of the first portions.
    pub(crate) fn new(table: &NameTable, withdrawals: &Withdrawals, portion: usize) -> Self {
        Self { from: 0, new: table.next_age(), most: portion, withdrawal: withdrawals.next() }
    }
}

impl Distributor {
    /// The messages with the next portion of a bulk; true after the last. `mss`: largest message that a link to the
    /// peer carries in one packet, bytes.
    pub(crate) fn next_of_bulk(
        &self,
        (table, withdrawals): (&NameTable, &Withdrawals),
        (peer, mss): (NodeAddr, usize),
        bulk: &mut Bulk,
    ) -> (Vec<Message>, bool) {
        let (mut part, next) = table.own_cluster_bindings_from(bulk.from, bulk.most);
        let is_last = next.is_none();
        bulk.from = next.unwrap_or(u64::MAX);
        if bulk.from >= bulk.new {
            bulk.most = bulk.most.saturating_mul(2);
        }
        if is_last && planted::active(Fault::BulkLacksLast) {
            part.pop();
        }
        let own = table.own_node();
        let withdrawn = withdrawals.from(bulk.withdrawal);
        bulk.withdrawal = withdrawals.next();
        let mut all = messages(WITHDRAWAL, own, (peer, mss), &withdrawn);
        all.extend(messages(PUBLICATION, own, (peer, mss), &part));
        if is_last {
            if part.is_empty() {
                // There may be no bindings, not even the node's own state: the peer still needs the number (§14.3,
                // 2026-98098).
                all.push(message(PUBLICATION, own, peer, &[]));
            }
            if let Some(last) = all.last_mut() {
                last.set_name_last_bulk(true);
                last.set_name_seqno(self.next_number());
            }
        }
        (all, is_last)
    }

    /// The messages of a whole bulk. `mss`: largest message that a link to the peer carries in one packet, bytes.
    #[cfg(test)]
    pub(crate) fn bulk(&self, table: &NameTable, peer: NodeAddr, mss: usize) -> Vec<Message> {
        let none = Withdrawals::default();
        self.next_of_bulk((table, &none), (peer, mss), &mut Bulk::new(table, &none, usize::MAX)).0
    }
}

fn messages(kind: u8, own: NodeAddr, (peer, mss): (NodeAddr, usize), bindings: &[Binding]) -> Vec<Message> {
    let per_message = (mss.saturating_sub(INTERNAL_HEADER) / NAME_ITEM_LEN).max(1);
    let parts = bindings.chunks(per_message).map(|part| {
        let items: Vec<u8> = part.iter().flat_map(|b| NameItem::from(b).to_bytes()).collect();
        message(kind, own, peer, &items)
    });
    parts.collect()
}

fn message(kind: u8, own: NodeAddr, peer: NodeAddr, items: &[u8]) -> Message {
    let mut message = build(kind, own, peer, items);
    message.set_name_bulk(true);
    message.set_bcast_ack_invalid(true);
    message
}
