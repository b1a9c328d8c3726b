//! What one round of questions to the daemon has found.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use utipc::NodeId;
use utipc::daemon::{DaemonCounters, Meter};
use utipc::manage::Management;
use utipc_manage::{Bearer, Entry, Link, Net, Node, Publication, Quota, Reply, Request, Socket, replies};

use super::history::History;

/// Most bytes of one list; the daemon sends about 100 bytes for each binding and 300 for each socket, and works through
/// a list in parts between which programs are served.
const MOST: usize = 512 * 1024;
/// Longest wait for the daemon's counters.
const PATIENCE: Duration = Duration::from_secs(5);

/// A list, perhaps not all of it.
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

/// The state of the node and its daemon at one instant, about.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    /// When the collector began, which tells the page that events are counted from 1 again.
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

/// The connection to the daemon.
pub(super) struct Questions {
    management: Management,
}

macro_rules! ask {
    ($self:ident, $request:expr, $entry:ident) => {
        $self.list(&$request, |entry| if let Entry::$entry(it) = entry { Some(it) } else { None })
    };
}

impl Questions {
    pub(super) fn new(socket: &Path) -> Result<Self> {
        Ok(Self { management: Management::of_daemon(socket)? })
    }

    /// Asks for everything; for sockets only `with_sockets`. `meter` gives the counters.
    pub(super) fn ask(&self, meter: &Meter, with_sockets: bool) -> Result<Snapshot> {
        let counters = meter.counters_within(PATIENCE).context("the event loop does not turn")?;
        let sockets = if with_sockets { ask!(self, Request::Sockets, Socket)? } else { List::default() };
        let nodes = ask!(self, Request::Nodes, Node)?;
        let identity = |node: &Node| node.identity.map(|identity| NodeId(identity).to_string());
        let peers = nodes.entries.iter().filter_map(|node| Some((identity(node)?, node.address))).collect();
        Ok(Snapshot {
            started: None,
            taken: Some(SystemTime::now()),
            is_current: true,
            net: ask!(self, Request::Net, Net)?.entries.pop(),
            nodes,
            peers,
            links: ask!(self, Request::Links { broadcast: false }, Link)?,
            failures: ask!(self, Request::LinkHistory, History)?,
            bearers: ask!(self, Request::Bearers, Bearer)?,
            names: ask!(self, Request::Names, Name)?,
            quotas: ask!(self, Request::Quotas, Quota)?,
            sockets,
            counters,
            history: Arc::default(),
        })
    }

    fn list<T>(&self, request: &Request, choose: impl Fn(Entry) -> Option<T>) -> Result<List<T>> {
        let (bytes, is_complete) = self.management.ask_some(request, MOST)?;
        let mut entries = Vec::new();
        for reply in replies(&bytes) {
            match reply {
                Ok(Reply::Entry(entry)) => entries.extend(choose(entry)),
                Ok(Reply::Done) => break,
                Ok(Reply::Refused(refusal)) => bail!("the daemon refuses a list: {refusal}"),
                Err(errno) => bail!("the daemon's reply is malformed: {errno:?}"),
            }
        }
        Ok(List { entries, is_complete })
    }
}
