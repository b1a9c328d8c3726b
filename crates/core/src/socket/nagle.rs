//! Collecting small writes of a STREAM into larger messages. Spec: tipc.md §8.6.

use std::collections::VecDeque;

use crate::wire::{Message, SHORT_HEADER, blocks};

/// Writes without any message from the peer before collecting starts: first and largest value.
const START: u32 = 4;
const MAX_START: u32 = 1024;
/// Blocks collected at most before they are sent.
const MAX_BLOCKS: u32 = 64;

/// What to do with the queue after a write was collected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Collected {
    /// Wait for the acknowledgement that is due.
    Hold,
    /// Send it.
    Flush,
}

/// Messages being filled, and the measure of whether that pays.
#[derive(Debug)]
pub(super) struct Nagle {
    max: usize,
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
            one_way: 0,
            start: START,
            expect_ack: false,
            writes: 0,
            packets: 0,
            queue: VecDeque::new(),
            blocks: 0,
        }
    }

    /// The largest message to fill, header included, bytes; 0 switches collecting off.
    pub(super) fn set_max(&mut self, max: usize) {
        self.max = if max > SHORT_HEADER { max } else { 0 };
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

    /// Adds a write to the queue; `new` makes an empty message.
    pub(super) fn collect(&mut self, mut data: &[u8], new: impl Fn() -> Message) -> Collected {
        while !data.is_empty() {
            if self.queue.back().is_none_or(|m| m.size() >= self.max) {
                self.queue.push_back(new());
                self.blocks += 1;
            }
            let Some(last) = self.queue.back_mut() else { break };
            let before = blocks(last.size());
            let (now, later) = data.split_at(data.len().min(self.max - last.size()));
            last.append(now);
            self.blocks += blocks(last.size()) - before;
            data = later;
        }
        self.writes += 1;
        if self.blocks > MAX_BLOCKS {
            self.packets += self.queue_len();
            return Collected::Flush;
        }
        if self.expect_ack {
            return Collected::Hold;
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

    fn ask_for_ack(&mut self) {
        self.expect_ack = self.queue.back_mut().map(|m| m.set_ack_required(true)).is_some();
    }

    fn queue_len(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }
}
