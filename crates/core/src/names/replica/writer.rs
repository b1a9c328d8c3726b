//! Writes the cells of a replica; each replica has one writer.

use super::layout::{
    Entry, GRACE, Mark, Meta, OWN, PackedPort, RECORD, Record, Ring, Tag, VERSION, WriteAccess, pack, point,
    store,
};
use super::memory::{Areas, Size};
use super::slots::Slots;
use super::tree::{Change, Tree};
use crate::addr::{Binding, NodeAddr, Scope, ServiceRange};

/// Least number of records requested when more memory is needed.
const MORE_RECORDS: usize = 32;

/// A range with bindings; the owner of the table keeps it between calls.
#[derive(Debug)]
pub struct Place {
    range: ServiceRange,
    /// Number of the range, unique in the table; index of its cursor.
    slot: u32,
    rank: u64,
    bindings: u32,
    locals: u32,
    /// A record in each ring.
    anchors: u64,
}

impl Place {
    /// The `born`-th range made, without bindings. `slot` must be below 2^31.
    #[must_use]
    pub const fn new(range: ServiceRange, slot: u32, born: u64) -> Self {
        Self { range, slot, rank: u64::MAX - born, bindings: 0, locals: 0, anchors: 0 }
    }

    /// True if the range has no binding.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bindings == 0
    }

    const fn anchor(&self, ring: Ring) -> u32 {
        ring.half(self.anchors)
    }
}

/// Writes a table. Each call gets the areas; they must always be the same, or copies.
#[derive(Debug)]
pub struct Index {
    version: u64,
    grace: u64,
    tree: Tree,
    records: Slots,
}

impl Default for Index {
    fn default() -> Self {
        Self::with_grace(GRACE)
    }
}

impl Index {
    /// A writer whose readers allow for `grace` changes; for tests.
    #[must_use]
    pub fn with_grace(grace: u64) -> Self {
        Self { version: 0, grace, tree: Tree::default(), records: Slots::default() }
    }

    /// Sets the node's own address.
    pub fn set_own<A: WriteAccess>(&mut self, areas: Areas<'_, A>, own: NodeAddr, legacy: bool) {
        store::<A>(areas.leaves, OWN, pack(own.0, legacy.into()));
    }

    /// Size with which the next [`Index::add`] cannot fail, nor any [`Index::remove`]; `slot` is that of its range.
    #[must_use]
    pub fn needed<A: WriteAccess>(&self, areas: Areas<'_, A>, slot: u32) -> Size {
        let mut needed = Size::of(&areas);
        self.tree.enlarge(&areas, &mut needed);
        if self.records.free(areas.record_count()) == 0 {
            needed.records = (self.records.high() as usize + MORE_RECORDS) * RECORD;
        }
        needed.cursors = needed.cursors.max(slot as usize + 1);
        needed
    }

    /// Cells that areas need to hold everything in use.
    #[must_use]
    pub fn used<A: WriteAccess>(&self, areas: Areas<'_, A>) -> Size {
        let (leaves, branches) = self.tree.used::<A>();
        Size {
            leaves,
            branches,
            records: self.records.high() as usize * RECORD,
            cursors: areas.cursors.len(),
        }
    }

    /// Copies everything in use.
    pub fn carry<A: WriteAccess>(&self, from: Areas<'_, A>, to: Areas<'_, A>) {
        let used = self.used(from);
        copy::<A>(from.records, to.records, used.records);
        copy::<A>(from.branches, to.branches, used.branches);
        copy::<A>(from.leaves, to.leaves, used.leaves);
        // Areas that share their cursors already have them.
        if !core::ptr::eq(from.cursors, to.cursors) {
            for (old, new) in from.cursors.iter().zip(to.cursors) {
                A::set_cursor(new, A::cursor(old));
            }
        }
    }

