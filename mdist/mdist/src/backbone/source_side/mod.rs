//! The source distributor's adapter: a side of its hub, served to all sinks of a backbone.
//!
//! What the hub tells all streams of an item goes into the feed of the item's service, once, whoever has it; what it tells
//! one stream goes by the link to the sink whose stream it is, with the number of the feed's last entry before it.

mod asking;
mod hearing;
mod joining;
mod latency;
mod pacing;
mod reason;
mod sending;
mod telling;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rssl::rdm::directory;

use self::pacing::Pace;
pub use self::reason::{Farewell, Reason};
use super::feed_out::FeedOut;
use super::reconnecting::Reconnecting;
use super::wire::{MAX_FEEDS, Record};
use super::{Address, Credit, Error, FeedId, Result, SinkId, SourceEnd, SourceEvent};
use crate::hub::{HubRequest, ItemId, SideId, Token};

/// Bytes that may be on their way to one sink, unless configured for its service.
pub const WINDOW: u64 = 8 << 20;
/// How long a feed may wait for a sink that does not keep up, unless configured for its service.
pub const HOLD: Duration = Duration::from_millis(200);
/// A sink that has said nothing for so long is told how far its feeds have got.
const QUIET: Duration = Duration::from_secs(1);
/// No feed.
const NONE: u16 = u16::MAX;

/// How a service is sent, and what happens to a sink that does not keep up with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// All sinks wait for it so long; then it is cut.
    pub hold: Duration,
    /// Bytes that may be on their way to it, of the feed and of images: unread, or read and not yet used.
    pub window: u64,
    /// How long a packet that is not full waits for more; zero: until the end of the turn.
    pub flush: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { hold: HOLD, window: WINDOW, flush: Duration::ZERO }
    }
}

/// What the adapter has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets multicast.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages in them.
    pub entries: u64,
    /// Images sent to one sink.
    pub images: u64,
    /// Sinks that were cut because they did not keep up.
    pub cuts: u64,
    /// How often a feed had to wait for a sink.
    pub waits: u64,
    /// Links to sinks that broke or were broken.
    pub left: u64,
}

/// A sink.
#[derive(Debug)]
struct Sink {
    name: String,
    reader: Option<Address>,
    epoch: u32,
    /// Feeds that it wants and does not listen to yet.
    wanted: Vec<u16>,
    joined: Vec<Joined>,
    /// Bytes that it has not said to have read.
    in_flight: u64,
    /// When it last said so.
    heard: Instant,
    streams: HashMap<i32, Stream>,
    pace: Pace,
}

#[derive(Debug)]
struct Joined {
    feed: u16,
    /// The position up to which it has read.
    credited: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    item: ItemId,
    service: u16,
    private: bool,
}

/// Who has an item.
#[derive(Debug, Default)]
struct Holders {
    /// How often the hub said `Opened`.
    holds: u32,
    streams: Vec<(SinkId, i32)>,
}

/// The adapter.
pub struct SourceSide {
    end: Reconnecting<dyn SourceEnd>,
    side: SideId,
    name: String,
    policies: HashMap<String, Policy>,
    policy: Policy,
    feeds: Vec<FeedOut>,
    /// Of each feed.
    feed_policies: Vec<Policy>,
    services: HashMap<u16, u16>,
    /// Feeds that somebody has joined.
    used: Vec<u32>,
    /// Of each item: the feed that carries it, or [`NONE`].
    feed_of: Vec<u16>,
    holders: Vec<Holders>,
    sinks: HashMap<SinkId, Sink>,
    listening: HashSet<(Address, FeedId)>,
    directory: Option<Vec<u8>>,
    asks: Vec<HubRequest>,
    /// Sinks that were given up, and the feeds that are still to say so.
    ends: Vec<(u16, SinkId)>,
    /// Tokens whose image is to go into the feed.
    in_feed: HashSet<Token>,
    events: Vec<SourceEvent>,
    credits: Vec<Credit>,
    scratch: Vec<u8>,
    checked: Instant,
    stats: Stats,
    /// Sinks that went, or were cut, since somebody asked.
    farewells: Vec<Farewell>,
    /// If it is measured.
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
    /// Serves the hub's side `side` to the sinks of `end`, or of one that comes later ([`SourceSide::attach`]); `name` is
    /// for people.
    #[must_use]
    pub fn new(end: Option<Box<dyn SourceEnd>>, side: SideId, name: &str) -> Self {
        Self {
            end: Reconnecting::new(end),
            side,
            name: name.to_owned(),
            policies: HashMap::new(),
            policy: Policy::default(),
            feeds: Vec::new(),
            feed_policies: Vec::new(),
            services: HashMap::new(),
            used: Vec::new(),
            feed_of: Vec::new(),
            holders: Vec::new(),
            sinks: HashMap::new(),
            listening: HashSet::new(),
            directory: None,
            asks: Vec::new(),
            ends: Vec::new(),
            in_feed: HashSet::new(),
            events: Vec::new(),
            credits: Vec::new(),
            scratch: Vec::new(),
            checked: Instant::now(),
            stats: Stats::default(),
            farewells: Vec::new(),
            latency: None,
        }
    }

