//! The sink's half of the feeds of one source: merges images and feeds into one order, and finds gaps.
//!
//! The entries of a feed are numbered; an answer on the connection names the last entry before it. Answers ahead of the
//! feed wait for it. An image that the feed has passed is followed by the item's later entries, from a bounded history.
//! So the sink's hub sees each item's messages in the order of the source's hub.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use thiserror::Error;

mod answers;
mod history;
mod packets;

use self::history::History;
use super::FeedId;
use super::wire::{Answer, Header, WireError};

/// Default limit of past packets of one source kept while images are awaited, bytes.
pub(super) const HISTORY: usize = 32 << 20;
/// The limit while the source has reported a delay of all awaited images, such as those of unpublished items, bytes.
const HISTORY_DELAYED: usize = 2 << 20;
/// Entries that are known to be sent are lost if they have not arrived after this time.
const STALL: Duration = Duration::from_secs(2);
/// Longest time between two checks that counts as such time. After a longer one this process has been stopped, and the
/// entries may wait unread.
const CHECK_GAP: Duration = Duration::from_millis(500);

/// Reason why the feeds of a source have to be joined again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum MergeError {
    #[error("entries {from} to {to} of {feed} were lost")]
    Gap { feed: FeedId, from: u64, to: u64 },
    #[error("entries of {feed} after {read} did not arrive")]
    Stalled { feed: FeedId, read: u64 },
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("this sink is too slow")]
    Cut,
    #[error("{what} is invalid")]
    Invalid { what: &'static str },
    #[error("more than {max} bytes of {what} wait")]
    TooMuch { what: &'static str, max: usize },
}

type Result<T> = std::result::Result<T, MergeError>;

/// The stream on an item of the source. 8 bytes: the table has an entry for each of the source's items.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The sink's stream; 0: none.
    stream: i32,
    /// Whether the stream has its image and gets the feed's messages.
    live: bool,
    /// Images that have been requested for the stream and have not arrived. It may be too high, when one was not
    /// answered by an image.
    asked: u16,
}

impl Slot {
    /// Whether an image may come that is older than the feed's messages for the item.
    #[inline]
    fn awaits_image(self) -> bool {
        !self.live || self.asked > 0
    }
}

/// A stream that waits for an image.
#[derive(Debug)]
struct PendingImage {
    /// The request, in case it has to be repeated.
    request: Vec<u8>,
    /// The item has ended before the image: its final message.
    final_message: Option<Vec<u8>>,
    /// Whether the item had ended at the last sweep.
    ended_at_sweep: bool,
    /// Whether the source has reported that the image may take long.
    delayed: bool,
    /// Whether a part of the image has arrived: the source then counts the stream as live.
    has_begun: bool,
    /// Parts of the image, each with the number of the last entry before it.
    parts: Vec<(u64, Vec<u8>)>,
    /// Number of requests since the stream was opened, or had its last image.
    requests: u16,
    /// The history lacks the item's entries up to this one, because another stream of the sink had its image already.
    /// An older image is useless.
    unrecorded: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// The source has not reported the number of the feed's first entry yet.
    Joining,
    Active,
}

#[derive(Debug)]
struct Feed {
    id: FeedId,
    phase: Phase,
    /// Number of the last entry read.
    read: u64,
    /// The highest number that is known to be sent.
    newest: u64,
    /// The last entry read, and the time since which no other was read although newer ones are known to be
    /// sent.
    stalled: Option<(u64, Instant)>,
    /// Packets that have arrived while joining.
    held: VecDeque<Vec<u8>>,
    history: History,
    /// Answers ahead of the feed.
    ahead: VecDeque<Answer>,
    /// The parts of a long entry so far.
    part: Vec<u8>,
    /// Packets that have overtaken earlier ones, by their first entry and the offset of their part.
    early: BTreeMap<(u64, u32), Vec<u8>>,
}

