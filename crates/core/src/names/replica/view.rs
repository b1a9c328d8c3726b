//! Lookups in a replica that may change, or be corrupted, at any moment.

use core::ops::ControlFlow;

use thiserror::Error;

use super::blocks::{Block, Branch, Leaf};
use super::choice::{Choice, Picked};
use super::layout::{
    Access, Atomics, GONE, GRACE, Mark, Meta, OWN, PackedPort, ROOT, Record, Ref, Ring, SUPERSEDED, VERSION,
    follow, point, unpack,
};
use super::memory::Areas;
use super::portion::Holders;
use crate::Load;
use crate::addr::{NodeAddr, Scope, ServiceAddr, ServiceRange};
use crate::names::{Lookup, ScopeRule};
use crate::planted::{self, Fault};

/// Maximum number of attempts to read a table that changes too fast. Each attempt takes less than [`GRACE`] changes
/// unless the reader is preempted.
const ATTEMPTS: u32 = 16;
/// Maximum number of attempts to advance a cursor that others advance too.
pub(super) const CURSOR_ATTEMPTS: u32 = 8;
/// Steps in a ring between two checks that its start is still part of it.
const RING_CHECK: u32 = 64;

/// Reason why a lookup has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The table has moved to another segment.
    #[error("the binding table has moved to another segment (ask the node for it)")]
    Superseded,
    /// The node has stopped; the table does not change any more.
    #[error("the node of this binding table has ended (attach to the next one)")]
    Gone,
    /// Changes interfered with every attempt to read.
    #[error("the binding table changed faster than it could be read {ATTEMPTS} times (ask the node)")]
    Contended,
    /// The memory does not hold a valid binding table.
    #[error("the binding table is damaged (attach to the node again)")]
    Damaged,
}

/// A read that must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Torn {
    /// May succeed when repeated.
    Retry,
    /// Impossible contents, unless the memory was reused meanwhile.
    Invalid,
}

pub(super) type Reading<T> = Result<T, Torn>;

/// A binding visited by a walk.
pub(crate) struct Seen {
    /// The binding's record.
    pub(crate) record: u32,
    pub(super) socket: PackedPort,
    pub(crate) scope: Scope,
}

impl Seen {
    /// The binding's node; 0 stands for the own node.
    pub(crate) fn node(&self) -> NodeAddr {
        NodeAddr(unpack(self.socket.0).0)
    }
}

/// A range found in a leaf.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) meta: Meta,
    third: u64,
    many: bool,
    local: bool,
}

/// Selects entries that overlap a range and have a mark.
pub(super) struct Query {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) mark: Option<Mark>,
}

/// Upper bounds of the blocks and of the ring's steps in a walk.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    blocks: usize,
    steps: usize,
}

impl Budget {
    /// That of a walk which visits about as many bindings at most.
    const fn of(bindings: usize) -> Self {
        Self { blocks: bindings / 8, steps: bindings }
    }
}

/// Reads a table and answers lookups.
#[derive(Debug)]
pub struct View<'a, A: Access = Atomics> {
    pub(super) areas: Areas<'a, A>,
    grace: u64,
}

impl<'a, A: Access> View<'a, A> {
    /// A view of a table; each call reads the table as it is at that time.
    #[must_use]
    pub const fn new(areas: Areas<'a, A>) -> Self {
        Self::with_grace(areas, GRACE)
    }

    /// A view for an [`Index`](super::Index) with another grace period.
    #[must_use]
    pub const fn with_grace(areas: Areas<'a, A>, grace: u64) -> Self {
        Self { areas, grace }
    }

