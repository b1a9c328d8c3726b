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
use crate::metrics::components;

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

rssl::with_defaults! {
    /// Options of a hub.
    #[derive(Clone, Debug)]
    pub struct Options {
        /// Time that an item stays open upstream after its last stream was closed.
        pub hold: Now = Now::from_secs(5),
        /// Longest wait for the answer to a request, or for the next part of the answer.
        pub request_timeout: Now = Now::from_secs(15),
        /// Longest wait for the acknowledgement of a post.
        pub post_timeout: Now = Now::from_secs(15),
        /// Requests per second that the hub makes to recover items; 0: no limit.
        pub recovery_rate: u32 = 50_000,
        /// Maximum number of recovery requests of one service without an answer.
        pub recovery_window: u32 = 5_000,
        /// Whether last values are cached.
        pub cache: bool = false,
        /// Exceptions from `cache`, by service name.
        pub cache_of: HashMap<String, bool> = HashMap::new(),
        /// Maximum number of items; further requests are refused.
        pub max_items: usize = 4_000_000,
        /// Maximum number of requested items of one service that no publisher has published yet; further requests are
        /// refused.
        pub max_awaited: usize = 1_000_000,
        /// Destination of posts for items of publishers.
        pub posts: Posts = Posts::Cache,
        /// Limits of a cached item.
        pub cache_limits: Limits = Limits::default(),
        /// Maximum number of bytes of all cached items; above it, the values of items that no side holds are dropped.
        /// `None`: no limit.
        pub cache_budget: Option<usize> = None,
        /// Longest payload of one part of an image from the cache, in bytes.
        pub max_part: usize = 5_800,
    }
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
    pub(super) stats: components::Hub,
    /// Suspect items that became current again.
    pub(super) recovered: u64,
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
            stats: components::Hub::default(),
            recovered: 0,
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

    /// The counters; those that the hub does not count itself are 0.
    #[must_use]
    pub const fn stats(&self) -> &components::Hub {
        &self.stats
    }

    /// Suspect items that became current again, so far.
    #[must_use]
    pub const fn recovered(&self) -> u64 {
        self.recovered
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
