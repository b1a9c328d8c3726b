//! Memory of what peers began and did not finish, over all peers: packets that arrive early, messages without their
//! last fragment, name updates that wait for an earlier one, and messages held for a full receiver. A peer is not
//! authenticated: forged packets can make a node keep these in the name of every node that it can know.

use std::collections::BTreeSet;

use super::Switch;
use crate::addr::NodeAddr;
use crate::limits::{MAX_MESSAGE, MESSAGE_OVERHEAD};
use crate::link::DownReason;
use crate::outbox::BearerId;
use crate::time::Time;
use crate::wire::View;

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

/// Maximum number of bytes of messages of all peers that wait for full receivers. Ours: as much as sixteen peers may
/// hold.
const MAX_NODE_HELD_BYTES: usize = 256 << 20;

/// Bytes that the messages of a peer may take while they wait for a full receiver, although the node's memory for
/// these is used up. Ours: a window of small messages, so that a sender is not told of overload at once.
const ASSURED_HELD_BYTES: usize = 16 << 10;

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
    /// Bytes of messages that wait for full receivers.
    held: usize,
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
    fn exceeds(&self, of: &Deferred) -> bool {
        let assured = if of.is_proven { ASSURED_BYTES } else { 0 };
        self.total > MAX_NODE_DEFERRED_BYTES && of.bytes > assured
    }

    /// Replaces the bytes that the messages of a peer take while they wait for a full receiver.
    pub(super) fn hold(&mut self, before: usize, now: usize) {
        self.held = self.held - before + now;
    }

    /// True if a peer's messages may not wait any longer for a full receiver: the node holds too much.
    pub(super) fn holds_too_much(&self, bytes: usize) -> bool {
        self.held > MAX_NODE_HELD_BYTES && bytes > ASSURED_HELD_BYTES
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

impl Switch {
    /// Counts what a peer holds, after every call that may have changed it.
    pub(super) fn account_deferred(&mut self, addr: NodeAddr) {
        let Some(entry) = self.peers.get_mut(&addr) else { return };
        let receivers = entry.receiver.deferred_bytes() + entry.names.waiting_bytes() + entry.parts.bytes();
        let bytes = entry.peer.deferred_bytes() + receivers;
        let is_proven = entry.deferred.is_proven || entry.peer.is_established();
        if bytes != entry.deferred.bytes || is_proven != entry.deferred.is_proven {
            self.deferral.update(addr, &mut entry.deferred, bytes, is_proven);
        }
    }

    /// Takes the links of a peer down if it has begun more than it may and the node's memory is used up.
    pub(super) fn shed(&mut self, now: Time, addr: NodeAddr) {
        if self.peers.get(&addr).is_some_and(|entry| self.deferral.exceeds(&entry.deferred)) {
            self.stats.deferrals_evicted += 1;
            self.reset_peer(now, addr, DownReason::Memory);
        }
    }

    /// Makes room for an early packet of a proven peer: takes down the links of peers that are not proven. Dropping
    /// only their packets would stall the links, because kept packets are acknowledged by gap blocks.
    pub(super) fn make_room(&mut self, now: Time, addr: NodeAddr, bearer: BearerId, view: View<'_>) {
        if self.deferral.unproven.is_empty() {
            return;
        }
        let is_early = self.link(addr, bearer).is_some_and(|link| link.rcv_nxt() != view.seqno());
        if is_early {
            self.evict_for(now, addr, view.size());
        }
    }

    /// Evicts peers that are not proven, the largest first, until a proven one may keep a packet of `size` bytes.
    pub(super) fn evict_for(&mut self, now: Time, addr: NodeAddr, size: usize) {
        while let Some(entry) = self.peers.get(&addr).filter(|entry| entry.deferred.is_proven)
            && self.deferral.room(&entry.deferred) < size + MESSAGE_OVERHEAD
            && let Some((_, victim)) = self.deferral.unproven.pop_last()
        {
            self.stats.deferrals_evicted += 1;
            self.reset_peer(now, victim, DownReason::Memory);
        }
    }
}
