//! The source distributor's adapter: serves a side of its hub to all sinks of a backbone.
//!
//! A message for all streams of an item goes into the feed of the item's service once; a message for one stream goes
//! over the connection to its sink, with the number of the feed's last entry before it.

mod announce;
mod apply;
mod backlog;
mod catching_up;
mod feed_table;
mod latency;
mod membership;
mod multicast;
mod pacing;
mod reason;
mod receive;
mod requests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rssl::rdm::directory;

use self::announce::Announcing;
pub use self::catching_up::STALL;
use self::feed_table::FeedTable;
use self::pacing::Pace;
pub use self::reason::{Farewell, Reason};
use super::feed_out::FeedOut;
use super::reconnecting::Reconnecting;
use super::wire::{MAX_FEEDS, Record};
use super::{Address, Credit, Error, FeedId, Result, SinkId, SourceEnd, SourceEvent};
use crate::dictionaries::Half;
use crate::hub::{HubRequest, ItemId, SideId, Token};
use crate::metrics::components;

/// Default of [`Policy::window`], bytes.
pub const WINDOW: u64 = 8 << 20;
/// Default of [`Policy::hold`].
pub const HOLD: Duration = Duration::from_millis(200);
/// Silence after which a sink with unread bytes gets the newest numbers of its feeds.
const REMIND_AFTER: Duration = Duration::from_secs(1);
/// Longest part of a dictionary, unless a row is longer, bytes.
const DICTIONARY_PART: usize = 1 << 20;
/// Index of no feed.
const NONE: u16 = u16::MAX;

rssl::with_defaults! {
    /// Settings of a feed: its window, its packing, and its wait for slow sinks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Policy {
        /// Time that a feed waits for a sink with a full window before it disconnects the sink from its feeds.
        pub hold: Duration = HOLD,
        /// Bytes that may be under way to a sink, of the feed and of images: unread, or read and not yet used.
        pub window: u64 = WINDOW,
        /// Time that a packet which is not full waits for more entries; zero: until the end of the turn.
        pub flush: Duration = Duration::ZERO,
    }
}

/// A sink.
#[derive(Debug)]
struct Sink {
    name: String,
    reader: Option<Address>,
    epoch: u32,
    /// Feeds that it has asked to join, and joins when it listens to them.
    wanted: Vec<u16>,
    joined: Vec<Joined>,
    /// Bytes sent and not credited.
    in_flight: u64,
    /// Time at which its last credit arrived.
    credited_at: Instant,
    /// Time at which its last credit arrived, or since which it is behind.
    progressed: Instant,
    streams: HashMap<i32, Stream>,
    pace: Pace,
}

#[derive(Debug)]
struct Joined {
    feed: u16,
    /// Position of the sink's last credit.
    credited: u64,
    /// Position up to which the feed was sent to the sink.
    sent: u64,
    /// If the sink is behind: number of the next packet in the backlog.
    next: Option<u64>,
}

impl Sink {
    /// Its membership in a feed.
    fn joined(&self, feed: u16) -> Option<&Joined> {
        self.joined.iter().find(|joined| joined.feed == feed)
    }
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    item: ItemId,
    service: u16,
    private: bool,
}

/// The feed and the streams of each item, by item.
#[derive(Debug, Default)]
struct Items {
    /// The feed that carries the item, or [`NONE`].
    feed: Vec<u16>,
    holders: Vec<Holders>,
}

impl Items {
    /// The feed that carries an item, or [`NONE`].
    #[inline]
    fn feed(&self, item: ItemId) -> u16 {
        self.feed.get(item.index()).copied().unwrap_or(NONE)
    }

    /// Takes an item out of its feed.
    fn leave_feed(&mut self, item: ItemId) {
        if let Some(feed) = self.feed.get_mut(item.index()) {
            *feed = NONE;
        }
    }
}

/// The records that a sink gets when it connects.
#[derive(Debug, Default)]
struct Greeting {
    directory: Option<Vec<u8>>,
    /// The records of the dictionaries; none while only the built-in ones are known.
    dictionaries: Vec<Vec<u8>>,
}

/// Memory that is used again and again.
#[derive(Debug, Default)]
struct Memory {
    events: Vec<SourceEvent>,
    credits: Vec<Credit>,
    answer: Vec<u8>,
}

/// The streams on an item.
#[derive(Debug, Default)]
struct Holders {
    /// Number of the hub's `Opened` entries, to be returned at the close.
    holds: u32,
    streams: Vec<(SinkId, i32)>,
}

/// The adapter.
pub struct SourceSide {
    end: Reconnecting<dyn SourceEnd>,
    side: SideId,
    name: String,
    feeds: FeedTable,
    announcing: Announcing,
    items: Items,
    sinks: HashMap<SinkId, Sink>,
    listening: HashSet<(Address, FeedId)>,
    greeting: Greeting,
    hub_requests: Vec<HubRequest>,
    /// Streams of sinks that have left, still to be closed.
    released: VecDeque<(SinkId, std::collections::hash_map::IntoIter<i32, Stream>)>,
    /// Cuts of sinks that are still to be put into feeds.
    pending_cuts: Vec<(u16, SinkId)>,
    /// Tokens of streams that want their image in the feed.
    in_feed: HashSet<Token>,
    memory: Memory,
    checked: Instant,
    stats: components::Source,
    /// Sinks that have left or were disconnected from their feeds since the last [`SourceSide::farewells`].
    farewells: Vec<Farewell>,
    /// Present if latency is measured.
    latency: Option<Box<latency::LatencyProbe>>,
}

