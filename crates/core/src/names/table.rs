//! The binding table. Spec: tipc.md §1.2 to §1.4.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

use thiserror::Error;

use super::replica::{Choice, Heap, Holders, Index, Memory, NoMemory, Place, Seen, Size, View};
use super::walk::PORTION;
use super::{ASSURED_BINDINGS, MAX_BINDINGS, MAX_PEER_BINDINGS, MAX_USER_BINDINGS, USER_BINDINGS};
use crate::Load;
use crate::addr::{Binding, NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use crate::collections::{Slab, Slot, Sparse};
use crate::limits::{LINK_STATE, NODE_STATE, TOPOLOGY_SERVER};

/// A binding was published or withdrawn. Changes must reach subscribers in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The binding.
    pub binding: Binding,
    /// True if published, false if withdrawn.
    pub up: bool,
    /// True if the binding is the first of exactly its range, or was the last.
    pub edge: bool,
    /// Number of bindings published before it in the life of the table.
    pub age: u64,
    /// True if no older binding has exactly its range.
    pub is_oldest: bool,
}

/// Reason why a binding was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The upper end is below the lower one.
    #[error("range {0} has its upper end below its lower end")]
    Inverted(ServiceRange),
    /// The same socket has a binding with this range and key.
    #[error("port {1} already has this binding of {0}")]
    Duplicate(ServiceRange, PortId),
    /// The node, or the peer that published the binding, has reached its limit.
    #[error("the limit of {0} bindings is reached (withdraw some first)")]
    TooMany(usize),
    /// The system has no memory for a larger table.
    #[error("no memory for another binding")]
    NoMemory,
    /// The socket has made 2^32 bindings.
    #[error("port {0} has no binding keys left (open a new socket)")]
    KeysUsedUp(u32),
}

/// Reason why a binding was not withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnbindError {
    /// The socket has no such binding with this scope.
    #[error("port {0} has no such binding")]
    NotBound(u32),
}

/// Answer to an anycast lookup. Spec: tipc.md §1.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The socket's port, or 0 if the other node must resolve the address.
    pub port: u32,
    /// The socket's node, or the node that must resolve the address.
    pub node: NodeAddr,
    /// Lookup scope for the message header: 2 cluster, 3 node.
    pub scope: u8,
}

/// The local bindings that a multicast reaches. Spec: tipc.md §7.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeRule {
    /// All of them: the sender is on this node.
    Any,
    /// Those of one scope: cluster for a multicast from another node, the header's scope for a group.
    Exactly(Scope),
}

/// Nodes that receive a multicast. Spec: tipc.md §7.7.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    /// This node has a matching binding.
    pub local: bool,
    /// Other nodes with a matching binding, ascending.
    pub remote: Vec<NodeAddr>,
}

impl Destinations {
    fn add(&mut self, seen: &Seen) {
        let node = seen.node();
        if node.is_none() {
            self.local = true;
        } else if self.remote.last() != Some(&node) {
            self.remote.push(node);
        }
    }

    fn sort(&mut self) {
        self.remote.sort_unstable();
        self.remote.dedup();
    }
}

/// Chains of the kernel's binding table: it lists service types by the number of their chain.
const CHAINS: u32 = 1024;

/// The place of a binding in a list of all: by the kernel's chain, by type and range, the newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPosition {
    chain: u32,
    range: ServiceRange,
    id: Reverse<u64>,
}

impl ListPosition {
    const fn new(range: ServiceRange, id: u64) -> Self {
        Self { chain: range.service % CHAINS, range, id: Reverse(id) }
    }
}

/// Identity of a binding, needed to withdraw it. Spec: tipc.md §1.2.
type Identity = (ServiceRange, PortId, u32);

/// A binding; its index is that of its record.
#[derive(Debug)]
struct Publication {
    binding: Binding,
    range: Slot,
    /// Age: the number of bindings published before it.
    id: u64,
}

