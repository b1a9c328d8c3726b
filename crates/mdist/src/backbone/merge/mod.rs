//! The sink's half of the feeds of one source: image and feed in one order, gaps found.
//!
//! The entries of a feed are numbered; what comes by the link says after which entry it was made. What is ahead of the feed
//! waits for it; an image that the feed has passed is followed by the item's entries that it does not know yet, from a
//! bounded history. So the hub of the sink sees each item's messages in the order of the hub of the source.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use thiserror::Error;

mod history;

use self::history::History;
use super::FeedId;
use super::wire::{Answer, AnswerKind, Entry, HEADER, Header, MAX_RECORD, WireError};

/// Bytes of past packets of one source kept while images are awaited, unless configured.
pub(super) const HISTORY: usize = 32 << 20;
/// The same while the source has said of all of them that they may take long, such as for items that nobody has published.
const HISTORY_LONG: usize = 2 << 20;
/// Bytes of answers that wait for the feed, and of parts that wait for the last one.
const WAITING_MAX: usize = 128 << 20;
/// Bytes of packets kept before the source says where the feed begins.
const HELD_MAX: usize = 8 << 20;
/// Largest stream id of a source.
const ITEMS_MAX: i32 = 1 << 24;
/// What is known to have been sent arrives in this time, or is lost.
const STALL: Duration = Duration::from_secs(2);

/// Why the feeds of a source have to be begun anew.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Broken {
    #[error("entries {from} to {to} of {feed} were lost")]
    Gap { feed: FeedId, from: u64, to: u64 },
    #[error("entries of {feed} after {read} did not arrive")]
    Stalled { feed: FeedId, read: u64 },
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("this sink did not keep up")]
    Cut,
    #[error("{what} is not what it has to be")]
    Nonsense { what: &'static str },
    #[error("more than {max} bytes of {what} wait")]
    TooMuch { what: &'static str, max: usize },
}

type Result<T> = std::result::Result<T, Broken>;

/// What an item of the source is here. 8 bytes: the table is as long as the source has items.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Our stream; 0: none.
    stream: i32,
    /// It has had its image, and gets what the feed brings.
    live: bool,
}

/// A stream that waits for an image.
#[derive(Debug)]
struct Wait {
    /// The request, in case that it has to be made again.
    request: Vec<u8>,
    /// The item has ended before its image came, and what its live streams were told then.
    gone: Option<Vec<u8>>,
    /// It was so at the last check.
    old: bool,
    /// The source has said why it takes its time.
    noticed: bool,
    /// Parts of the image, and after which entries they were made.
    parts: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// The source has not said where it begins.
    Joining,
    On,
}

#[derive(Debug)]
struct Feed {
    id: FeedId,
    phase: Phase,
    /// Number of the last entry read.
    read: u64,
    /// The highest number that was told of.
    newest: u64,
    /// Since when `read` has not moved, if something is known to be ahead.
    stalled: Option<(u64, Instant)>,
    held: VecDeque<Vec<u8>>,
    history: History,
    ahead: VecDeque<Answer>,
    part: Vec<u8>,
}

/// All feeds of one source.
#[derive(Debug)]
pub(crate) struct Merge {
    /// Our number at the source.
    pub(crate) sink: u32,
    feeds: Vec<Feed>,
    slots: Vec<Slot>,
    /// Our streams that have an item.
    items: HashMap<i32, i32>,
    waits: HashMap<i32, Wait>,
    /// How many of them are noticed.
    noticed: usize,
    /// Our streams that the source has ended, and whether that was before the last sweep.
    over: HashMap<i32, bool>,
    /// The most bytes of past packets.
    history_max: usize,
    waiting_bytes: usize,
    held_bytes: usize,
    again: Vec<Vec<u8>>,
    swept: Option<Instant>,
}

/// Hands a message on under our stream id, and leaves the bytes as they were.
#[inline]
fn hand(bytes: &mut [u8], stream: i32, out: &mut impl FnMut(&[u8])) -> Result<()> {
    let Some(place) = bytes.get_mut(4..8) else {
        return Err(Broken::Nonsense { what: "a message without a stream id" });
    };
    let mut saved = stream.to_be_bytes();
    place.swap_with_slice(&mut saved);
    out(bytes);
    if let Some(place) = bytes.get_mut(4..8) {
        place.copy_from_slice(&saved);
    }
    Ok(())
}

/// The source's stream id in a message.
#[inline]
fn stream_of(message: &[u8]) -> i32 {
    message.get(4..8).and_then(|id| id.first_chunk()).map_or(0, |id| i32::from_be_bytes(*id))
}

impl Merge {
    /// No feeds yet; `sink` is our number at the source, `history_max` the bytes of past packets that are kept.
    pub(crate) fn new(sink: u32, history_max: usize) -> Self {
        Self {
            sink,
            feeds: Vec::new(),
            slots: Vec::new(),
            items: HashMap::new(),
            waits: HashMap::new(),
            over: HashMap::new(),
            history_max,
            waiting_bytes: 0,
            held_bytes: 0,
            again: Vec::new(),
            noticed: 0,
            swept: None,
        }
    }

    /// A feed that is being joined: its packets are kept until [`Merge::joined`].
    pub(crate) fn join(&mut self, id: FeedId) {
        self.leave(id);
        self.feeds.push(Feed {
            id,
            phase: Phase::Joining,
            read: 0,
            newest: 0,
            stalled: None,
            held: VecDeque::new(),
            history: History::default(),
            ahead: VecDeque::new(),
            part: Vec::new(),
        });
    }

