//! The binding table. Spec: tipc.md §1.2 to §1.4.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use thiserror::Error;

use super::ranges::{RangeEntry, RangeIndex, RangeKey};
use super::{MAX_BINDINGS, MAX_PEER_BINDINGS, MAX_USER_BINDINGS};
use crate::addr::{Binding, NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use crate::collections::{Arena, FixedMap, SeededState, Slot};
use crate::limits::{LINK_STATE, NODE_STATE, TOPOLOGY_SERVER};
use crate::planted::{self, Fault};

/// A binding came or went. Changes must reach subscribers in the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The binding.
    pub binding: Binding,
    /// True if it was made, false if it was withdrawn.
    pub up: bool,
    /// True if it is the first of exactly its range, or was the last.
    pub edge: bool,
}

/// Why a binding was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The upper end lies below the lower one.
    #[error("range {0} is upside down")]
    Inverted(ServiceRange),
    /// The same socket has a binding with this range and key.
    #[error("binding {0} of port {1} exists")]
    Duplicate(ServiceRange, PortId),
    /// The node, or the peer that it came from, has as many bindings as it may have.
    #[error("{0} bindings are the limit")]
    TooMany(usize),
    /// The socket has made 2^32 bindings.
    #[error("port {0} has used up its binding keys")]
    KeysUsedUp(u32),
}

/// Why a binding was not withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnbindError {
    /// The socket has no such binding in that scope.
    #[error("port {0} is not bound to that")]
    NotBound(u32),
}

/// Answer to an anycast lookup. Spec: tipc.md §1.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The socket's port, or 0 if the other node has to resolve the address.
    pub port: u32,
    /// The socket's node, or the node that resolves.
    pub node: NodeAddr,
    /// Lookup scope for the message header: 2 cluster, 3 node.
    pub scope: u8,
}

/// Which local bindings a multicast reaches. Spec: tipc.md §7.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeRule {
    /// All: the sender is on this node.
    Any,
    /// Those of one scope: cluster for multicast from another node, the header's for a group.
    Exactly(Scope),
}

/// Nodes that a multicast goes to. Spec: tipc.md §7.7.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    /// This node has a matching binding.
    pub local: bool,
    /// Other nodes with a matching binding, ascending.
    pub remote: Vec<NodeAddr>,
}

/// What identifies a binding for its withdrawal. Spec: tipc.md §1.2.
type Identity = (ServiceRange, PortId, u32);

/// Neighbours in a range's ring of bindings.
#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    next: Slot,
    prev: Slot,
}

/// Which of a range's two rings.
#[derive(Clone, Copy, Debug)]
enum RingKind {
    All,
    Local,
}

#[derive(Debug)]
struct Publication {
    binding: Binding,
    range: Slot,
    /// Age: counts up over all bindings ever made.
    id: u64,
    all: Ring,
    local: Ring,
}

impl Publication {
    fn ring(&mut self, kind: RingKind) -> &mut Ring {
        match kind {
            RingKind::All => &mut self.all,
            RingKind::Local => &mut self.local,
        }
    }
}

/// One range of a type with its bindings. Each ring is read from its head; round robin moves the head on, which is
/// the same as moving the first one to the end.
#[derive(Debug)]
struct Range {
    key: RangeKey,
    all: Option<Slot>,
    local: Option<Slot>,
}

impl Range {
    fn head(&mut self, kind: RingKind) -> &mut Option<Slot> {
        match kind {
            RingKind::All => &mut self.all,
            RingKind::Local => &mut self.local,
        }
    }
}

#[derive(Debug, Default)]
struct Service {
    /// Every range.
    all: RangeIndex,
    /// Ranges with a local binding.
    local: RangeIndex,
}

/// Every binding that this node knows.
#[derive(Debug)]
pub struct NameTable {
    own: NodeAddr,
    legacy: bool,
    services: FixedMap<u32, Service>,
    exact: FixedMap<ServiceRange, Slot>,
    ranges: Arena<Range>,
    publications: Arena<Publication>,
    identities: FixedMap<Identity, Slot>,
    /// Bindings by node and age; the own ones stand under [`NodeAddr::NONE`].
    nodes: BTreeMap<NodeAddr, BTreeMap<u64, Slot>>,
    /// Own bindings by port, newest first.
    ports: BTreeMap<(u32, Reverse<u64>), Slot>,
    /// Bindings that each port has ever made; part of its keys.
    made: BTreeMap<u32, u32>,
    user_bindings: usize,
    next_id: u64,
}

