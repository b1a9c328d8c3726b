//! Log lines and counters from the core's events.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use tracing::{debug, info, warn};
use utipc_core::BearerId;
use utipc_core::addr::NodeAddr;
use utipc_core::discovery::Refusal;
use utipc_core::event::{Drop, Event};
use utipc_core::link::DownReason;

use crate::bearers;

/// Counts by reason: of frames that were not accepted, or of links that went down.
pub type DropCounters = BTreeMap<Cow<'static, str>, u64>;

/// Counters of a node since its start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Links that came up.
    pub links_up: u64,
    /// Links that went down.
    pub links_down: u64,
    /// Links that went down, by reason.
    pub resets: DropCounters,
    /// Nodes that came into contact.
    pub nodes_up: u64,
    /// Nodes that were lost.
    pub nodes_down: u64,
    /// Frames that were not accepted, by reason.
    pub dropped: DropCounters,
    /// Frames that show a problem that an operator can solve, by its name: `encrypted`, `wrong-key`,
    /// `clear-text`, `replayed`, `other-cluster`, `duplicate-address`, `other-medium`, `outside-domain`,
    /// `too-many-nodes`, `malformed`.
    pub problems: BTreeMap<Cow<'static, str>, Problem>,
    /// Counters of encryption, by name: [`utipc_core::crypto::EncryptionStats`].
    pub encryption: BTreeMap<Cow<'static, str>, u64>,
    /// Traffic of each bearer, by name.
    pub bearers: Vec<(String, bearers::Counters)>,
}

/// Frames that show one problem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// Number of frames.
    pub count: u64,
    /// Time of the last one, milliseconds since 1970.
    pub last: u64,
    /// The bearer on which it arrived; empty if unknown.
    pub bearer: String,
    /// The node that it names as its sender; 0 if it names none.
    pub peer: u32,
    /// The reason why it was not accepted.
    pub detail: String,
}

/// The name of the problem that a dropped frame shows; `None` if drops of this kind are normal.
const fn problem(reason: &Drop) -> Option<&'static str> {
    Some(match reason {
        Drop::Encrypted => "encrypted",
        Drop::WrongKey => "wrong-key",
        Drop::ClearText => "clear-text",
        Drop::Replayed => "replayed",
        Drop::Malformed(_) | Drop::Discovery(Refusal::Malformed(_)) => "malformed",
        Drop::Discovery(Refusal::OtherCluster(_)) => "other-cluster",
        Drop::Discovery(Refusal::DuplicateAddress(_)) => "duplicate-address",
        Drop::Discovery(Refusal::OtherMedium(_)) => "other-medium",
        Drop::Discovery(Refusal::OutsideDomain(_)) => "outside-domain",
        Drop::Discovery(Refusal::TooMany(_)) => "too-many-nodes",
        _ => return None,
    })
}

/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Minimum time between two log lines about duplicate addresses. Our choice: each discovery message of such a host is
/// counted, but any host could fill a disk if each were logged.
const DUPLICATE_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of entries of the history of links.
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
    /// When the links that are up came up, milliseconds since 1970.
    up_since: HashMap<String, u64>,
    /// Names of the bearers.
    names: BTreeMap<BearerId, String>,
    /// When a duplicate address was last logged.
    duplicate_logged: Option<Instant>,
}

impl Observer {
    pub(crate) fn new(label: Arc<str>) -> Self {
        Self {
            label,
            counters: Counters::default(),
            history: VecDeque::new(),
            up_since: HashMap::new(),
            names: BTreeMap::new(),
            duplicate_logged: None,
        }
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
        self.up_since.remove(link);
        self.history.push_back(LinkEnd { link: link.to_owned(), peer, reason, time: wall_ms() });
    }

    /// True if a duplicate address may be logged now; starts the interval until the next one.
    fn take_duplicate_log(&mut self, now: Instant) -> bool {
        let is_due =
            self.duplicate_logged.is_none_or(|last| now.duration_since(last) >= DUPLICATE_LOG_INTERVAL);
        if is_due {
            self.duplicate_logged = Some(now);
        }
        is_due
    }

