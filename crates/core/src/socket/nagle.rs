//! Collecting small writes of a STREAM into larger messages. Spec: tipc.md §8.6.
//!
//! To a peer behind a link, messages of whole packets are filled from writes of any size, as many as leave in one segmented
//! send: what is full leaves at once, the rest waits as the specification says. How a stream is cut into messages is the
//! sender's affair.

use std::collections::VecDeque;

use crate::wire::{INTERNAL_HEADER, Message, SHORT_HEADER, blocks};

/// Writes without any message from the peer before collecting starts: first and largest value.
const START: u32 = 4;
const MAX_START: u32 = 1024;
/// Blocks collected at most before they are sent.
const MAX_BLOCKS: u32 = 64;
/// Packets of a message that is filled: as many as one segmented send takes where each has 1428 bytes.
const FILLED_PACKETS: usize = 45;

/// What to do with the queue after a write was collected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Collected {
    /// Wait for the acknowledgement that is due.
    Hold,
    /// Send what is full, and let the rest wait.
    FlushFull,
    /// Send it.
    Flush,
}

/// Messages being filled, and the measure of whether that pays.
#[derive(Debug)]
pub(super) struct Nagle {
    max: usize,
    fill: usize,
    /// Whether messages are filled beyond one packet.
    filling: bool,
    one_way: u32,
    start: u32,
    expect_ack: bool,
    writes: u32,
    packets: u32,
    queue: VecDeque<Message>,
    blocks: u32,
}

impl Nagle {
    pub(super) const fn new() -> Self {
        Self {
            max: 0,
            fill: 0,
            filling: false,
            one_way: 0,
            start: START,
            expect_ack: false,
            writes: 0,
            packets: 0,
            queue: VecDeque::new(),
            blocks: 0,
        }
    }

    /// The largest write to collect, bytes; 0 switches collecting off. Messages of as many bytes are filled, header
    /// included.
    pub(super) fn set_max(&mut self, max: usize) {
        self.max = if max > SHORT_HEADER { max } else { 0 };
        self.fill = self.max;
        self.filling = false;
    }

    /// For a peer behind a link with packets of `packet` bytes: a write that just exceeds some would leave as these and a
    /// scrap; put together writes leave in full packets.
    pub(super) fn set_packet(&mut self, packet: usize) {
        self.set_max(packet);
        let room = packet.saturating_sub(INTERNAL_HEADER);
        let packets = (MAX_BLOCKS as usize * 1024 / room.max(1)).min(FILLED_PACKETS);
        self.filling = self.max > 0 && packets * room > self.max;
        if self.filling {
            self.fill = packets * room;
            self.max = self.fill;
        }
    }

    /// Something came from the peer.
    pub(super) fn heard(&mut self) {
        self.one_way = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Counts a write of `len` bytes; true if it is one to collect.
    pub(super) fn wants(&mut self, len: usize) -> bool {
        let due = self.one_way >= self.start;
        self.one_way = self.one_way.saturating_add(1);
        due && self.max > 0 && len <= self.max
    }

    /// Adds a write to the queue; `new` makes an empty message with room for so many bytes.
    pub(super) fn collect(&mut self, mut data: &[u8], mut new: impl FnMut(usize) -> Message) -> Collected {
        while !data.is_empty() {
            if self.queue.back().is_none_or(|m| m.size() >= self.fill) {
                // One that leaves at once is not going to grow.
                let room = if self.expect_ack { self.fill } else { self.fill.min(SHORT_HEADER + data.len()) };
                self.queue.push_back(new(room));
                self.blocks += 1;
            }
            let Some(last) = self.queue.back_mut() else { break };
            let before = blocks(last.size());
            let (now, later) = data.split_at(data.len().min(self.fill - last.size()));
            last.append(now);
            self.blocks += blocks(last.size()) - before;
            data = later;
        }
        self.writes += 1;
        if !self.filling && self.blocks > MAX_BLOCKS {
            self.packets += self.queue_len();
            return Collected::Flush;
        }
        if self.expect_ack {
            let full = self.queue.iter().filter(|m| m.size() >= self.fill).count();
            if full == 0 || !self.filling {
                return Collected::Hold;
            }
            self.packets += u32::try_from(full).unwrap_or(u32::MAX);
            return Collected::FlushFull;
        }
        self.ask_for_ack();
        self.writes = 0;
        self.packets = 0;
        Collected::Flush
    }

    /// The acknowledgement that was asked for is here: did collecting pay?
    pub(super) fn acknowledged(&mut self) {
        self.packets += self.queue_len();
        if self.packets == 0 || self.writes / self.packets < 2 {
            self.one_way = 0;
            self.start = (self.start * 2).min(MAX_START);
            self.expect_ack = false;
        } else {
            self.start = START;
            self.ask_for_ack();
        }
        self.writes = 0;
        self.packets = 0;
    }

    /// The queue is about to be sent without a write: counts its packets.
    pub(super) fn pushed(&mut self) {
        if self.writes > 0 {
            self.packets += self.queue_len();
        }
    }

    /// Takes the queue and its cost in blocks.
    pub(super) fn take(&mut self) -> (VecDeque<Message>, u32) {
        (core::mem::take(&mut self.queue), core::mem::take(&mut self.blocks))
    }

    /// Takes the messages that are full, and their cost in blocks.
    pub(super) fn take_full(&mut self) -> (VecDeque<Message>, u32) {
        let full = self.queue.iter().take_while(|m| m.size() >= self.fill).count();
        let rest = self.queue.split_off(full);
        let left = rest.iter().map(|m| blocks(m.size())).sum();
        let cost = core::mem::replace(&mut self.blocks, left) - left;
        (core::mem::replace(&mut self.queue, rest), cost)
    }

    fn ask_for_ack(&mut self) {
        self.expect_ack = self.queue.back_mut().map(|m| m.set_ack_required(true)).is_some();
    }

    fn queue_len(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }
}
