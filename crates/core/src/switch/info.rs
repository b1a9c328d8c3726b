//! Information about a node for tools: bearers, peers, links, counters.

use super::Switch;
use crate::addr::{NodeAddr, NodeId};
use crate::config::BearerConfig;
use crate::link::LinkStats;
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

impl Switch {
    pub(crate) fn bearer_infos(&self) -> Vec<BearerInfo> {
        let all = self.bearers.iter();
        all.map(|(id, b)| BearerInfo {
            id,
            config: b.config.clone(),
            linked_peers: b.discoverer.linked_peers(),
        })
        .collect()
    }

    /// The known nodes, by address, from one on.
    pub(crate) fn peers_from(&self, first: NodeAddr) -> impl Iterator<Item = PeerInfo> {
        let info = |m: &super::PeerEntry| PeerInfo {
            addr: m.peer.addr,
            id: m.peer.id,
            up: m.peer.is_up(),
            state: m.peer.state,
            capabilities: m.peer.capabilities,
        };
        self.peers.range(first..).map(move |(_, m)| info(m))
    }

    /// The links, by peer and bearer, from one on.
    pub(crate) fn links_from(&self, first: (NodeAddr, BearerId)) -> impl Iterator<Item = LinkInfo> {
        let peers = self.peers.range(first.0..).map(|(_, m)| &m.peer);
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

    /// The media address that a link sends to.
    pub(crate) fn link_media(&self, peer: NodeAddr, bearer: BearerId) -> Option<MediaAddr> {
        self.peers.get(&peer)?.peer.slot(bearer).map(|slot| slot.media)
    }

    pub(crate) fn stats(&self) -> SwitchStats {
        SwitchStats { deferred_bytes: self.deferral.total(), ..self.stats }
    }
}