    /// True if the table has moved to another segment, which the node hands out.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.state(VERSION) == SUPERSEDED
    }

    /// The node's own address; [`NodeAddr::NONE`] if it has none yet.
    #[must_use]
    pub fn own_node(&self) -> NodeAddr {
        NodeAddr(unpack(self.state(OWN)).0)
    }

    /// Finds a socket for an anycast to `to`, within the lookup domain `domain`. Spec: tipc.md §1.4.
    ///
    /// # Errors
    /// [`ViewError`]; ask the node instead, unless it has stopped.
    pub fn lookup(&self, to: ServiceAddr, domain: NodeAddr) -> Result<Option<Lookup>, ViewError> {
        let found = self.find(to, domain, |found, ring, _| {
            self.advance_cursor(found, ring).map(|socket| Picked { socket, load: Load::IDLE, receivers: 2 })
        })?;
        Ok(found.map(|choice| choice.found))
    }

    /// Looks up an anycast; `pick` chooses among several bindings in a ring.
    pub(super) fn find(
        &self,
        to: ServiceAddr,
        domain: NodeAddr,
        mut pick: impl FnMut(&Found, Ring, &dyn Fn(PackedPort) -> Lookup) -> Reading<Picked>,
    ) -> Result<Option<Choice>, ViewError> {
        let (own, legacy) = unpack(self.state(OWN));
        let (own, legacy) = (NodeAddr(own), legacy != 0);
        let scope = if domain.is_none() { 2 } else { 3 };
        if !in_domain(legacy, domain, own) {
            let found = Lookup { port: 0, node: domain, scope };
            let choice = Choice { found, load: Load::IDLE, receivers: 1, is_sole: false };
            return self.version().map(|_| Some(choice));
        }
        let only_local = domain == own;
        let lookup = |socket: PackedPort| Lookup { port: socket.port(), node: socket.node(own), scope };
        self.read_stable(|root| {
            let Some((leaf, index)) = self.first(root, point(to.service, to.instance), only_local)? else {
                return Ok(None);
            };
            let many = leaf.has(index, Mark::Many);
            let Picked { socket, load, receivers } = if many {
                let found = Found::of(&leaf, index);
                let closest_first = legacy && domain.is_none() && found.local;
                let ring = if only_local || closest_first { Ring::Local } else { Ring::All };
                pick(&found, ring, &lookup)?
            } else {
                // No other cell of the entry is read: each line of a leaf may be a cache miss.
                Picked { socket: PackedPort(leaf.third(index)), load: Load::IDLE, receivers: 1 }
            };
            Ok(Some(Choice { found: lookup(socket), load, receivers, is_sole: !many }))
        })
    }

    /// Ports of local sockets with a binding that overlaps `range`, each once, ascending; `out` is cleared first.
    /// Spec: tipc.md §7.7.
    ///
    /// # Errors
    /// [`ViewError`]; `out` is then empty.
    pub fn local_ports(
        &self,
        range: ServiceRange,
        rule: ScopeRule,
        out: &mut Vec<u32>,
    ) -> Result<(), ViewError> {
        self.local_ports_within(self.budget(), range, rule, out)
    }

    /// As [`Self::local_ports`], if there are few bindings; false, and no ports, if there are more than about `most`.
    pub(crate) fn few_local_ports(
        &self,
        most: usize,
        range: ServiceRange,
        rule: ScopeRule,
        out: &mut Vec<u32>,
    ) -> bool {
        self.local_ports_within(Budget::of(most), range, rule, out).is_ok()
    }

    fn local_ports_within(
        &self,
        budget: Budget,
        range: ServiceRange,
        rule: ScopeRule,
        out: &mut Vec<u32>,
    ) -> Result<(), ViewError> {
        let query = Query::new(range, Some(Mark::Local));
        let result = self.read_stable(|root| {
            out.clear();
            self.for_each(root, &query, (Ring::Local, budget), |seen| {
                if rule == ScopeRule::Any || rule == ScopeRule::Exactly(seen.scope) {
                    out.push(seen.socket.port());
                }
            })
        });
        if result.is_err() {
            out.clear();
        }
        out.sort_unstable();
        if !planted::active(Fault::CopyPerBinding) {
            out.dedup();
        }
        result
    }

    /// True if another node has a binding that overlaps `range`, so that a multicast to it leaves this node.
    ///
    /// # Errors
    /// [`ViewError`].
    pub fn has_remote(&self, range: ServiceRange) -> Result<bool, ViewError> {
        let query = Query::new(range, Some(Mark::Remote));
        self.read_stable(|root| {
            let mut blocks = self.budget().blocks;
            let walked = self.walk(root, &query, &mut blocks, &mut |_| Ok(ControlFlow::Break(())));
            walked.map(|end| end.is_break())
        })
    }

    /// Calls `visit` for each binding in a range that overlaps `range`: by range in lookup order, within a range in
    /// round-robin order.
    ///
    /// # Errors
    /// [`ViewError`]; `visit` may have been called, even more than once for the same binding.
    pub(crate) fn for_each_binding(
        &self,
        range: ServiceRange,
        mut visit: impl FnMut(Seen),
    ) -> Result<(), ViewError> {
        let (query, walk) = (Query::new(range, None), (Ring::All, self.budget()));
        self.read_stable(|root| self.for_each(root, &query, walk, &mut visit))
    }

    /// As [`Self::for_each_binding`] for the ranges of some holders, if there are few bindings; false, after some of
    /// them, if there are more than about `most`.
    pub(crate) fn for_few_bindings(
        &self,
        most: usize,
        (range, holders): (ServiceRange, Holders),
        mut visit: impl FnMut(Seen),
    ) -> bool {
        let (query, walk) = (Query::new(range, holders.mark()), (Ring::All, Budget::of(most)));
        self.read_stable(|root| self.for_each(root, &query, walk, &mut visit)).is_ok()
    }

    /// Calls `visit` for every binding, by type and otherwise as [`Self::for_each_binding`].
    ///
    /// # Errors
    /// As for [`Self::for_each_binding`].
    pub(crate) fn for_all(&self, mut visit: impl FnMut(Seen)) -> Result<(), ViewError> {
        let all = Query { from: 0, to: u64::MAX, mark: None };
        let walk = (Ring::All, self.budget());
        self.read_stable(|root| self.for_each(root, &all, walk, &mut visit))
    }

    fn state(&self, at: usize) -> u64 {
        self.areas.leaves.get(at).map_or(SUPERSEDED, A::load)
    }

    /// Repeats a read until no memory can have been reused during it.
    pub(super) fn read_stable<T>(&self, mut read: impl FnMut(Ref) -> Reading<T>) -> Result<T, ViewError> {
        for _ in 0..ATTEMPTS {
            let before = self.version()?;
            A::fence();
            let root = follow::<A>(self.areas.leaves, ROOT);
            let result = read(Ref(root));
            A::fence();
            if self.version()?.wrapping_sub(before) >= self.grace {
                continue;
            }
            match result {
                Ok(value) => return Ok(value),
                Err(Torn::Retry) => {}
                Err(Torn::Invalid) => return Err(ViewError::Damaged),
            }
        }
        Err(ViewError::Contended)
    }

    /// Number of changes so far. While it is the same, results are the same except for round robin.
    ///
    /// # Errors
    /// [`ViewError::Superseded`], [`ViewError::Gone`].
    pub fn version(&self) -> Result<u64, ViewError> {
        match self.state(VERSION) {
            SUPERSEDED => Err(ViewError::Superseded),
            GONE => Err(ViewError::Gone),
            version => Ok(version),
        }
    }

    /// The first range in order that reaches `query`, if it contains it.
    fn first(&self, root: Ref, query: u64, local: bool) -> Reading<Option<(Leaf<'a, A>, usize)>> {
        let mut at = root;
        if at.is_none() {
            return Ok(None);
        }
        // Only the root may be empty: other blocks have a parent that refers to contents.
        let nothing = |at| if at == root { Ok(None) } else { Err(Torn::Invalid) };
        while at.level() > 0 {
            let branch = self.branch(at)?;
            let index = branch.first_reaching(query, local);
            if index >= branch.count() {
                return nothing(at);
            }
            at = below(at, branch.child(index))?;
        }
        let leaf = Leaf::<A>::at(self.areas.leaves, at.number()).ok_or(Torn::Invalid)?;
        leaf.touch_pairs();
        let hits = leaf.reaching(query, local.then_some(Mark::Local));
        if hits == 0 {
            return nothing(at);
        }
        let index = hits.trailing_zeros() as usize;
        Ok((leaf.key(index) <= query).then_some((leaf, index)))
    }

    fn branch(&self, at: Ref) -> Reading<Branch<'a, A>> {
        Branch::at(self.areas.branches, at.number()).ok_or(Torn::Invalid)
    }

    pub(super) fn record(&self, number: u32) -> Reading<Record<'a, A>> {
        Record::at(self.areas.records, number).ok_or(Torn::Invalid)
    }

    /// The record at the cursor of a range with several bindings.
    pub(super) fn head(&self, found: &Found, ring: Ring, cursor: u64) -> Reading<(u32, Record<'a, A>)> {
        let slot = found.meta.slot();
        let fits = |number: u32| {
            let record = Record::at(self.areas.records, number)?;
            let there = record.tag().is_of(slot) && (ring == Ring::All || record.socket().is_local());
            there.then_some((number, record))
        };
        // If the anchor has just been withdrawn, the range has another one by now.
        fits(ring.half(cursor)).or_else(|| fits(found.anchor(ring))).ok_or(Torn::Retry)
    }

    fn advance_cursor(&self, found: &Found, ring: Ring) -> Reading<PackedPort> {
        let cursor = self.areas.cursors.get(found.meta.slot() as usize);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let seen = cursor.map_or(0, A::cursor);
            let (_, record) = self.head(found, ring, seen)?;
            let socket = record.socket();
            let next = ring.with(seen, ring.half(record.next()));
            if attempt == CURSOR_ATTEMPTS || cursor.is_none_or(|cursor| A::exchange(cursor, seen, next)) {
                return Ok(socket);
            }
        }
    }

    /// Upper bound of a walk through a table of this size.
    fn budget(&self) -> Budget {
        let [leaves, branches, records] =
            [self.areas.leaf_count(), self.areas.branch_count(), self.areas.record_count()];
        let all = leaves as usize + branches as usize + 2 * records as usize + RING_CHECK as usize;
        Budget { blocks: all, steps: all }
    }

    fn for_each(
        &self,
        root: Ref,
        query: &Query,
        (ring, budget): (Ring, Budget),
        mut visit: impl FnMut(Seen),
    ) -> Reading<()> {
        let Budget { blocks: mut budget, steps: mut ring_budget } = budget;
        let walked = self.walk(root, query, &mut budget, &mut |found| {
            if found.many {
                self.walk_ring(&found, ring, &mut ring_budget, &mut visit)?;
            } else {
                let (record, socket, scope) =
                    (found.meta.first(), PackedPort(found.third), found.meta.scope());
                visit(Seen { record, socket, scope });
            }
            Ok(ControlFlow::Continue(()))
        });
        walked.map(|_| ())
    }

    /// Visits the leaf entries that match a query, in order. Levels fall, so the recursion ends; the budget bounds
    /// blocks that refer to the same blocks again and again.
    fn walk(
        &self,
        at: Ref,
        query: &Query,
        budget: &mut usize,
        visit: &mut impl FnMut(Found) -> Reading<ControlFlow<()>>,
    ) -> Reading<ControlFlow<()>> {
        if at.is_none() {
            return Ok(ControlFlow::Continue(()));
        }
        *budget = budget.checked_sub(1).ok_or(Torn::Invalid)?;
        match Block::<A>::at(self.areas.leaves, self.areas.branches, at).ok_or(Torn::Invalid)? {
            Block::Leaf(leaf) => {
                let mut hits = leaf.reaching(query.from, query.mark);
                while hits != 0 {
                    let index = hits.trailing_zeros() as usize;
                    hits &= hits - 1;
                    if leaf.key(index) > query.to {
                        break;
                    }
                    if visit(Found::of(&leaf, index))?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            Block::Branch(branch) => {
                let first = branch.first_reaching(query.from, query.mark == Some(Mark::Local));
                for index in first..branch.count() {
                    if branch.key(index) > query.to {
                        break;
                    }
                    if !branch.reaches(index, query.from, query.mark) {
                        continue;
                    }
                    let child = below(at, branch.child(index))?;
                    if self.walk(child, query, budget, visit)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Visits the records of a ring once.
    fn walk_ring(
        &self,
        found: &Found,
        ring: Ring,
        budget: &mut usize,
        visit: &mut impl FnMut(Seen),
    ) -> Reading<()> {
        let slot = found.meta.slot();
        let cursor = self.areas.cursors.get(slot as usize).map_or(0, A::cursor);
        let (start, first) = self.head(found, ring, cursor)?;
        let (mut number, mut steps) = (start, 0_u32);
        loop {
            let record = self.record(number)?;
            let tag = record.tag();
            // A record that is being withdrawn still links to the next one.
            if tag.is_of(slot) {
                visit(Seen { record: number, socket: record.socket(), scope: tag.scope() });
            }
            number = ring.half(record.next());
            if number == start {
                return Ok(());
            }
            *budget = budget.checked_sub(1).ok_or(Torn::Invalid)?;
            steps += 1;
            if steps.is_multiple_of(RING_CHECK) && !first.tag().is_of(slot) {
                return Err(Torn::Retry);
            }
        }
    }
}

/// Checks that a block refers to a block of the next lower level.
pub(super) fn below(above: Ref, child: Ref) -> Reading<Ref> {
    let right = child.level() + 1 == above.level() && !child.is_none();
    if right { Ok(child) } else { Err(Torn::Invalid) }
}

impl Found {
    pub(super) fn of<A: Access>(leaf: &Leaf<'_, A>, index: usize) -> Self {
        Self {
            meta: Meta(leaf.second(index)),
            third: leaf.third(index),
            many: leaf.has(index, Mark::Many),
            local: leaf.has(index, Mark::Local),
        }
    }

    fn anchor(&self, ring: Ring) -> u32 {
        match ring {
            Ring::All => self.meta.first(),
            Ring::Local => self.third as u32,
        }
    }
}

impl Query {
    pub(super) fn new(range: ServiceRange, mark: Option<Mark>) -> Self {
        Self { from: point(range.service, range.lower), to: point(range.service, range.upper), mark }
    }
}

/// True if the lookup domain `domain` covers node `own`. Spec: tipc.md §1.4.
fn in_domain(legacy: bool, domain: NodeAddr, own: NodeAddr) -> bool {
    let NodeAddr(d) = domain;
    let masked = |mask: u32| legacy && d == own.0 & mask;
    d == 0 || domain == own || masked(0xffff_f000) || masked(0xff00_0000)
}
