//! What comes by the link: each answer in its place among the entries of its feed.

use super::{Broken, Merge, Phase, Result, Slot, hand};
use crate::backbone::wire::{Answer, AnswerKind, Entry};

/// Bytes of answers that wait for the feed, and of parts that wait for the last one.
const WAITING_MAX: usize = 128 << 20;
/// Largest stream id of a source.
const ITEMS_MAX: i32 = 1 << 24;

impl Merge {
    /// An answer that came by the link.
    pub(crate) fn answer(&mut self, answer: Answer, out: &mut impl FnMut(&[u8])) -> Result<()> {
        let Some(at) = self.feeds.iter().position(|feed| feed.id == answer.feed) else {
            // Of no feed: nothing it could be put in order with.
            return self.apply(answer, None, out);
        };
        let Some(feed) = self.feeds.get_mut(at) else { return Ok(()) };
        if feed.phase == Phase::Joining {
            // From before the new beginning.
            return Ok(());
        }
        if answer.as_of > feed.read || !feed.ahead.is_empty() {
            self.waiting_bytes += answer.message.len();
            if self.waiting_bytes > WAITING_MAX {
                return Err(Broken::TooMuch { what: "images ahead of their feed", max: WAITING_MAX });
            }
            feed.newest = feed.newest.max(answer.as_of);
            feed.ahead.push_back(answer);
            return Ok(());
        }
        let read = feed.read;
        self.apply(answer, Some((at, read)), out)
    }

    /// Answers that the feed has reached, up to entry `upto`. In the middle of a packet only those that need no history.
    pub(super) fn settle(
        &mut self,
        at: usize,
        upto: u64,
        within: bool,
        out: &mut impl FnMut(&[u8]),
    ) -> Result<()> {
        loop {
            let Some(feed) = self.feeds.get_mut(at) else { return Ok(()) };
            let Some(next) = feed.ahead.front().filter(|next| next.as_of <= upto) else { return Ok(()) };
            let parted = next.kind == AnswerKind::Image
                || self.waits.get(&next.stream).is_some_and(|wait| !wait.parts.is_empty());
            if within && (parted || next.as_of < upto) {
                return Ok(());
            }
            let Some(answer) = feed.ahead.pop_front() else { return Ok(()) };
            self.waiting_bytes -= answer.message.len();
            self.apply(answer, Some((at, upto)), out)?;
        }
    }

