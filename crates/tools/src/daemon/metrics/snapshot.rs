//! The state of the daemon and its node, as one round reads it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use utipc::NodeId;
use utipc::daemon::{DaemonCounters, Meter};
use utipc_manage::{Bearer, Entry, Link, Net, Node, Publication, Quota, Request, Socket};

use super::history::History;

/// Maximum number of entries of one list.
const MOST: usize = 5000;
/// Longest wait for the event loop.
const PATIENCE: Duration = Duration::from_secs(5);

/// A list, perhaps truncated.
#[derive(Clone, Debug)]
pub(super) struct List<T> {
    pub(super) entries: Vec<T>,
    pub(super) is_complete: bool,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), is_complete: true }
    }
}

/// The state of the node and its daemon at approximately one instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    /// Start of the collector: if it changes, the page knows that events count from 1 again.
    pub(super) started: Option<SystemTime>,
    /// When it was taken; `None` before the first.
    pub(super) taken: Option<SystemTime>,
    /// Whether the daemon has answered the last questions.
    pub(super) is_current: bool,
    pub(super) net: Option<Net>,
    pub(super) nodes: List<Node>,
    /// Addresses of the nodes by identity.
    pub(super) peers: BTreeMap<String, u32>,
    /// Links to peers, and the sending side of the broadcast link.
    pub(super) links: List<Link>,
    pub(super) failures: List<Link>,
    pub(super) bearers: List<Bearer>,
    pub(super) names: List<Publication>,
    pub(super) quotas: List<Quota>,
    /// Listed only while someone looks.
    pub(super) sockets: List<Socket>,
    pub(super) counters: DaemonCounters,
    pub(super) history: Arc<History>,
}

impl Snapshot {
    /// Age of the snapshot.
    pub(super) fn age(&self) -> Option<Duration> {
        Some(SystemTime::now().duration_since(self.taken?).unwrap_or_default())
    }

    /// The peer of a link; `None` of the broadcast link. A link's name ends with the peer's identity and interface.
    pub(super) fn peer_of(&self, link: &str) -> Option<u32> {
        let (ends, _) = link.rsplit_once(':')?;
        let identities = ends.match_indices('-').filter_map(|(at, _)| ends.get(at + 1..));
        identities.filter_map(|identity| self.peers.get(identity).copied()).next()
    }

    /// Own address; 0 while the node has none.
    pub(super) fn own(&self) -> u32 {
        self.net.as_ref().and_then(|net| net.address).unwrap_or(0)
    }
}

/// Milliseconds since 1970.
pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

macro_rules! list {
    ($meter:ident, $request:expr, $entry:ident) => {
        list($meter, &$request, |entry| if let Entry::$entry(it) = entry { Some(it) } else { None })
    };
}

impl Snapshot {
    /// Reads everything; sockets only `with_sockets`.
    pub(super) fn take(meter: &Meter, with_sockets: bool) -> Result<Self> {
        let counters = meter.counters_within(PATIENCE).context("the event loop does not answer")?;
        let sockets = if with_sockets { list!(meter, Request::Sockets, Socket)? } else { List::default() };
        let nodes = list!(meter, Request::Nodes, Node)?;
        let identity = |node: &Node| node.identity.map(|identity| NodeId(identity).to_string());
        let peers = nodes.entries.iter().filter_map(|node| Some((identity(node)?, node.address))).collect();
        Ok(Self {
            started: None,
            taken: Some(SystemTime::now()),
            is_current: true,
            net: list!(meter, Request::Net, Net)?.entries.pop(),
            nodes,
            peers,
            links: list!(meter, Request::Links { broadcast: false }, Link)?,
            failures: list!(meter, Request::LinkHistory, History)?,
            bearers: list!(meter, Request::Bearers, Bearer)?,
            names: list!(meter, Request::Names, Name)?,
            quotas: list!(meter, Request::Quotas, Quota)?,
            sockets,
            counters,
            history: Arc::default(),
        })
    }
}

fn list<T>(meter: &Meter, request: &Request, choose: impl Fn(Entry) -> Option<T>) -> Result<List<T>> {
    let list = meter.list_within(request, MOST, PATIENCE)?;
    Ok(List { entries: list.entries.into_iter().filter_map(choose).collect(), is_complete: list.is_complete })
}
