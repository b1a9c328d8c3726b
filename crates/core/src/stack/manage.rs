//! Management of a running node: queries, changes and keys. Spec: tipc.md §12, §13.

use super::Stack;
use crate::addr::{Binding, ClusterId, NodeAddr, NodeId, PortId, ServiceAddr};
use crate::broadcast::{MulticastPolicy, ReceiverStats};
use crate::crypto::{EncryptionInfo, EncryptionStats, Key, KeyUse, SetKeyError};
use crate::monitor::MonitorNode;
use crate::names::ListPosition;
use crate::names::replica::{Memory, NoMemory};
use crate::outbox::BearerId;
use crate::socket::Endpoint;
use crate::switch::{
    BearerInfo, BearerProperty, BroadcastInfo, Joined, LinkInfo, LinkProperty, MonitorInfo, PeerError,
    PeerInfo, PropertyError, SwitchStats,
};
use crate::time::Time;
use crate::wire::MediaAddr;

impl Stack {
    /// All sockets by port number, including those of the node's own services, from port `first` on.
    pub fn endpoints_from(&self, first: u32) -> impl Iterator<Item = (u32, &Endpoint)> {
        self.endpoints.iter_from(first)
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
        self.switch.peers.infos_from(first)
    }

    /// The links, by peer and bearer, from one on.
    pub fn links_from(&self, first: (NodeAddr, BearerId)) -> impl Iterator<Item = LinkInfo> {
        self.switch.peers.links_from(first)
    }

    /// The link with this name.
    #[must_use]
    pub fn link_named(&self, name: &str) -> Option<LinkInfo> {
        let at = self.switch.peers.find_link(name)?;
        self.switch.peers.links_from(at).next()
    }

    /// The media address that the link to a peer on a bearer sends to.
    #[must_use]
    pub fn link_media(&self, peer: NodeAddr, bearer: BearerId) -> Option<MediaAddr> {
        self.switch.peers.link_media(peer, bearer)
    }

    /// Receiving counters of the broadcast link, by peer, from an address on.
    pub fn broadcasts_from(
        &self,
        first: NodeAddr,
    ) -> impl Iterator<Item = (NodeAddr, NodeId, ReceiverStats)> {
        self.switch.peers.broadcasts_from(first)
    }

    /// The nodes of a bearer's monitor whose address is at least `distance` above this node's, this one first; `None`
    /// if there is no such bearer.
    pub fn monitor_nodes(
        &self,
        bearer: BearerId,
        distance: u32,
    ) -> Option<impl Iterator<Item = MonitorNode>> {
        self.switch.bearers.monitor_nodes(bearer, distance)
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
        self.switch.peers.clear_link_stats(name)
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
        self.switch.bearers.monitor_threshold()
    }

