//! Between source distributors and point-to-point servers: feeds by multicast, requests and images from end to end.
//!
//! The traits here are roles, not TIPC: what a backbone has to provide is in `docs/decisions/0014-backbone.md`. Above them
//! stand the adapters to the hub, written once for every backbone: [`source_side`] and [`sink_side`].
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod feeds;
pub mod memory;
pub mod sink_side;
pub mod source_side;
pub mod tipc;
pub mod wire;

mod feed_out;

mod merge;
pub mod meter;
mod reconnecting;

use std::fmt;
use std::os::fd::AsFd;
use std::time::Duration;

use thiserror::Error;

/// One life of one source distributor: random, new at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u32);

/// One link of a sink to a source end, as that end numbers them. Never used again by the same end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SinkId(pub u32);

/// One feed of one source end; no other feed on the backbone has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FeedId(pub u32);

/// Where a sink reads its feeds, in the terms of the backbone; opaque elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u64);

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "source {:08x}", self.0)
    }
}

impl fmt::Display for SinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sink {}", self.0)
    }
}

impl fmt::Display for FeedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "feed {:08x}", self.0)
    }
}

/// Why a call on the backbone failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The carrier of the backbone refuses.
    #[error("the backbone cannot {what}: {why}")]
    Carrier {
        /// What was to be done.
        what: &'static str,
        /// What the carrier says.
        why: String,
    },
    /// A packet for a feed is longer than the backbone carries.
    #[error(
        "a packet of {len} bytes is longer than the {max} bytes that the backbone carries (send it in parts)"
    )]
    TooLong {
        /// Bytes of the packet.
        len: usize,
        /// Bytes that are possible.
        max: usize,
    },
}

/// Result of a call on the backbone.
pub type Result<T> = std::result::Result<T, Error>;

/// How a link ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Ended {
    /// The other end closed it, and had read everything.
    #[error("the other end has closed the link")]
    Closed,
    /// The other end left too much unread.
    #[error("more than {0} bytes wait for it")]
    Unread(usize),
    /// It broke, or the other end died: why.
    #[error("{0}")]
    Broke(String),
}

/// What a source end sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// A sink has a link to this end.
    Joined(SinkId),
    /// Its link is gone, and why.
    Left(SinkId, Ended),
    /// A record of it; in the order in which it sent them.
    Record(SinkId, Vec<u8>),
    /// Whoever reads feeds at this address gets every packet of this feed that is multicast from now on.
    Listens(Address, FeedId),
    /// It does not any more.
    Deaf(Address, FeedId),
}

/// How far a reader has got in a feed. A newer word replaces an older one, so they may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Who reads.
    pub reader: Address,
    /// What.
    pub feed: FeedId,
    /// Bytes of packets since the feed began.
    pub position: u64,
}

/// The source distributor's end. Only [`SourceEnd::multicast`] and [`SourceEnd::credits`] may wait.
///
/// Its descriptor is readable while [`SourceEnd::poll`] has something to do.
pub trait SourceEnd: AsFd + Send {
    /// Its name on the backbone.
    fn id(&self) -> SourceId;

    /// Opens a feed.
    ///
    /// # Errors
    /// [`Error::Carrier`]; so for all calls.
    fn open_feed(&mut self) -> Result<FeedId>;

    /// Sends one packet, at most [`wire::MAX_PACKET`] bytes, to all who listen to the feed. Packets of one end arrive in order
    /// at each reader; a reader that does not keep up may miss some, and sees that by their numbers.
    ///
    /// # Errors
    /// [`Error::TooLong`].
    fn multicast(&mut self, feed: FeedId, packet: &[u8]) -> Result<()>;

    /// Queues a record, of at most [`wire::MAX_RECORD`] bytes, for one sink. If the sink leaves too much unread its link is cut.
    fn send(&mut self, sink: SinkId, record: &[u8]);

    /// Sends what is queued, as far as it can be taken now; the rest goes by [`SourceEnd::poll`].
    fn flush(&mut self);

    /// Bytes that wait for this sink.
    fn queued(&self, sink: SinkId) -> usize;

    /// What has happened, without waiting.
    ///
    /// # Errors
    /// The end is over: the program has to open another.
    fn poll(&mut self, events: &mut Vec<SourceEvent>) -> Result<()>;

    /// The newest words of readers; waits for one at most `wait`.
    ///
    /// # Errors
    /// As [`SourceEnd::poll`].
    fn credits(&mut self, wait: Duration, credits: &mut Vec<Credit>) -> Result<()>;

    /// Ends the link to a sink; no event follows.
    fn hang_up(&mut self, sink: SinkId);
}

/// What a sink end sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkEvent {
    /// There is a link to this source.
    SourceUp(SourceId),
    /// It is gone, and why. If the source still lives, the end makes another by itself.
    SourceDown(SourceId, String),
    /// A record of it; in the order in which it sent them.
    Record(SourceId, Vec<u8>),
}

/// The point-to-point server's end: everything but the feeds, which have a reader of their own. No call waits.
///
/// Its descriptor is readable while [`SinkEnd::poll`] has something to do; it wants a call at least every
/// [`POLL_EVERY`] besides.
pub trait SinkEnd: AsFd + Send {
    /// Where the reader of this end reads.
    fn address(&self) -> Address;

    /// Lets packets of a feed come to the reader.
    ///
    /// # Errors
    /// [`Error::Carrier`]; so for all calls.
    fn listen(&mut self, feed: FeedId) -> Result<()>;

    /// Lets them come no more; those under way still do.
    fn ignore(&mut self, feed: FeedId);

    /// Queues a record, of at most [`wire::MAX_RECORD`] bytes, for a source.
    fn send(&mut self, source: SourceId, record: &[u8]);

    /// Sends what is queued, as far as it can be taken now.
    fn flush(&mut self);

    /// What has happened, without waiting.
    ///
    /// # Errors
    /// The end is over: the program has to open another.
    fn poll(&mut self, events: &mut Vec<SinkEvent>) -> Result<()>;

    /// Ends the link to a source; no event follows, and another is made if the source still lives.
    fn hang_up(&mut self, source: SourceId);

    /// The reader of the feeds, for a thread of its own; the first call gives it away.
    fn reader(&mut self) -> Option<Box<dyn FeedReader>>;
}

/// The longest time between two calls of [`SinkEnd::poll`].
pub const POLL_EVERY: Duration = Duration::from_millis(100);

/// Reads the feeds of all sources.
pub trait FeedReader: Send {
    /// Takes the next packet into `buffer`, which has room for [`wire::MAX_PACKET`] bytes; waits at most `wait`. Where it came
    /// from and its bytes, or `None` if none came in time.
    ///
    /// # Errors
    /// The end is over.
    fn receive(&mut self, wait: Duration, buffer: &mut [u8]) -> Result<Option<(Address, usize)>>;

    /// Tells a source how far this reader has got; may be lost.
    fn credit(&mut self, to: Address, feed: FeedId, position: u64);
}