    /// Readable while [`SourceSide::poll`] has something to do; `None` while the end is away.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.end.descriptor()
    }

    /// Whether the end was lost since the last call, and why: all sinks are lost with it.
    pub fn take_lost(&mut self) -> Option<Error> {
        let why = self.end.take_lost()?;
        let sinks: Vec<_> = self.sinks.keys().copied().collect();
        sinks.into_iter().for_each(|id| self.lose(id, Reason::Backbone(why.to_string())));
        self.listening.clear();
        self.ends.clear();
        Some(why)
    }

    /// Whether there is no end: neither one that was given nor one that came.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.end.is_away()
    }

    /// There is an end again: the feeds begin anew on it.
    ///
    /// # Errors
    /// As [`SourceSide::directory`], which is done for `services`.
    pub fn attach(&mut self, end: Box<dyn SourceEnd>, services: &[directory::Service]) -> Result<()> {
        self.end.replace(end);
        if let Some(latency) = &mut self.latency {
            latency.forget();
        }
        for feed in &mut self.feeds {
            *feed = FeedOut::new(self.end.id(), self.end.open_feed()?);
        }
        self.directory(services)
    }

    /// The policy of a service, or with `None` of all that have none of their own; for services that appear from now on.
    pub fn set_policy(&mut self, service: Option<&str>, policy: Policy) {
        match service {
            Some(name) => drop(self.policies.insert(name.to_owned(), policy)),
            None => self.policy = policy,
        }
    }

    /// The sinks that went, or were cut, since the last call.
    pub fn farewells(&mut self) -> std::vec::Drain<'_, Farewell> {
        self.farewells.drain(..)
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The sinks that have a link: their names, unread bytes of feeds, and bytes that wait on their link.
    pub fn sinks(&self) -> impl Iterator<Item = (SinkId, &str, u64, usize)> + '_ {
        self.sinks.iter().map(|(id, sink)| (*id, sink.name.as_str(), sink.in_flight, self.end.queued(*id)))
    }

    /// Shows the sinks the hub's services; to be called at the start and for `Kind::Services`.
    ///
    /// # Errors
    /// The backbone refuses a feed.
    pub fn directory(&mut self, services: &[directory::Service]) -> Result<()> {
        for service in services {
            if self.services.contains_key(&service.id) || self.feeds.len() >= MAX_FEEDS {
                continue;
            }
            let name = service.info.as_ref().map_or("", |info| info.name.as_str());
            let policy = self.policies.get(name).copied().unwrap_or(self.policy);
            let id = self.end.open_feed()?;
            // Below `MAX_FEEDS`.
            self.services.insert(service.id, self.feeds.len() as u16);
            self.feeds.push(FeedOut::new(self.end.id(), id));
            self.feed_policies.push(policy);
            self.used.push(0);
        }
        let feeds: Vec<_> = services
            .iter()
            .filter_map(|service| {
                Some((service.id, self.feeds.get(usize::from(*self.services.get(&service.id)?))?.id))
            })
            .collect();
        let payload = match rssl::wire::to_vec(|w| directory::encode_all(w, u32::MAX, services)) {
            Ok(payload) => payload,
            Err(why) => {
                tracing::error!("the directory cannot be shown to the sinks: {why}");
                return Ok(());
            }
        };
        let record = Record::Directory { feeds, payload }.encode();
        for id in self.sinks.keys() {
            self.end.send(*id, &record);
        }
        self.directory = Some(record);
        self.end.flush();
        Ok(())
    }
}
