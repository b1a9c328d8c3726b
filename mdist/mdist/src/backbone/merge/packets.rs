//! What feeds bring: their packets, entry by entry.

use super::{Broken, HISTORY_LONG, Merge, Phase, Result, hand, stream_of};
use crate::backbone::wire::{Entry, HEADER, Header, MAX_RECORD};

/// Bytes of packets kept before the source says where the feed begins.
const HELD_MAX: usize = 8 << 20;

impl Merge {
    /// A packet. What it brings goes to `out` in order; its bytes are as before afterwards.
    pub(crate) fn packet(
        &mut self,
        header: &Header,
        packet: &mut [u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Result<()> {
        let Some(at) = self.feeds.iter().position(|feed| feed.id == header.feed) else { return Ok(()) };
        let Some(feed) = self.feeds.get_mut(at) else { return Ok(()) };
        if feed.phase == Phase::Joining {
            self.held_bytes += packet.len();
            if self.held_bytes > HELD_MAX {
                return Err(Broken::TooMuch { what: "packets of a feed that does not begin", max: HELD_MAX });
            }
            feed.held.push_back(packet.to_vec());
            return Ok(());
        }
        let last = header.first + u64::from(header.count) - u64::from(header.count > 0);
        if last <= feed.read {
            // From before we joined.
            return Ok(());
        }
        if header.first > feed.read + 1 {
            return Err(Broken::Gap { feed: feed.id, from: feed.read + 1, to: header.first - 1 });
        }
        let number = header.first;
        let Some(part) = header.part else {
            self.entries(at, number, last, HEADER, packet, out)?;
            self.keep(at, number, packet.get(HEADER..).unwrap_or_default());
            return self.settle(at, last, false, out);
        };
        let body = packet.get(HEADER..).unwrap_or(&[]);
        let fits = feed.part.len() == part.offset as usize
            && part.total as usize <= MAX_RECORD
            && feed.part.len() + body.len() <= part.total as usize;
        if !fits {
            // A part was lost, and the first ones with it.
            return Err(Broken::Gap { feed: feed.id, from: number, to: number });
        }
        feed.part.extend_from_slice(body);
        if !part.last {
            return Ok(());
        }
        let mut whole = std::mem::take(&mut feed.part);
        self.entries(at, number, last, 0, &mut whole, out)?;
        self.keep(at, number, &whole);
        self.settle(at, last, false, out)
    }

    /// The entries of a packet. The hot path.
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
                self.settle(at, number - 1, true, out)?;
                let ahead = self.feeds.get(at).and_then(|feed| feed.ahead.front());
                // What can only be done with the whole packet waits for its end.
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
                        hand(packet.get_mut(from..next).unwrap_or_default(), stream, out)?;
                    }
                }
                Entry::Gone { item, message } => {
                    let from = next - message.len();
                    if let Some(stream) = self.gone(item, message).filter(|_| from < next) {
                        hand(packet.get_mut(from..next).unwrap_or_default(), stream, out)?;
                    }
                }
                Entry::Image { sink, stream, complete, message } => {
                    let from = next - message.len();
                    if sink == self.sink && self.shown(stream, complete) {
                        hand(packet.get_mut(from..next).unwrap_or_default(), stream, out)?;
                    }
                }
                Entry::Cut { sink } if sink == self.sink => return Err(Broken::Cut),
                Entry::Cut { .. } => {}
            }
            (offset, number) = (next, number + 1);
        }
        if number != last + 1 {
            return Err(Broken::Nonsense { what: "the count of a packet" });
        }
        Ok(())
    }

    /// The item has ended: its stream, if that is told now.
    fn gone(&mut self, item: i32, message: &[u8]) -> Option<i32> {
        let slot = std::mem::take(self.slot(item)?);
        if slot.stream == 0 {
            return None;
        }
        self.items.remove(&slot.stream);
        match self.waits.get_mut(&slot.stream) {
            Some(wait) if !slot.live && wait.parts.is_empty() => {
                // For the source the stream is live once the first part of its image has left. If one comes, it was.
                wait.gone = Some(message.to_vec());
                None
            }
            _ => {
                self.forget(slot.stream);
                self.over.insert(slot.stream, false);
                Some(slot.stream)
            }
        }
    }

    /// A part of an image in the feed for one of our streams: whether it is still wanted.
    fn shown(&mut self, stream: i32, complete: bool) -> bool {
        let Some(item) = self.items.get(&stream).copied() else { return false };
        let Some(slot) = self.slot(item) else { return false };
        slot.live = true;
        if complete {
            self.forget(stream);
        }
        true
    }

    /// Keeps a packet while images are awaited that may be older than it.
    fn keep(&mut self, at: usize, first: u64, entries: &[u8]) {
        let others = self.history_bytes();
        let Some(feed) = self.feeds.get_mut(at) else { return };
        let others = others - feed.history.bytes();
        if self.waits.is_empty() {
            if feed.history.bytes() > 0 {
                feed.history.clear();
            }
            return;
        }
        feed.history.push(first, entries);
        let most = if self.waits.len() > self.noticed {
            self.history_max
        } else {
            HISTORY_LONG.min(self.history_max)
        };
        while others + feed.history.bytes() > most && feed.history.pop() {}
    }

    pub(super) fn history_bytes(&self) -> usize {
        self.feeds.iter().map(|feed| feed.history.bytes()).sum()
    }
}