impl NameTable {
    /// An empty table of node `own` ([`NodeAddr::NONE`] until it has an address). `legacy`: the node uses `<Z.C.N>`
    /// addresses, which changes lookups. `seed` keeps peers from choosing colliding types.
    #[must_use]
    pub fn new(own: NodeAddr, legacy: bool, seed: u64) -> Self {
        let state = SeededState::new(seed);
        Self {
            own,
            legacy,
            services: FixedMap::with_hasher(state),
            exact: FixedMap::with_hasher(state),
            ranges: Arena::default(),
            publications: Arena::default(),
            identities: FixedMap::with_hasher(state),
            nodes: BTreeMap::new(),
            ports: BTreeMap::new(),
            made: BTreeMap::new(),
            user_bindings: 0,
            next_id: 0,
        }
    }

    /// The node has its address: the bindings made so far get it, without a change being reported. Spec: tipc.md §4.4.
    pub fn set_own_node(&mut self, own: NodeAddr) {
        self.own = own;
        let slots: Vec<Slot> =
            self.nodes.get(&NodeAddr::NONE).into_iter().flat_map(|m| m.values().copied()).collect();
        for slot in slots {
            let Some(publication) = self.publications.get_mut(slot) else { continue };
            let old = publication.binding;
            publication.binding.port.node = own;
            let new = publication.binding;
            self.identities.remove(&identity(&old));
            self.identities.insert(identity(&new), slot);
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

    /// Binds a local socket; its key follows from how many bindings the port has made. Spec: tipc.md §1.2.
    ///
    /// # Errors
    /// [`PublishError`]; nothing has changed then.
    pub fn bind(&mut self, port: u32, range: ServiceRange, scope: Scope) -> Result<Change, PublishError> {
        let made = self.made.get(&port).copied().unwrap_or(0);
        let key = port.wrapping_add(made).wrapping_add(1);
        if key == port {
            return Err(PublishError::KeysUsedUp(port));
        }
        let change = self.publish(Binding { range, scope, port: PortId { port, node: self.own }, key })?;
        self.made.insert(port, made.wrapping_add(1));
        Ok(change)
    }

    /// Withdraws the newest binding of a local socket to this range and scope, or with `None` all it has, newest first.
    ///
    /// # Errors
    /// [`UnbindError`] if it has no such binding; with `None` that is no error.
    pub fn unbind(
        &mut self,
        port: u32,
        which: Option<(ServiceRange, Scope)>,
    ) -> Result<Vec<Change>, UnbindError> {
        let matching = |b: &Binding| which.is_none_or(|(range, scope)| b.range == range && b.scope == scope);
        let all = self.port_slots(port).filter_map(|s| self.publications.get(s).map(|p| p.binding));
        let hits = all.filter(matching).take(if which.is_some() { 1 } else { usize::MAX });
        let hits: Vec<Binding> = hits.collect();
        if which.is_some() && hits.is_empty() {
            return Err(UnbindError::NotBound(port));
        }
        Ok(hits.iter().filter_map(|b| self.withdraw(b.range, b.port, b.key)).collect())
    }

    /// The socket is gone: withdraws all it has bound, newest first, and forgets its key count.
    pub fn forget_port(&mut self, port: u32) -> Vec<Change> {
        self.made.remove(&port);
        self.unbind(port, None).unwrap_or_default()
    }

    /// Bindings of a local socket, newest first.
    pub fn port_bindings(&self, port: u32) -> impl Iterator<Item = Binding> + '_ {
        self.port_slots(port).filter_map(|s| self.publications.get(s).map(|p| p.binding))
    }

    fn port_slots(&self, port: u32) -> impl Iterator<Item = Slot> + '_ {
        self.ports.range((port, Reverse(u64::MAX))..=(port, Reverse(0))).map(|(_, slot)| *slot)
    }

