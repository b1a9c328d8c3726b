//! Management of the node: bearers at run time, removal of peers, the broadcast link, the neighbour monitor,
//! the identity. Spec: tipc.md §13.

use thiserror::Error;

use super::{PropertyError, Switch};
use crate::addr::{ClusterId, NodeAddr, NodeId};
use crate::broadcast::{MulticastPolicy, ReceiverStats, SenderStats};
use crate::discovery::OwnAddress;
use crate::monitor::MonitorNode;
use crate::node::state::State;
use crate::outbox::BearerId;
use crate::time::Time;

/// A property of a bearer. Tolerance and MTU apply to existing links at once; the others apply to links created later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BearerProperty {
    /// Priority of its links, 0 to 31.
    Priority(u8),
    /// Tolerance of its links, 50 to 30000 ms.
    ToleranceMs(u32),
    /// Largest window of its links, 50 to 8191 packets.
    Window(u16),
    /// Largest packet, bytes; a link that is up uses it after its next restart.
    Mtu(u32),
}

/// Reason why a peer was not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PeerError {
    /// The address is that of the node itself.
    #[error("this is the node itself")]
    Own,
    /// There is no such peer.
    #[error("no peer has this address or identity (see the list of nodes)")]
    Unknown,
    /// The peer is up.
    #[error("there is contact with the peer (a peer can be removed when it is down)")]
    Up,
}

/// The identity cannot be changed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the node has joined its cluster, or has connections (set this before its first bearer)")]
pub struct Joined;

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

impl Switch {
    pub(crate) fn cluster(&self) -> ClusterId {
        self.own.as_ref().map_or(self.config.cluster, OwnAddress::cluster)
    }

    pub(crate) fn is_legacy(&self) -> bool {
        self.own.as_ref().is_some_and(OwnAddress::is_legacy)
    }

    /// Changes a property of a bearer; false if there is no such bearer.
    pub(crate) fn set_bearer(
        &mut self,
        now: Time,
        id: BearerId,
        property: BearerProperty,
    ) -> Result<bool, PropertyError> {
        let Some(bearer) = self.bearers.get_mut(id) else {
            return Ok(false);
        };
        let mut config = bearer.config.clone();
        match property {
            BearerProperty::Priority(priority) => config.priority = priority,
            BearerProperty::ToleranceMs(ms) => config.tolerance_ms = ms,
            BearerProperty::Window(packets) => config.max_window = packets,
            BearerProperty::Mtu(bytes) => {
                config.mtu = bytes;
                config.max_receive = config.max_receive.max(bytes);
            }
        }
        config.check().map_err(|_| range_of(property))?;
        bearer.config = config;
        let peers: Vec<NodeAddr> = self.peers.keys().copied().collect();
        for addr in peers {
            self.with_peer(now, addr, |peer, ctx| {
                peer.with_link(id, ctx, |link, io| match property {
                    BearerProperty::ToleranceMs(ms) => link.set_tolerance(ms, io),
                    BearerProperty::Mtu(bytes) => link.set_bearer_mtu(bytes as u16),
                    BearerProperty::Priority(_) | BearerProperty::Window(_) => {}
                });
                peer.arm(ctx);
            });
        }
        Ok(true)
    }

    /// Removes a peer that is down.
    pub(crate) fn forget_peer(&mut self, addr: NodeAddr) -> Result<(), PeerError> {
        if addr == self.own_node() {
            return Err(PeerError::Own);
        }
        let entry = self.peers.get(&addr).ok_or(PeerError::Unknown)?;
        if !matches!(entry.peer.state, State::SelfDownPeerDown | State::SelfDownPeerLeaving) {
            return Err(PeerError::Up);
        }
        self.remove_peer(addr);
        Ok(())
    }

    /// Clears the counters of a link; false if there is no link of this name.
    pub(crate) fn clear_link_stats(&mut self, name: &str) -> bool {
        let Some((addr, bearer)) = self.find_link(name) else { return false };
        let slot = self.peers.get_mut(&addr).and_then(|m| m.peer.slot_mut(bearer));
        slot.is_some_and(|slot| {
            slot.link.clear_stats();
            true
        })
    }

