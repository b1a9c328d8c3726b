//! Puts answers from the connection into their place among the entries of their feed.

use super::{Merge, MergeError, Phase, Result, Slot, deliver};
use crate::backbone::wire::{Answer, AnswerKind, Entry};

/// Maximum number of bytes of answers that wait for the feed, and of parts that wait for the last one.
const WAITING_MAX: usize = 128 << 20;
/// Largest stream id of a source.
const ITEMS_MAX: i32 = 1 << 24;

impl Merge {
    /// Handles an answer: applies it, or holds it until the feed has reached it.
    pub(crate) fn answer(&mut self, answer: Answer, out: &mut impl FnMut(&[u8])) -> Result<()> {
        let Some(at) = self.feeds.iter().position(|feed| feed.id == answer.feed) else {
            // The answer belongs to no feed, so it needs no place in one.
            return self.apply(answer, None, out);
        };
        let Some(feed) = self.feeds.get_mut(at) else { return Ok(()) };
        if feed.phase == Phase::Joining {
            // An answer from before the resynchronisation.
            return Ok(());
        }
        if answer.as_of > feed.read || !feed.ahead.is_empty() {
            self.waiting_bytes += answer.message.len();
            if self.waiting_bytes > WAITING_MAX {
                return Err(MergeError::TooMuch { what: "images ahead of their feed", max: WAITING_MAX });
            }
            feed.newest = feed.newest.max(answer.as_of);
            feed.ahead.push_back(answer);
            return Ok(());
        }
        let read = feed.read;
        self.apply(answer, Some((at, read)), out)
    }

    /// Applies the answers that the feed has reached with entry `upto`; `within` a packet, only those that need no
    /// history.
    pub(super) fn release_answers(
        &mut self,
        at: usize,
        upto: u64,
        within: bool,
        out: &mut impl FnMut(&[u8]),
    ) -> Result<()> {
        loop {
            let Some(feed) = self.feeds.get_mut(at) else { return Ok(()) };
            let Some(next) = feed.ahead.front().filter(|next| next.as_of <= upto) else { return Ok(()) };
            let has_parts = next.kind == AnswerKind::Image
                || self.pending.get(&next.stream).is_some_and(|pending| !pending.parts.is_empty());
            if within && (has_parts || next.as_of < upto) {
                return Ok(());
            }
            let Some(answer) = feed.ahead.pop_front() else { return Ok(()) };
            self.waiting_bytes -= answer.message.len();
            self.apply(answer, Some((at, upto)), out)?;
        }
    }

    /// Applies an answer that the feed has reached; `place`: index of its feed, and the last entry read.
    fn apply(
        &mut self,
        mut answer: Answer,
        place: Option<(usize, u64)>,
        out: &mut impl FnMut(&[u8]),
    ) -> Result<()> {
        let stream = answer.stream;
        match answer.kind {
            AnswerKind::Opened => self.opened(&answer, place),
            AnswerKind::Image | AnswerKind::Complete => match place.filter(|_| answer.item != 0) {
                Some((at, read)) => self.image(answer, at, read, out),
                // The image of a snapshot request: no updates follow.
                None => {
                    if !self.pending.contains_key(&stream) {
                        return Ok(());
                    }
                    if answer.kind == AnswerKind::Complete {
                        self.remove_pending(stream);
                    }
                    deliver(&mut answer.message, stream, out)
                }
            },
            AnswerKind::Notice => {
                if let Some(pending) = self.pending.get_mut(&stream).filter(|pending| !pending.delayed) {
                    pending.delayed = true;
                    self.delayed += 1;
                }
                deliver(&mut answer.message, stream, out)
            }
            AnswerKind::Reply => deliver(&mut answer.message, stream, out),
            AnswerKind::Refused => {
                if !self.pending.contains_key(&stream) {
                    return Ok(());
                }
                self.closed(stream);
                self.ended.insert(stream, false);
                deliver(&mut answer.message, stream, out)
            }
        }
    }

    /// Stores the source's item of a stream.
    fn opened(&mut self, answer: &Answer, place: Option<(usize, u64)>) -> Result<()> {
        let (stream, item) = (answer.stream, answer.item);
        if !(1..=ITEMS_MAX).contains(&item) {
            return Err(MergeError::Invalid { what: "the stream id of an item" });
        }
        if !self.pending.contains_key(&stream) {
            return Ok(());
        }
        let final_message = match place {
            Some((at, read)) => self.final_message(at, item, answer.as_of, read)?,
            None => None,
        };
        let Some(pending) = self.pending.get_mut(&stream) else { return Ok(()) };
        if pending.final_message.is_some() || final_message.is_some() {
            pending.final_message = pending.final_message.take().or(final_message);
            return Ok(());
        }
        let asked = pending.requests;
        if self.slots.len() <= item as usize {
            self.slots.resize(item as usize + 1, Slot::default());
        }
        if let Some(old) = self.items.insert(stream, item).filter(|old| *old != item) {
            self.unmap(old, stream);
        }
        if let Some(slot) = self.slot(item).filter(|slot| slot.stream != stream) {
            let replaced = std::mem::replace(slot, Slot { stream, live: false, asked });
            if let (false, Some((_, read)), Some(pending)) =
                (replaced.awaits_image(), place, self.pending.get_mut(&stream))
            {
                pending.unrecorded = read;
            }
            // The hub has left the replaced stream.
            self.items.remove(&replaced.stream);
            self.remove_pending(replaced.stream);
        }
        Ok(())
    }

