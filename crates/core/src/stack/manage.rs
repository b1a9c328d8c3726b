//! Management of a running node: queries and changes. Spec: tipc.md §13.

use super::Stack;
use crate::addr::{Binding, ClusterId, NodeAddr, NodeId};
use crate::outbox::BearerId;
use crate::socket::Endpoint;
use crate::switch::{BearerProperty, BroadcastInfo, Joined, MonitorInfo, PeerError, PropertyError};
use crate::time::Time;

impl Stack {
    /// All sockets by port number, including those of the node's own services, from port `first` on.
    pub fn endpoints_from(&self, first: u32) -> impl Iterator<Item = (u32, &Endpoint)> {
        self.endpoints.range(first..).map(|(port, endpoint)| (*port, endpoint))
    }

    /// The bindings of a socket of this node.
    pub fn bindings_of(&self, port: u32) -> impl Iterator<Item = Binding> {
        self.switch.table().port_bindings(port)
    }

    /// Number of the cluster.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.switch.cluster()
    }

    /// True if the node has an explicit address, `<Z.C.N>`.
    #[must_use]
    pub fn is_legacy(&self) -> bool {
        self.switch.is_legacy()
    }

    /// Changes a property of a bearer; false if there is no bearer with this number.
    ///
    /// # Errors
    /// [`PropertyError::Range`].
    pub fn set_bearer(
        &mut self,
        now: Time,
        id: BearerId,
        property: BearerProperty,
    ) -> Result<bool, PropertyError> {
        let known = self.switch.set_bearer(now, id, property)?;
        self.process_pending(now);
        Ok(known)
    }

    /// Removes a peer that is down.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub fn forget_peer(&mut self, addr: NodeAddr) -> Result<(), PeerError> {
        self.switch.forget_peer(addr)
    }

    /// Clears the counters of a link; false if there is no link of this name.
    pub fn clear_link_stats(&mut self, name: &str) -> bool {
        self.switch.clear_link_stats(name)
    }

    /// Clears the sending counters of the broadcast link, or with a peer the counters of its broadcasts; false if there
    /// is no such peer.
    pub fn clear_broadcast_stats(&mut self, from: Option<NodeAddr>) -> bool {
        self.switch.clear_broadcast_stats(from)
    }

    /// The broadcast link.
    #[must_use]
    pub fn broadcast(&self) -> BroadcastInfo {
        self.switch.broadcast_info()
    }

    /// Number of nodes above which the overlapping-ring monitor is used.
    #[must_use]
    pub fn monitor_threshold(&self) -> usize {
        self.switch.monitor_threshold()
    }

    /// The neighbour monitor of every bearer.
    #[must_use]
    pub fn monitors(&self) -> Vec<MonitorInfo> {
        self.switch.monitor_infos()
    }

    /// Changes cluster, identity or address of the node (an address takes precedence over an identity), while no other
    /// node knows the old ones. Bindings and sockets stay.
    ///
    /// # Errors
    /// [`Joined`].
    pub fn rename(
        &mut self,
        now: Time,
        cluster: Option<ClusterId>,
        identity: Option<NodeId>,
        address: Option<NodeAddr>,
    ) -> Result<(), Joined> {
        self.switch.rename(now, cluster, identity, address)?;
        self.process_pending(now);
        Ok(())
    }
}