/// All bindings known to this node.
#[derive(Debug)]
pub struct NameTable {
    own: NodeAddr,
    legacy: bool,
    /// The memory that lookups read; see [`super::replica`].
    memory: Box<dyn Memory>,
    index: Index,
    /// All bindings in the order of lists.
    listed: BTreeMap<ListPosition, u32>,
    ranges: Slab<Place>,
    publications: Sparse<Publication>,
    /// In a tree, because a hash table that grows moves all its entries at once.
    identities: BTreeMap<Identity, u32>,
    /// Bindings by node and age; those of this node are under [`NodeAddr::NONE`].
    nodes: BTreeMap<NodeAddr, BTreeMap<u64, u32>>,
    /// This node's bindings by port, newest first.
    ports: BTreeMap<(u32, Reverse<u64>), u32>,
    /// Number of bindings that each port has ever made; part of their keys.
    bindings_made: BTreeMap<u32, u32>,
    user_bindings: usize,
    /// Limit of user bindings.
    limit: usize,
    next_id: u64,
}

impl NameTable {
    /// An empty table of node `own` ([`NodeAddr::NONE`] until it has an address). `legacy`: the node uses `<Z.C.N>`
    /// addresses, which changes lookups.
    #[must_use]
    pub fn new(own: NodeAddr, legacy: bool) -> Self {
        let mut table = Self {
            own,
            legacy,
            memory: Box::<Heap>::default(),
            index: Index::default(),
            listed: BTreeMap::new(),
            ranges: Slab::default(),
            publications: Sparse::default(),
            identities: BTreeMap::new(),
            nodes: BTreeMap::new(),
            ports: BTreeMap::new(),
            bindings_made: BTreeMap::new(),
            user_bindings: 0,
            limit: USER_BINDINGS,
            next_id: 0,
        };
        // If memory is short now, the first binding reports it.
        table.make_room(0).ok();
        table
    }

    /// Moves the part that lookups read to memory that other processes see; it must be new.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing has changed.
    pub fn share(&mut self, mut memory: Box<dyn Memory>) -> Result<(), NoMemory> {
        let slots = self.ranges.capacity();
        let used = self.index.used(self.memory.areas());
        let size = Size { cursors: slots, ..used };
        if !Size::of(&memory.areas()).holds(size) {
            memory.grow(size, &mut |_, _| {})?;
        }
        self.index.carry(self.memory.areas(), memory.areas());
        self.memory = memory;
        Ok(())
    }