impl fmt::Debug for SourceSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceSide")
            .field("side", &self.side)
            .field("sinks", &self.sinks.len())
            .field("feeds", &self.feeds.len())
            .finish_non_exhaustive()
    }
}

impl SourceSide {
    /// Serves the hub's side `side` to the sinks of `end`; without one, to those of an endpoint that is attached later
    /// ([`SourceSide::attach`]). `name` is for logs.
    #[must_use]
    pub fn new(end: Option<Box<dyn SourceEnd>>, side: SideId, name: &str) -> Self {
        Self {
            end: Reconnecting::new(end),
            side,
            name: name.to_owned(),
            feeds: FeedTable::default(),
            announcing: Announcing::default(),
            items: Items::default(),
            sinks: HashMap::new(),
            listening: HashSet::new(),
            greeting: Greeting::default(),
            hub_requests: Vec::new(),
            released: VecDeque::new(),
            pending_cuts: Vec::new(),
            in_feed: HashSet::new(),
            memory: Memory::default(),
            checked: Instant::now(),
            stats: components::Source::default(),
            farewells: Vec::new(),
            latency: None,
        }
    }

    /// Readable while [`SourceSide::poll`] has something to do; `None` while the endpoint is absent.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.end.descriptor()
    }

    /// Reason why the endpoint was lost since the last call, if it was. All its sinks are then removed.
    pub fn take_lost(&mut self) -> Option<Error> {
        let why = self.end.take_lost()?;
        let sinks: Vec<_> = self.sinks.keys().copied().collect();
        sinks.into_iter().for_each(|id| self.remove_sink(id, Reason::Backbone(why.to_string())));
        self.listening.clear();
        self.pending_cuts.clear();
        Some(why)
    }

    /// Whether the endpoint is absent.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.end.is_away()
    }

    /// Attaches another endpoint: opens the feeds again on it, and announces `services`.
    ///
    /// # Errors
    /// As [`SourceSide::directory`].
    pub fn attach(&mut self, end: Box<dyn SourceEnd>, services: &[directory::Service]) -> Result<()> {
        self.end.replace(end);
        if let Some(latency) = &mut self.latency {
            latency.forget();
        }
        for feed in self.feeds.iter_mut() {
            feed.out = FeedOut::new(self.end.id(), self.end.open_feed()?);
        }
        self.directory(services)
    }

    /// Sets the policy of a service; with `None`, of all services without one of their own. Applies to services that
    /// appear later.
    pub fn set_policy(&mut self, service: Option<&str>, policy: Policy) {
        self.feeds.set_policy(service, policy);
    }

    /// The sinks that have left or were disconnected from their feeds since the last call.
    pub fn farewells(&mut self) -> std::vec::Drain<'_, Farewell> {
        self.farewells.drain(..)
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> components::Source {
        components::Source { behind: self.behind() as u64, backlog: self.backlog() as u64, ..self.stats }
    }

    /// The connected sinks: id, name, unread bytes of feeds, and bytes queued on the connection.
    pub fn sinks(&self) -> impl Iterator<Item = (SinkId, &str, u64, usize)> + '_ {
        self.sinks.iter().map(|(id, sink)| (*id, sink.name.as_str(), sink.in_flight, self.end.queued(*id)))
    }

    /// Sends these dictionaries to the sinks, now and when they connect; they replace those of earlier calls.
    ///
    /// # Errors
    /// A name or text is too long for the wire: nothing is replaced.
    pub fn dictionaries(&mut self, halves: &[Half]) -> rssl::Result<()> {
        let mut records = Vec::new();
        for half in halves {
            let enums = matches!(half, Half::Enums(_));
            let parts = half.parts(DICTIONARY_PART)?;
            let count = parts.len();
            records.extend(parts.into_iter().enumerate().map(|(at, payload)| {
                Record::Dictionary { enums, first: at == 0, last: at + 1 == count, payload }.encode()
            }));
        }
        for id in self.sinks.keys() {
            records.iter().for_each(|record| self.end.send(*id, record));
        }
        self.greeting.dictionaries = records;
        self.end.flush();
        Ok(())
    }

    /// Announces the hub's services to the sinks; call it at the start and when [`SourceSide::apply`] returns true.
    ///
    /// # Errors
    /// The backbone refuses a feed.
    pub fn directory(&mut self, services: &[directory::Service]) -> Result<()> {
        for service in services {
            if self.feeds.of_service(service.id).is_some() || self.feeds.len() >= MAX_FEEDS {
                continue;
            }
            let name = service.info.as_ref().map_or("", |info| info.name.as_str());
            let id = self.end.open_feed()?;
            self.feeds.add(service.id, name, FeedOut::new(self.end.id(), id));
        }
        let feed = |service: u16| Some((service, self.feeds.out(self.feeds.of_service(service)?)?.id));
        let feeds: Vec<_> = services.iter().filter_map(|service| feed(service.id)).collect();
        let payload = match rssl::wire::to_vec(|w| directory::encode_all(w, u32::MAX, services)) {
            Ok(payload) => payload,
            Err(why) => {
                tracing::error!("cannot encode the directory for the sinks: {why}");
                return Ok(());
            }
        };
        let record = Record::Directory { feeds, payload }.encode();
        for id in self.sinks.keys() {
            self.end.send(*id, &record);
        }
        self.greeting.directory = Some(record);
        self.end.flush();
        Ok(())
    }
}