    /// Adds a binding to its range and returns its record, or `None` if there is no room ([`Index::needed`]).
    /// Spec: tipc.md §1.4.
    pub fn add<A: WriteAccess>(
        &mut self,
        areas: Areas<'_, A>,
        place: &mut Place,
        binding: &Binding,
        own: NodeAddr,
    ) -> Option<u32> {
        if !self.tree.has_room(&areas) {
            return None;
        }
        let change = self.begin(areas);
        let number = self.records.take(change.reclaimable, areas.record_count())?;
        let record = Record::<A>::at(areas.records, number)?;
        let socket = PackedPort::of(binding, own);
        let before = self.leaf(&change, place);
        let rings = if socket.is_local() { &[Ring::All, Ring::Local][..] } else { &[Ring::All] };
        let spots: Vec<RingPosition> =
            rings.iter().map(|ring| RingPosition::find(areas, place, *ring, number)).collect();
        record.set_socket(socket);
        record.set_next(spots.iter().fold(0, |cell, spot| spot.ring.with(cell, spot.next)));
        record.set_previous(spots.iter().fold(0, |cell, spot| spot.ring.with(cell, spot.previous)));
        record.set_tag(Tag::new(place.slot, binding.scope));
        for spot in &spots {
            spot.link(areas, place, number);
        }
        place.bindings += 1;
        place.locals += u32::from(socket.is_local());
        self.update_leaf(&change, place, before);
        self.finish(&change);
        Some(number)
    }

    /// Removes a binding from its range.
    pub fn remove<A: WriteAccess>(&mut self, areas: Areas<'_, A>, place: &mut Place, number: u32) {
        let change = self.begin(areas);
        let Some(record) = Record::<A>::at(areas.records, number) else { return };
        let before = self.leaf(&change, place);
        link_out(areas, place, Ring::All, number);
        place.bindings -= 1;
        if record.socket().is_local() {
            link_out(areas, place, Ring::Local, number);
            place.locals -= 1;
        }
        self.update_leaf(&change, place, before);
        // Only now, when no reader can find the record, may it become invalid.
        record.set_tag(Tag::FREE);
        self.records.give_back(change.reclaimable, change.next, number);
        self.finish(&change);
    }

    fn begin<'a, A: WriteAccess>(&mut self, areas: Areas<'a, A>) -> Change<'a, A> {
        let blocks = self.tree.can_change(&areas, self.reclaimable());
        let records = self.records.can_take(1, self.reclaimable(), areas.record_count());
        if !(blocks && records) {
            // Memory is short: every free block may be reused at once if all active readers start again.
            self.version += self.grace;
            self.publish(areas);
        }
        Change { areas, reclaimable: self.reclaimable(), next: self.version + 1 }
    }

    const fn reclaimable(&self) -> u64 {
        self.version.saturating_sub(self.grace)
    }

    fn finish<A: WriteAccess>(&mut self, change: &Change<'_, A>) {
        self.version = change.next;
        self.publish(change.areas);
    }

    fn publish<A: WriteAccess>(&self, areas: Areas<'_, A>) {
        store::<A>(areas.leaves, VERSION, self.version);
    }

    /// The leaf entry of a range.
    fn leaf<A: WriteAccess>(&self, change: &Change<'_, A>, place: &Place) -> Option<Entry> {
        let first = place.anchor(Ring::All);
        let record = Record::<A>::at(change.areas.records, first).filter(|_| !place.is_empty())?;
        let many = place.bindings > 1;
        let scope = if many { Scope::Cluster } else { record.tag().scope() };
        let mark = |set: bool, mark: Mark| if set { mark.bit() } else { 0 };
        Some(Entry {
            key: point(place.range.service, place.range.lower),
            rank: place.rank,
            end: point(place.range.service, place.range.upper),
            second: Meta::new(first, place.slot, scope).0,
            third: if many { place.anchor(Ring::Local).into() } else { record.socket().0 },
            marks: mark(place.locals > 0, Mark::Local)
                | mark(place.bindings > place.locals, Mark::Remote)
                | mark(many, Mark::Many),
        })
    }

    fn update_leaf<A: WriteAccess>(&mut self, change: &Change<'_, A>, place: &Place, before: Option<Entry>) {
        let after = self.leaf(change, place);
        let key = point(place.range.service, place.range.lower);
        match (before, after) {
            (None, Some(entry)) => self.tree.insert(change, entry),
            (before, after) if before != after => self.tree.replace(change, key, place.rank, after),
            _ => {}
        }
    }
}

