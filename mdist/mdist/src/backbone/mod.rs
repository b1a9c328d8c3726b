//! The path between source distributors and point-to-point servers: feeds by multicast, requests and images on
//! connections.
//!
//! Every carrier of a backbone has to implement the traits here; `docs/decisions/0014-backbone.md` maps them to TIPC
//! and others. The adapters between them and the hub, [`source_side`] and [`sink_side`], work on every backbone.
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
mod senders;

use std::fmt;
use std::os::fd::AsFd;
use std::time::Duration;

use thiserror::Error;

/// Id of a source end. It is random, and new at each start of a source distributor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u32);

/// Number of a connection from a sink, at a source end. The end does not reuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SinkId(pub u32);

/// Id of a feed; unique on the backbone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FeedId(pub u32);

/// The address at which a sink reads its feeds; its meaning is up to the backbone.
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

/// The carrier of a backbone: a network with its options, or memory. A program opens its endpoints on it, the first one
/// at its start, another one after a loss.
pub trait Carrier: fmt::Debug + Send + Sync {
    /// Opens a source distributor's endpoint.
    ///
    /// # Errors
    /// The carrier refuses it.
    fn open_source(&self) -> anyhow::Result<Opening<dyn SourceEnd>>;

    /// Opens a point-to-point server's endpoint.
    ///
    /// # Errors
    /// The carrier refuses it.
    fn open_sink(&self) -> anyhow::Result<Opening<dyn SinkEnd>>;

    /// What the administrator can do while no endpoint can be opened.
    fn remedy(&self) -> &'static str;
}

/// The outcome of opening an endpoint.
pub enum Opening<E: ?Sized> {
    /// The endpoint.
    Opened(Box<E>),
    /// The carrier does not run now, and may start later. The text tells how that shows.
    Absent(&'static str),
}

/// Reason why a call on the backbone failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The carrier of the backbone has failed, or refuses the operation.
    #[error("the backbone cannot {what}: {why}")]
    Carrier {
        /// The operation.
        what: &'static str,
        /// The carrier's error.
        why: String,
    },
    /// A packet is longer than the backbone carries.
    #[error(
        "a packet of {len} bytes is longer than the {max} bytes that the backbone carries (send it in parts)"
    )]
    TooLong {
        /// Length of the packet, bytes.
        len: usize,
        /// Longest packet, bytes.
        max: usize,
    },
}

/// Result of a call on the backbone.
pub type Result<T> = std::result::Result<T, Error>;

/// The end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Ended {
    /// The peer closed it, and had read everything.
    #[error("the peer has closed the connection")]
    Closed,
    /// The peer left more than this many bytes unread.
    #[error("more than {0} bytes wait for it")]
    Unread(usize),
    /// It broke, or the peer died. The text is the reason.
    #[error("{0}")]
    Broke(String),
}

/// An event at a source end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// A sink has connected to this end.
    Joined(SinkId),
    /// Its connection has ended.
    Left(SinkId, Ended),
    /// A record from the sink; records arrive in the order in which they were sent.
    Record(SinkId, Vec<u8>),
    /// The reader at this address gets every packet of this feed that is multicast from now on.
    Listens(Address, FeedId),
    /// The reader at this address has stopped listening to this feed.
    StoppedListening(Address, FeedId),
}

/// A reader's position in a feed. A newer credit replaces an older one, so credits may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The reader.
    pub reader: Address,
    /// The feed.
    pub feed: FeedId,
    /// Bytes of packets since the beginning of the feed.
    pub position: u64,
}

/// The source distributor's endpoint. Only [`SourceEnd::multicast`], [`SourceEnd::unicast`] and [`SourceEnd::credits`]
/// may wait.
///
/// Its descriptor is readable while [`SourceEnd::poll`] has something to do.
pub trait SourceEnd: AsFd + Send {
    /// Its id on the backbone.
    fn id(&self) -> SourceId;

    /// The address from which it sends packets. Sinks drop packets of its feeds from other addresses.
    fn address(&self) -> Address;

    /// Opens a feed.
    ///
    /// # Errors
    /// [`Error::Carrier`]; this holds for all calls.
    fn open_feed(&mut self) -> Result<FeedId>;

