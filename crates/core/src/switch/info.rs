//! Information about a node for tools: bearers, peers, links, counters.

use super::Switch;
use crate::addr::{NodeAddr, NodeId};
use crate::config::BearerConfig;
use crate::link::LinkStats;
use crate::names::NameReport;
use crate::node::state::State;
use crate::outbox::BearerId;

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
    /// Packet size, bytes.
    pub mtu: u16,
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
    /// Results of the peers' name messages.
    pub names: NameReport,
}

impl Switch {
    pub(crate) fn bearer_infos(&self) -> Vec<BearerInfo> {
        let some = (0..).zip(&self.bearers).filter_map(|(id, b)| Some((id, b.as_ref()?)));
        some.map(|(id, b)| BearerInfo {
            id,
            config: b.config.clone(),
            linked_peers: b.discoverer.linked_peers(),
        })
        .collect()
    }

    pub(crate) fn peer_infos(&self) -> Vec<PeerInfo> {
        let info = |m: &super::Member| PeerInfo {
            addr: m.peer.addr,
            id: m.peer.id,
            up: m.peer.is_up(),
            state: m.peer.state,
            capabilities: m.peer.capabilities,
        };
        self.members.0.values().map(info).collect()
    }

    pub(crate) fn link_infos(&self) -> Vec<LinkInfo> {
        let peers = self.members.0.values().map(|m| &m.peer);
        let links = peers.flat_map(|p| p.links().map(move |(bearer, slot)| (p, bearer, &slot.link)));
        links
            .map(|(peer, bearer, link)| LinkInfo {
                name: link.name(),
                peer: peer.addr,
                bearer,
                up: link.is_up(),
                active: (0..2).any(|s| peer.active_bearer(s) == Some(bearer)),
                mtu: link.mtu(),
                priority: link.config().priority,
                tolerance_ms: link.config().tolerance_ms,
                window: link.window(),
                stats: link.stats(),
            })
            .collect()
    }

    pub(crate) fn stats(&self) -> SwitchStats {
        self.stats
    }
}