    /// The neighbour monitor of every bearer.
    #[must_use]
    pub fn monitors(&self) -> Vec<MonitorInfo> {
        self.switch.bearers.monitor_infos().collect()
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

    /// The bearers.
    #[must_use]
    pub fn bearers(&self) -> Vec<BearerInfo> {
        self.switch.bearers.infos().collect()
    }

    /// The known nodes, by address.
    #[must_use]
    pub fn nodes(&self) -> Vec<PeerInfo> {
        self.switch.peers.infos_from(NodeAddr::NONE).collect()
    }

    /// The links, by peer and bearer.
    #[must_use]
    pub fn links(&self) -> Vec<LinkInfo> {
        self.switch.peers.links_from((NodeAddr::NONE, 0)).collect()
    }

    /// The whole binding table.
    #[must_use]
    pub fn bindings(&self) -> Vec<Binding> {
        self.switch.table().bindings()
    }

    /// The socket that an anycast to a service address would go to now; round robin may return another one next time.
    /// Port 0 leaves the choice to the other node. Spec: tipc.md §1.4.
    pub fn lookup(&mut self, to: ServiceAddr, domain: NodeAddr) -> Option<PortId> {
        self.switch.resolve(to, domain).map(|found| PortId { port: found.port, node: found.node })
    }

    /// Moves the part of the binding table that lookups read to memory that other processes see; it must be new. From
    /// then on a binding is visible to all of them when [`Stack::bind`] returns.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing has changed.
    pub fn share_names(&mut self, memory: Box<dyn Memory>) -> Result<(), NoMemory> {
        self.switch.bindings.table_mut().share(memory)
    }

    /// Sets the limit of user bindings of all sockets of this node; default [`crate::names::USER_BINDINGS`], at most
    /// [`crate::names::MAX_USER_BINDINGS`]. Existing bindings stay.
    pub fn set_binding_limit(&mut self, bindings: usize) {
        self.switch.bindings.table_mut().set_limit(bindings);
    }

    /// Changes a property of the link with this name.
    ///
    /// # Errors
    /// See [`PropertyError`].
    pub fn set_link(&mut self, now: Time, name: &str, property: LinkProperty) -> Result<(), PropertyError> {
        self.switch.set_link(now, name, property)?;
        self.process_pending(now);
        Ok(())
    }

    /// Sets the method of multicasts and name updates. Spec: tipc.md §7.6.
    ///
    /// # Errors
    /// See [`PropertyError`].
    pub fn set_multicast_policy(&mut self, policy: MulticastPolicy) -> Result<(), PropertyError> {
        self.switch.methods.set_policy(policy)
    }

    /// Sets the window of the broadcast link, packets, 32 to 8191; default 50.
    ///
    /// # Errors
    /// See [`PropertyError`].
    pub fn set_broadcast_window(&mut self, packets: u16) -> Result<(), PropertyError> {
        self.switch.set_broadcast_window(packets)
    }

    /// Sets the number of nodes above which the overlapping-ring monitor is used, 0 to 4095; default 32. Spec: tipc.md
    /// §11.
    ///
    /// # Errors
    /// See [`PropertyError`].
    pub fn set_monitor_threshold(&mut self, nodes: usize) -> Result<(), PropertyError> {
        self.switch.bearers.set_monitor_threshold(nodes)
    }

    /// Counters of the switch.
    #[must_use]
    pub fn stats(&self) -> SwitchStats {
        self.switch.stats()
    }

    /// Sets a key. From the first key of its own on the node sends nothing in clear text. While another key is being
    /// introduced, which takes 10 s, the new one waits ([`crate::crypto::KeyRole::Waiting`]).
    ///
    /// # Errors
    /// See [`SetKeyError`].
    pub fn set_key(&mut self, now: Time, key_use: KeyUse, key: Key) -> Result<(), SetKeyError> {
        self.switch.set_key(now, key_use, key)?;
        self.process_pending(now);
        Ok(())
    }

    /// Removes all keys: the node sends clear text again.
    pub fn flush_keys(&mut self) {
        self.switch.flush_keys();
    }

    /// Makes a new session key now, and hands it to the peers. It has the length of the key in use.
    ///
    /// # Errors
    /// See [`SetKeyError`].
    pub fn rekey(&mut self, now: Time) -> Result<(), SetKeyError> {
        self.switch.rekey(now)?;
        self.process_pending(now);
        Ok(())
    }

    /// Sets the interval of new session keys, minutes; default [`crate::crypto::REKEYING_MINUTES`], 0 for none.
    pub fn set_rekeying(&mut self, now: Time, minutes: u32) {
        self.switch.encryption.set_rekeying(now, minutes);
    }

    /// Sets whether clear text is refused once a key is set.
    pub fn set_strict(&mut self, strict: bool) {
        self.switch.encryption.set_strict(strict);
    }

    /// The counters of encryption.
    #[must_use]
    pub fn encryption_stats(&self) -> EncryptionStats {
        self.switch.encryption.stats()
    }

    /// The keys in use, and the counters of encryption.
    #[must_use]
    pub fn encryption(&self) -> EncryptionInfo {
        self.switch.encryption.info()
    }

    /// The sockets that are in groups: group, port and socket, from a group and a port in it on.
    pub fn sockets_in_groups_from(
        &self,
        group: u32,
        port: u32,
    ) -> impl Iterator<Item = (u32, u32, &Endpoint)> {
        let all = self.groups.iter_from(group, port);
        all.filter_map(|(group, port)| Some((group, port, self.endpoint(port)?)))
    }
}