    /// Sets the limit of user bindings of local sockets, at most [`MAX_USER_BINDINGS`]. Existing bindings stay.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(MAX_USER_BINDINGS);
    }

    pub(super) fn view(&self) -> View<'_> {
        View::new(self.memory.areas())
    }

    /// Ensures memory for one more binding, and for the withdrawal of all.
    fn make_room(&mut self, slot: Slot) -> Result<(), NoMemory> {
        let areas = self.memory.areas();
        let (have, needed) = (Size::of(&areas), self.index.needed(areas, slot));
        if have.holds(needed) {
            return Ok(());
        }
        let Self { memory, index, .. } = self;
        memory.grow(have.grown(needed), &mut |old, new| index.carry(old, new))?;
        index.set_own(self.memory.areas(), self.own, self.legacy);
        Ok(())
    }

    /// Sets whether the node uses `<Z.C.N>` addresses, as in [`Self::new`]; call it before [`Self::set_own_node`].
    pub fn set_legacy(&mut self, legacy: bool) {
        self.legacy = legacy;
    }

    /// Sets the node's address: existing bindings get it, and no change is reported. Spec: tipc.md §4.4.
    pub fn set_own_node(&mut self, own: NodeAddr) {
        self.own = own;
        self.index.set_own(self.memory.areas(), own, self.legacy);
        let records: Vec<u32> =
            self.nodes.get(&NodeAddr::NONE).into_iter().flat_map(|m| m.values().copied()).collect();
        for record in records {
            let Some(publication) = self.publications.get_mut(record as usize) else { continue };
            let old = publication.binding;
            publication.binding.port.node = own;
            let new = publication.binding;
            self.identities.remove(&identity(&old));
            self.identities.insert(identity(&new), record);
        }
    }

    /// This node's address.
    #[must_use]
    pub fn own_node(&self) -> NodeAddr {
        self.own
    }

    /// Bindings in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.identities.len()
    }

    /// True if there is no binding.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.identities.is_empty()
    }

    /// Binds a local socket; the key follows from the number of bindings that the port has made. Spec: tipc.md §1.2.
    ///
    /// # Errors
    /// [`PublishError`]; nothing has changed.
    pub fn bind(&mut self, port: u32, range: ServiceRange, scope: Scope) -> Result<Change, PublishError> {
        let bindings_made = self.bindings_made.get(&port).copied().unwrap_or(0);
        let key = port.wrapping_add(bindings_made).wrapping_add(1);
        if key == port {
            return Err(PublishError::KeysUsedUp(port));
        }
        let change = self.publish(Binding { range, scope, port: PortId { port, node: self.own }, key })?;
        self.bindings_made.insert(port, bindings_made.wrapping_add(1));
        Ok(change)
    }

    /// Withdraws the newest binding of a local socket with this range and scope; with `None` all its bindings, newest
    /// first.
    ///
    /// # Errors
    /// [`UnbindError`] if there is no such binding; never with `None`.
    pub fn unbind(
        &mut self,
        port: u32,
        which: Option<(ServiceRange, Scope)>,
    ) -> Result<Vec<Change>, UnbindError> {
        let matching = |b: &Binding| which.is_none_or(|(range, scope)| b.range == range && b.scope == scope);
        let hits =
            self.port_bindings(port).filter(matching).take(if which.is_some() { 1 } else { usize::MAX });
        let hits: Vec<Binding> = hits.collect();
        if which.is_some() && hits.is_empty() {
            return Err(UnbindError::NotBound(port));
        }
        Ok(hits.iter().filter_map(|b| self.withdraw(b.range, b.port, b.key)).collect())
    }

    /// Withdraws all bindings of a closed socket, newest first, and removes its key count.
    pub fn forget_port(&mut self, port: u32) -> Vec<Change> {
        self.bindings_made.remove(&port);
        self.unbind(port, None).unwrap_or_default()
    }

    /// Bindings of a local socket, newest first.
    pub fn port_bindings(&self, port: u32) -> impl Iterator<Item = Binding> + '_ {
        self.port_bindings_up_to(port, u64::MAX).map(|(_, binding)| binding)
    }

    /// Bindings of a local socket with their ages, newest first, from age `newest` on.
    pub fn port_bindings_up_to(&self, port: u32, newest: u64) -> impl Iterator<Item = (u64, Binding)> + '_ {
        let records = self.ports.range((port, Reverse(newest))..=(port, Reverse(0)));
        records.filter_map(|((_, Reverse(id)), record)| Some((*id, self.publication(*record)?.binding)))
    }

    /// The bindings behind a position of an earlier list, or all, in the order in which the kernel lists them; finding
    /// the first one costs no walk through those before it.
    pub fn list(&self, after: Option<ListPosition>) -> impl Iterator<Item = (ListPosition, Binding)> + '_ {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let records = self.listed.range((from, Bound::Unbounded));
        records.filter_map(|(at, record)| Some((*at, self.publication(*record)?.binding)))
    }

    /// The slot of a range that has bindings.
    fn slot_of(&self, range: ServiceRange) -> Option<Slot> {
        let (at, record) = self.listed.range(ListPosition::new(range, u64::MAX)..).next()?;
        (at.range == range).then(|| self.publication(*record).map(|p| p.range))?
    }

    fn publication(&self, record: u32) -> Option<&Publication> {
        self.publications.get(record as usize)
    }

    fn binding(&self, record: u32) -> Option<&Binding> {
        self.publication(record).map(|publication| &publication.binding)
    }

    /// The range of a binding.
    pub(super) fn range_of(&self, record: u32) -> Option<ServiceRange> {
        self.binding(record).map(|binding| binding.range)
    }

    /// The bindings of exactly a range with their ages, newest first, from age `newest` on.
    pub(super) fn bindings_of_range(
        &self,
        range: ServiceRange,
        newest: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, &Binding)> + '_ {
        let records = self.listed.range(ListPosition::new(range, newest)..=ListPosition::new(range, 0));
        records.filter_map(|(at, record)| Some((at.id.0, self.binding(*record)?)))
    }

    /// The age of the next binding.
    pub(super) fn next_age(&self) -> u64 {
        self.next_id
    }

    /// Adds a binding of a local socket or a peer. A binding without a node is local.
    ///
    /// # Errors
    /// [`PublishError`]; nothing has changed.
    pub fn publish(&mut self, mut binding: Binding) -> Result<Change, PublishError> {
        if binding.port.node.is_none() {
            binding.port.node = self.own;
        }
        let local = binding.port.node == self.own;
        let holder = if local { NodeAddr::NONE } else { binding.port.node };
        self.check(&binding, holder)?;
        let range = self.slot_of(binding.range);
        self.make_room(range.unwrap_or(self.ranges.next())).map_err(|_| PublishError::NoMemory)?;
        let id = self.next_id;
        let range = range.unwrap_or_else(|| {
            let slot = self.ranges.next();
            self.ranges.insert(Place::new(binding.range, slot, id))
        });
        let areas = self.memory.areas();
        let place = self.ranges.get_mut(range).ok_or(PublishError::NoMemory)?;
        let edge = place.is_empty();
        let record = self.index.add(areas, place, &binding, self.own).ok_or(PublishError::NoMemory)?;
        self.next_id += 1;
        self.listed.insert(ListPosition::new(binding.range, id), record);
        self.publications.insert(record as usize, Publication { binding, range, id });
        if local {
            self.ports.insert((binding.port.port, Reverse(id)), record);
            self.user_bindings += usize::from(is_user_type(binding.range.service));
        }
        self.identities.insert(identity(&binding), record);
        self.nodes.entry(holder).or_default().insert(id, record);
        Ok(Change { binding, up: true, edge, age: id, is_oldest: edge })
    }

    fn check(&self, binding: &Binding, holder: NodeAddr) -> Result<(), PublishError> {
        if !binding.range.is_valid() {
            return Err(PublishError::Inverted(binding.range));
        }
        if self.identities.contains_key(&identity(binding)) {
            return Err(PublishError::Duplicate(binding.range, binding.port));
        }
        let user = is_user_type(binding.range.service);
        if holder.is_none() && user && self.user_bindings >= self.limit {
            return Err(PublishError::TooMany(self.limit));
        }
        let held = self.nodes.get(&holder).map_or(0, BTreeMap::len);
        if !holder.is_none() && held >= MAX_PEER_BINDINGS {
            return Err(PublishError::TooMany(MAX_PEER_BINDINGS));
        }
        // The node's own state must always fit, whatever users and peers have bound (§14.3, 2026-98098).
        let is_assured = !holder.is_none() && held < ASSURED_BINDINGS;
        if self.len() >= MAX_BINDINGS && (user || !holder.is_none()) && !is_assured {
            return Err(PublishError::TooMany(MAX_BINDINGS));
        }
        Ok(())
    }

    /// Removes the binding with this identity; `None` if there is none.
    pub fn withdraw(&mut self, range: ServiceRange, port: PortId, key: u32) -> Option<Change> {
        let record = self.identities.remove(&(range, port, key))?;
        let Publication { binding, range: slot, id } = self.publications.remove(record as usize)?;
        let place = self.ranges.get_mut(slot)?;
        self.index.remove(self.memory.areas(), place, record);
        let edge = place.is_empty();
        if edge {
            self.ranges.remove(slot);
        }
        self.listed.remove(&ListPosition::new(range, id));
        let local = port.node == self.own;
        let holder = if local { NodeAddr::NONE } else { port.node };
        if let Some(held) = self.nodes.get_mut(&holder) {
            held.remove(&id);
            if held.is_empty() {
                self.nodes.remove(&holder);
            }
        }
        if local {
            self.ports.remove(&(port.port, Reverse(id)));
            self.user_bindings -= usize::from(is_user_type(range.service));
        }
        let is_oldest = edge || self.bindings_of_range(range, id).next().is_none();
        Some(Change { binding, up: false, edge, age: id, is_oldest })
    }

    /// Contact with `node` is lost: withdraws all bindings learned from it, in the order of arrival. Spec: tipc.md
    /// §6.5.
    pub fn withdraw_node(&mut self, node: NodeAddr) -> Vec<Change> {
        self.withdraw_oldest(node, usize::MAX)
    }

    /// As [`Self::withdraw_node`], but only the oldest `most` bindings.
    pub fn withdraw_oldest(&mut self, node: NodeAddr, most: usize) -> Vec<Change> {
        if node == self.own || node.is_none() {
            return Vec::new();
        }
        let held: Vec<Binding> = self.node_bindings(node).take(most).collect();
        held.iter().filter_map(|b| self.withdraw(b.range, b.port, b.key)).collect()
    }

    /// True if there are bindings learned from `node`.
    #[must_use]
    pub fn has_bindings_of(&self, node: NodeAddr) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Bindings learned from `node`, oldest first.
    fn node_bindings(&self, node: NodeAddr) -> impl Iterator<Item = Binding> + '_ {
        let held = self.nodes.get(&node).into_iter().flat_map(|m| m.values());
        held.filter_map(|record| self.publication(*record).map(|p| p.binding))
    }

    /// Those of cluster scope among this node's first `most` bindings from an age on, oldest first: a part of a bulk.
    /// And the age of the next binding, if there is one.
    pub(super) fn own_cluster_bindings_from(&self, age: u64, most: usize) -> (Vec<Binding>, Option<u64>) {
        let mut held = self.nodes.get(&NodeAddr::NONE).into_iter().flat_map(|held| held.range(age..));
        let all = held.by_ref().take(most).filter_map(|(_, record)| self.binding(*record));
        let found = all.filter(|binding| binding.scope == Scope::Cluster).copied().collect();
        (found, held.next().map(|(age, _)| *age))
    }

    /// Finds a socket for an anycast to `to`, within the lookup domain `domain`. Spec: tipc.md §1.4.
    pub fn lookup(&mut self, to: ServiceAddr, domain: NodeAddr) -> Option<Lookup> {
        self.view().lookup(to, domain).ok().flatten()
    }

    /// Chooses a socket for an anycast; see [`View::choose`].
    pub(crate) fn choose(
        &self,
        to: ServiceAddr,
        domain: NodeAddr,
        load: impl FnMut(Lookup) -> Load,
    ) -> Option<Choice> {
        self.view().choose(to, domain, load).ok().flatten()
    }

    /// Nodes with a binding that overlaps `range`. Spec: tipc.md §7.7.
    #[must_use]
    pub fn destination_nodes(&self, range: ServiceRange) -> Destinations {
        let mut found = Destinations::default();
        self.for_overlapping(range, |seen| found.add(&seen));
        found.sort();
        found
    }

    /// As [`Self::destination_nodes`], if there are few bindings; `None` if a [`Walk`](super::Walk) has to find them.
    /// Bindings of this node may be missing if only remote ones are asked for.
    pub(crate) fn few_destination_nodes(
        &self,
        range: ServiceRange,
        holders: Holders,
    ) -> Option<Destinations> {
        let mut found = Destinations::default();
        let is_complete = self.view().for_few_bindings(PORTION, (range, holders), |seen| found.add(&seen));
        found.sort();
        is_complete.then_some(found)
    }

    /// Ports of local sockets with a binding that overlaps `range`, each once, ascending; `out` is cleared first.
    /// Spec: tipc.md §7.7.
    pub fn local_ports(&self, range: ServiceRange, rule: ScopeRule, out: &mut Vec<u32>) {
        self.view().local_ports(range, rule, out).ok();
    }

    /// As [`Self::local_ports`], if there are few bindings; false if a [`Walk`](super::Walk) has to find them.
    pub(crate) fn few_local_ports(&self, range: ServiceRange, rule: ScopeRule, out: &mut Vec<u32>) -> bool {
        self.view().few_local_ports(PORTION, range, rule, out)
    }

    /// Calls `visit` for each binding in overlapping ranges, range by range.
    fn for_overlapping(&self, range: ServiceRange, visit: impl FnMut(Seen)) {
        // There is no other writer, so reads cannot be torn.
        self.view().for_each_binding(range, visit).ok();
    }

    /// All bindings: by type, then by range in lookup order, then in round-robin order.
    #[must_use]
    pub fn bindings(&self) -> Vec<Binding> {
        let mut all = Vec::with_capacity(self.len());
        self.view().for_all(|seen| all.extend(self.publication(seen.record).map(|p| p.binding))).ok();
        all
    }
}

fn identity(binding: &Binding) -> Identity {
    (binding.range, binding.port, binding.key)
}

const fn is_user_type(service: u32) -> bool {
    !matches!(service, NODE_STATE | TOPOLOGY_SERVER | LINK_STATE)
}
