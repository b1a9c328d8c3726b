//! The layout of a field list: its fields and their slots, shared by all records with the same fields.
//!
//! Items of one kind have the same fields, so 100,000 records share a handful of layouts. A layout stays in the
//! processor's cache; the records do not. Updates change the same few of many fields, so a layout counts which, and is
//! then replaced by a successor that has these next to each other: an update touches two or three cache lines instead
//! of ten.

use super::FieldTypes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// An empty place of the table. It differs from each field: the last slot is 65,534, because no field has the id 0.
const FREE: u32 = u32::MAX;

/// Updates that a layout counts before it gets a successor; few in tests, so that each test covers it.
const LEARNING_UPDATES: u32 = if cfg!(test) { 8 } else { 256 };

/// The number of the next layout. No layout has the number 0.
static MADE: AtomicU64 = AtomicU64::new(1);

/// The field ids of a list in the order of its refresh, and the slot of each field's value.
#[derive(Debug)]
pub(super) struct Layout {
    /// Unique among all layouts ever made.
    number: u64,
    ids: Box<[i16]>,
    /// The slot of each id.
    slots: Box<[u16]>,
    /// Number of slots that updates change; these are the first.
    hot: usize,
    /// Number of updates that changed each field; empty for a layout that has learnt.
    counts: Box<[AtomicU32]>,
    /// Number of counted updates.
    seen: AtomicU32,
    /// The layout that replaces this one: the same fields in the learnt order.
    next: OnceLock<Arc<Layout>>,
    /// `id << 16 | slot`, open addressing, at most a quarter full.
    table: Box<[u32]>,
    /// Multiplier of the hash.
    factor: u32,
    shift: u32,
    /// Whether some field holds a container, which an update may change entry by entry.
    containers: bool,
}

impl Layout {
    /// Creates the layout of `ids`, which contain each field once.
    fn new(ids: &[i16], types: &FieldTypes) -> Self {
        let containers = ids.iter().any(|id| types.container(*id).is_some());
        // At most 65,535 fields: every id but 0.
        let slots = (0..ids.len()).map(|n| n as u16).collect();
        let counts = ids.iter().map(|_| AtomicU32::new(0)).collect();
        Self::with(ids, slots, ids.len(), counts, containers)
    }

    /// Creates the successor: the same fields, the most changed ones first.
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
        // Try some multipliers: with one that separates all fields, each search ends at its first place.
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

    /// A number that no other layout has or had.
    #[inline]
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The ids in order.
    pub(super) fn ids(&self) -> &[i16] {
        &self.ids
    }

    /// The ids in order, each with its slot.
    pub(super) fn places(&self) -> impl Iterator<Item = (i16, usize)> + '_ {
        self.ids.iter().zip(&self.slots).map(|(id, slot)| (*id, usize::from(*slot)))
    }

    /// Number of slots, from the first, that updates are known to change.
    #[inline]
    pub(super) fn hot(&self) -> usize {
        self.hot
    }

    /// The successor that records move to, if there is one.
    #[inline]
    pub(super) fn next(&self) -> Option<&Arc<Self>> {
        if self.learns() { self.next.get() } else { None }
    }

    /// Whether it still counts which fields updates change.
    #[inline]
    pub(super) fn learns(&self) -> bool {
        !self.counts.is_empty()
    }

    /// The slot of a field.
    #[inline]
    pub(super) fn slot(&self, id: i16) -> Option<usize> {
        let mut at = place(id, self.factor, self.shift);
        // The table is never full, so each search ends at a free place.
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

/// Fills a table; also returns the number of collisions.
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

/// All layouts in use. Layouts without a record are dropped.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    known: HashMap<Box<[i16]>, Weak<Layout>>,
    /// Number of entries at which unused ones are removed next.
    sweep: usize,
    empty: Option<Arc<Layout>>,
    last: Option<Arc<Layout>>,
}

impl Layouts {
    /// The layout without fields.
    pub(super) fn empty(&mut self) -> Arc<Layout> {
        self.empty.get_or_insert_with(|| Arc::new(Layout::new(&[], &FieldTypes::default()))).clone()
    }

    /// The layout that was found last, if it has these ids: successive items are mostly of one kind.
    pub(super) fn last_of(&self, ids: &[i16]) -> Option<Arc<Layout>> {
        self.last.clone().filter(|last| *last.ids == *ids)
    }

    /// Counts an update of these slots; after [`LEARNING_UPDATES`] the layout gets a successor.
    #[cold]
    pub(super) fn learn(&mut self, layout: &Layout, slots: impl Iterator<Item = u16>) {
        for slot in slots {
            // In a layout that learns, each field's slot is its position.
            if let Some(count) = layout.counts.get(usize::from(slot)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        if layout.seen.fetch_add(1, Ordering::Relaxed) + 1 == LEARNING_UPDATES {
            let next = Arc::new(layout.ordered());
            if let Some(known) = self.known.get_mut(&layout.ids) {
                *known = Arc::downgrade(&next);
            }
            if self.last.as_ref().is_some_and(|last| last.number == layout.number) {
                self.last = Some(next.clone());
            }
            // Only one update completes the count.
            let _ = layout.next.set(next);
        }
    }

    /// The shared layout of these ids (each once, none 0).
    pub(super) fn of(&mut self, ids: &[i16], types: &FieldTypes) -> Arc<Layout> {
        let layout = self.find(ids, types);
        self.last = Some(layout.clone());
        layout
    }

    /// Drops all layouts, so that new ones get the new types.
    pub(super) fn clear(&mut self) {
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

    /// Number of layouts in use, and their memory in bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        self.known.values().filter_map(Weak::upgrade).fold((0, 0), |(n, bytes), l| (n + 1, bytes + l.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_changed_fields_come_first_in_the_successor() {
        let (mut layouts, types) = (Layouts::default(), FieldTypes::default());
        let ids = [10, 20, 30, 40, 50];
        let layout = layouts.of(&ids, &types);
        for n in 0..LEARNING_UPDATES {
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
        assert!(Arc::ptr_eq(&next, &layouts.of(&ids, &types)), "new records get the successor");
    }

    #[test]
    fn layout_finds_exactly_its_fields() {
        let ids: Vec<i16> = (0..300).map(|n| n * 109 - 16_001).collect();
        let layout = Layouts::default().of(&ids, &FieldTypes::default());
        for id in i16::MIN..=i16::MAX {
            assert_eq!(layout.slot(id), ids.iter().position(|i| *i == id), "field {id}");
        }
    }

    #[test]
    fn same_fields_share_a_layout_and_unused_layouts_are_dropped() {
        let (mut layouts, types) = (Layouts::default(), FieldTypes::default());
        let (a, b) = (layouts.of(&[22, 25, -1], &types), layouts.of(&[22, 25, -1], &types));
        assert!(Arc::ptr_eq(&a, &b));
        for id in 0..1_000 {
            layouts.of(&[id + 1, id + 2], &types);
        }
        assert!(layouts.known.len() <= 128, "{} kept", layouts.known.len());
        assert_eq!(layouts.size().0, 2, "the one in use and the last one");
        assert!(Arc::ptr_eq(&a, &layouts.of(&[22, 25, -1], &types)));
    }
}
