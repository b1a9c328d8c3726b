//! Management of a running node: queries and changes. Spec: tipc.md §13.

use super::Stack;
use crate::addr::{Binding, ClusterId, NodeAddr, NodeId};
use crate::broadcast::ReceiverStats;
use crate::monitor::MonitorNode;
use crate::names::ListPosition;
use crate::outbox::BearerId;
use crate::socket::Endpoint;
use crate::switch::{
    BearerProperty, BroadcastInfo, Joined, LinkInfo, MonitorInfo, PeerError, PeerInfo, PropertyError,
};
use crate::time::Time;
use crate::wire::MediaAddr;

impl Stack {
    /// All sockets by port number, including those of the node's own services, from port `first` on.
    pub fn endpoints_from(&self, first: u32) -> impl Iterator<Item = (u32, &Endpoint)> {
        self.endpoints.range(first..).map(|(port, endpoint)| (*port, endpoint))
    }

    /// The bindings of a socket of this node.
    pub fn bindings_of(&self, port: u32) -> impl Iterator<Item = Binding> {
        self.switch.table().port_bindings(port)
    }

    /// The bindings of a socket of this node with their ages, newest first, from age `newest` on.
    pub fn bindings_up_to(&self, port: u32, newest: u64) -> impl Iterator<Item = (u64, Binding)> {
        self.switch.table().port_bindings_up_to(port, newest)
    }

    /// The bindings behind a position of an earlier list, or all, in the order in which the kernel lists them. As with
    /// the other lists that begin anywhere, what is not taken from the iterator costs nothing.
    pub fn list_bindings(
        &self,
        after: Option<ListPosition>,
    ) -> impl Iterator<Item = (ListPosition, Binding)> {
        self.switch.table().list(after)
    }

    /// The known nodes, by address, from one on.
    pub fn nodes_from(&self, first: NodeAddr) -> impl Iterator<Item = PeerInfo> {
        self.switch.peers_from(first)
    }

    /// The links, by peer and bearer, from one on.
    pub fn links_from(&self, first: (NodeAddr, BearerId)) -> impl Iterator<Item = LinkInfo> {
        self.switch.links_from(first)
    }

    /// The link with this name.
    #[must_use]
    pub fn link_named(&self, name: &str) -> Option<LinkInfo> {
        let at = self.switch.find_link(name)?;
        self.switch.links_from(at).next()
    }

    /// The media address that the link to a peer on a bearer sends to.
    #[must_use]
    pub fn link_media(&self, peer: NodeAddr, bearer: BearerId) -> Option<MediaAddr> {
        self.switch.link_media(peer, bearer)
    }

    /// Receiving counters of the broadcast link, by peer, from an address on.
    pub fn broadcasts_from(
        &self,
        first: NodeAddr,
    ) -> impl Iterator<Item = (NodeAddr, NodeId, ReceiverStats)> {
        self.switch.broadcasts_from(first)
    }

    /// The nodes of a bearer's monitor whose address is at least `distance` above this node's, this one first; `None`
    /// if there is no such bearer.
    pub fn monitor_nodes(
        &self,
        bearer: BearerId,
        distance: u32,
    ) -> Option<impl Iterator<Item = MonitorNode>> {
        self.switch.monitor_nodes(bearer, distance)
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
