//! The receiving half of a sequence: next packet, early packets, gaps. Spec: tipc.md §5.8.

use std::collections::BTreeMap;

use crate::limits::{MAX_WINDOW, MESSAGE_OVERHEAD};
use crate::planted::{self, Fault};
use crate::wire::{GapBlock, MAX_GAP_BLOCKS, Message, View};

/// Maximum number of bytes of early packets kept per sender; further ones are dropped, and the sender retransmits them.
/// Spec: tipc.md §14.2.
pub(crate) const MAX_DEFERRED_BYTES: usize = 16 << 20;

/// Where the part of a packet begins that a retransmission does not change: behind its number and acknowledgements,
/// bytes.
const FIXED: usize = 12;

/// Classification of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next packet: the caller delivers it, then drains [`ReceiveQueue::pop`].
    InOrder,
    /// Kept until the missing packets arrive.
    Deferred,
    /// Received before, or outside the accept window.
    Duplicate,
    /// Early, and the memory limit is reached.
    Full,
}

/// Tracks received sequence numbers and keeps early packets. Its memory grows with the packets kept, not with their
/// distance from the next one.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    rcv_nxt: u16,
    /// `rcv_nxt` as a position that does not wrap.
    next: u64,
    /// Early packets, by position.
    deferred: BTreeMap<u64, Message>,
    /// The same packets as runs without a gap: first position, and the position after the last.
    runs: BTreeMap<u64, u64>,
    bytes: usize,
}

/// Memory that a kept packet is charged for, bytes.
fn charge(size: usize) -> usize {
    size + MESSAGE_OVERHEAD
}

impl ReceiveQueue {
    /// A queue that expects packet `rcv_nxt` next.
    pub(crate) fn new(rcv_nxt: u16) -> Self {
        Self { rcv_nxt, next: 0, deferred: BTreeMap::new(), runs: BTreeMap::new(), bytes: 0 }
    }

    /// Number of the next packet in order.
    pub(crate) fn rcv_nxt(&self) -> u16 {
        self.rcv_nxt
    }

    /// Number of early packets kept.
    pub(crate) fn deferred_len(&self) -> usize {
        self.deferred.len()
    }

    /// Memory of early packets, bytes.
    pub(crate) fn deferred_bytes(&self) -> usize {
        self.bytes
    }

    /// True if the number is in the accept window.
    pub(crate) fn accepts(&self, seqno: u16) -> bool {
        seqno.wrapping_sub(self.rcv_nxt) <= MAX_WINDOW
    }

    /// Classifies a packet, and keeps it if it is early and needs at most `room` bytes.
    pub(crate) fn accept(&mut self, packet: View<'_>, room: usize) -> Arrival {
        let offset = packet.seqno().wrapping_sub(self.rcv_nxt);
        if offset == 0 {
            self.advance();
            return Arrival::InOrder;
        }
        if offset > MAX_WINDOW {
            if planted::active(Fault::DuplicateNotDropped) {
                return Arrival::InOrder;
            }
            return Arrival::Duplicate;
        }
        let arrival = self.classify(offset, packet, room);
        if arrival == Arrival::Deferred {
            self.keep(offset, packet.to_message());
        }
        arrival
    }

    /// Like [`accept`](Self::accept) for an owned message, which is returned if it is the next one.
    pub(crate) fn accept_owned(&mut self, packet: Message, room: usize) -> Result<Message, Arrival> {
        let offset = packet.seqno().wrapping_sub(self.rcv_nxt);
        if offset == 0 {
            self.advance();
            return Ok(packet);
        }
        if offset > MAX_WINDOW {
            return Err(Arrival::Duplicate);
        }
        let arrival = self.classify(offset, packet.view(), room);
        if arrival == Arrival::Deferred {
            self.keep(offset, packet);
        }
        Err(arrival)
    }

    /// Removes and returns the next deferred packet that is in order.
    pub(crate) fn pop(&mut self) -> Option<Message> {
        let packet = self.deferred.remove(&self.next)?;
        self.bytes -= charge(packet.size());
        if let Some(end) = self.runs.remove(&self.next).filter(|end| *end > self.next + 1) {
            self.runs.insert(self.next + 1, end);
        }
        self.advance();
        Some(packet)
    }

    /// Number of packets missing before the first deferred one; 0 if none is deferred. Called for each packet of the
    /// peer, so it must not depend on the number of deferred packets.
    pub(crate) fn gap(&self) -> u16 {
        let Some((first, _)) = self.runs.first_key_value() else { return 0 };
        let missing = (first - self.next) as u16;
        if planted::active(Fault::GapOffByOne) { missing.wrapping_sub(1) } else { missing }
    }

    /// The gap blocks beyond the first gap, at most [`MAX_GAP_BLOCKS`]; empty if nothing is deferred. Called for each
    /// packet of the peer: visits at most that many runs.
    pub(crate) fn gap_blocks(&self) -> Vec<GapBlock> {
        let mut runs = self.runs.iter().map(|(first, end)| (*first, *end));
        let Some((_, mut end)) = runs.next() else { return Vec::new() };
        let mut blocks: Vec<GapBlock> = Vec::new();
        for (first, next_end) in runs {
            blocks.push((self.number(end).wrapping_sub(1), (first - end) as u16));
            if blocks.len() == MAX_GAP_BLOCKS {
                return blocks;
            }
            end = next_end;
        }
        let beyond = u16::from(planted::active(Fault::GapBlockOffByOne));
        blocks.push((self.number(end).wrapping_sub(1).wrapping_add(beyond), 0));
        blocks
    }

    /// The sequence number at a position.
    fn number(&self, position: u64) -> u16 {
        self.rcv_nxt.wrapping_add((position - self.next) as u16)
    }

    /// The next packet in order was received.
    pub(super) fn advance(&mut self) {
        self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
        self.next += 1;
    }

    /// Whether an early packet is kept. Packets do not name their session: one of the last session that arrives late
    /// may be in the place of another one, whose content differs then. The later one is likelier to be of this session.
    fn classify(&self, offset: u16, packet: View<'_>, room: usize) -> Arrival {
        let old = self.deferred.get(&(self.next + u64::from(offset)));
        if old.is_some_and(|old| old.bytes().get(FIXED..) == packet.bytes().get(FIXED..)) {
            return Arrival::Duplicate;
        }
        let (new, freed) = (charge(packet.size()), old.map_or(0, |old| charge(old.size())));
        if new > room.saturating_add(freed) || self.bytes - freed + new > MAX_DEFERRED_BYTES {
            return Arrival::Full;
        }
        Arrival::Deferred
    }

    fn keep(&mut self, offset: u16, packet: Message) {
        let position = self.next + u64::from(offset);
        self.bytes += charge(packet.size());
        match self.deferred.insert(position, packet) {
            Some(old) => self.bytes -= charge(old.size()),
            None => self.add_to_runs(position),
        }
    }

    /// Extends the run that ends at a position, and joins it with the one that begins behind it.
    fn add_to_runs(&mut self, position: u64) {
        let end = self.runs.remove(&(position + 1)).unwrap_or(position + 1);
        match self.runs.range_mut(..position).next_back().filter(|(_, before)| **before == position) {
            Some((_, before)) => *before = end,
            None => {
                self.runs.insert(position, end);
            }
        }
    }
}
