//! Log lines and counters from the core's events.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use tracing::{debug, info, warn};
use utipc_core::BearerId;
use utipc_core::addr::NodeAddr;
use utipc_core::event::Event;
use utipc_core::link::DownReason;

use crate::bearers;

/// Counts of frames that were not accepted, by reason.
pub type DropCounters = BTreeMap<Cow<'static, str>, u64>;

/// Counters of a node since its start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Links that came up.
    pub links_up: u64,
    /// Links that went down.
    pub links_down: u64,
    /// Nodes that came into contact.
    pub nodes_up: u64,
    /// Nodes that were lost.
    pub nodes_down: u64,
    /// Frames that were not accepted, by reason.
    pub dropped: DropCounters,
    /// Traffic of each bearer, by name.
    pub bearers: Vec<(String, bearers::Counters)>,
}

/// Most entries of the history of links.
const MAX_HISTORY: usize = 256;

/// A link that went down.
#[derive(Clone, Debug)]
pub(crate) struct LinkEnd {
    pub(crate) link: String,
    pub(crate) peer: NodeAddr,
    pub(crate) reason: DownReason,
    /// Milliseconds since 1970.
    pub(crate) time: u64,
}

/// Counts and logs for one node.
#[derive(Debug)]
pub(crate) struct Observer {
    label: Arc<str>,
    counters: Counters,
    /// Oldest first.
    history: VecDeque<LinkEnd>,
}

impl Observer {
    pub(crate) fn new(label: Arc<str>) -> Self {
        Self { label, counters: Counters::default(), history: VecDeque::new() }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The last links that went down, oldest first.
    pub(crate) fn history(&self) -> &VecDeque<LinkEnd> {
        &self.history
    }

    fn remember(&mut self, link: &str, peer: NodeAddr, reason: DownReason) {
        if self.history.len() == MAX_HISTORY {
            self.history.pop_front();
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self.history.push_back(LinkEnd { link: link.to_owned(), peer, reason, time });
    }

    pub(crate) fn bearer_enabled(&self, id: BearerId, what: &str) {
        info!(node = %self.label, id, "bearer enabled: {what}");
    }

    pub(crate) fn bearer_failed(&self, name: &str, error: &bearers::BearerError) {
        warn!(node = %self.label, bearer = name, "bearer cannot receive: {error}");
    }

    pub(crate) fn event(&mut self, event: &Event) {
        let node = &*self.label;
        match event {
            Event::AddressFinal(own) => info!(node, "own address is {own}"),
            Event::DuplicateAddress(peer) => {
                warn!(node, "another node claims address {peer}: its claim is ignored")
            }
            Event::NodeUp(peer) => {
                self.counters.nodes_up += 1;
                info!(node, "contact with node {peer}");
            }
            Event::NodeDown(peer) => {
                self.counters.nodes_down += 1;
                info!(node, "contact with node {peer} lost");
            }
            Event::LinkUp { link, peer } => {
                self.counters.links_up += 1;
                info!(node, "link {link} to node {peer} is up");
            }
            Event::LinkDown { link, peer, reason } => {
                self.counters.links_down += 1;
                warn!(node, "link {link} to node {peer} is down: {reason}");
                self.remember(link, *peer, *reason);
            }
            Event::Dropped { bearer, peer, reason } => {
                *self.counters.dropped.entry(reason.name().into()).or_default() += 1;
                debug!(node, bearer, "frame from node {peer} dropped: {reason}");
            }
            other => debug!(node, "{other:?}"),
        }
    }
}