    /// When a link that is up came up, milliseconds since 1970.
    pub(crate) fn up_since(&self, link: &str) -> Option<u64> {
        self.up_since.get(link).copied()
    }

    fn note_problem(&mut self, name: &'static str, bearer: Option<BearerId>, peer: NodeAddr, detail: String) {
        let problem = self.counters.problems.entry(name.into()).or_default();
        problem.count += 1;
        problem.last = wall_ms();
        problem.bearer = bearer.and_then(|id| self.names.get(&id).cloned()).unwrap_or_default();
        problem.peer = peer.0;
        problem.detail = detail;
    }

    pub(crate) fn bearer_enabled(&mut self, id: BearerId, name: &str, what: &str) {
        self.names.insert(id, name.to_owned());
        info!(node = %self.label, id, "bearer enabled: {what}");
    }

    pub(crate) fn bearer_failed(&self, name: &str, error: &bearers::BearerError) {
        warn!(node = %self.label, bearer = name, "bearer cannot receive: {error}");
    }

    pub(crate) fn event(&mut self, event: &Event) {
        let label = Arc::clone(&self.label);
        let node = &*label;
        match event {
            Event::AddressFinal(own) => info!(node, "own address is {own}"),
            Event::DuplicateAddress(peer) => {
                if self.take_duplicate_log(Instant::now()) {
                    warn!(
                        node,
                        "another host has the identity or address of this node, {peer}, and is ignored (two hosts share \
                         a name or a copied state file: give one of them another identity, `utipcd --identity NAME`)"
                    );
                }
                let detail = format!("another node uses address {peer}");
                self.note_problem("duplicate-address", None, *peer, detail);
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
                self.up_since.insert(link.clone(), wall_ms());
            }
            Event::LinkDown { link, peer, reason } => {
                self.counters.links_down += 1;
                *self.counters.resets.entry(reason.name().into()).or_default() += 1;
                warn!(node, "link {link} to node {peer} is down: {reason}");
                self.remember(link, *peer, *reason);
            }
            Event::PathSize { link, peer, mtu, limit } if mtu < limit => warn!(
                node,
                "the path of link {link} to node {peer} carries packets of {mtu} bytes only, its ends allow {limit} (a \
                 switch, router or tunnel between them drops larger ones: give it the MTU of the interfaces)"
            ),
            Event::PathSize { link, peer, mtu, .. } => {
                info!(node, "the path of link {link} to node {peer} carries packets of {mtu} bytes");
            }
            Event::Dropped { bearer, peer, reason } => {
                *self.counters.dropped.entry(reason.name().into()).or_default() += 1;
                debug!(node, bearer, "frame from node {peer} dropped: {reason}");
                if let Some(name) = problem(reason) {
                    let counted = self.counters.problems.get(name).map_or(0, |problem| problem.count);
                    self.note_problem(name, Some(*bearer), *peer, reason.to_string());
                    // A separate event has counted this frame.
                    if matches!(reason, Drop::Discovery(Refusal::DuplicateAddress(_)))
                        && let Some(problem) = self.counters.problems.get_mut(name)
                    {
                        problem.count = counted;
                    }
                }
            }
            other => debug!(node, "{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_of_duplicate_addresses_is_counted_and_logged_once_in_an_interval() {
        let mut observer = Observer::new("node".into());
        let begun = Instant::now();
        let times = (0..1000).map(|n| begun + n * DUPLICATE_LOG_INTERVAL / 100);
        let logged = times.filter(|now| observer.take_duplicate_log(*now)).count();
        assert_eq!(logged, 10);
        for _ in 0..1000 {
            observer.event(&Event::DuplicateAddress(NodeAddr(1)));
        }
        assert_eq!(observer.counters().problems["duplicate-address"].count, 1000);
    }
}
