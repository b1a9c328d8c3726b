//! The sink's half of the feeds of one source: image and feed in one order, gaps found.
//!
//! The entries of a feed are numbered; what comes by the link says after which entry it was made. What is ahead of the feed
//! waits for it; an image that the feed has passed is followed by the item's entries that it does not know yet, from a
//! bounded history. So the hub of the sink sees each item's messages in the order of the hub of the source.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use thiserror::Error;

mod answers;
mod history;
mod packets;

use self::history::History;
use super::FeedId;
use super::wire::{Answer, Header, WireError};

/// Bytes of past packets of one source kept while images are awaited, unless configured.
pub(super) const HISTORY: usize = 32 << 20;
/// The same while the source has said of all of them that they may take long, such as for items that nobody has published.
const HISTORY_LONG: usize = 2 << 20;
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