    /// Adds a binding, a local or a peer's. One without a node is a local one.
    ///
    /// # Errors
    /// [`PublishError`]; nothing has changed then.
    pub fn publish(&mut self, mut binding: Binding) -> Result<Change, PublishError> {
        if binding.port.node.is_none() {
            binding.port.node = self.own;
        }
        let local = binding.port.node == self.own;
        let holder = if local { NodeAddr::NONE } else { binding.port.node };
        self.check(&binding, holder)?;
        let range = self.range_for(binding.range);
        let id = self.next_id;
        self.next_id += 1;
        let (all, local_ring) = (Ring::default(), Ring::default());
        let slot = self.publications.insert(Publication { binding, range, id, all, local: local_ring });
        let edge = self.link_in(range, slot, RingKind::All);
        if local {
            if self.link_in(range, slot, RingKind::Local) {
                let entry = self.entry(range, binding.range);
                let service = self.services.entry(binding.range.service).or_default();
                service.local.insert(entry);
            }
            self.ports.insert((binding.port.port, Reverse(id)), slot);
            self.user_bindings += usize::from(is_user_type(binding.range.service));
        }
        self.identities.insert(identity(&binding), slot);
        self.nodes.entry(holder).or_default().insert(id, slot);
        Ok(Change { binding, up: true, edge })
    }

    fn check(&self, binding: &Binding, holder: NodeAddr) -> Result<(), PublishError> {
        if !binding.range.is_valid() {
            return Err(PublishError::Inverted(binding.range));
        }
        if self.identities.contains_key(&identity(binding)) {
            return Err(PublishError::Duplicate(binding.range, binding.port));
        }
        let user = is_user_type(binding.range.service);
        if holder.is_none() && user && self.user_bindings >= MAX_USER_BINDINGS {
            return Err(PublishError::TooMany(MAX_USER_BINDINGS));
        }
        let held = self.nodes.get(&holder).map_or(0, BTreeMap::len);
        if !holder.is_none() && held >= MAX_PEER_BINDINGS {
            return Err(PublishError::TooMany(MAX_PEER_BINDINGS));
        }
        // The node's own state must always find room, whatever users and peers have filled (§14.3, 2026-98098).
        if self.len() >= MAX_BINDINGS && (user || !holder.is_none()) {
            return Err(PublishError::TooMany(MAX_BINDINGS));
        }
        Ok(())
    }

    fn range_for(&mut self, range: ServiceRange) -> Slot {
        if let Some(slot) = self.exact.get(&range) {
            return *slot;
        }
        let key = RangeKey::new(range.lower, self.next_id);
        let slot = self.ranges.insert(Range { key, all: None, local: None });
        self.exact.insert(range, slot);
        let service = self.services.entry(range.service).or_default();
        service.all.insert(RangeEntry { key, upper: range.upper, range: slot });
        slot
    }

    fn entry(&self, slot: Slot, range: ServiceRange) -> RangeEntry {
        let key = self.ranges.get(slot).map_or(RangeKey::new(range.lower, 0), |r| r.key);
        RangeEntry { key, upper: range.upper, range: slot }
    }

    /// Puts a publication at the head of a ring; true if the ring was empty.
    fn link_in(&mut self, range: Slot, slot: Slot, kind: RingKind) -> bool {
        let head = self.ranges.get_mut(range).and_then(|r| r.head(kind).replace(slot));
        let next = head.unwrap_or(slot);
        let prev = self.publications.get_mut(next).map_or(slot, |p| p.ring(kind).prev);
        let prev = if head.is_some() { prev } else { slot };
        self.set_ring(slot, kind, Ring { next, prev });
        if head.is_some() {
            self.with_ring(prev, kind, |r| r.next = slot);
            self.with_ring(next, kind, |r| r.prev = slot);
        }
        head.is_none()
    }