    /// Clears the sending counters of the broadcast link, or with a peer the counters of its broadcasts.
    pub(crate) fn clear_broadcast_stats(&mut self, from: Option<NodeAddr>) -> bool {
        let Some(from) = from else {
            self.bcast.clear_stats();
            return true;
        };
        self.peers.get_mut(&from).is_some_and(|entry| {
            entry.receiver.clear_stats();
            true
        })
    }

    pub(crate) fn broadcast_info(&self) -> BroadcastInfo {
        BroadcastInfo { window: self.bcast.window(), policy: self.methods.policy(), sent: self.bcast.stats() }
    }

    /// Receiving counters of the broadcast link, by peer, from an address on.
    pub(crate) fn broadcasts_from(
        &self,
        first: NodeAddr,
    ) -> impl Iterator<Item = (NodeAddr, NodeId, ReceiverStats)> {
        let received = |(addr, m): (&NodeAddr, &super::PeerEntry)| (*addr, m.peer.id, m.receiver.stats());
        self.peers.range(first..).map(received)
    }

    /// The nodes of a bearer's monitor, this one first; see [`crate::monitor::Monitor::nodes_from`].
    pub(crate) fn monitor_nodes(
        &self,
        bearer: BearerId,
        distance: u32,
    ) -> Option<impl Iterator<Item = MonitorNode>> {
        Some(self.bearers.get(bearer)?.monitor.nodes_from(distance))
    }

    pub(crate) fn monitor_threshold(&self) -> usize {
        self.bearers.monitor_threshold()
    }

    pub(crate) fn monitor_infos(&self) -> Vec<MonitorInfo> {
        let all = self.bearers.iter();
        all.map(|(bearer, b)| MonitorInfo {
            bearer,
            name: b.config.name.clone(),
            active: b.monitor.is_active(),
            nodes: b.monitor.node_count(),
            generation: b.monitor.changes(),
        })
        .collect()
    }

    /// Changes cluster, identity or address while no other node can know the old ones.
    pub(crate) fn rename(
        &mut self,
        now: Time,
        cluster: Option<ClusterId>,
        identity: Option<NodeId>,
        address: Option<NodeAddr>,
    ) -> Result<(), Joined> {
        if !self.bearers.is_empty() || !self.peers.is_empty() || !self.connections.is_empty() {
            return Err(Joined);
        }
        let old = self.own_node();
        if let Some(cluster) = cluster {
            self.config.cluster = cluster;
            self.bcast.set_cluster(cluster);
        }
        let (config, rng) = (&mut self.config, &mut self.rng);
        let own = match (address, identity, &self.own) {
            (Some(address), _, _) => Some(OwnAddress::explicit(address, config.cluster, rng)),
            (None, Some(identity), _) => Some(OwnAddress::with_final_address(identity, config.cluster, rng)),
            (None, None, Some(own)) => Some(own.clone().with_cluster(config.cluster)),
            (None, None, None) => None,
        };
        let Some(own) = own else { return Ok(()) };
        let legacy = own.is_legacy();
        self.own = Some(own);
        if self.own_node() != old {
            if !old.is_none() {
                self.withdraw_internal(now, super::names::node_binding(old));
            }
            self.bindings.table_mut().set_legacy(legacy);
            self.address_final(now);
        }
        Ok(())
    }
}

fn range_of(property: BearerProperty) -> PropertyError {
    let (what, range) = match property {
        BearerProperty::Priority(_) => ("priority", "0 to 31"),
        BearerProperty::ToleranceMs(_) => ("tolerance", "50 to 30000 ms"),
        BearerProperty::Window(_) => ("window", "50 to 8191 packets"),
        BearerProperty::Mtu(_) => ("MTU", "the medium's minimum to 65535 bytes"),
    };
    PropertyError::Range { what, range }
}
