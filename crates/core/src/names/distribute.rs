//! Name distribution: a bulk on contact, then one numbered message per change. Spec: tipc.md §3.7, §6.5.

use std::collections::BTreeMap;

use thiserror::Error;

use super::table::{Change, NameTable, PublishError};
use super::{MAX_WAITING_BYTES, MAX_WAITING_UPDATES};
use crate::addr::{Binding, NodeAddr, PortId, Scope};
use crate::limits::MESSAGE_OVERHEAD;
use crate::planted::{self, Fault};
use crate::wire::{INTERNAL_HEADER, Message, NAME_ITEM_LEN, NameItem, User, View, seq};

/// Message type: bindings are published.
pub(super) const PUBLICATION: u8 = 0;
/// Message type: bindings are withdrawn.
pub(super) const WITHDRAWAL: u8 = 1;

/// The sending side: turns this node's bindings into messages.
#[derive(Clone, Debug)]
pub struct Distributor {
    next: u16,
}

impl Distributor {
    /// A distributor whose first numbered message has number `first`; 0 except in tests of the wrap.
    #[must_use]
    pub const fn new(first: u16) -> Self {
        Self { next: first }
    }

    /// Number of the next message.
    #[must_use]
    pub const fn next_number(&self) -> u16 {
        self.next
    }

    /// The message that announces a change of this node's bindings to peers; `None` if the change is local. Broadcast
    /// it unchanged (destination node 0), or send a copy to each peer with the destination set. Every message returned
    /// must be sent: peers wait for each number.
    pub fn announce(&mut self, own: NodeAddr, change: &Change) -> Option<Message> {
        if change.binding.scope == Scope::Node || !change.up && planted::active(Fault::WithdrawalLost) {
            return None;
        }
        let kind = if change.up { PUBLICATION } else { WITHDRAWAL };
        let mut message = build(kind, own, NodeAddr::NONE, &NameItem::from(&change.binding).to_bytes());
        message.set_name_seqno(self.next);
        let skip = planted::active(Fault::NameNumberSkipped) && self.next % 8 == 5;
        self.next = self.next.wrapping_add(if skip { 2 } else { 1 });
        Some(message)
    }
}

pub(super) fn build(kind: u8, own: NodeAddr, peer: NodeAddr, items: &[u8]) -> Message {
    let mut message = Message::build(User::NameDistributor, kind, INTERNAL_HEADER, items);
    message.set_prev_node(own);
    message.set_origin_node(own);
    message.set_dest_node(peer);
    message.set_name_numbered(true);
    message
}

/// A numbered name message of the peer is missing, and the limit of later ones that wait for it is reached.
/// Only a new contact can make the tables agree again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("name update {missing} of the peer is missing and {MAX_WAITING_UPDATES} wait for it")]
pub struct NamesOutOfStep {
    /// Number of the missing message.
    pub missing: u16,
}

/// Counts of the items in name messages, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameReport {
    /// Bindings added or withdrawn.
    pub applied: u64,
    /// Items whose upper end is below the lower one.
    pub inverted: u64,
    /// Bindings that already exist.
    pub duplicate: u64,
    /// Bindings beyond a limit of the peer or of the table.
    pub too_many: u64,
    /// Withdrawals of unknown bindings.
    pub unknown: u64,
    /// Messages with another origin than the peer, or of an unknown type.
    pub foreign: u64,
    /// Messages whose number was already applied, or is already waiting.
    pub repeated: u64,
}

impl core::ops::AddAssign for NameReport {
    fn add_assign(&mut self, other: Self) {
        self.applied += other.applied;
        self.inverted += other.inverted;
        self.duplicate += other.duplicate;
        self.too_many += other.too_many;
        self.unknown += other.unknown;
        self.foreign += other.foreign;
        self.repeated += other.repeated;
    }
}

/// The receiving side, one per peer: puts messages that arrive by unicast and by broadcast in order.
#[derive(Debug, Default)]
pub struct NameReceiver {
    open: bool,
    next: u16,
    waiting: BTreeMap<u16, Message>,
    /// Bytes of the waiting messages.
    bytes: usize,
}