    /// The final message of an item that ended after entry `after`, up to entry `upto`.
    fn final_message(&self, at: usize, item: i32, after: u64, upto: u64) -> Result<Option<Vec<u8>>> {
        let Some(feed) = self.feeds.get(at) else { return Ok(None) };
        let Some(entries) = feed.history.of(item, after, upto) else {
            // If the item has ended, its image never comes.
            return Err(MergeError::Gap { feed: feed.id, from: after + 1, to: upto });
        };
        Ok(entries.into_iter().find_map(|(_, entry)| match entry {
            Entry::Gone { message, .. } => Some(message.to_vec()),
            _ => None,
        }))
    }

    /// Handles a part of an image for a stream on an item.
    fn image(&mut self, mut answer: Answer, at: usize, read: u64, out: &mut impl FnMut(&[u8])) -> Result<()> {
        let (stream, item) = (answer.stream, answer.item);
        let complete = answer.kind == AnswerKind::Complete;
        let slot = self.slot(item).copied().unwrap_or_default();
        if slot.stream != stream {
            let ended = self.pending.get_mut(&stream).and_then(|pending| pending.final_message.take());
            let Some(mut message) = ended else { return Ok(()) };
            self.remove_pending(stream);
            self.ended.insert(stream, false);
            return if message.is_empty() { Ok(()) } else { deliver(&mut message, stream, out) };
        }
        if complete {
            self.image_came(stream);
        }
        if slot.live {
            // If a message of the item has come since, the image is older than the data of the hub's streams.
            let since = self.feeds.get(at).and_then(|feed| feed.history.of(item, answer.as_of, read));
            if since.is_none_or(|since| !since.is_empty()) {
                self.retry_in_feed(stream);
                return Ok(());
            }
            if complete {
                self.remove_pending(stream);
            }
            return deliver(&mut answer.message, stream, out);
        }
        let Some(pending) = self.pending.get_mut(&stream) else { return Ok(()) };
        self.waiting_bytes += answer.message.len();
        pending.has_begun = true;
        pending.parts.push((answer.as_of, answer.message));
        if self.waiting_bytes > WAITING_MAX {
            return Err(MergeError::TooMuch { what: "parts of images", max: WAITING_MAX });
        }
        if complete { self.go_live(stream, item, at, read, out) } else { Ok(()) }
    }

    /// Delivers the complete first image of a stream, with the item's messages that have arrived in the feed
    /// since its first part, in order.
    fn go_live(
        &mut self,
        stream: i32,
        item: i32,
        at: usize,
        read: u64,
        out: &mut impl FnMut(&[u8]),
    ) -> Result<()> {
        let Some(pending) = self.pending.get_mut(&stream) else { return Ok(()) };
        let mut parts = std::mem::take(&mut pending.parts);
        self.waiting_bytes -= parts.iter().map(|(_, part)| part.len()).sum::<usize>();
        let after = parts.first().map_or(read, |(as_of, _)| *as_of);
        let recorded = after >= pending.unrecorded;
        let feed = self.feeds.get(at).filter(|_| recorded);
        let Some(since) = feed.and_then(|feed| feed.history.of(item, after, read)) else {
            self.retry_in_feed(stream);
            return Ok(());
        };
        let since = since.into_iter().filter_map(|(number, entry)| match entry {
            Entry::Message(message) => Some((number, message.to_vec())),
            _ => None,
        });
        let since: Vec<(u64, Vec<u8>)> = since.collect();
        self.remove_pending(stream);
        if let Some(slot) = self.slot(item) {
            slot.live = true;
        }
        let mut since = since.into_iter().peekable();
        for (as_of, part) in &mut parts {
            while let Some((_, mut message)) = since.next_if(|(number, _)| number <= as_of) {
                deliver(&mut message, stream, out)?;
            }
            deliver(part, stream, out)?;
        }
        for (_, mut message) in since {
            deliver(&mut message, stream, out)?;
        }
        Ok(())
    }

    fn retry_in_feed(&mut self, stream: i32) {
        if let Some(pending) = self.pending.get_mut(&stream) {
            self.retries.push(pending.request.clone());
            self.asked_again(stream);
        }
    }
}
