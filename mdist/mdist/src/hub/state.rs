//! The hub itself: what it holds, and its public face. What it does is in `asks` (from the sides), `flow` (messages from
//! upstreams), `requests` (to upstreams), `sources` (upstreams and services that come and go) and `posts`.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::batch::Batch;
use super::ids::{ItemId, Now, SideId, UpstreamId};
use super::item::Items;
use super::pacing::Bucket;
use super::pending_updates::{PendingUpdates, Records};
use super::posts::Posts;
use super::request::HubRequest;
use super::services::{Directory, Services};
use super::streams::Streams;
use crate::cache::{Cache, FieldTypes, Limits};

/// How a hub behaves. Times are as long as they say, counts are of items unless told otherwise.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long an item stays open upstream after its last stream closed.
    pub hold: Now,
    /// How long a request may go without an answer, or without the next part of one.
    pub request_timeout: Now,
    /// How long a post may go without an acknowledgement.
    pub post_timeout: Now,
    /// Requests per second of the hub's own making (after a failure); 0: as fast as possible.
    pub recovery_rate: u32,
    /// Such requests of one service without an answer, at most.
    pub recovery_window: u32,
    /// Whether last values are kept.
    pub cache: bool,
    /// Services by name that have it otherwise.
    pub cache_of: HashMap<String, bool>,
    /// Most items at a time; further requests are refused.
    pub max_items: usize,
    /// Most items of one service that are waited for because no publisher has published them yet; further requests are
    /// refused.
    pub max_awaited: usize,
    /// Posts for items of publishers go to the publisher, not into the cache.
    pub posts_to_publishers: bool,
    /// How much of one item is kept, at most.
    pub cache_limits: Limits,
    /// Longest payload of one part of an image from the cache, in bytes.
    pub max_part: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hold: Now::from_secs(5),
            request_timeout: Now::from_secs(15),
            post_timeout: Now::from_secs(15),
            recovery_rate: 50_000,
            recovery_window: 5_000,
            cache: false,
            cache_of: HashMap::new(),
            cache_limits: Limits::default(),
            max_items: 4_000_000,
            max_awaited: 1_000_000,
            posts_to_publishers: false,
            max_part: 5_800,
        }
    }
}

/// What a hub has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Updates that went to the sides or into the cache.
    pub updates: u64,
    /// Refreshes (parts counted one by one) that came from upstreams.
    pub refreshes: u64,
    /// Statuses that came from upstreams.
    pub statuses: u64,
    /// Messages for streams that are not open: late ones after a close, mostly.
    pub late: u64,
    /// Updates before the first refresh of their stream.
    pub early: u64,
    /// Requests sent upstream.
    pub requests: u64,
    /// Images given from the cache.
    pub cached_images: u64,
    /// Requests that got no answer in time.
    pub timeouts: u64,
    /// Messages whose content the cache could not take; their items are uncached since.
    pub cache_errors: u64,
    /// Requests refused.
    pub refused: u64,
}

/// One upstream.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    pub(super) up: bool,
    /// It opens the streams: a non-interactive provider.
    pub(super) publishes: bool,
    pub(super) streams: Streams,
}

/// Items and services between upstreams and sides.
#[derive(Debug)]
pub struct Hub {
    pub(super) options: Options,
    pub(super) items: Items,
    pub(super) services: Services,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) cache: Cache,
    pub(super) records: Records,
    pub(super) pending_updates: PendingUpdates,
    pub(super) posts: Posts,
    pub(super) outgoing: VecDeque<(UpstreamId, Vec<u8>)>,
    /// Ends of holds, in order.
    pub(super) holds: VecDeque<(Now, ItemId, u32)>,
    /// Deadlines of requests, in order: item and number of the request.
    pub(super) timeouts: VecDeque<(Now, ItemId, u32)>,
    /// Requests to be made again later: when, item, age.
    pub(super) delayed: BTreeSet<(Now, ItemId, u32)>,
    pub(super) bucket: Bucket,
    pub(super) next_request: u32,
    /// Memory for messages that are rewritten.
    pub(super) scratch: Vec<u8>,
    pub(super) stats: Stats,
}

