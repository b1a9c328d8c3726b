//! Information about a node for tools: bearers, peers, links, counters.

use super::bearers::Bearers;
use super::peers::{PeerEntry, Peers};
use crate::addr::{NodeAddr, NodeId};
use crate::broadcast::{MulticastPolicy, ReceiverStats, SenderStats};
use crate::config::BearerConfig;
use crate::link::{Link, LinkStats};
use crate::monitor::MonitorNode;
use crate::names::NameReport;
use crate::node::state::State;
use crate::outbox::BearerId;
use crate::wire::MediaAddr;

/// A bearer.
#[derive(Clone, Debug)]
pub struct BearerInfo {
    /// Its index.
    pub id: BearerId,
    /// Its configuration.
    pub config: BearerConfig,
    /// Number of peers linked over it.
    pub linked_peers: usize,
}

/// A peer node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PeerInfo {
    /// Its address.
    pub addr: NodeAddr,
    /// Its identity.
    pub id: NodeId,
    /// True if there is contact.
    pub up: bool,
    /// State of contact.
    pub state: State,
    /// Its capability bits.
    pub capabilities: u16,
}

/// A link.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LinkInfo {
    /// `<self>:<interface>-<peer>:<interface>`.
    pub name: String,
    /// The peer.
    pub peer: NodeAddr,
    /// The bearer it uses.
    pub bearer: BearerId,
    /// True if it can carry traffic.
    pub up: bool,
    /// True if it carries traffic (a second link of lower priority does not).
    pub active: bool,
    /// Packet size, bytes: what the path is known to carry.
    pub mtu: u16,
    /// Packet size that bearer and peer allow, bytes.
    pub mtu_limit: u16,
    /// Priority, 0 to 31.
    pub priority: u8,
    /// Tolerance, milliseconds.
    pub tolerance_ms: u32,
    /// Current window, packets.
    pub window: u16,
    /// Counters.
    pub stats: LinkStats,
}

/// Information about the broadcast link.
#[derive(Clone, Debug)]
pub struct BroadcastInfo {
    /// Window, packets.
    pub window: u16,
    /// Policy for the multicast method.
    pub policy: MulticastPolicy,
    /// Sending counters.
    pub sent: SenderStats,
}

/// Information about the neighbour monitor of a bearer.
#[derive(Clone, Debug)]
pub struct MonitorInfo {
    /// Index of the bearer.
    pub bearer: BearerId,
    /// Its name.
    pub name: String,
    /// True if nodes do not supervise all their peers.
    pub active: bool,
    /// Number of nodes, with this one.
    pub nodes: usize,
    /// Changes of the list of nodes.
    pub generation: u32,
}

/// Counters of the switch since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchStats {
    /// Frames from bearers.
    pub frames_received: u64,
    /// Frames that were dropped.
    pub frames_dropped: u64,
    /// Messages dropped because there is no socket for them.
    pub messages_dropped: u64,
    /// Messages rejected because there is no socket for them.
    pub messages_returned: u64,
    /// Malformed monitor records from peers.
    pub monitor_records_refused: u64,
    /// Events dropped because they were not read in time.
    pub events_lost: u64,
    /// Memory of packets that arrived early and wait for earlier ones, bytes, now.
    pub deferred_bytes: usize,
    /// Peers whose early packets were dropped with their links, because established peers needed the memory.
    pub deferrals_evicted: u64,
    /// Results of the peers' name messages.
    pub names: NameReport,
}

impl Bearers {
    pub(crate) fn infos(&self) -> impl Iterator<Item = BearerInfo> {
        self.iter().map(|(id, bearer)| BearerInfo {
            id,
            config: bearer.config.clone(),
            linked_peers: bearer.discoverer.linked_peers(),
        })
    }

    /// The neighbour monitor of each.
    pub(crate) fn monitor_infos(&self) -> impl Iterator<Item = MonitorInfo> {
        self.iter().map(|(id, bearer)| MonitorInfo {
            bearer: id,
            name: bearer.config.name.clone(),
            active: bearer.monitor.is_active(),
            nodes: bearer.monitor.node_count(),
            generation: bearer.monitor.changes(),
        })
    }