/// All feeds of one source.
#[derive(Debug)]
pub(crate) struct Merge {
    /// The sink's number at the source.
    pub(crate) sink: u32,
    feeds: Vec<Feed>,
    /// By the source's stream id of the item.
    slots: Vec<Slot>,
    /// Items by the sink's stream.
    items: HashMap<i32, i32>,
    /// Pending images by the sink's stream.
    pending: HashMap<i32, PendingImage>,
    /// Number of pending images that are delayed.
    delayed: usize,
    /// The sink's streams that the source has ended, and whether they had ended at the last sweep.
    ended: HashMap<i32, bool>,
    /// Maximum number of bytes of past packets.
    history_max: usize,
    waiting_bytes: usize,
    held_bytes: usize,
    /// Requests to repeat, with the image in the feed.
    retries: Vec<Vec<u8>>,
    swept: Option<Instant>,
    /// Time of the last [`Merge::check`].
    checked: Option<Instant>,
}

/// Passes a message to `out` with the sink's stream id, and restores its bytes.
#[inline]
fn deliver(bytes: &mut [u8], stream: i32, out: &mut impl FnMut(&[u8])) -> Result<()> {
    let Some(place) = bytes.get_mut(4..8) else {
        return Err(MergeError::Invalid { what: "a message without a stream id" });
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
    /// Starts without feeds; `sink` is the sink's number at the source, `history_max` the limit of past packets in
    /// bytes.
    pub(crate) fn new(sink: u32, history_max: usize) -> Self {
        Self {
            sink,
            feeds: Vec::new(),
            slots: Vec::new(),
            items: HashMap::new(),
            pending: HashMap::new(),
            ended: HashMap::new(),
            history_max,
            waiting_bytes: 0,
            held_bytes: 0,
            retries: Vec::new(),
            delayed: 0,
            swept: None,
            checked: None,
        }
    }

    /// Starts to join a feed: holds its packets until [`Merge::joined`].
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
            early: BTreeMap::new(),
        });
    }

    /// Removes a feed. The items of its service have ended or are closed.
    pub(crate) fn leave(&mut self, id: FeedId) {
        let Some(at) = self.feeds.iter().position(|feed| feed.id == id) else { return };
        let feed = self.feeds.swap_remove(at);
        self.held_bytes -= feed.held.iter().chain(feed.early.values()).map(Vec::len).sum::<usize>();
        self.waiting_bytes -= feed.ahead.iter().map(|answer| answer.message.len()).sum::<usize>();
    }

    /// The feeds, and whether each is joined or still joining.
    pub(crate) fn feeds(&self) -> impl Iterator<Item = (FeedId, bool)> + '_ {
        self.feeds.iter().map(|feed| (feed.id, feed.phase == Phase::Active))
    }

    /// Completes a join: the feed continues after entry `number`.
    pub(crate) fn joined(&mut self, id: FeedId, number: u64, out: &mut impl FnMut(&[u8])) -> Result<()> {
        let Some(at) = self.feeds.iter().position(|feed| feed.id == id) else { return Ok(()) };
        let Some(feed) = self.feeds.get_mut(at) else { return Ok(()) };
        (feed.phase, feed.read, feed.newest) = (Phase::Active, number, number);
        let held = std::mem::take(&mut feed.held);
        self.held_bytes -= held.iter().map(Vec::len).sum::<usize>();
        for mut packet in held {
            let header = Header::decode(&packet)?;
            self.packet(&header, &mut packet, out)?;
        }
        Ok(())
    }

    /// Whether the stream was requested and has not ended: another request on it is for another image.
    pub(crate) fn is_open(&self, stream: i32) -> bool {
        self.items.contains_key(&stream)
            || self.pending.get(&stream).is_some_and(|pending| pending.final_message.is_none())
    }

    /// Whether the source has recently ended the stream. A request on it was then made before the end arrived,
    /// because the hub does not reuse a stream id for 10 s.
    pub(crate) fn has_ended(&self, stream: i32) -> bool {
        self.ended.contains_key(&stream)
    }

    /// Records that the request `message` is sent on `stream`.
    pub(crate) fn requested(&mut self, stream: i32, message: &[u8]) {
        let request = message.to_vec();
        self.asked_again(stream);
        let open = self.pending.get_mut(&stream).filter(|pending| pending.final_message.is_none());
        if let Some(pending) = open {
            pending.request = request;
            pending.requests = pending.requests.saturating_add(1);
            self.delayed -= usize::from(std::mem::take(&mut pending.delayed));
            return;
        }
        self.remove_pending(stream);
        let pending = PendingImage {
            request,
            final_message: None,
            ended_at_sweep: false,
            delayed: false,
            has_begun: false,
            parts: Vec::new(),
            requests: 1,
            unrecorded: 0,
        };
        self.pending.insert(stream, pending);
    }

    /// Records that the sink has closed `stream`.
    pub(crate) fn closed(&mut self, stream: i32) {
        self.remove_pending(stream);
        if let Some(item) = self.items.remove(&stream) {
            self.unmap(item, stream);
        }
    }

    fn remove_pending(&mut self, stream: i32) {
        if let Some(pending) = self.pending.remove(&stream) {
            self.delayed -= usize::from(pending.delayed);
            self.waiting_bytes -= pending.parts.iter().map(|(_, part)| part.len()).sum::<usize>();
        }
    }

    /// The slot of the item that a stream is on.
    fn slot_of(&mut self, stream: i32) -> Option<&mut Slot> {
        let item = self.items.get(&stream).copied()?;
        self.slot(item).filter(|slot| slot.stream == stream)
    }

    /// Counts a request for an image of a stream that is open.
    fn asked_again(&mut self, stream: i32) {
        if let Some(slot) = self.slot_of(stream) {
            slot.asked = slot.asked.saturating_add(1);
        }
    }

    /// Counts a complete image for a stream.
    fn image_came(&mut self, stream: i32) {
        if let Some(slot) = self.slot_of(stream) {
            slot.asked = slot.asked.saturating_sub(1);
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

    /// Takes the requests whose images could not be merged. They have to be repeated, with the image in the
    /// feed.
    pub(crate) fn take_retries(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.retries)
    }

    /// Records that the source has sent entry `number` of a feed.
    pub(crate) fn newest(&mut self, id: FeedId, number: u64) {
        if let Some(feed) = self.feeds.iter_mut().find(|feed| feed.id == id && feed.phase == Phase::Active) {
            feed.newest = feed.newest.max(number);
        }
    }

    /// Checks for entries that are known to be sent and do not arrive. To be called repeatedly.
    pub(crate) fn check(&mut self, now: Instant) -> Result<()> {
        self.sweep(now);
        let stopped = self.checked.replace(now).is_some_and(|checked| now - checked > CHECK_GAP);
        for feed in &mut self.feeds {
            if stopped {
                feed.stalled = None;
            }
            let behind = feed.phase == Phase::Active && feed.newest > feed.read;
            match feed.stalled.filter(|(read, _)| behind && *read == feed.read) {
                Some((read, since)) if now - since > STALL => {
                    return Err(MergeError::Stalled { feed: feed.id, read });
                }
                Some(_) => {}
                None => feed.stalled = behind.then_some((feed.read, now)),
            }
        }
        Ok(())
    }

    /// Removes streams that had ended at the last sweep. There is at most one sweep per [`STALL`].
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_some_and(|swept| now - swept <= STALL) {
            return;
        }
        self.swept = Some(now);
        // No part of an image has come since, so the answer to the request was a notice.
        let delayed = &mut self.delayed;
        self.pending.retain(|_, pending| {
            let retained =
                pending.final_message.is_none() || !std::mem::replace(&mut pending.ended_at_sweep, true);
            *delayed -= usize::from(!retained && pending.delayed);
            retained
        });
        self.ended.retain(|_, ended_at_sweep| !std::mem::replace(ended_at_sweep, true));
    }
}

#[cfg(test)]
mod tests;