    /// An answer whose turn it is: `place` is its feed, and the entry up to which that was read.
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
                // A snapshot: nothing follows.
                None => {
                    if !self.waits.contains_key(&stream) {
                        return Ok(());
                    }
                    if answer.kind == AnswerKind::Complete {
                        self.forget(stream);
                    }
                    hand(&mut answer.message, stream, out)
                }
            },
            AnswerKind::Notice => {
                if let Some(wait) = self.waits.get_mut(&stream).filter(|wait| !wait.noticed) {
                    wait.noticed = true;
                    self.noticed += 1;
                }
                hand(&mut answer.message, stream, out)
            }
            AnswerKind::Reply => hand(&mut answer.message, stream, out),
            AnswerKind::Refused => {
                if !self.waits.contains_key(&stream) {
                    return Ok(());
                }
                self.closed(stream);
                self.over.insert(stream, false);
                hand(&mut answer.message, stream, out)
            }
        }
    }

    /// The source has an item for our stream.
    fn opened(&mut self, answer: &Answer, place: Option<(usize, u64)>) -> Result<()> {
        let (stream, item) = (answer.stream, answer.item);
        if !(1..=ITEMS_MAX).contains(&item) {
            return Err(Broken::Nonsense { what: "the stream id of an item" });
        }
        if !self.waits.contains_key(&stream) {
            return Ok(());
        }
        let ended = match place {
            Some((at, read)) => self.ended(at, item, answer.as_of, read)?,
            None => None,
        };
        let Some(wait) = self.waits.get_mut(&stream) else { return Ok(()) };
        if wait.gone.is_some() || ended.is_some() {
            wait.gone = wait.gone.take().or(ended);
            return Ok(());
        }
        if self.slots.len() <= item as usize {
            self.slots.resize(item as usize + 1, Slot::default());
        }
        if let Some(old) = self.items.insert(stream, item).filter(|old| *old != item) {
            self.unmap(old, stream);
        }
        if let Some(slot) = self.slot(item).filter(|slot| slot.stream != stream) {
            *slot = Slot { stream, live: false };
        }
        Ok(())
    }

    /// Whether the item ended between two entries that were read already, and what was said then.
    fn ended(&self, at: usize, item: i32, after: u64, upto: u64) -> Result<Option<Vec<u8>>> {
        let Some(feed) = self.feeds.get(at) else { return Ok(None) };
        let Some(entries) = feed.history.of(item, after, upto) else {
            // Should it have ended we would wait for ever.
            return Err(Broken::Gap { feed: feed.id, from: after + 1, to: upto });
        };
        Ok(entries.into_iter().find_map(|(_, entry)| match entry {
            Entry::Gone { message, .. } => Some(message.to_vec()),
            _ => None,
        }))
    }

    /// A part of an image for a stream with an item.
    fn image(&mut self, mut answer: Answer, at: usize, read: u64, out: &mut impl FnMut(&[u8])) -> Result<()> {
        let (stream, item) = (answer.stream, answer.item);
        let complete = answer.kind == AnswerKind::Complete;
        let slot = self.slot(item).copied().unwrap_or_default();
        if slot.stream != stream {
            let gone = self.waits.get_mut(&stream).and_then(|wait| wait.gone.take());
            let Some(mut message) = gone else { return Ok(()) };
            self.forget(stream);
            self.over.insert(stream, false);
            return if message.is_empty() { Ok(()) } else { hand(&mut message, stream, out) };
        }
        if slot.live {
            // The streams behind ours are ahead of it if something of the item has come since.
            let since = self.feeds.get(at).and_then(|feed| feed.history.of(item, answer.as_of, read));
            if since.is_none_or(|since| !since.is_empty()) {
                self.ask_again(stream);
                return Ok(());
            }
            if complete {
                self.forget(stream);
            }
            return hand(&mut answer.message, stream, out);
        }
        let Some(wait) = self.waits.get_mut(&stream) else { return Ok(()) };
        self.waiting_bytes += answer.message.len();
        wait.parts.push((answer.as_of, answer.message));
        if self.waiting_bytes > WAITING_MAX {
            return Err(Broken::TooMuch { what: "parts of images", max: WAITING_MAX });
        }
        if complete { self.begin(stream, item, at, read, out) } else { Ok(()) }
    }

    /// All parts of the first image are there: they go out, and between and after them what the feed has brought meanwhile.
    fn begin(
        &mut self,
        stream: i32,
        item: i32,
        at: usize,
        read: u64,
        out: &mut impl FnMut(&[u8]),
    ) -> Result<()> {
        let Some(wait) = self.waits.get_mut(&stream) else { return Ok(()) };
        let mut parts = std::mem::take(&mut wait.parts);
        self.waiting_bytes -= parts.iter().map(|(_, part)| part.len()).sum::<usize>();
        let after = parts.first().map_or(read, |(as_of, _)| *as_of);
        // What is at which place after the first part.
        let since = self.feeds.get(at).and_then(|feed| feed.history.of(item, after, read));
        let Some(since) = since else {
            self.ask_again(stream);
            return Ok(());
        };
        let since = since.into_iter().filter_map(|(number, entry)| match entry {
            Entry::Message(message) => Some((number, message.to_vec())),
            _ => None,
        });
        let since: Vec<(u64, Vec<u8>)> = since.collect();
        self.forget(stream);
        if let Some(slot) = self.slot(item) {
            slot.live = true;
        }
        let mut since = since.into_iter().peekable();
        for (as_of, part) in &mut parts {
            while let Some((_, mut message)) = since.next_if(|(number, _)| number <= as_of) {
                hand(&mut message, stream, out)?;
            }
            hand(part, stream, out)?;
        }
        for (_, mut message) in since {
            hand(&mut message, stream, out)?;
        }
        Ok(())
    }

    fn ask_again(&mut self, stream: i32) {
        if let Some(wait) = self.waits.get_mut(&stream) {
            self.again.push(wait.request.clone());
        }
    }
}