    /// Takes a publication out of a ring; true if that left the ring empty.
    fn link_out(&mut self, range: Slot, slot: Slot, kind: RingKind) -> bool {
        let Some(ring) = self.publications.get_mut(slot).map(|p| *p.ring(kind)) else { return false };
        let last = ring.next == slot;
        self.with_ring(ring.prev, kind, |r| r.next = ring.next);
        self.with_ring(ring.next, kind, |r| r.prev = ring.prev);
        if let Some(head) = self.ranges.get_mut(range).map(|r| r.head(kind)) {
            if last {
                *head = None;
            } else if *head == Some(slot) {
                *head = Some(ring.next);
            }
        }
        last
    }

    fn set_ring(&mut self, slot: Slot, kind: RingKind, ring: Ring) {
        self.with_ring(slot, kind, |r| *r = ring);
    }

    fn with_ring(&mut self, slot: Slot, kind: RingKind, change: impl FnOnce(&mut Ring)) {
        if let Some(publication) = self.publications.get_mut(slot) {
            change(publication.ring(kind));
        }
    }

    /// Removes the binding with this identity; `None` if there is none.
    pub fn withdraw(&mut self, range: ServiceRange, port: PortId, key: u32) -> Option<Change> {
        let slot = self.identities.remove(&(range, port, key))?;
        let publication = self.publications.get(slot)?;
        let (binding, place, id) = (publication.binding, publication.range, publication.id);
        let local = port.node == self.own;
        let edge = self.link_out(place, slot, RingKind::All);
        let no_local = local && self.link_out(place, slot, RingKind::Local);
        self.publications.remove(slot);
        let range_key = self.ranges.get(place)?.key;
        if let Some(service) = self.services.get_mut(&range.service) {
            if no_local {
                service.local.remove(range_key);
            }
            if edge {
                service.all.remove(range_key);
            }
            if service.all.is_empty() {
                self.services.remove(&range.service);
            }
        }
        if edge {
            self.ranges.remove(place);
            self.exact.remove(&range);
        }
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
        Some(Change { binding, up: false, edge })
    }

    /// Contact with `node` is lost: withdraws all that was learned from it, in the order of arrival. Spec: tipc.md §6.5.
    pub fn withdraw_node(&mut self, node: NodeAddr) -> Vec<Change> {
        if node == self.own || node.is_none() {
            return Vec::new();
        }
        let held = self.node_bindings(node);
        held.iter().filter_map(|b| self.withdraw(b.range, b.port, b.key)).collect()
    }

    /// Bindings learned from `node`, oldest first.
    fn node_bindings(&self, node: NodeAddr) -> Vec<Binding> {
        let held = self.nodes.get(&node).into_iter().flat_map(|m| m.values());
        held.filter_map(|s| self.publications.get(*s).map(|p| p.binding)).collect()
    }

    /// Own bindings that peers must know, oldest first: what a bulk carries.
    #[must_use]
    pub fn own_cluster_bindings(&self) -> Vec<Binding> {
        let mut own = self.node_bindings(NodeAddr::NONE);
        own.retain(|b| b.scope == Scope::Cluster);
        own
    }

    /// Finds a socket for an anycast to `to`. `domain` restricts where it is looked for. Spec: tipc.md §1.4.
    pub fn lookup(&mut self, to: ServiceAddr, domain: NodeAddr) -> Option<Lookup> {
        let scope = if domain.is_none() { 2 } else { 3 };
        if !in_domain(self.legacy, domain, self.own) {
            return Some(Lookup { port: 0, node: domain, scope });
        }
        let service = self.services.get(&to.service)?;
        let only_local = domain == self.own;
        let index = if only_local { &service.local } else { &service.all };
        let slot = index.first(to.instance, to.instance)?;
        let range = self.ranges.get_mut(slot)?;
        let closest_first = self.legacy && domain.is_none() && range.local.is_some();
        let kind = if only_local || closest_first { RingKind::Local } else { RingKind::All };
        let head = range.head(kind);
        let publication = self.publications.get_mut((*head)?)?;
        *head = Some(publication.ring(kind).next);
        let PortId { port, node } = publication.binding.port;
        Some(Lookup { port, node, scope })
    }

    /// Nodes with a binding that overlaps `range`. Spec: tipc.md §7.7.
    #[must_use]
    pub fn destination_nodes(&self, range: ServiceRange) -> Destinations {
        let mut found = Destinations::default();
        self.for_overlapping(range, RingKind::All, |p| {
            let node = p.binding.port.node;
            if node == self.own {
                found.local = true;
            } else if found.remote.last() != Some(&node) {
                found.remote.push(node);
            }
        });
        found.remote.sort_unstable();
        found.remote.dedup();
        found
    }

