//! The sending side of the broadcast link. Spec: tipc.md §7.1, §7.2, §7.4, §7.5.

use std::collections::BTreeMap;

use thiserror::Error;

use super::BroadcastIo;
use super::bearers::Bearers;
use super::peers::PeerSet;
use crate::addr::{ClusterId, Importance, NodeAddr};
use crate::limits::{MAX_WINDOW, TUNNEL_RESERVE};
use crate::link::{
    Backlog, Fragments, LargeLosses, Level, Outgoing, Queued, TransmitQueue, Wakeup, is_large, parts,
};
use crate::outbox::{BearerId, FrameBatch, FrameSink, Target};
use crate::planted::{self, Fault};
use crate::time::Time;
use crate::wire::{GapBlock, INTERNAL_HEADER, Message, User, View, seq};

/// Default window, packets. Spec: tipc.md §7.1.
pub const DEFAULT_WINDOW: u16 = 50;
/// Smallest window, packets. Spec: tipc.md §7.1.
pub const SMALLEST_WINDOW: u16 = 32;
/// Least time between two retransmissions of a packet, milliseconds. Spec: tipc.md §5.8.
const RETRANSMIT_SPACING_MS: u64 = 10;
/// Tolerances without progress after which a peer has failed. Spec: tipc.md §7.5.
const FAILURE_TOLERANCES: u32 = 10;

/// Configuration of the broadcast link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BroadcastConfig {
    /// The node's own address.
    pub own: NodeAddr,
    /// The node's cluster.
    pub cluster: ClusterId,
    /// Window, packets, 32 to 8191.
    pub window: u16,
    /// Number of the first packet: 1, except in tests of the wrap.
    pub first_seqno: u16,
}

impl BroadcastConfig {
    /// The default configuration.
    #[must_use]
    pub const fn new(own: NodeAddr, cluster: ClusterId) -> Self {
        Self { own, cluster, window: DEFAULT_WINDOW, first_seqno: 1 }
    }
}

/// The broadcast link has accepted a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Sent, or queued within the limits.
    Sent,
    /// Queued beyond the limit; the origin port must wait for its wake-up before it sends more.
    Congested,
}

/// Reason why a message was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BroadcastFault {
    /// Too many messages of the node itself are waiting.
    #[error("the broadcast queue of system messages is full ({0} packets): some peer does not acknowledge")]
    Overflow(usize),
}

/// Result of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    /// The acknowledgement was old, or the peer is not synchronised yet.
    Ignored,
    /// No correct peer can send it: it acknowledges a packet that was never sent, or its blocks are out of order.
    Implausible,
    /// The acknowledgement was applied.
    Taken {
        /// Packets acknowledged by all peers.
        released: usize,
        /// Packets retransmitted.
        retransmitted: usize,
    },
}

/// Counters since the start or the last clearing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Packets sent, without retransmissions.
    pub packets: u64,
    /// Packets retransmitted.
    pub retransmitted: u64,
    /// Messages fragmented.
    pub fragmented: u64,
    /// Fragments sent.
    pub fragments: u64,
    /// Bundles sent.
    pub bundles: u64,
    /// Messages sent in bundles.
    pub bundled: u64,
    /// Acknowledgements that report a gap.
    pub nacks: u64,
    /// Acknowledgements that no correct peer sends.
    pub implausible: u64,
    /// Messages for which the backlog was full.
    pub congested: u64,
}

/// State of a peer.
#[derive(Clone, Debug)]
struct Peer {
    slot: usize,
    /// Last packet up to which all are acknowledged.
    acked: u16,
    /// The peer confirmed its start; from now on its acknowledgements count.
    open: bool,
    /// Value of `acked` at the last tick, and how long it has not changed, milliseconds.
    stalled_at: u16,
    stalled_ms: u32,
    /// Large packets that it has acknowledged, and rounds in which it lacked some.
    large_acked: u64,
    losses: LargeLosses,
    is_suspicious: bool,
}

impl Peer {
    fn new(slot: usize, acked: u16) -> Self {
        Self {
            slot,
            acked,
            open: false,
            stalled_at: acked,
            stalled_ms: 0,
            large_acked: 0,
            losses: LargeLosses::default(),
            is_suspicious: false,
        }
    }
}