    /// The nodes of a bearer's monitor, this one first; see [`crate::monitor::Monitor::nodes_from`].
    pub(crate) fn monitor_nodes(
        &self,
        id: BearerId,
        distance: u32,
    ) -> Option<impl Iterator<Item = MonitorNode>> {
        Some(self.get(id)?.monitor.nodes_from(distance))
    }
}

impl Peers {
    /// The known nodes, by address, from one on.
    pub(crate) fn infos_from(&self, first: NodeAddr) -> impl Iterator<Item = PeerInfo> {
        self.range(first..).map(|(_, PeerEntry { peer, .. })| PeerInfo {
            addr: peer.addr,
            id: peer.id,
            up: peer.is_up(),
            state: peer.state,
            capabilities: peer.capabilities,
        })
    }

    /// The links, by peer and bearer, from one on.
    pub(crate) fn links_from(&self, first: (NodeAddr, BearerId)) -> impl Iterator<Item = LinkInfo> {
        let peers = self.range(first.0..).map(|(_, m)| &m.peer);
        let links = peers.flat_map(|p| p.links().map(move |(bearer, slot)| (p, bearer, &slot.link)));
        links.filter(move |(peer, bearer, _)| (peer.addr, *bearer) >= first).map(|(peer, bearer, link)| {
            LinkInfo {
                name: link.name(),
                peer: peer.addr,
                bearer,
                up: link.is_up(),
                active: (0..2).any(|s| peer.active_bearer(s) == Some(bearer)),
                mtu: link.mtu(),
                mtu_limit: link.mtu_limit(),
                priority: link.config().priority,
                tolerance_ms: link.config().tolerance_ms,
                window: link.window(),
                stats: link.stats(),
            }
        })
    }

    /// The place of the link with this name.
    pub(crate) fn find_link(&self, name: &str) -> Option<(NodeAddr, BearerId)> {
        let peers = self.values().map(|m| &m.peer);
        let mut links = peers.flat_map(|p| p.links().map(|(bearer, slot)| (p.addr, bearer, slot)));
        // Formatting the names of all links would cost more than the comparison.
        let is_named = |link: &Link| name.starts_with(&*link.config().name) && link.name() == name;
        links.find(|(_, _, slot)| is_named(&slot.link)).map(|(addr, bearer, _)| (addr, bearer))
    }

    /// The media address that a link sends to.
    pub(crate) fn link_media(&self, addr: NodeAddr, bearer: BearerId) -> Option<MediaAddr> {
        self.get(&addr)?.peer.slot(bearer).map(|slot| slot.media)
    }

    /// Number of peers in contact whose bindings have all arrived.
    pub(crate) fn informed(&self) -> usize {
        self.values().filter(|entry| entry.peer.is_up() && entry.names.is_open()).count()
    }

    /// Receiving counters of the broadcast link, by peer, from an address on.
    pub(crate) fn broadcasts_from(
        &self,
        first: NodeAddr,
    ) -> impl Iterator<Item = (NodeAddr, NodeId, ReceiverStats)> {
        self.range(first..).map(|(addr, m)| (*addr, m.peer.id, m.receiver.stats()))
    }

    /// Clears the counters of a link; false if there is no link of this name.
    pub(crate) fn clear_link_stats(&mut self, name: &str) -> bool {
        let Some((addr, bearer)) = self.find_link(name) else { return false };
        let slot = self.get_mut(&addr).and_then(|entry| entry.peer.slot_mut(bearer));
        slot.map(|slot| slot.link.clear_stats()).is_some()
    }

    /// Clears the counters of a peer's broadcasts; false if there is no such peer.
    pub(crate) fn clear_broadcast_stats(&mut self, from: NodeAddr) -> bool {
        self.get_mut(&from).map(|entry| entry.receiver.clear_stats()).is_some()
    }
}
