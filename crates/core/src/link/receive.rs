//! The receiving half of a sequence: next packet, early packets, gaps. Spec: tipc.md §5.8.

use std::collections::VecDeque;

use crate::limits::MAX_WINDOW;
use crate::planted::{self, Fault};
use crate::wire::{GapBlock, MAX_GAP_BLOCKS, Message, View};

/// Most bytes of early packets kept per sender; further ones are dropped, and the sender retransmits them. Spec:
/// tipc.md §14.2.
pub(crate) const MAX_DEFERRED_BYTES: usize = 16 << 20;

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

/// Tracks received sequence numbers and keeps early packets.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    rcv_nxt: u16,
    /// Slot `i` holds packet `rcv_nxt + i`; the first slot is empty, the last is not.
    deferred: VecDeque<Option<Message>>,
    count: usize,
    bytes: usize,
}

impl ReceiveQueue {
    /// A queue that expects packet `rcv_nxt` next.
    pub(crate) fn new(rcv_nxt: u16) -> Self {
        Self { rcv_nxt, deferred: VecDeque::new(), count: 0, bytes: 0 }
    }

    /// Number of the next packet in order.
    pub(crate) fn rcv_nxt(&self) -> u16 {
        self.rcv_nxt
    }

    /// Number of early packets kept.
    pub(crate) fn deferred_len(&self) -> usize {
        self.count
    }

    /// Bytes of early packets kept.
    #[cfg(test)]
    pub(crate) fn deferred_bytes(&self) -> usize {
        self.bytes
    }

    /// True if the number is in the accept window.
    pub(crate) fn accepts(&self, seqno: u16) -> bool {
        seqno.wrapping_sub(self.rcv_nxt) <= MAX_WINDOW
    }

    /// Classifies a packet, and keeps it if it is early.
    pub(crate) fn accept(&mut self, packet: View<'_>) -> Arrival {
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
        self.defer(usize::from(offset), packet.size(), || packet.to_message())
    }

    /// Like [`accept`](Self::accept) for an owned message, which is returned if it is the next one.
    pub(crate) fn accept_owned(&mut self, packet: Message) -> Result<Message, Arrival> {
        let offset = packet.seqno().wrapping_sub(self.rcv_nxt);
        if offset == 0 {
            self.advance();
            return Ok(packet);
        }
        if offset > MAX_WINDOW {
            return Err(Arrival::Duplicate);
        }
        Err(self.defer(usize::from(offset), packet.size(), || packet))
    }

    /// Removes and returns the next deferred packet that is in order.
    pub(crate) fn pop(&mut self) -> Option<Message> {
        let packet = self.deferred.front_mut()?.take()?;
        self.count -= 1;
        self.bytes -= packet.size();
        self.advance();
        Some(packet)
    }

    /// Number of packets missing before the first deferred one; 0 if none is deferred.
    pub(crate) fn gap(&self) -> u16 {
        if self.count == 0 {
            return 0;
        }
        let missing = self.deferred.iter().take_while(|slot| slot.is_none()).count() as u16;
        if planted::active(Fault::GapOffByOne) { missing - 1 } else { missing }
    }

    /// The gap blocks beyond the first gap, at most [`MAX_GAP_BLOCKS`]; empty if nothing is deferred.
    pub(crate) fn gap_blocks(&self) -> Vec<GapBlock> {
        let mut blocks: Vec<GapBlock> = Vec::new();
        if self.count == 0 {
            return blocks;
        }
        let mut expected: Option<u16> = None;
        for (i, _) in self.deferred.iter().enumerate().filter(|(_, slot)| slot.is_some()) {
            let seqno = self.rcv_nxt.wrapping_add(i as u16);
            if let Some(expected) = expected.filter(|e| *e != seqno) {
                blocks.push((expected.wrapping_sub(1), seqno.wrapping_sub(expected)));
                if blocks.len() == MAX_GAP_BLOCKS {
                    return blocks;
                }
            }
            expected = Some(seqno.wrapping_add(1));
        }
        if let Some(expected) = expected {
            let last =
                if planted::active(Fault::GapBlockOffByOne) { expected } else { expected.wrapping_sub(1) };
            blocks.push((last, 0));
        }
        blocks
    }

    fn advance(&mut self) {
        self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
        self.deferred.pop_front();
        if self.count == 0 {
            self.deferred.clear();
        }
    }

    fn defer(&mut self, offset: usize, size: usize, message: impl FnOnce() -> Message) -> Arrival {
        if self.bytes + size > MAX_DEFERRED_BYTES {
            return Arrival::Full;
        }
        if self.deferred.len() <= offset {
            self.deferred.resize_with(offset + 1, || None);
        }
        match self.deferred.get_mut(offset) {
            Some(slot @ None) => {
                *slot = Some(message());
                self.count += 1;
                self.bytes += size;
                Arrival::Deferred
            }
            _ => Arrival::Duplicate,
        }
    }
}