/// The broadcast link of a node.
#[derive(Debug)]
pub struct BroadcastSender {
    config: BroadcastConfig,
    transmit: TransmitQueue<PeerSet>,
    backlog: Backlog,
    bearers: Bearers,
    peers: BTreeMap<NodeAddr, Peer>,
    members: PeerSet,
    stats: SenderStats,
    /// Bytes that encryption adds to a packet.
    overhead: usize,
}

impl BroadcastSender {
    /// A broadcast link without peers.
    #[must_use]
    pub fn new(mut config: BroadcastConfig) -> Self {
        config.window = config.window.clamp(SMALLEST_WINDOW, MAX_WINDOW);
        let bearers = Bearers::default();
        Self {
            config,
            transmit: TransmitQueue::new(config.first_seqno),
            backlog: Backlog::new(config.window, bearers.mtu()),
            bearers,
            peers: BTreeMap::new(),
            members: PeerSet::default(),
            stats: SenderStats::default(),
            overhead: 0,
        }
    }

    /// Sets the node's address.
    pub fn set_own(&mut self, own: NodeAddr) {
        self.config.own = own;
        self.select_primary();
    }

    /// Sets the cluster of a node without peers.
    pub fn set_cluster(&mut self, cluster: ClusterId) {
        self.config.cluster = cluster;
    }

    /// Sets the counters to zero.
    pub fn clear_stats(&mut self) {
        self.stats = SenderStats::default();
    }

    /// Sets the window; clamped to 32 to 8191 packets.
    pub fn set_window(&mut self, window: u16) {
        self.config.window = window.clamp(SMALLEST_WINDOW, MAX_WINDOW);
        self.backlog.set_limits(self.config.window, self.bearers.mtu());
    }

    /// The window, packets.
    #[must_use]
    pub fn window(&self) -> u16 {
        self.config.window
    }

    /// A link to a peer came up over `bearer`, which has an MTU of `mtu` bytes.
    pub fn link_up(&mut self, bearer: BearerId, mtu: usize, has_broadcast: bool) {
        self.bearers.link_up(bearer, mtu, has_broadcast);
        self.select_primary();
    }

    /// A link to a peer, with an MTU of `mtu` bytes, went down on `bearer`.
    pub fn link_down(&mut self, bearer: BearerId, mtu: usize) {
        self.bearers.link_down(bearer, mtu);
        self.select_primary();
    }

    /// The MTU of a link over `bearer` has changed from `from` to `to` bytes.
    pub fn link_resized(&mut self, bearer: BearerId, from: usize, to: usize, has_broadcast: bool) {
        self.bearers.link_down(bearer, from);
        self.link_up(bearer, to, has_broadcast);
    }

    /// True once after rounds in which the peer lacked large packets and received none: its path may be too narrow.
    pub(crate) fn take_suspicion(&mut self, peer: NodeAddr) -> bool {
        self.peers.get_mut(&peer).is_some_and(|peer| core::mem::take(&mut peer.is_suspicious))
    }

    /// Adds `peer` after contact was established: it must acknowledge from the next packet on. Returns the
    /// BCAST_PROTOCOL message that must be the first packet on the link to it. Spec: tipc.md §6.4.
    pub fn add_peer(&mut self, peer: NodeAddr) -> Message {
        let acked = self.last_sent();
        let known = self.peers.get(&peer).map(|p| p.slot);
        if let Some(slot) = known {
            // a new contact does not owe acknowledgements of the old one
            self.mark_acknowledged(slot, self.transmit.head(), acked);
        }
        let slot = known.unwrap_or_else(|| self.members.first_free());
        self.members.insert(slot);
        self.peers.insert(peer, Peer::new(slot, acked));
        self.select_primary();
        let mut init = Message::build(User::BcastProtocol, 0, INTERNAL_HEADER, &[]);
        init.set_prev_node(self.config.own);
        init.set_origin_node(self.config.own);
        init.set_dest_node(peer);
        init.set_last_bcast(acked);
        init.set_bcast_ack_invalid(true);
        init
    }

