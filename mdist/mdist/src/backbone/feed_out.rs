//! The source's half of a feed: numbers entries and packs them into packets.

use std::time::{Duration, Instant};

use super::wire::{Entry, HEADER, Header, MAX_PACKET, Part};
use super::{FeedId, SourceId};

/// One feed under construction.
#[derive(Debug)]
pub(crate) struct FeedOut {
    pub(crate) id: FeedId,
    source: SourceId,
    /// Number of the newest entry.
    number: u64,
    /// Bytes of all sealed packets.
    position: u64,
    /// The open packet: space for its header, then entries.
    packet: Vec<u8>,
    count: u16,
    /// Time at which the open packet is to be sent although it is not full. May be that of an earlier packet.
    due: Option<Instant>,
}

impl FeedOut {
    pub(crate) fn new(source: SourceId, id: FeedId) -> Self {
        let mut packet = Vec::with_capacity(MAX_PACKET);
        packet.resize(HEADER, 0);
        Self { id, source, number: 0, position: 0, packet, count: 0, due: None }
    }

    /// Number of the newest entry, in the open packet or before; 0: none yet.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of all sealed packets.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Entries in the open packet.
    pub(crate) fn waiting(&self) -> u16 {
        self.count
    }

    /// Whether the open packet has no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the open packet may wait for more entries: its first entry waits at most `flush`.
    pub(crate) fn may_wait(&mut self, now: Instant, flush: Duration) -> bool {
        let waits = !self.is_empty() && *self.due.get_or_insert(now + flush) > now;
        if !waits {
            self.due = None;
        }
        waits
    }

    /// Time at which the open packet is due, if it waits.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether an entry of `size` bytes fits into the open packet.
    #[inline]
    pub(crate) fn fits(&self, size: usize) -> bool {
        self.packet.len() + size <= MAX_PACKET && self.count < u16::MAX
    }

    /// Appends an entry; [`FeedOut::fits`] must hold for it.
    #[inline]
    pub(crate) fn push(&mut self, entry: &Entry<'_>) {
        entry.append(&mut self.packet);
        self.count += 1;
        self.number += 1;
    }

    /// Completes the open packet, which must have entries, and takes it out; [`FeedOut::begin`] has to follow.
    pub(crate) fn seal(&mut self) -> Vec<u8> {
        let first = self.number + 1 - u64::from(self.count);
        let header = self.header(self.count, first, None);
        if let Some(place) = self.packet.first_chunk_mut::<HEADER>() {
            *place = header;
        }
        self.position += self.packet.len() as u64;
        std::mem::take(&mut self.packet)
    }

    /// Opens the next packet after [`FeedOut::seal`], in the memory of that one.
    pub(crate) fn begin(&mut self, packet: Vec<u8>) {
        self.packet = packet;
        self.packet.truncate(HEADER);
        self.count = 0;
    }

    /// The packets of an entry that is longer than one packet. The open packet must be empty.
    pub(crate) fn parts(&mut self, entry: &Entry<'_>) -> Vec<Vec<u8>> {
        let mut whole = Vec::with_capacity(entry.size());
        entry.append(&mut whole);
        self.number += 1;
        let (total, mut offset) = (whole.len() as u32, 0);
        let mut packets = Vec::new();
        for piece in whole.chunks(MAX_PACKET - HEADER) {
            let last = offset as usize + piece.len() == whole.len();
            let header = self.header(1, self.number, Some(Part { offset, total, last }));
            let packet = [&header, piece].concat();
            self.position += packet.len() as u64;
            packets.push(packet);
            offset += piece.len() as u32;
        }
        packets
    }

    fn header(&self, count: u16, first: u64, part: Option<Part>) -> [u8; HEADER] {
        let (source, feed, position) = (self.source, self.id, self.position);
        Header { count, source, feed, first, position, part, unordered: false }.encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_waits_from_its_first_entry() {
        let (start, flush) = (Instant::now(), Duration::from_millis(20));
        let mut out = FeedOut::new(SourceId(1), FeedId(1));
        assert!(!out.may_wait(start, flush) && out.due().is_none());
        out.push(&Entry::Cut { sink: 1 });
        assert!(out.may_wait(start, flush));
        out.push(&Entry::Cut { sink: 2 });
        assert!(out.may_wait(start + flush / 2, flush));
        assert_eq!(out.due(), Some(start + flush));
        assert!(!out.may_wait(start + flush, flush) && out.due().is_none());
        let packet = out.seal();
        assert!(!packet.is_empty());
        out.begin(packet);
        assert!(!out.may_wait(start + flush, flush));
    }
}