    /// Forgets a feed; the items of its service are gone or closed.
    pub(crate) fn leave(&mut self, id: FeedId) {
        let Some(at) = self.feeds.iter().position(|feed| feed.id == id) else { return };
        let feed = self.feeds.swap_remove(at);
        self.held_bytes -= feed.held.iter().map(Vec::len).sum::<usize>();
        self.waiting_bytes -= feed.ahead.iter().map(|answer| answer.message.len()).sum::<usize>();
    }

    /// The feeds that were joined or are being joined.
    pub(crate) fn feeds(&self) -> impl Iterator<Item = (FeedId, bool)> + '_ {
        self.feeds.iter().map(|feed| (feed.id, feed.phase == Phase::On))
    }

    /// The source has said where the feed begins for us.
    pub(crate) fn joined(&mut self, id: FeedId, number: u64, out: &mut impl FnMut(&[u8])) -> Result<()> {
        let Some(at) = self.feeds.iter().position(|feed| feed.id == id) else { return Ok(()) };
        let Some(feed) = self.feeds.get_mut(at) else { return Ok(()) };
        (feed.phase, feed.read, feed.newest) = (Phase::On, number, number);
        let held = std::mem::take(&mut feed.held);
        self.held_bytes -= held.iter().map(Vec::len).sum::<usize>();
        for mut packet in held {
            let header = Header::decode(&packet)?;
            self.packet(&header, &mut packet, out)?;
        }
        Ok(())
    }

    /// Whether the stream was asked for and has not ended: a request on it wants the image anew.
    pub(crate) fn is_open(&self, stream: i32) -> bool {
        self.items.contains_key(&stream) || self.waits.get(&stream).is_some_and(|wait| wait.gone.is_none())
    }

    /// Whether the source has just ended the stream: a request on it was made before the hub knew that. The hub does not
    /// use an id again for 10 s.
    pub(crate) fn is_over(&self, stream: i32) -> bool {
        self.over.contains_key(&stream)
    }

    /// A request was sent; `message` is it.
    pub(crate) fn asked(&mut self, stream: i32, message: &[u8]) {
        let request = message.to_vec();
        if let Some(wait) = self.waits.get_mut(&stream).filter(|wait| wait.gone.is_none()) {
            wait.request = request;
            self.noticed -= usize::from(std::mem::take(&mut wait.noticed));
            return;
        }
        self.forget(stream);
        self.waits
            .insert(stream, Wait { request, gone: None, old: false, noticed: false, parts: Vec::new() });
    }

    /// The stream was closed from here.
    pub(crate) fn closed(&mut self, stream: i32) {
        self.forget(stream);
        if let Some(item) = self.items.remove(&stream) {
            self.unmap(item, stream);
        }
    }

    fn forget(&mut self, stream: i32) {
        if let Some(wait) = self.waits.remove(&stream) {
            self.noticed -= usize::from(wait.noticed);
            self.waiting_bytes -= wait.parts.iter().map(|(_, part)| part.len()).sum::<usize>();
        }
    }

    fn slot(&mut self, item: i32) -> Option<&mut Slot> {
        usize::try_from(item).ok().and_then(|at| self.slots.get_mut(at))
    }

    fn unmap(&mut self, item: i32, stream: i32) {
        if let Some(slot) = self.slot(item).filter(|slot| slot.stream == stream) {
            *slot = Slot::default();
        }
    }

    /// Requests whose images could not be put in order: to be made again, with the image in the feed.
    pub(crate) fn take_again(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.again)
    }

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

    fn history_bytes(&self) -> usize {
        self.feeds.iter().map(|feed| feed.history.bytes()).sum()
    }

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
    fn settle(&mut self, at: usize, upto: u64, within: bool, out: &mut impl FnMut(&[u8])) -> Result<()> {
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

    /// The source says how far the feed has got by now.
    pub(crate) fn newest(&mut self, id: FeedId, number: u64) {
        if let Some(feed) = self.feeds.iter_mut().find(|feed| feed.id == id && feed.phase == Phase::On) {
            feed.newest = feed.newest.max(number);
        }
    }

    /// Whether entries that are known to have been sent do not come; to be asked from time to time.
    pub(crate) fn check(&mut self, now: Instant) -> Result<()> {
        if self.swept.is_none_or(|swept| now - swept > STALL) {
            self.swept = Some(now);
            // Their requests were answered by a notice: no part of an image came in this time.
            let noticed = &mut self.noticed;
            self.waits.retain(|_, wait| {
                let kept = wait.gone.is_none() || !std::mem::replace(&mut wait.old, true);
                *noticed -= usize::from(!kept && wait.noticed);
                kept
            });
            self.over.retain(|_, old| !std::mem::replace(old, true));
        }
        for feed in &mut self.feeds {
            let behind = feed.phase == Phase::On && feed.newest > feed.read;
            match feed.stalled.filter(|(read, _)| behind && *read == feed.read) {
                Some((read, since)) if now - since > STALL => {
                    return Err(Broken::Stalled { feed: feed.id, read });
                }
                Some(_) => {}
                None => feed.stalled = behind.then_some((feed.read, now)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
