//! The hub: its options, its state, and its timers.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::batch::Batch;
use super::ids::{ItemId, Now, Token, UpstreamId};
use super::item::Items;
use super::last_values::LastValues;
use super::pacing::Bucket;
use super::pending_posts::PendingPosts;
use super::request::{HubRequest, OpenRequest, Target};
use super::services::{Directory, Services};
use super::streams::Streams;
use super::sweeps::Sweeps;
use crate::cache::{FieldTypes, Limits};

/// Items, requests or posts of one kind that a call of the hub handles, each in 1 to 4 µs: sockets wait
/// meanwhile.
pub(in crate::hub) const PORTION: usize = 1024;

/// Destination of posts for items of publishers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posts {
    /// They are refused.
    Refuse,
    /// The cache, and from there all holders of the item.
    Cache,
    /// The publisher.
    Publisher,
}

/// Options of a hub.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time that an item stays open upstream after its last stream was closed.
    pub hold: Now,
    /// Longest wait for the answer to a request, or for the next part of the answer.
    pub request_timeout: Now,
    /// Longest wait for the acknowledgement of a post.
    pub post_timeout: Now,
    /// Requests per second that the hub makes to recover items; 0: no limit.
    pub recovery_rate: u32,
    /// Maximum number of recovery requests of one service without an answer.
    pub recovery_window: u32,
    /// Whether last values are cached.
    pub cache: bool,
    /// Exceptions from `cache`, by service name.
    pub cache_of: HashMap<String, bool>,
    /// Maximum number of items; further requests are refused.
    pub max_items: usize,
    /// Maximum number of requested items of one service that no publisher has published yet; further requests are
    /// refused.
    pub max_awaited: usize,
    /// Destination of posts for items of publishers.
    pub posts: Posts,
    /// Limits of a cached item.
    pub cache_limits: Limits,
    /// Maximum number of bytes of all cached items; above it, the values of items that no side holds are dropped.
    /// `None`: no limit.
    pub cache_budget: Option<usize>,
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
            cache_budget: None,
            max_items: 4_000_000,
            max_awaited: 1_000_000,
            posts: Posts::Cache,
            max_part: 5_800,
        }
    }
}

/// Counters of a hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Updates that went to the sides.
    pub updates: u64,
    /// Refreshes from upstreams; each part counts.
    pub refreshes: u64,
    /// Statuses from upstreams.
    pub statuses: u64,
    /// Messages on streams that are not open, mostly late ones after a close.
    pub late: u64,
    /// Updates before the first refresh of their stream.
    pub early: u64,
    /// Requests sent upstream.
    pub requests: u64,
    /// Images sent from the cache, counted for each recipient before they are encoded. An image that then fails is
    /// requested upstream, and is not counted again.
    pub cached_images: u64,
    /// Requests without an answer in time.
    pub timeouts: u64,
    /// Messages that the cache could not apply; their items are not cached any more.
    pub cache_errors: u64,
    /// Items whose values were dropped because the cache exceeded its budget.
    pub evictions: u64,
    /// Refused requests of sides.
    pub refused: u64,
    /// Suspect items that became current again.
    pub recovered: u64,
    /// Requests of items that stayed suspect while their upstream was up.
    pub stale_requests: u64,
    /// Requests held back because their upstream has ended the connection at them twice or more.
    pub held_back: u64,
}

/// One upstream.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    pub(super) up: bool,
    /// Whether it is a publisher, which opens the streams.
    pub(super) publishes: bool,
    /// Whether it keeps streams open and recovers their items itself; the states of its services come in order with the
    /// items' messages ([`Hub::announced`]).
    pub(super) recovers: bool,
    /// A number below those of all its offers, and above those of its offers before its last loss.
    pub(super) since: u32,
    pub(super) streams: Streams,
}

/// The item table of a distributor or server: items, services, upstreams and the cache.
#[derive(Debug)]
pub struct Hub {
    pub(super) options: Options,
    pub(super) items: Items,
    pub(super) services: Services,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) values: LastValues,
    pub(super) posts: PendingPosts,
    /// Messages for upstreams, in order.
    pub(super) outgoing: VecDeque<(UpstreamId, Vec<u8>)>,
    /// Ends of holds, in order.
    pub(super) holds: VecDeque<(Now, ItemId, u32)>,
    /// Deadlines of requests, in order: item and number of the request.
    pub(super) timeouts: VecDeque<(Now, ItemId, u32)>,
    /// Requests to make again later: when, item, age.
    pub(super) delayed: BTreeSet<(Now, ItemId, u32)>,
    /// Suspect items, and when to request them again: when, item, age.
    pub(super) watched: BTreeSet<(Now, ItemId, u32)>,
    pub(super) sweeps: Sweeps,
    pub(super) bucket: Bucket,
    /// Whether a portion of queued requests was sent, and others wait for [`Hub::tick`].
    pub(super) has_more: bool,
    pub(super) next_request: u32,
    /// Number of the last announcement.
    pub(super) announcements: Token,
    /// Memory for messages that the hub writes.
    pub(super) scratch: Vec<u8>,
    pub(super) stats: Stats,
}

