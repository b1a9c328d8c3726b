//! The bindings of the cluster as this node knows them, and what is left to be told of them: updates that not all peers
//! have acknowledged, bulks for new neighbours, withdrawals of lost nodes. Spec: tipc.md §6.5.

use std::collections::{BTreeSet, VecDeque};

use crate::addr::NodeAddr;
use crate::names::{BULK_PORTION, Bulk, Change, Distributor, NameTable, Recent, Withdrawals};
use crate::waiting::Waiters;
use crate::wire::Message;

/// The binding table, with what is left to be told of it.
#[derive(Debug)]
pub(crate) struct Bindings {
    table: NameTable,
    distributor: Distributor,
    /// Updates that were broadcast and not acknowledged by all.
    recent: Recent,
    /// Lost nodes whose bindings are not all withdrawn yet.
    leaving: BTreeSet<NodeAddr>,
    /// Peers that wait for the rest of their bulk.
    bulks: Waiters<NodeAddr, u64>,
    /// Withdrawals that these have not got.
    withdrawals: Withdrawals,
    /// Changes of the table, for the topology server and for groups.
    changes: VecDeque<Change>,
}

impl Bindings {
    pub(super) fn new(legacy: bool, first_name_seqno: u16) -> Self {
        Self {
            table: NameTable::new(NodeAddr::NONE, legacy),
            distributor: Distributor::new(first_name_seqno),
            recent: Recent::default(),
            leaving: BTreeSet::new(),
            bulks: Waiters::default(),
            withdrawals: Withdrawals::default(),
            changes: VecDeque::new(),
        }
    }

    pub(crate) fn table(&self) -> &NameTable {
        &self.table
    }

    pub(crate) fn table_mut(&mut self) -> &mut NameTable {
        &mut self.table
    }

    /// The next change that subscribers and groups of this node have not been told.
    pub(crate) fn next_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Notes a change of this node's own bindings; returns the update for its peers. Without an address there are none,
    /// and the bulk will contain the change.
    pub(super) fn announce(&mut self, own: NodeAddr, change: Change) -> Option<Message> {
        self.changes.push_back(change);
        if own.is_none() {
            return None;
        }
        let message = self.distributor.announce(own, &change)?;
        if !change.up && !self.bulks.is_empty() {
            self.withdrawals.push(change.binding);
        }
        Some(message)
    }

    /// Lets a peer's update change the table.
    pub(super) fn update<T>(&mut self, call: impl FnOnce(&mut NameTable, &mut Vec<Change>) -> T) -> T {
        let mut changes = Vec::new();
        let result = call(&mut self.table, &mut changes);
        self.changes.extend(changes);
        result
    }

    /// Keeps an update that was broadcast as packet `position`.
    pub(super) fn note_update(&mut self, position: u64, update: Message) {
        self.recent.push(position, update);
    }

    /// Forgets the updates up to this packet, which all peers have acknowledged; without peers, all.
    pub(super) fn forget_updates(&mut self, acknowledged: Option<u64>) {
        match acknowledged {
            Some(packet) => self.recent.forget(packet),
            None => self.recent.clear(),
        }
    }

    /// The updates that were broadcast and may not have arrived everywhere.
    pub(super) fn recent(&self) -> &Recent {
        &self.recent
    }

    /// Withdraws bindings of a lost node, at most so many; returns their number.
    pub(super) fn withdraw_some(&mut self, addr: NodeAddr, most: usize) -> usize {
        let gone = self.table.withdraw_oldest(addr, most);
        let count = gone.len();
        self.changes.extend(gone);
        if self.table.has_bindings_of(addr) {
            self.leaving.insert(addr);
        } else {
            self.leaving.remove(&addr);
        }
        count
    }

    /// Whether bindings of a lost node are still to be withdrawn.
    pub(super) fn is_leaving(&self, addr: NodeAddr) -> bool {
        self.leaving.contains(&addr)
    }

    /// The first lost node with such bindings.
    pub(super) fn first_leaving(&self) -> Option<NodeAddr> {
        self.leaving.first().copied()
    }

    /// Whether the next call of the timer goes on with withdrawals or bulks.
    pub(super) fn has_work(&self) -> bool {
        !self.leaving.is_empty() || !self.bulks.is_empty()
    }

    /// All bindings of this node for a new neighbour; if `divided`, in portions.
    pub(super) fn bulk(&self, divided: bool) -> Bulk {
        let portion = if divided { BULK_PORTION } else { usize::MAX };
        Bulk::new(&self.table, &self.withdrawals, portion)
    }

    /// The next messages of a bulk, and whether they are the last.
    pub(super) fn next_of_bulk(
        &mut self,
        addr: NodeAddr,
        mss: usize,
        bulk: &mut Bulk,
    ) -> (Vec<Message>, bool) {
        self.distributor.next_of_bulk((&self.table, &self.withdrawals), (addr, mss), bulk)
    }

    /// The rest of a peer's bulk waits for its turn.
    pub(super) fn postpone_bulk(&mut self, addr: NodeAddr) {
        self.bulks.join_last(addr);
    }

    /// The peer whose bulk is next; it is not in the queue any more.
    pub(super) fn take_bulk(&mut self) -> Option<NodeAddr> {
        self.bulks.pop().map(|(_, addr)| addr)
    }

    /// The peer that has waited longest for the rest of its bulk.
    pub(super) fn oldest_bulk(&self) -> Option<NodeAddr> {
        self.bulks.first().map(|(_, addr)| addr)
    }

    /// A peer does not get the rest of its bulk.
    pub(super) fn drop_bulk(&mut self, addr: NodeAddr) {
        self.bulks.leave(addr);
    }

    /// Forgets the withdrawals that all bulks have: the oldest of them, if there is one, has the fewest.
    pub(super) fn forget_withdrawals(&mut self, oldest: Option<&Bulk>) {
        self.withdrawals.forget(oldest);
    }
}