    /// Ports of local sockets with a binding that overlaps `range`, each once, ascending; `out` is cleared first.
    /// Spec: tipc.md §7.7.
    pub fn local_ports(&self, range: ServiceRange, rule: ScopeRule, out: &mut Vec<u32>) {
        out.clear();
        self.for_overlapping(range, RingKind::Local, |p| {
            if rule == ScopeRule::Any || rule == ScopeRule::Exactly(p.binding.scope) {
                out.push(p.binding.port.port);
            }
        });
        out.sort_unstable();
        if !planted::active(Fault::CopyPerBinding) {
            out.dedup();
        }
    }

    /// What a new subscription to `range` is told first: with `each_port` every overlapping binding, else the oldest
    /// of each distinct range; oldest first. Spec: tipc.md §10.2.
    #[must_use]
    pub fn snapshot(&self, range: ServiceRange, each_port: bool) -> Vec<Binding> {
        let mut found: Vec<(u64, Binding)> = Vec::new();
        let mut current: Option<(Slot, usize)> = None;
        self.for_overlapping(range, RingKind::All, |p| {
            let same = current.filter(|(slot, _)| !each_port && *slot == p.range);
            match same.and_then(|(_, at)| found.get_mut(at)) {
                Some(oldest) if oldest.0 > p.id => *oldest = (p.id, p.binding),
                Some(_) => {}
                None => {
                    current = Some((p.range, found.len()));
                    found.push((p.id, p.binding));
                }
            }
        });
        found.sort_unstable_by_key(|(id, _)| *id);
        found.into_iter().map(|(_, b)| b).collect()
    }

    /// Calls `visit` for each publication in the rings of overlapping ranges, range by range.
    fn for_overlapping<'a>(
        &'a self,
        range: ServiceRange,
        kind: RingKind,
        mut visit: impl FnMut(&'a Publication),
    ) {
        let Some(service) = self.services.get(&range.service) else { return };
        let index = match kind {
            RingKind::All => &service.all,
            RingKind::Local => &service.local,
        };
        for slot in index.overlapping(range.lower, range.upper) {
            self.for_ring(slot, kind, &mut visit);
        }
    }

    fn for_ring<'a>(&'a self, range: Slot, kind: RingKind, visit: &mut impl FnMut(&'a Publication)) {
        let Some(range) = self.ranges.get(range) else { return };
        let Some(head) = (match kind {
            RingKind::All => range.all,
            RingKind::Local => range.local,
        }) else {
            return;
        };
        let mut at = head;
        while let Some(publication) = self.publications.get(at) {
            visit(publication);
            at = match kind {
                RingKind::All => publication.all.next,
                RingKind::Local => publication.local.next,
            };
            if at == head {
                return;
            }
        }
    }

    /// All bindings: by type, then range by range in lookup order, then as round robin would take them.
    #[must_use]
    pub fn bindings(&self) -> Vec<Binding> {
        let mut types: Vec<u32> = self.services.keys().copied().collect();
        types.sort_unstable();
        let mut all = Vec::with_capacity(self.len());
        for service in types {
            self.for_overlapping(ServiceRange::new(service, 0, u32::MAX), RingKind::All, |p| {
                all.push(p.binding)
            });
        }
        all
    }
}

fn identity(binding: &Binding) -> Identity {
    (binding.range, binding.port, binding.key)
}

const fn is_user_type(service: u32) -> bool {
    !matches!(service, NODE_STATE | TOPOLOGY_SERVER | LINK_STATE)
}

/// True if lookup domain `domain` covers node `own`. Spec: tipc.md §1.4.
fn in_domain(legacy: bool, domain: NodeAddr, own: NodeAddr) -> bool {
    let NodeAddr(d) = domain;
    let masked = |mask: u32| legacy && d == own.0 & mask;
    d == 0 || domain == own || masked(0xffff_f000) || masked(0xff00_0000)
}
