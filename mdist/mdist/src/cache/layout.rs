//! Which fields a field list has, shared by all records that have the same ones.
//!
//! Items of one kind carry the same fields, so 100,000 records have a handful of layouts between them. A layout stays in
//! the processor's cache while the records do not. Updates change the same few fields of many again and again, so a
//! layout counts which, and is then succeeded by one that has these next to each other: an update touches two or three
//! lines of the processor's cache instead of ten.

use super::FieldTypes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// An empty place of the table. No field looks like this: the last slot is 65,534, because no field has the id 0.
const FREE: u32 = u32::MAX;

/// Updates after which a layout knows which fields they change; few in tests, so that they all see it happen.
const LEARN: u32 = if cfg!(test) { 8 } else { 256 };

/// Layouts made so far. From 1, so that no layout has the number 0.
static MADE: AtomicU64 = AtomicU64::new(1);

/// The identifiers of a field list in the order of its refresh, and the way from an identifier to where its value is
/// (slot).
#[derive(Debug)]
pub(super) struct Layout {
    /// Never given to another layout.
    number: u64,
    ids: Box<[i16]>,
    /// Of each identifier.
    slots: Box<[u16]>,
    /// Slots that updates change; those are the first.
    hot: usize,
    /// How often updates changed each identifier's field; empty when that is known.
    counts: Box<[AtomicU32]>,
    seen: AtomicU32,
    /// The same fields in the order that was learnt.
    next: OnceLock<Arc<Layout>>,
    /// `identifier << 16 | slot`, open addressing, at most a quarter full.
    table: Box<[u32]>,
    factor: u32,
    shift: u32,
    /// Some field holds a container, which an update may change entry by entry.
    containers: bool,
}

impl Layout {
    /// The layout of `ids`, which name each field once.
    fn new(ids: &[i16], types: &FieldTypes) -> Self {
        let containers = ids.iter().any(|id| types.container(*id).is_some());
        // At most 65,535 fields: every id but 0.
        let slots = (0..ids.len()).map(|n| n as u16).collect();
        let counts = ids.iter().map(|_| AtomicU32::new(0)).collect();
        Self::with(ids, slots, ids.len(), counts, containers)
    }

    /// The same fields, those that updates change most at the front.
    fn ordered(&self) -> Self {
        let counts: Vec<u32> = self.counts.iter().map(|n| n.load(Ordering::Relaxed)).collect();
        let mut order: Vec<usize> = (0..counts.len()).collect();
        order.sort_by_key(|n| std::cmp::Reverse(counts.get(*n)));
        let mut slots = vec![0; counts.len()];
        for (slot, n) in order.into_iter().enumerate() {
            if let Some(place) = slots.get_mut(n) {
                *place = slot as u16;
            }
        }
        let hot = counts.iter().filter(|n| **n > 0).count();
        Self::with(&self.ids, slots.into(), hot, Box::default(), self.containers)
    }

    fn with(ids: &[i16], slots: Box<[u16]>, hot: usize, counts: Box<[AtomicU32]>, containers: bool) -> Self {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let size = (ids.len() * 4).next_power_of_two().max(16);
        let shift = 32 - size.trailing_zeros();
        // A few multipliers are tried: with one that separates all fields, every search ends at its first place.
        let mut best = (usize::MAX, 0, Vec::new());
        for round in 0..32_u32 {
            let factor = 0x9e37_79b1_u32.wrapping_add(round.wrapping_mul(0x0100_0193 << 1)) | 1;
            let (steps, table) = fill(ids, &slots, size, factor, shift);
            if steps < best.0 {
                best = (steps, factor, table);
            }
            if best.0 == 0 {
                break;
            }
        }
        let (seen, next) = (AtomicU32::new(0), OnceLock::new());
        let (ids, table) = (ids.into(), best.2.into());
        Self { number, ids, slots, hot, counts, seen, next, table, factor: best.1, shift, containers }
    }

    /// Tells it from all others, also from those that are no more.
    #[inline]
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The identifiers in order.
    pub(super) fn ids(&self) -> &[i16] {
        &self.ids
    }

    /// The identifiers in order, each with its slot.
    pub(super) fn places(&self) -> impl Iterator<Item = (i16, usize)> + '_ {
        self.ids.iter().zip(&self.slots).map(|(id, slot)| (*id, usize::from(*slot)))
    }

    /// How many of the slots, from the first, updates are known to change.
    #[inline]
    pub(super) fn hot(&self) -> usize {
        self.hot
    }

    /// The layout of the same fields that records are to have instead.
    #[inline]
    pub(super) fn next(&self) -> Option<&Arc<Self>> {
        if self.learns() { self.next.get() } else { None }
    }

    /// Whether it does not know yet which fields updates change.
    #[inline]
    pub(super) fn learns(&self) -> bool {
        !self.counts.is_empty()
    }

    /// The slot of a field.
    #[inline]
    pub(super) fn slot(&self, id: i16) -> Option<usize> {
        let mut at = place(id, self.factor, self.shift);
        // The table is never full, so a free place ends every search.
        loop {
            let entry = *self.table.get(at)?;
            if entry >> 16 == u32::from(id.cast_unsigned()) && entry != FREE {
                return Some((entry & 0xffff) as usize);
            }
            if entry == FREE {
                return None;
            }
            at = if at + 1 == self.table.len() { 0 } else { at + 1 };
        }
    }

    /// Whether some field holds a container.
    pub(super) fn has_containers(&self) -> bool {
        self.containers
    }

    /// Memory of the layout itself, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.ids.len() * 4 + self.counts.len() * 4 + self.table.len() * 4
    }
}

