//! Handles the packets of feeds, entry by entry.

use std::collections::btree_map;

use super::{HISTORY_DELAYED, Merge, MergeError, Phase, Result, deliver, stream_of};
use crate::backbone::wire::{Entry, HEADER, Header, MAX_RECORD, SERVICE_STREAM};

/// Maximum number of bytes of packets held: while feeds are being joined, and of those that have overtaken others.
const HELD_MAX: usize = 8 << 20;

impl Merge {
    /// Handles a packet, and those that have overtaken it: passes their messages to `out` in order, and restores its
    /// bytes.
    pub(crate) fn packet(
        &mut self,
        header: &Header,
        packet: &mut [u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Result<()> {
        let Some(at) = self.feeds.iter().position(|feed| feed.id == header.feed) else { return Ok(()) };
        self.next_packet(at, header, packet, out)?;
        while let Some(mut packet) = self.take_early(at) {
            let header = Header::decode(&packet)?;
            self.next_packet(at, &header, &mut packet, out)?;
        }
        Ok(())
    }

    /// Keeps a packet that has overtaken earlier ones. If these do not come, [`Merge::check`] finds that.
    #[cold]
    fn keep_early(&mut self, at: usize, header: &Header, packet: &[u8]) -> Result<()> {
        let Some(feed) = self.feeds.get_mut(at) else { return Ok(()) };
        if self.held_bytes + packet.len() > HELD_MAX {
            return Err(MergeError::Gap { feed: feed.id, from: feed.read + 1, to: header.first - 1 });
        }
        let offset = header.part.map_or(0, |part| part.offset);
        feed.newest = feed.newest.max(header.first);
        if let btree_map::Entry::Vacant(place) = feed.early.entry((header.first, offset)) {
            self.held_bytes += packet.len();
            place.insert(packet.to_vec());
        }
        Ok(())
    }

    /// The next packet of a feed, if it has overtaken earlier ones that have arrived now.
    #[inline]
    fn take_early(&mut self, at: usize) -> Option<Vec<u8>> {
        let feed = self.feeds.get_mut(at).filter(|feed| !feed.early.is_empty())?;
        let next = (feed.read + 1, feed.part.len() as u32);
        let first = feed.early.first_entry().filter(|early| *early.key() <= next)?;
        let packet = first.remove();
        self.held_bytes -= packet.len();
        Some(packet)
    }

    /// Handles a packet of the feed at index `at`.
    fn next_packet(
        &mut self,
        at: usize,
        header: &Header,
        packet: &mut [u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Result<()> {
        let Some(feed) = self.feeds.get_mut(at) else { return Ok(()) };
        if feed.phase == Phase::Joining {
            self.held_bytes += packet.len();
            if self.held_bytes > HELD_MAX {
                let what = "packets of a feed that is being joined";
                return Err(MergeError::TooMuch { what, max: HELD_MAX });
            }
            feed.held.push_back(packet.to_vec());
            return Ok(());
        }
        let last = header.first + u64::from(header.count) - u64::from(header.count > 0);
        if last <= feed.read {
            // A packet from before the join.
            return Ok(());
        }
        if header.first > feed.read + 1 {
            if header.unordered {
                return self.keep_early(at, header, packet);
            }
            return Err(MergeError::Gap { feed: feed.id, from: feed.read + 1, to: header.first - 1 });
        }
        let number = header.first;
        let Some(part) = header.part else {
            self.entries(at, number, last, HEADER, packet, out)?;
            self.record_history(at, number, packet.get(HEADER..).unwrap_or_default());
            return self.release_answers(at, last, false, out);
        };
        let body = packet.get(HEADER..).unwrap_or(&[]);
        let fits = feed.part.len() == part.offset as usize
            && part.total as usize <= MAX_RECORD
            && feed.part.len() + body.len() <= part.total as usize;
        if !fits {
            if header.unordered && part.offset as usize > feed.part.len() {
                return self.keep_early(at, header, packet);
            }
            // A part was lost, and with it the entry.
            return Err(MergeError::Gap { feed: feed.id, from: number, to: number });
        }
        feed.part.extend_from_slice(body);
        if !part.last {
            return Ok(());
        }
        let mut whole = std::mem::take(&mut feed.part);
        self.entries(at, number, last, 0, &mut whole, out)?;
        self.record_history(at, number, &whole);
        self.release_answers(at, last, false, out)
    }

    /// Handles the entries of a packet. This is the hot path.
    fn entries(
        &mut self,
        at: usize,
        first: u64,
        last: u64,
        start: usize,
        packet: &mut [u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Result<()> {
        let Some(feed) = self.feeds.get_mut(at) else { return Ok(()) };
        let read = std::mem::replace(&mut feed.read, last);
        let mut stop = feed.ahead.front().map_or(u64::MAX, |answer| answer.as_of);
        let (mut offset, mut number) = (start, first);
        while let Some(mut rest) = packet.get(offset..).filter(|rest| !rest.is_empty()) {
            if number > stop {
                self.release_answers(at, number - 1, true, out)?;
                let ahead = self.feeds.get(at).and_then(|feed| feed.ahead.front());
                // An answer that needs the history waits for the end of the packet.
                stop = ahead.map(|answer| answer.as_of).filter(|as_of| *as_of >= number).unwrap_or(u64::MAX);
            }
            let entry = Entry::take(&mut rest)?;
            let next = packet.len() - rest.len();
            match entry {
                _ if number <= read => {}
                Entry::Message(message) => {
                    let (stream, from) = (stream_of(message), next - message.len());
                    let slot = usize::try_from(stream).ok().and_then(|at| self.slots.get(at));
                    if let Some(slot) = slot.filter(|slot| slot.live) {
                        let stream = slot.stream;
                        deliver(packet.get_mut(from..next).unwrap_or_default(), stream, out)?;
                    } else if stream == SERVICE_STREAM {
                        out(message);
                    }
                }
                Entry::Gone { item, message } => {
                    let from = next - message.len();
                    if let Some(stream) = self.end_item(item, message).filter(|_| from < next) {
                        deliver(packet.get_mut(from..next).unwrap_or_default(), stream, out)?;
                    }
                }
                Entry::Image { sink, stream, complete, message } => {
                    let from = next - message.len();
                    if sink == self.sink && self.accept_image_in_feed(stream, complete) {
                        deliver(packet.get_mut(from..next).unwrap_or_default(), stream, out)?;
                    }
                }
                Entry::Cut { sink } if sink == self.sink => return Err(MergeError::Cut),
                Entry::Cut { .. } => {}
            }
            (offset, number) = (next, number + 1);
        }
        if number != last + 1 {
            return Err(MergeError::Invalid { what: "the count of a packet" });
        }
        Ok(())
    }

    /// Ends an item; returns its stream if the final message is due now.
    fn end_item(&mut self, item: i32, message: &[u8]) -> Option<i32> {
        let slot = std::mem::take(self.slot(item)?);
        if slot.stream == 0 {
            return None;
        }
        self.items.remove(&slot.stream);
        match self.pending.get_mut(&slot.stream) {
            Some(pending) if !slot.live && !pending.has_begun => {
                // For the source a stream is live when the first part of its image is sent. So the final
                // message is for this stream only if a part of its image arrives.
                pending.final_message = Some(message.to_vec());
                None
            }
            _ => {
                self.remove_pending(slot.stream);
                self.ended.insert(slot.stream, false);
                Some(slot.stream)
            }
        }
    }

    /// Accepts a part of an image in the feed for one of the sink's streams; false if the stream is closed.
    fn accept_image_in_feed(&mut self, stream: i32, complete: bool) -> bool {
        let Some(item) = self.items.get(&stream).copied() else { return false };
        let Some(slot) = self.slot(item) else { return false };
        slot.live = true;
        if complete {
            self.image_came(stream);
            self.remove_pending(stream);
        }
        true
    }

    /// Adds a packet to the history while images are pending that may be older than it.
    fn record_history(&mut self, at: usize, first: u64, entries: &[u8]) {
        let all_feeds = self.history_bytes();
        let Some(feed) = self.feeds.get_mut(at) else { return };
        let other_feeds = all_feeds - feed.history.bytes();
        if self.pending.is_empty() {
            if feed.history.bytes() > 0 {
                feed.history.clear();
            }
            return;
        }
        let slots = &self.slots;
        let slot = |item: i32| usize::try_from(item).ok().and_then(|at| slots.get(at));
        feed.history.push(first, entries, |item| slot(item).is_none_or(|slot| slot.awaits_image()));
        let limit = if self.pending.len() > self.delayed {
            self.history_max
        } else {
            HISTORY_DELAYED.min(self.history_max)
        };
        while other_feeds + feed.history.bytes() > limit && feed.history.pop() {}
    }

    pub(super) fn history_bytes(&self) -> usize {
        self.feeds.iter().map(|feed| feed.history.bytes()).sum()
    }
}
