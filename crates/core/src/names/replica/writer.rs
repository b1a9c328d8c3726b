//! The one writer of a table's cells.

use super::layout::{
    Entry, GRACE, Mark, Meta, OWN, RECORD, Record, Ring, Tag, VERSION, Who, WriteAccess, pack, point, store,
};
use super::memory::{Areas, Size};
use super::slots::Slots;
use super::tree::{Change, Tree};
use crate::addr::{Binding, NodeAddr, Scope, ServiceRange};

/// Records that are asked for at a time, at least.
const MORE_RECORDS: usize = 32;

/// A range with bindings, as its owner keeps it between calls.
#[derive(Debug)]
pub struct Place {
    range: ServiceRange,
    /// Its number, which no other range in the table has, and its place among the turns.
    slot: u32,
    rank: u64,
    bindings: u32,
    locals: u32,
    /// Any record of each ring.
    anchors: u64,
}

impl Place {
    /// A range without bindings, the `born`-th one made. `slot` below 2^31.
    #[must_use]
    pub const fn new(range: ServiceRange, slot: u32, born: u64) -> Self {
        Self { range, slot, rank: u64::MAX - born, bindings: 0, locals: 0, anchors: 0 }
    }

    /// True if nothing is bound to it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bindings == 0
    }

    const fn anchor(&self, ring: Ring) -> u32 {
        ring.half(self.anchors)
    }
}

/// Writes a table. The areas are handed to each call; they must always be the same, or copies.
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

    /// Sets the own address.
    pub fn set_own<A: WriteAccess>(&mut self, areas: Areas<'_, A>, own: NodeAddr, legacy: bool) {
        store::<A>(areas.leaves, OWN, pack(own.0, legacy.into()));
    }

    /// Size with which the next call of [`Index::add`] cannot fail, nor any of [`Index::remove`]; `slot`: of its range.
    #[must_use]
    pub fn needed<A: WriteAccess>(&self, areas: Areas<'_, A>, slot: u32) -> Size {
        let mut needed = Size::of(&areas);
        self.tree.enlarge(&areas, &mut needed);
        if self.records.free(areas.record_count()) == 0 {
            needed.records = (self.records.high() as usize + MORE_RECORDS) * RECORD;
        }
        needed.turns = needed.turns.max(slot as usize + 1);
        needed
    }

    /// Cells that areas must have to hold all that is in use.
    #[must_use]
    pub fn used<A: WriteAccess>(&self, areas: Areas<'_, A>) -> Size {
        let (leaves, branches) = self.tree.used::<A>();
        Size { leaves, branches, records: self.records.high() as usize * RECORD, turns: areas.turns.len() }
    }

    /// Copies all that is in use.
    pub fn carry<A: WriteAccess>(&self, from: Areas<'_, A>, to: Areas<'_, A>) {
        let used = self.used(from);
        copy::<A>(from.records, to.records, used.records);
        copy::<A>(from.branches, to.branches, used.branches);
        copy::<A>(from.leaves, to.leaves, used.leaves);
        // Areas that share their turns already have them.
        if !core::ptr::eq(from.turns, to.turns) {
            for (old, new) in from.turns.iter().zip(to.turns) {
                A::set_turn(new, A::turn(old));
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
        let number = self.records.take(change.settled, areas.record_count())?;
        let record = Record::<A>::at(areas.records, number)?;
        let who = Who::of(binding, own);
        let before = self.leaf(&change, place);
        let rings = if who.is_local() { &[Ring::All, Ring::Local][..] } else { &[Ring::All] };
        let spots: Vec<Spot> = rings.iter().map(|ring| Spot::find(areas, place, *ring, number)).collect();
        record.set_who(who);
        record.set_next(spots.iter().fold(0, |cell, spot| spot.ring.with(cell, spot.next)));
        record.set_previous(spots.iter().fold(0, |cell, spot| spot.ring.with(cell, spot.previous)));
        record.set_tag(Tag::new(place.slot, binding.scope));
        for spot in &spots {
            spot.link(areas, place, number);
        }
        place.bindings += 1;
        place.locals += u32::from(who.is_local());
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
        if record.who().is_local() {
            link_out(areas, place, Ring::Local, number);
            place.locals -= 1;
        }
        self.update_leaf(&change, place, before);
        // Only now, when nothing leads to it any more, may readers stop believing in it.
        record.set_tag(Tag::FREE);
        self.records.give_back(change.next, number);
        self.finish(&change);
    }

    fn begin<'a, A: WriteAccess>(&mut self, areas: Areas<'a, A>) -> Change<'a, A> {
        let blocks = self.tree.can_change(&areas, self.settled());
        let records = self.records.can_take(1, self.settled(), areas.record_count());
        if !(blocks && records) {
            // Memory is short: all that is free may be used at once if every reader at work begins again.
            self.version += self.grace;
            self.publish(areas);
        }
        Change { areas, settled: self.settled(), next: self.version + 1 }
    }

    const fn settled(&self) -> u64 {
        self.version.saturating_sub(self.grace)
    }

    fn finish<A: WriteAccess>(&mut self, change: &Change<'_, A>) {
        self.version = change.next;
        self.publish(change.areas);
    }

    fn publish<A: WriteAccess>(&self, areas: Areas<'_, A>) {
        store::<A>(areas.leaves, VERSION, self.version);
    }

    /// The leaf entry that a range has to have.
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
            third: if many { place.anchor(Ring::Local).into() } else { record.who().0 },
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

/// Where a new record stands in a ring: before the one whose turn it is.
struct Spot {
    ring: Ring,
    next: u32,
    previous: u32,
}

impl Spot {
    fn find<A: WriteAccess>(areas: Areas<'_, A>, place: &Place, ring: Ring, number: u32) -> Self {
        let turn = areas.turns.get(place.slot as usize).map_or(0, A::turn);
        let next = head(areas, place, ring, ring.half(turn));
        match Record::<A>::at(areas.records, next) {
            Some(record) => Self { ring, next, previous: ring.half(record.previous()) },
            None => Self { ring, next: number, previous: number },
        }
    }

    /// Makes the ring lead to the record, which leads back into the ring already, and gives it the turn.
    fn link<A: WriteAccess>(&self, areas: Areas<'_, A>, place: &mut Place, number: u32) {
        set_previous(areas, self.ring, self.next, number);
        set_next(areas, self.ring, self.previous, number);
        if place.anchor(self.ring) == 0 {
            place.anchors = self.ring.with(place.anchors, number);
        }
        // Whoever takes a turn meanwhile only makes it a little less fair.
        if let Some(turn) = areas.turns.get(place.slot as usize) {
            A::set_turn(turn, self.ring.with(A::turn(turn), number));
        }
    }
}

/// Takes a record out of a ring; who stands on it still finds the way.
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
    if let Some(turn) = areas.turns.get(place.slot as usize) {
        let seen = A::turn(turn);
        if ring.half(seen) == number {
            A::exchange(turn, seen, ring.with(seen, rest));
        }
    }
}

/// The record whose turn it is. Others may have written nonsense among the turns.
fn head<A: WriteAccess>(areas: Areas<'_, A>, place: &Place, ring: Ring, turn: u32) -> u32 {
    let fits = Record::<A>::at(areas.records, turn).is_some_and(|record| {
        record.tag().is_of(place.slot) && (ring == Ring::All || record.who().is_local())
    });
    if fits { turn } else { place.anchor(ring) }
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