fn copy<A: WriteAccess>(from: &[A::Cell], to: &[A::Cell], used: usize) {
    for (old, new) in from.iter().zip(to).take(used) {
        A::store(new, A::load(old));
    }
}

/// Position of a new record in a ring: before the record at the cursor.
struct RingPosition {
    ring: Ring,
    next: u32,
    previous: u32,
}

impl RingPosition {
    fn find<A: WriteAccess>(areas: Areas<'_, A>, place: &Place, ring: Ring, number: u32) -> Self {
        let cursor = areas.cursors.get(place.slot as usize).map_or(0, A::cursor);
        let next = head(areas, place, ring, ring.half(cursor));
        match Record::<A>::at(areas.records, next) {
            Some(record) => Self { ring, next, previous: ring.half(record.previous()) },
            None => Self { ring, next: number, previous: number },
        }
    }

    /// Links the record, which already links into the ring, and moves the cursor to it.
    fn link<A: WriteAccess>(&self, areas: Areas<'_, A>, place: &mut Place, number: u32) {
        set_previous(areas, self.ring, self.next, number);
        set_next(areas, self.ring, self.previous, number);
        if place.anchor(self.ring) == 0 {
            place.anchors = self.ring.with(place.anchors, number);
        }
        // A reader that advances the cursor meanwhile only makes round robin slightly less fair.
        if let Some(cursor) = areas.cursors.get(place.slot as usize) {
            A::set_cursor(cursor, self.ring.with(A::cursor(cursor), number));
        }
    }
}

/// Unlinks a record from a ring; a reader that is at the record still finds the next one.
fn link_out<A: WriteAccess>(areas: Areas<'_, A>, place: &mut Place, ring: Ring, number: u32) {
    let Some(record) = Record::<A>::at(areas.records, number) else { return };
    let (next, previous) = (ring.half(record.next()), ring.half(record.previous()));
    let rest = if next == number { 0 } else { next };
    if rest != 0 {
        set_next(areas, ring, previous, next);
        set_previous(areas, ring, next, previous);
    }
    if place.anchor(ring) == number {
        place.anchors = ring.with(place.anchors, rest);
    }
    if let Some(cursor) = areas.cursors.get(place.slot as usize) {
        let seen = A::cursor(cursor);
        if ring.half(seen) == number {
            A::exchange(cursor, seen, ring.with(seen, rest));
        }
    }
}

/// The record at the cursor; the cursor may have been overwritten with an invalid value.
fn head<A: WriteAccess>(areas: Areas<'_, A>, place: &Place, ring: Ring, cursor: u32) -> u32 {
    let fits = Record::<A>::at(areas.records, cursor).is_some_and(|record| {
        record.tag().is_of(place.slot) && (ring == Ring::All || record.socket().is_local())
    });
    if fits { cursor } else { place.anchor(ring) }
}

fn set_next<A: WriteAccess>(areas: Areas<'_, A>, ring: Ring, number: u32, next: u32) {
    if let Some(record) = Record::<A>::at(areas.records, number) {
        record.set_next(ring.with(record.next(), next));
    }
}

fn set_previous<A: WriteAccess>(areas: Areas<'_, A>, ring: Ring, number: u32, previous: u32) {
    if let Some(record) = Record::<A>::at(areas.records, number) {
        record.set_previous(ring.with(record.previous(), previous));
    }
}
