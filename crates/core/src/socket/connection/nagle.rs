//! Nagle's algorithm: collects small writes of a STREAM into larger messages. Spec: tipc.md §8.6.
//!
//! For a peer behind a link, writes of any size are collected into messages of whole packets, as many packets as leave
//! in one segmented send. Full messages leave at once; the rest waits as specified. The sender is free to choose how a
//! stream is divided into messages.

use std::collections::VecDeque;

use crate::limits::{MAX_MESSAGE, MAX_USER_DATA};
use crate::wire::{INTERNAL_HEADER, Message, SHORT_HEADER, blocks};

/// Writes without a message from the peer after which collecting starts: initial value.
const START: u32 = 4;
const MAX_START: u32 = 1024;
/// Maximum number of blocks that are collected before they are sent.
const MAX_BLOCKS: u32 = 64;
/// Packets in a full message: the number of 1428-byte packets that one segmented send takes.
const FILLED_PACKETS: usize = 45;

/// Largest message collected for a peer on the same node, bytes. Spec: tipc.md §8.6.
const LOCAL_MAX: usize = 1500;
/// Memory of a message that has room to grow, bytes.
const PAGE: u64 = 4096;

/// Action after a write was collected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Collected {
    /// Wait for the acknowledgement.
    Hold,
    /// Send the full messages; the rest waits.
    FlushFull,
    /// Send everything.
    Flush,
}

/// Collected messages that are sent together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) messages: VecDeque<Message>,
    /// Their cost.
    pub(super) blocks: u32,
}

/// The collected messages, and statistics on whether collecting pays.
#[derive(Debug)]
pub(super) struct Nagle {
    /// Largest message to the peer that is not fragmented, bytes; 0 if nothing may be collected for it.
    mss: usize,
    max: usize,
    fill: usize,
    /// True if messages are filled beyond one packet.
    filling: bool,
    one_way: u32,
    start: u32,
    expect_ack: bool,
    /// Messages without collecting, and with it, since the last acknowledgement was requested.
    writes: u32,
    packets: u32,
    queue: VecDeque<Message>,
    blocks: u32,
}

impl Nagle {
    /// For a peer to which messages of up to `mss` bytes are not fragmented; 0: never collect.
    pub(super) fn new(mss: usize, no_delay: bool) -> Self {
        let mut new = Self {
            mss,
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
        };
        new.set_no_delay(no_delay);
        new
    }

    /// Disables or enables collecting.
    pub(super) fn set_no_delay(&mut self, no_delay: bool) {
        match self.mss {
            _ if no_delay => self.set_max(0),
            MAX_MESSAGE.. => self.set_max(LOCAL_MAX),
            packet => self.set_packet(packet),
        }
    }

    /// Sets the largest write to collect, and the size to which messages are filled, bytes, header included; 0 disables
    /// collecting.
    fn set_max(&mut self, max: usize) {
        self.max = if max > SHORT_HEADER { max } else { 0 };
        self.fill = self.max;
        self.filling = false;
    }

    /// Sets the packet size for a peer behind a link. A write slightly larger than some packets would leave as these
    /// and a small rest; collected writes leave in full packets.
    fn set_packet(&mut self, packet: usize) {
        self.set_max(packet);
        let room = packet.saturating_sub(INTERNAL_HEADER);
        let packets = (MAX_BLOCKS as usize * 1024 / room.max(1)).min(FILLED_PACKETS);
        self.filling = self.max > 0 && packets * room > self.max;
        if self.filling {
            self.fill = packets * room;
            // Also longer writes: the rest of each would be a send of its own.
            self.max = MAX_USER_DATA;
        }
    }