    /// Sends one packet of at most [`wire::MAX_PACKET`] bytes to all listeners of the feed. Packets of one source end
    /// arrive in order at each reader; a slow reader may miss some, and finds the gap by their numbers.
    ///
    /// # Errors
    /// [`Error::TooLong`].
    fn multicast(&mut self, feed: FeedId, packet: &[u8]) -> Result<()>;

    /// Sends one packet of at most [`wire::MAX_PACKET`] bytes to one reader. While [`SourceEnd::keeps_order`] holds for
    /// its feed, it arrives in order with the multicasts.
    ///
    /// # Errors
    /// As [`SourceEnd::multicast`].
    fn unicast(&mut self, to: Address, packet: &[u8]) -> Result<()>;

    /// Whether unicasts and multicasts of this feed arrive in the order in which they were sent, at each of its
    /// listeners.
    fn keeps_order(&self, feed: FeedId) -> bool;

    /// Queues a record of at most [`wire::MAX_RECORD`] bytes for one sink. A sink that leaves too much unread is
    /// disconnected.
    fn send(&mut self, sink: SinkId, record: &[u8]);

    /// Sends queued records as far as possible without waiting; [`SourceEnd::poll`] sends the rest.
    fn flush(&mut self);

    /// Bytes queued for this sink.
    fn queued(&self, sink: SinkId) -> usize;

    /// Appends the events since the last call, without waiting.
    ///
    /// # Errors
    /// The endpoint is lost: the program has to open another.
    fn poll(&mut self, events: &mut Vec<SourceEvent>) -> Result<()>;

    /// Appends the readers' newest credits; waits at most `wait` for the first.
    ///
    /// # Errors
    /// As [`SourceEnd::poll`].
    fn credits(&mut self, wait: Duration, credits: &mut Vec<Credit>) -> Result<()>;

    /// Ends the connection to a sink; no event follows.
    fn disconnect(&mut self, sink: SinkId);
}

/// An event at a sink end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkEvent {
    /// This end has connected to the source.
    SourceUp(SourceId),
    /// The connection has ended, with the reason. If the source still runs, this end connects again by itself.
    SourceDown(SourceId, String),
    /// A record from the source; records arrive in the order in which they were sent.
    Record(SourceId, Vec<u8>),
}

/// The point-to-point server's endpoint, without the feeds, which have a [`FeedReader`]. No call waits.
///
/// Its descriptor is readable while [`SinkEnd::poll`] has something to do; in addition, it has to be polled at least
/// every [`POLL_EVERY`].
pub trait SinkEnd: AsFd + Send {
    /// The address of this end's reader.
    fn address(&self) -> Address;

    /// Makes packets of a feed arrive at the reader.
    ///
    /// # Errors
    /// [`Error::Carrier`]; this holds for all calls.
    fn listen(&mut self, feed: FeedId) -> Result<()>;

    /// Stops listening to a feed; packets under way still arrive.
    fn ignore(&mut self, feed: FeedId);

    /// Queues a record of at most [`wire::MAX_RECORD`] bytes for a source.
    fn send(&mut self, source: SourceId, record: &[u8]);

    /// Sends queued records as far as possible without waiting.
    fn flush(&mut self);

    /// Appends the events since the last call, without waiting.
    ///
    /// # Errors
    /// The endpoint is lost: the program has to open another.
    fn poll(&mut self, events: &mut Vec<SinkEvent>) -> Result<()>;

    /// Ends the connection to a source; no event follows, and this end connects again if the source still runs.
    fn disconnect(&mut self, source: SourceId);

    /// The reader of the feeds, for a thread of its own; `None` from the second call on.
    fn reader(&mut self) -> Option<Box<dyn FeedReader>>;
}

/// Longest interval between two calls of [`SinkEnd::poll`].
pub const POLL_EVERY: Duration = Duration::from_millis(100);

/// Reads the feeds of all sources.
pub trait FeedReader: Send {
    /// Reads the next packet into `buffer`, which has room for [`wire::MAX_PACKET`] bytes; waits at most `wait`.
    /// Returns the source's address and the length, or `None` if no packet came in time.
    ///
    /// # Errors
    /// The endpoint is lost.
    fn receive(&mut self, wait: Duration, buffer: &mut [u8]) -> Result<Option<(Address, usize)>>;

    /// Sends a source this reader's position in a feed. The message may be lost.
    fn credit(&mut self, to: Address, feed: FeedId, position: u64);
}
