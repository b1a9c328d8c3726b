//! The reader's half of flow control: counts the bytes that were read, and decides when a credit is due.

use std::time::{Duration, Instant};

use super::wire::Header;
use super::{Address, FeedId};

/// Maximum number of unread bytes under way to one sink, however large its window. The rest of the window is for
/// packets that the sink has read ahead. A lane's ring has 1 MiB, but the space at its end is unused if the next
/// message does not fit there.
pub const UNREAD: u64 = 512 << 10;

/// The part of a window that is for unread bytes.
#[must_use]
pub fn unread(window: u64) -> u64 {
    window.min(UNREAD)
}

/// Longest delay of a credit.
const CREDIT_DELAY: Duration = Duration::from_millis(250);

/// A reader's position in one feed.
#[derive(Debug)]
struct Position {
    source: Address,
    feed: FeedId,
    position: u64,
    credited: u64,
    /// Time at which the last credit was sent.
    since: Instant,
}

/// A reader's positions in its feeds.
#[derive(Debug)]
pub struct Meter {
    feeds: Vec<Position>,
    /// Bytes after which a credit is due.
    credit_every: u64,
}

impl Default for Meter {
    fn default() -> Self {
        Self { feeds: Vec::new(), credit_every: UNREAD / 4 }
    }
}

impl Meter {
    /// Sets the window of the sources, bytes: a credit is due after a quarter of its unread part.
    pub fn set_window(&mut self, window: u64) {
        self.credit_every = unread(window) / 4;
    }

    /// Counts a packet that was read and used; returns the credit that is due.
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
            let credited = header.position;
            self.feeds.push(Position { source, feed: header.feed, position, credited, since: now });
            return None;
        };
        // Do not take the maximum: the position is lower after a feed was left and joined again.
        read.position = position;
        let due =
            position.saturating_sub(read.credited) >= self.credit_every || now - read.since >= CREDIT_DELAY;
        due.then(|| read.credit(now))
    }

    /// The credits that are due because no more packets arrive. To be called after a wait of [`Meter::IDLE`].
    pub fn idle(&mut self, now: Instant) -> impl Iterator<Item = (Address, FeedId, u64)> + '_ {
        // Remove feeds that ended long ago.
        self.feeds.retain(|read| read.credited != read.position || now - read.since < 100 * CREDIT_DELAY);
        self.feeds.iter_mut().filter(|read| read.credited != read.position).map(move |read| read.credit(now))
    }

    /// Time that a reader waits for a packet before it calls [`Meter::idle`].
    pub const IDLE: Duration = CREDIT_DELAY;
}

impl Position {
    fn credit(&mut self, now: Instant) -> (Address, FeedId, u64) {
        (self.credited, self.since) = (self.position, now);
        (self.source, self.feed, self.position)
    }
}