    /// A message from the peer has arrived.
    pub(super) fn peer_message(&mut self) {
        self.one_way = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes of the collected messages, each of which has at least a page.
    pub(super) fn bytes(&self) -> u64 {
        if self.queue.is_empty() {
            0
        } else {
            (u64::from(self.blocks) << 10).max(self.queue.len() as u64 * PAGE)
        }
    }

    /// Counts a write of `len` bytes; true if it should be collected.
    pub(super) fn wants(&mut self, len: usize) -> bool {
        let due = self.one_way >= self.start;
        self.one_way = self.one_way.saturating_add(1);
        due && self.max > 0 && len <= self.max
    }

    /// Adds a write to the queue; `new` creates an empty message with room for the given number of bytes.
    pub(super) fn collect(&mut self, mut data: &[u8], mut new: impl FnMut(usize) -> Message) -> Collected {
        self.writes += self.cost(data.len());
        while !data.is_empty() {
            if self.queue.back().is_none_or(|m| m.size() >= self.fill) {
                // A message that leaves at once does not grow, so it needs no more room.
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

    /// The requested acknowledgement has arrived: adapts to whether collecting paid.
    pub(super) fn acknowledged(&mut self) {
        self.packets += self.queue_len();
        if !self.pays() {
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

    /// Messages that a write of `len` bytes takes if it is not collected.
    fn cost(&self, len: usize) -> u32 {
        if self.filling { u32::try_from((SHORT_HEADER + len).div_ceil(self.fill)).unwrap_or(1) } else { 1 }
    }

    /// Whether collecting has saved messages since the last acknowledgement was requested: half of them, as in the
    /// kernel, or a fifth of those with many packets.
    fn pays(&self) -> bool {
        let (needed, of) = if self.filling { (5, 4) } else { (2, 1) };
        self.packets > 0 && u64::from(self.writes) * of >= u64::from(self.packets) * needed
    }

    /// The queue is sent without a write: counts its packets.
    pub(super) fn pushed(&mut self) {
        if self.writes > 0 {
            self.packets += self.queue_len();
        }
    }

    /// Takes all messages.
    pub(super) fn take(&mut self) -> Batch {
        Batch { messages: core::mem::take(&mut self.queue), blocks: core::mem::take(&mut self.blocks) }
    }

    /// Takes the full messages.
    pub(super) fn take_full(&mut self) -> Batch {
        let full = self.queue.iter().take_while(|m| m.size() >= self.fill).count();
        let rest = self.queue.split_off(full);
        let left = rest.iter().map(|m| blocks(m.size())).sum();
        let blocks = core::mem::replace(&mut self.blocks, left) - left;
        Batch { messages: core::mem::replace(&mut self.queue, rest), blocks }
    }

    fn ask_for_ack(&mut self) {
        self.expect_ack = self.queue.back_mut().map(|m| m.set_ack_required(true)).is_some();
    }

    fn queue_len(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{MessageType, User};

    const MSS: usize = 1388;

    fn message(_: usize) -> Message {
        Message::build(User::Low, MessageType::Conn.into(), SHORT_HEADER, &[])
    }

    /// Whether the first of many small one-way writes is collected.
    fn collects(nagle: &mut Nagle) -> bool {
        (0..=START).any(|_| nagle.wants(100))
    }

    #[test]
    fn one_way_writes_are_collected_if_peer_and_option_allow_it() {
        for (mss, no_delay, expected) in [
            (MSS, false, true),
            (MAX_MESSAGE, false, true),
            (MSS, true, false),
            (0, false, false),
            (SHORT_HEADER, false, false),
        ] {
            assert_eq!(collects(&mut Nagle::new(mss, no_delay)), expected, "{mss} {no_delay}");
        }
    }

    #[test]
    fn message_of_the_peer_ends_collecting() {
        let mut nagle = Nagle::new(MSS, false);
        assert!(collects(&mut nagle));
        nagle.peer_message();
        assert!(!nagle.wants(100));
    }

    #[test]
    fn first_write_leaves_and_asks_for_an_acknowledgement_that_the_next_ones_await() {
        let mut nagle = Nagle::new(MAX_MESSAGE, false);
        assert_eq!(nagle.collect(&[1; 100], message), Collected::Flush);
        let first = nagle.take();
        assert!(first.messages[0].ack_required() && nagle.is_empty());
        assert_eq!((first.messages.len(), first.blocks), (1, 1));
        assert_eq!(nagle.collect(&[1; 100], message), Collected::Hold);
        assert_eq!(nagle.collect(&[1; 100], message), Collected::Hold);
        assert_eq!(nagle.bytes(), PAGE);
        assert_eq!(nagle.take().messages[0].data().len(), 200);
    }
}