impl Hub {
    /// A hub without upstreams; `types` says which fields the cache has to edit rather than replace.
    #[must_use]
    pub fn new(options: Options, types: FieldTypes) -> Self {
        Self {
            bucket: Bucket::new(options.recovery_rate),
            items: Items::default(),
            services: Services::default(),
            upstreams: Vec::new(),
            cache: Cache::new(types, options.cache_limits),
            records: Records::default(),
            pending_updates: PendingUpdates::default(),
            posts: Posts::default(),
            outgoing: VecDeque::new(),
            holds: VecDeque::new(),
            timeouts: VecDeque::new(),
            delayed: BTreeSet::new(),
            next_request: 0,
            scratch: Vec::new(),
            stats: Stats::default(),
            options,
        }
    }

    /// Does what a side asks.
    pub fn handle(&mut self, now: Now, ask: HubRequest, out: &mut Batch) {
        self.apply_pending_first();
        match ask {
            HubRequest::Open { side, token, spec, worst_qos, streaming } => {
                self.open(now, side, token, spec, worst_qos, streaming, out);
            }
            HubRequest::Image { side, token, item } => self.image(now, side, token, item, out),
            HubRequest::Close { side, item, holds } => self.close(now, side, item, holds),
            HubRequest::SendUpstream { side, token, to, message } => {
                self.upward(now, side, token, to, &message, out)
            }
        }
    }

    /// Learns the types of fields: a dictionary came after the start.
    pub fn set_types(&mut self, types: FieldTypes) {
        self.apply_pending_first();
        self.cache.set_types(types);
    }

    /// Takes back everything that a side holds: it is gone.
    pub fn side_gone(&mut self, now: Now, side: SideId) {
        self.apply_pending_first();
        for id in self.items.places(|i| i.holders.iter().any(|(s, _)| *s == side)) {
            self.close(now, side, id, u32::MAX);
        }
        for id in self.items.places(|i| i.waiting.iter().chain(&i.receiving).any(|w| w.side == side)) {
            if let Some(item) = self.items.get_mut(id) {
                item.waiting.retain(|w| w.side != side);
                item.receiving.retain(|w| w.side != side);
            }
            self.unwanted(now, id);
        }
    }

    /// What is to be sent upstream: RWF messages with the stream id of the upstream, in order.
    pub fn outgoing(&mut self) -> std::collections::vec_deque::Drain<'_, (UpstreamId, Vec<u8>)> {
        self.outgoing.drain(..)
    }

    /// The services as the sides are to show them.
    #[must_use]
    pub fn services(&self) -> &Arc<Directory> {
        self.services.directory()
    }

    /// What was done so far.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Items that are open, held open or waited for.
    #[must_use]
    pub fn items(&self) -> usize {
        self.items.len()
    }

    /// Does what is due: holds that end, requests that got no answer, requests that were put off, the next portion of a
    /// recovery, posts without an acknowledgement.
    pub fn tick(&mut self, now: Now, out: &mut Batch) {
        self.apply_pending_first();
        self.end_holds(now);
        self.end_waits(now, out);
        self.posts_overdue(now, out);
        while let Some(&(at, id, age)) = self.delayed.first() {
            if at > now {
                break;
            }
            self.delayed.pop_first();
            if self.items.aged(id, age).is_some() {
                self.enqueue(id, true);
            }
        }
        for at in 0..self.services.list.len() {
            self.pump(now, at);
        }
    }

    /// When `tick` has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        let paced = self.services.list.iter().any(|s| !s.recover.is_empty() && self.can_recover(s));
        [
            self.holds.front().map(|h| h.0),
            self.timeouts.front().map(|t| t.0),
            self.delayed.first().map(|d| d.0),
            self.posts.deadline(),
            paced.then(|| self.bucket.next()),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