#[inline]
fn place(id: i16, factor: u32, shift: u32) -> usize {
    (u32::from(id.cast_unsigned()).wrapping_mul(factor) >> shift) as usize
}

/// Fills a table; also how many fields did not get their first place.
fn fill(ids: &[i16], slots: &[u16], size: usize, factor: u32, shift: u32) -> (usize, Vec<u32>) {
    let mut table = vec![FREE; size];
    let mut steps = 0;
    for (slot, id) in slots.iter().zip(ids) {
        let mut at = place(*id, factor, shift);
        while let Some(entry) = table.get_mut(at) {
            if *entry == FREE {
                *entry = u32::from(id.cast_unsigned()) << 16 | u32::from(*slot);
                break;
            }
            steps += 1;
            at = (at + 1) % size;
        }
    }
    (steps, table)
}

/// All layouts in use. One that no record has any more is forgotten.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    known: HashMap<Box<[i16]>, Weak<Layout>>,
    /// Number of entries at which those without a record are swept out next.
    sweep: usize,
    empty: Option<Arc<Layout>>,
    last: Option<Arc<Layout>>,
}

impl Layouts {
    /// The layout without fields.
    pub(super) fn empty(&mut self) -> Arc<Layout> {
        self.empty.get_or_insert_with(|| Arc::new(Layout::new(&[], &FieldTypes::default()))).clone()
    }

    /// The layout that was asked for last, if it is of these identifiers: items that come one after the other are
    /// mostly of one kind.
    pub(super) fn last_of(&self, ids: &[i16]) -> Option<Arc<Layout>> {
        self.last.clone().filter(|last| *last.ids == *ids)
    }

    /// Counts an update of these slots; after some, the layout gets a successor.
    #[cold]
    pub(super) fn learn(&mut self, layout: &Layout, slots: impl Iterator<Item = u16>) {
        for slot in slots {
            // A layout that learns has every field in the slot of its position.
            if let Some(count) = layout.counts.get(usize::from(slot)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        if layout.seen.fetch_add(1, Ordering::Relaxed) + 1 == LEARN {
            let next = Arc::new(layout.ordered());
            if let Some(known) = self.known.get_mut(&layout.ids) {
                *known = Arc::downgrade(&next);
            }
            if self.last.as_ref().is_some_and(|last| last.number == layout.number) {
                self.last = Some(next.clone());
            }
            // Only one update is the one that completes the count.
            let _ = layout.next.set(next);
        }
    }

    /// The layout of these identifiers (each once, none 0), shared with everyone who asked for the same.
    pub(super) fn of(&mut self, ids: &[i16], types: &FieldTypes) -> Arc<Layout> {
        let layout = self.find(ids, types);
        self.last = Some(layout.clone());
        layout
    }

    /// Forgets all layouts, so that new ones know other types.
    pub(super) fn renew(&mut self) {
        *self = Self::default();
    }

    fn find(&mut self, ids: &[i16], types: &FieldTypes) -> Arc<Layout> {
        if let Some(layout) = self.known.get(ids).and_then(Weak::upgrade) {
            return layout;
        }
        if self.known.len() >= self.sweep {
            self.known.retain(|_, layout| layout.strong_count() > 0);
            self.sweep = (self.known.len() * 2).max(64);
        }
        let layout = Arc::new(Layout::new(ids, types));
        self.known.insert(ids.into(), Arc::downgrade(&layout));
        layout
    }

    /// Layouts in use, and their memory in bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        self.known.values().filter_map(Weak::upgrade).fold((0, 0), |(n, bytes), l| (n + 1, bytes + l.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_updates_change_comes_first_in_the_successor() {
        let (mut layouts, types) = (Layouts::default(), FieldTypes::default());
        let ids = [10, 20, 30, 40, 50];
        let layout = layouts.of(&ids, &types);
        for n in 0..LEARN {
            assert!(layout.learns() && layout.next().is_none());
            layouts.learn(&layout, [3, 1].into_iter().take(if n == 0 { 1 } else { 2 }));
        }
        let next = layout.next().unwrap().clone();
        assert_eq!(next.ids(), ids);
        assert_eq!(ids.map(|id| next.slot(id).unwrap()), [2, 1, 3, 0, 4]);
        assert!(next.places().eq(ids.into_iter().zip([2, 1, 3, 0, 4])));
        assert_eq!((layout.hot(), next.hot(), next.learns()), (5, 2, false));
        drop(layout);
        assert!(Arc::ptr_eq(&next, &layouts.last_of(&ids).unwrap()));
        assert!(Arc::ptr_eq(&next, &layouts.of(&ids, &types)), "new records have it from the start");
    }

    #[test]
    fn finds_every_field_and_no_other() {
        let ids: Vec<i16> = (0..300).map(|n| n * 109 - 16_001).collect();
        let layout = Layouts::default().of(&ids, &FieldTypes::default());
        for id in i16::MIN..=i16::MAX {
            assert_eq!(layout.slot(id), ids.iter().position(|i| *i == id), "field {id}");
        }
    }

    #[test]
    fn same_fields_share_and_unused_layouts_go() {
        let (mut layouts, types) = (Layouts::default(), FieldTypes::default());
        let (a, b) = (layouts.of(&[22, 25, -1], &types), layouts.of(&[22, 25, -1], &types));
        assert!(Arc::ptr_eq(&a, &b));
        for id in 0..1_000 {
            layouts.of(&[id + 1, id + 2], &types);
        }
        assert!(layouts.known.len() <= 128, "{} kept", layouts.known.len());
        assert_eq!(layouts.size().0, 2, "the one in use and the last");
        assert!(Arc::ptr_eq(&a, &layouts.of(&[22, 25, -1], &types)));
    }
}
