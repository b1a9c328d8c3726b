//! Memory of what peers began and did not finish, over all peers: packets that arrive early, messages without their
//! last fragment, and name updates that wait for an earlier one. A peer is not authenticated: forged packets can make a
//! node keep these in the name of every node that it can know.

use std::collections::BTreeSet;

use super::peers::PeerEntry;
use crate::addr::NodeAddr;
use crate::limits::{MAX_MESSAGE, MESSAGE_OVERHEAD};

/// Maximum number of bytes of early packets, unfinished messages and waiting updates that a node keeps. Ours: four
/// times what one link may keep ([`crate::link::MAX_DEFERRED_BYTES`]), so that a few links with large windows recover
/// from loss at the same time.
pub(crate) const MAX_NODE_DEFERRED_BYTES: usize = 64 << 20;

/// Bytes of early packets that a proven peer may keep even if others have used up the node's memory. Ours: a loss among
/// ten packets of 1500 bytes is repaired without sending the others again.
const ASSURED_DEFERRED_BYTES: usize = 16 << 10;

/// Bytes that a proven peer may keep in all before its links are taken down when the node's memory is used up: its
/// early packets and one unfinished message. With [`crate::limits::MAX_PEERS`] such peers the node keeps 384 MiB in
/// all.
const ASSURED_BYTES: usize = ASSURED_DEFERRED_BYTES + MAX_MESSAGE;

/// Share of a peer in the node's deferred bytes.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    bytes: usize,
    /// The peer has been in contact and has delivered packets in order. Stays true after it has gone down.
    is_proven: bool,
}

/// Deferred bytes of the node.
#[derive(Debug, Default)]
pub(super) struct Deferral {
    total: usize,
    /// Peers that hold some and are not proven, the largest last.
    unproven: BTreeSet<(usize, NodeAddr)>,
}

impl Deferral {
    /// Bytes that are deferred now.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// Bytes that a peer may add. It leaves as much free as it holds, so that one peer does not take everything.
    pub(super) fn room(&self, of: &Deferred) -> usize {
        let free = MAX_NODE_DEFERRED_BYTES.saturating_sub(self.total);
        let assured = if of.is_proven { ASSURED_DEFERRED_BYTES } else { 0 };
        free.max(assured).saturating_sub(of.bytes)
    }

    /// True if a peer has begun more than it may while the node's memory is used up.
    pub(super) fn exceeds(&self, of: &Deferred) -> bool {
        let assured = if of.is_proven { ASSURED_BYTES } else { 0 };
        self.total > MAX_NODE_DEFERRED_BYTES && of.bytes > assured
    }

    /// Whether peers that are not proven hold some.
    pub(super) fn has_unproven(&self) -> bool {
        !self.unproven.is_empty()
    }

    /// If a proven peer has no room for a packet of `size` bytes: the peer to evict, the largest that is not proven.
    pub(super) fn victim(&mut self, of: &Deferred, size: usize) -> Option<NodeAddr> {
        let lacks_room = of.is_proven && self.room(of) < size + MESSAGE_OVERHEAD;
        if lacks_room { self.unproven.pop_last().map(|(_, addr)| addr) } else { None }
    }

    /// Counts what a peer holds, after every call that may have changed it.
    pub(super) fn account(&mut self, addr: NodeAddr, entry: &mut PeerEntry) {
        let receivers = entry.receiver.deferred_bytes() + entry.names.waiting_bytes() + entry.parts.bytes();
        let bytes = entry.peer.deferred_bytes() + receivers;
        let is_proven = entry.deferred.is_proven || entry.peer.is_established();
        if bytes != entry.deferred.bytes || is_proven != entry.deferred.is_proven {
            self.update(addr, &mut entry.deferred, bytes, is_proven);
        }
    }

    /// Forgets a peer.
    pub(super) fn remove(&mut self, addr: NodeAddr, deferred: &Deferred) {
        self.unproven.remove(&(deferred.bytes, addr));
        self.total -= deferred.bytes;
    }

    /// Replaces what a peer holds.
    fn update(&mut self, addr: NodeAddr, deferred: &mut Deferred, bytes: usize, is_proven: bool) {
        self.remove(addr, deferred);
        *deferred = Deferred { bytes, is_proven };
        self.total += bytes;
        if bytes > 0 && !is_proven {
            self.unproven.insert((bytes, addr));
        }
    }
}
