//! The reader's half of flow control: how far it has got, told to the sources often enough and not too often.

use std::time::{Duration, Instant};

use super::wire::Header;
use super::{Address, FeedId};

/// Unread bytes that a source may have under way to one sink, however large its window: the rest of that is for what the
/// sink has read ahead. Over lanes one ring has 1 MiB, and a part of it is lost to messages that do not fit its end.
pub const UNREAD: u64 = 512 << 10;

/// The part of a window that is for unread bytes.
#[must_use]
pub fn unread(window: u64) -> u64 {
    window.min(UNREAD)
}

/// And, if it has read less, after so long.
const TELL_AFTER: Duration = Duration::from_millis(250);

/// What a reader has read of one feed.
#[derive(Debug)]
struct Read {
    source: Address,
    feed: FeedId,
    position: u64,
    told: u64,
    since: Instant,
}

/// What one reader has read.
#[derive(Debug)]
pub struct Meter {
    feeds: Vec<Read>,
    tell_every: u64,
}

impl Default for Meter {
    fn default() -> Self {
        Self { feeds: Vec::new(), tell_every: UNREAD / 4 }
    }
}

impl Meter {
    /// The window of the sources: a quarter of what may be unread is told at once.
    pub fn set_window(&mut self, window: u64) {
        self.tell_every = unread(window) / 4;
    }

    /// Counts a packet that was read and used; the credit that is due now.
    pub fn read(
        &mut self,
        source: Address,
        header: &Header,
        len: usize,
        now: Instant,
    ) -> Option<(Address, FeedId, u64)> {
        let position = header.position + len as u64;
        let found = self.feeds.iter_mut().find(|read| read.feed == header.feed && read.source == source);
        let Some(read) = found else {
            let told = header.position;
            self.feeds.push(Read { source, feed: header.feed, position, told, since: now });
            return None;
        };
        // A feed that was left and joined again goes on further behind.
        read.position = position;
        let due = position.saturating_sub(read.told) >= self.tell_every || now - read.since >= TELL_AFTER;
        due.then(|| read.tell(now))
    }

    /// The credits that are due because nothing comes any more; to be asked when the reader has waited for so long.
    pub fn idle(&mut self, now: Instant) -> impl Iterator<Item = (Address, FeedId, u64)> + '_ {
        // Feeds that ended long ago are forgotten.
        self.feeds.retain(|read| read.told != read.position || now - read.since < 100 * TELL_AFTER);
        self.feeds.iter_mut().filter(|read| read.told != read.position).map(move |read| read.tell(now))
    }

    /// How long a reader waits for a packet before it asks [`Meter::idle`].
    pub const IDLE: Duration = TELL_AFTER;
}

impl Read {
    fn tell(&mut self, now: Instant) -> (Address, FeedId, u64) {
        (self.told, self.since) = (self.position, now);
        (self.source, self.feed, self.position)
    }
}