    /// The peer has acknowledged the BCAST_PROTOCOL message; from now on its acknowledgements count.
    pub fn open_peer(&mut self, peer: NodeAddr) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.open = true;
        }
    }

    /// True once [`Self::open_peer`] was called for this contact.
    #[must_use]
    pub fn is_open(&self, peer: NodeAddr) -> bool {
        self.peers.get(&peer).is_some_and(|p| p.open)
    }

    /// Removes `peer` after contact was lost: its acknowledgements are not waited for. Without peers the sequence
    /// restarts.
    pub fn remove_peer(&mut self, now: Time, peer: NodeAddr, io: &mut BroadcastIo<'_>) {
        let Some(peer) = self.peers.remove(&peer) else { return };
        self.mark_acknowledged(peer.slot, self.transmit.head(), self.last_sent());
        self.members.remove(peer.slot);
        self.select_primary();
        if self.peers.is_empty() {
            self.transmit.take(self.config.first_seqno).for_each(drop);
            self.backlog.clear();
            self.backlog.wake_all(io.wakeups);
        } else {
            self.advance(now, io);
        }
    }

    /// Broadcasts a message; fragments it if it is larger than a packet. Without peers it is dropped, which is a
    /// success.
    ///
    /// # Errors
    /// [`BroadcastFault`] if the message is from the node itself and its queue is full.
    pub fn send(
        &mut self,
        now: Time,
        message: Message,
        frames: &mut FrameBatch,
    ) -> Result<Accepted, BroadcastFault> {
        if self.peers.is_empty() {
            return Ok(Accepted::Sent);
        }
        let level = Level::of(message.view());
        let mut accepted = Accepted::Sent;
        if self.backlog.overflows(message.view()) {
            self.stats.congested += 1;
            return Err(BroadcastFault::Overflow(self.backlog.len()));
        }
        if let Some(importance) = level.importance() {
            self.backlog.count(importance, message.origin_port(), message.size());
            if self.backlog.is_congested(level) {
                self.stats.congested += 1;
                self.register(message.view(), importance);
                accepted = Accepted::Congested;
            }
        }
        if message.size() <= self.mss() {
            self.enqueue(now, message, frames);
            return Ok(accepted);
        }
        let pieces = Fragments::new(message, self.mss(), self.config.own, NodeAddr::NONE);
        self.stats.fragmented += 1;
        for piece in pieces {
            self.stats.fragments += 1;
            self.enqueue(now, piece, frames);
        }
        Ok(accepted)
    }

    /// True if a message of this importance would be taken beyond the limit of its level only.
    pub(crate) fn is_congested(&self, importance: Importance) -> bool {
        self.backlog.congestion(0) >> importance as u8 & 1 != 0
    }

    /// Wakes ports for which there is room. Call it periodically: a socket that was woken need not send, and then no
    /// acknowledgement wakes the next one.
    pub fn wake(&mut self, io: &mut BroadcastIo<'_>) {
        self.backlog.wake(io.wakeups);
    }

    /// Processes what `peer` has received: everything up to `ack`, then `gap` missing packets, then `blocks`.
    pub fn acknowledge(
        &mut self,
        now: Time,
        peer: NodeAddr,
        (ack, gap): GapBlock,
        blocks: &[GapBlock],
        io: &mut BroadcastIo<'_>,
    ) -> Acknowledged {
        let Some(known) = self.peers.get_mut(&peer).filter(|p| p.open) else { return Acknowledged::Ignored };
        if !self.transmit.is_plausible(ack, gap, blocks) {
            self.stats.implausible += 1;
            return Acknowledged::Implausible;
        }
        let (slot, acked) = (known.slot, known.acked);
        let news = ack != acked || gap != 0 || !blocks.is_empty();
        if seq::lt(ack, acked) || !news {
            return Acknowledged::Ignored;
        }
        known.acked = ack;
        let mut large_acked = self.large_owed(slot, acked.wrapping_add(1), ack);
        let mut released = self.mark_acknowledged(slot, acked.wrapping_add(1), ack);
        let mut lacks_large = self.large_owed(slot, ack.wrapping_add(1), ack.wrapping_add(gap)) > 0;
        let mut retransmitted = self.repeat(now, slot, (ack, gap), io.frames);
        let mut end = ack.wrapping_add(gap);
        for &(to, missing) in blocks {
            large_acked += self.large_owed(slot, end.wrapping_add(1), to);
            released += self.mark_acknowledged(slot, end.wrapping_add(1), to);
            lacks_large |= self.large_owed(slot, to.wrapping_add(1), to.wrapping_add(missing)) > 0;
            retransmitted += self.repeat(now, slot, (to, missing), io.frames);
            end = to.wrapping_add(missing);
        }
        if let Some(known) = self.peers.get_mut(&peer) {
            known.large_acked += large_acked;
            known.is_suspicious |= lacks_large && known.losses.lost(now, known.large_acked);
        }
        self.stats.nacks += u64::from(gap != 0);
        self.advance(now, io);
        Acknowledged::Taken { released, retransmitted }
    }

    /// One tick of the peer's node timer, `elapsed_ms` after the previous one. Returns true if the peer has made no
    /// progress for ten times `tolerance_ms`, so that all links to it must be reset. Time is counted in ticks, so that
    /// a process that was stopped does not take its peers for failed. Spec: tipc.md §7.5.
    #[must_use]
    pub fn tick_peer(&mut self, peer: NodeAddr, elapsed_ms: u32, tolerance_ms: u32) -> bool {
        let last_sent = self.last_sent();
        let Some(peer) = self.peers.get_mut(&peer) else { return false };
        if peer.acked == last_sent || peer.acked != peer.stalled_at {
            peer.stalled_at = peer.acked;
            peer.stalled_ms = 0;
            return false;
        }
        peer.stalled_ms = peer.stalled_ms.saturating_add(elapsed_ms);
        peer.stalled_ms > tolerance_ms.saturating_mul(FAILURE_TOLERANCES)
    }

    /// Number of the last packet sent.
    #[must_use]
    pub fn last_sent(&self) -> u16 {
        self.transmit.snd_nxt().wrapping_sub(1)
    }

    /// Packets that carry all broadcasts so far.
    pub(crate) fn position(&self) -> u64 {
        self.transmit.sent() + self.backlog.len() as u64
    }

    /// Packets that all peers have acknowledged.
    pub(crate) fn acknowledged_by_all(&self) -> u64 {
        self.transmit.acknowledged()
    }

    /// Packets that a peer has acknowledged, or that were sent before it was added; all for an unknown peer.
    pub(crate) fn acknowledged_by(&self, peer: NodeAddr) -> u64 {
        let missing = self.acked(peer).map_or(0, |acked| self.last_sent().wrapping_sub(acked));
        self.transmit.sent().saturating_sub(missing.into())
    }

    /// Last packet that `peer` has acknowledged; `None` for an unknown peer.
    #[must_use]
    pub fn acked(&self, peer: NodeAddr) -> Option<u16> {
        self.peers.get(&peer).map(|p| p.acked)
    }

    /// True if `peer` has not acknowledged everything: a STATE at the next tick reminds it.
    #[must_use]
    pub fn is_waiting_for(&self, peer: NodeAddr) -> bool {
        self.acked(peer).is_some_and(|acked| acked != self.last_sent())
    }

    /// Number of peers that receive broadcasts.
    #[must_use]
    pub fn peer_count(&self) -> usize {
        self.peers.len()
    }

    /// Largest packet, bytes: the smallest MTU of the bearers with peers.
    #[must_use]
    pub fn mtu(&self) -> usize {
        self.bearers.mtu()
    }

    /// Largest message that is not fragmented, bytes. Spec: tipc.md §5.9.
    #[must_use]
    pub fn mss(&self) -> usize {
        self.largest().saturating_sub(TUNNEL_RESERVE)
    }

    /// The largest packet that fits into a frame, bytes.
    fn largest(&self) -> usize {
        match self.overhead {
            0 => self.mtu(),
            overhead => (self.mtu() & !3).saturating_sub(overhead),
        }
    }

    /// Sets the bytes that encryption adds to a packet.
    pub fn set_overhead(&mut self, bytes: usize) {
        self.overhead = bytes;
    }

    /// True if the media of the bearers in use copy a broadcast. Spec: tipc.md §7.6.
    #[must_use]
    pub fn has_broadcast(&self) -> bool {
        self.bearers.has_broadcast()
    }

    /// Packets in flight, and packets waiting for room in the window.
    #[must_use]
    pub fn queued(&self) -> (usize, usize) {
        (self.transmit.len(), self.backlog.len())
    }

    /// Peers that have not acknowledged the oldest packet in flight and thus block the window.
    pub fn blocking_peers(&self) -> impl Iterator<Item = NodeAddr> {
        let owing = self.transmit.first().map(|sent| &sent.extra);
        self.peers.iter().filter(move |(_, p)| owing.is_some_and(|o| o.contains(p.slot))).map(|(a, _)| *a)
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        self.stats
    }

    fn select_primary(&mut self) {
        self.bearers.select_primary(self.members.len(), self.config.own);
        self.backlog.set_limits(self.config.window, self.bearers.mtu());
    }

    fn register(&mut self, message: View<'_>, importance: Importance) {
        if message.is_data() {
            self.backlog.register(Wakeup { port: message.origin_port(), importance });
        }
    }

    fn enqueue(&mut self, now: Time, packet: impl Into<Outgoing>, frames: &mut FrameBatch) {
        let packet = packet.into();
        if self.backlog.is_empty() && self.transmit.has_room(self.config.window) {
            return self.transmit(now, packet, frames);
        }
        match self.backlog.push(packet, self.mss(), self.config.own, NodeAddr::NONE) {
            Queued::Alone => {}
            Queued::NewBundle => {
                self.stats.bundles += 1;
                self.stats.bundled += 2;
            }
            Queued::Bundled => self.stats.bundled += 1,
        }
    }

    fn transmit(&mut self, now: Time, mut packet: Outgoing, frames: &mut FrameBatch) {
        let mut header = packet.edit();
        header.set_non_sequenced(true);
        header.set_prev_node(self.config.own);
        header.set_bcast_ack(0);
        header.set_ack(0);
        header.set_cluster_id(self.config.cluster);
        self.stats.packets += 1;
        let again = now.plus_millis(RETRANSMIT_SPACING_MS);
        let (largest, part) = (self.largest(), parts::header(self.config.own, NodeAddr::NONE));
        let Some(packet) = self.transmit.push(packet, self.members.clone(), again) else { return };
        for bearer in self.bearers.targets() {
            let mut sink = FrameSink::new(frames, bearer, Target::Broadcast);
            if packet.size() > largest {
                packet.push_parts(part, largest, &mut sink); // it was made before a path became narrower
            } else {
                packet.push(&mut sink);
            }
        }
    }

    /// Number of large packets from `first` to `last` that the peer in `slot` has not acknowledged.
    fn large_owed(&mut self, slot: usize, first: u16, last: u16) -> u64 {
        let owed = self.transmit.range_mut(first, last);
        owed.filter(|sent| sent.extra.contains(slot) && is_large(sent.packet.size())).count() as u64
    }

    /// Marks packets `first` to `last` as acknowledged by the peer in `slot`; returns how many are now acknowledged by
    /// all.
    fn mark_acknowledged(&mut self, slot: usize, first: u16, last: u16) -> usize {
        let owed = self.transmit.range_mut(first, last);
        let done = owed.filter_map(|sent| {
            let complete = sent.extra.remove(slot) && sent.extra.is_empty();
            let complete = complete || planted::active(Fault::BroadcastAckedByOne);
            complete.then(|| sent.packet.view().seqno())
        });
        let done: Vec<u16> = done.collect();
        done.into_iter().filter(|seqno| self.transmit.remove(*seqno)).count()
    }

    /// Retransmits those of the `missing` packets after `after` that the peer in `slot` owes; returns their number.
    fn repeat(
        &mut self,
        now: Time,
        slot: usize,
        (after, missing): GapBlock,
        frames: &mut FrameBatch,
    ) -> usize {
        let (largest, part) = (self.largest(), parts::header(self.config.own, NodeAddr::NONE));
        let mut sent_again = 0;
        for sent in self.transmit.range_mut(after.wrapping_add(1), after.wrapping_add(missing)) {
            if sent.extra.contains(slot) && sent.try_retransmit(now, RETRANSMIT_SPACING_MS) {
                sent_again += 1;
                let is_too_large = sent.packet.size() > largest;
                for bearer in self.bearers.targets() {
                    let mut sink = FrameSink::new(frames, bearer, Target::Broadcast);
                    if is_too_large {
                        sent.packet.push_parts(part, largest, &mut sink);
                    }
                    if !is_too_large || sent.tries_whole() {
                        sent.packet.push(&mut sink);
                    }
                }
            }
        }
        self.stats.retransmitted += sent_again as u64;
        sent_again
    }

    /// Fills the window from the backlog and wakes ports for which there is room.
    fn advance(&mut self, now: Time, io: &mut BroadcastIo<'_>) {
        while self.transmit.has_room(self.config.window) {
            let Some(packet) = self.backlog.pop() else { break };
            self.transmit(now, packet, io.frames);
        }
        self.backlog.wake(io.wakeups);
    }
}