impl NameReceiver {
    /// A receiver that waits for the bulk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Contact is lost: the next message belongs to a new contact, which starts with a bulk.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// True if the whole bulk of the peer has arrived.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// Number of messages that wait for an earlier one.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Memory of these messages, bytes.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.bytes + self.waiting.len() * MESSAGE_OVERHEAD
    }

    /// True if messages that have waited are due: [`Self::apply_due`] applies them, before anything else of the peer.
    #[must_use]
    pub fn has_due(&self) -> bool {
        self.open && self.waiting.contains_key(&self.next)
    }

    /// Processes a name message of `peer` from a link or the broadcast link, and applies it to the table if it is in
    /// order; then [`Self::has_due`] tells whether others are.
    ///
    /// # Errors
    /// [`NamesOutOfStep`] if too many messages are waiting: the caller must reset the links to the peer.
    pub fn receive(
        &mut self,
        peer: NodeAddr,
        message: Message,
        table: &mut NameTable,
        changes: &mut Vec<Change>,
        report: &mut NameReport,
    ) -> Result<(), NamesOutOfStep> {
        if message.origin_node() != peer || message.header_size() < INTERNAL_HEADER {
            report.foreign += 1;
            return Ok(());
        }
        let number = message.name_seqno();
        let bulk = message.name_bulk();
        if bulk && message.name_last_bulk() {
            self.next = number;
            self.open = true;
            self.waiting.retain(|waiting, _| seq::le(number, *waiting)); // already part of the bulk
            self.bytes = self.waiting.values().map(|m| m.size()).sum();
        }
        if bulk || !message.name_numbered() {
            apply(peer, message.view(), table, changes, report);
        } else if self.open && seq::lt(number, self.next) || self.waiting.contains_key(&number) {
            report.repeated += 1;
        } else if self.waiting.len() >= MAX_WAITING_UPDATES || self.bytes > MAX_WAITING_BYTES {
            return Err(NamesOutOfStep { missing: self.next });
        } else if self.open && number == self.next {
            self.next = self.next.wrapping_add(1);
            apply(peer, message.view(), table, changes, report);
        } else {
            self.bytes += message.size();
            self.waiting.insert(number, message);
        }
        Ok(())
    }

    /// Applies the first message that is due; returns the number of its items, `None` if none is due.
    pub fn apply_due(
        &mut self,
        peer: NodeAddr,
        table: &mut NameTable,
        changes: &mut Vec<Change>,
        report: &mut NameReport,
    ) -> Option<usize> {
        let due = self.waiting.remove(&self.next).filter(|_| self.open)?;
        self.next = self.next.wrapping_add(1);
        self.bytes -= due.size();
        apply(peer, due.view(), table, changes, report);
        Some(due.data().len() / NAME_ITEM_LEN)
    }
}

/// Applies the items of one message.
fn apply(
    peer: NodeAddr,
    message: View<'_>,
    table: &mut NameTable,
    changes: &mut Vec<Change>,
    report: &mut NameReport,
) {
    let kind = message.kind();
    if kind > WITHDRAWAL {
        report.foreign += 1;
        return;
    }
    for item in NameItem::all(message) {
        let port = PortId { port: item.port, node: peer };
        let result = if kind == PUBLICATION {
            table.publish(Binding { range: item.range, scope: Scope::Cluster, port, key: item.key }).map(Some)
        } else {
            Ok(table.withdraw(item.range, port, item.key))
        };
        match result {
            Ok(Some(change)) => {
                report.applied += 1;
                changes.push(change);
            }
            Ok(None) => report.unknown += 1,
            Err(PublishError::Inverted(_)) => report.inverted += 1,
            Err(PublishError::Duplicate(..)) => report.duplicate += 1,
            Err(PublishError::TooMany(_) | PublishError::NoMemory | PublishError::KeysUsedUp(_)) => {
                report.too_many += 1
            }
        }
    }
}