impl Hub {
    /// Creates a hub without upstreams. `types` has the fields that the cache must edit rather than replace.
    #[must_use]
    pub fn new(options: Options, types: FieldTypes) -> Self {
        Self {
            bucket: Bucket::new(options.recovery_rate),
            has_more: false,
            items: Items::default(),
            services: Services::default(),
            upstreams: Vec::new(),
            values: LastValues::new(types, options.cache_limits, options.cache_budget),
            posts: PendingPosts::default(),
            outgoing: VecDeque::new(),
            holds: VecDeque::new(),
            timeouts: VecDeque::new(),
            delayed: BTreeSet::new(),
            watched: BTreeSet::new(),
            sweeps: Sweeps::default(),
            next_request: 0,
            announcements: 0,
            scratch: Vec::new(),
            stats: Stats::default(),
            options,
        }
    }

    /// Handles a request of a side; the answers go to `out`.
    pub fn handle(&mut self, now: Now, ask: HubRequest, out: &mut Batch) {
        self.apply_pending_first();
        match ask {
            HubRequest::Open { side, token, spec, worst_qos, streaming } => {
                self.open(now, OpenRequest { side, token, spec, worst_qos, streaming }, out);
            }
            HubRequest::Image { side, token, item } => {
                self.settle(now, item, out);
                self.image(now, side, token, item, out);
            }
            HubRequest::Close { side, item, holds } => self.close(now, side, item, holds),
            HubRequest::SendUpstream { side, token, to, message } => {
                if let Target::Item(item) = to {
                    self.settle(now, item, out);
                }
                self.send_upstream(now, side, token, to, &message, out)
            }
        }
    }

    /// Replaces the types of fields: a dictionary came after the start.
    pub fn set_types(&mut self, types: FieldTypes) {
        self.apply_pending_first();
        self.values.set_types(types);
    }

    /// Takes the messages to send: RWF messages with the stream id of their upstream, in order.
    pub fn outgoing(&mut self) -> std::collections::vec_deque::Drain<'_, (UpstreamId, Vec<u8>)> {
        self.outgoing.drain(..)
    }

    /// The services as the sides show them.
    #[must_use]
    pub fn services(&self) -> &Arc<Directory> {
        self.services.directory()
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Number of items that are open, held or awaited.
    #[must_use]
    pub fn items(&self) -> usize {
        self.items.len()
    }

    /// Bytes of all cached values, estimated.
    #[must_use]
    pub fn cache_bytes(&self) -> usize {
        self.values.bytes()
    }

    /// Performs what is due, of each kind a portion at most: continues sweeps, ends holds, drops requests and posts
    /// without an answer in time, makes delayed requests, those of items that stay suspect, and the next portion of a
    /// recovery. While something is left, [`Hub::deadline`] has passed.
    pub fn tick(&mut self, now: Now, out: &mut Batch) {
        self.apply_pending_first();
        self.has_more = false;
        self.sweep(now, out);
        self.end_holds(now);
        self.end_overdue_requests(now, out);
        self.refuse_overdue_posts(now, out);
        self.resume_delayed(now);
        self.request_stale_items(now);
        self.evict();
        for at in 0..self.services.list.len() {
            self.pump(now, at);
        }
    }

    /// Time when [`Hub::tick`] is due; `None`: nothing is pending.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        let paced = self.services.list.iter().any(|service| self.waits_for_pace(service));
        [
            self.holds.front().map(|h| h.0),
            self.timeouts.front().map(|t| t.0),
            self.delayed.first().map(|d| d.0),
            self.watched.first().map(|w| w.0),
            self.posts.deadline(),
            paced.then(|| self.bucket.next()),
            (self.has_more || !self.sweeps.is_empty() || self.values.to_evict().is_some())
                .then_some(Now::ZERO),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
