//! Buffers of messages by owner. A buffer of up to 4 KiB is a slot in a span of 16 KiB that has slots of one size and
//! of one owner; a larger one has a separate span, which can change its owner. Spans lie in chunks.

use std::collections::BTreeMap;

use super::chunk::{NONE, OWN_UNITS, SPANS, Span, USABLE};
use super::window::{CHUNK, UNIT, Window};

/// Sizes of slots, bytes: at most a fifth more than needed above 64 bytes.
const SIZES: [u16; 24] = [
    64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1808,
    2048, 2720, 3264, 4096,
];
/// Class of a span that holds one large buffer.
const WHOLE: u8 = SIZES.len() as u8;
/// Units of a span with slots.
const SLOTTED: usize = 4;
/// Largest buffer in a slot, bytes.
pub(super) const MOST_SLOT: usize = 4096;
/// Largest buffer, bytes: the largest message, rounded up.
pub(super) const MOST: usize = 17 * UNIT;
/// Free units that may keep their memory until the next [`Spans::trim`], so that queues that fill and drain do not ask
/// the system for it each time: 8 MiB.
const MOST_DIRTY: usize = (8 << 20) / UNIT;
/// Chunks by their longest run of free units; an index is the minimum length of the run.
const BINS: [usize; 4] = [2, 4, 8, 17];

/// The owner of large buffers that belong to no user.
pub(super) const NOBODY: u32 = u32::MAX;

/// The memory of one owner.
struct Owner {
    units: usize,
    /// Spans with free slots, by class: the first of each list.
    partial: [u32; SIZES.len()],
    /// Classes whose only span with free slots is empty, since before the last trim, or after it.
    idle: [u32; 2],
}

/// All buffers.
pub(super) struct Spans {
    window: Window,
    /// Chunks that were ever in use have numbers below this.
    started: u32,
    /// Those of these classes that have no memory now.
    unused: Vec<u32>,
    bins: [u32; BINS.len() + 1],
    owners: BTreeMap<u32, Owner>,
    /// Owners that have more or less units than was last reported.
    changed: Vec<u32>,
    dirty: usize,
    /// An owner may have idle classes or none.
    is_idle: bool,
}

impl Spans {
    pub(super) fn new(window: Window) -> Self {
        Self {
            window,
            started: 0,
            unused: Vec::new(),
            bins: [NONE; BINS.len() + 1],
            owners: BTreeMap::new(),
            changed: Vec::new(),
            dirty: 0,
            is_idle: false,
        }
    }

    /// A buffer of `size` bytes for an owner, who may get at most `growth` bytes more for it: its place in the window.
    pub(super) fn take(&mut self, owner: u32, size: usize, growth: usize) -> Option<usize> {
        if size > MOST_SLOT {
            let units = size.div_ceil(UNIT);
            let span =
                if units * UNIT <= growth { self.take_span(owner, units, WHOLE)? } else { return None };
            self.span(span).used = 1;
            return Some(self.place(span));
        }
        let class = class_of(size);
        let mut span = self.owners.get(&owner).map_or(NONE, |owner| owner.partial[class]);
        if span == NONE {
            if growth < SLOTTED * UNIT {
                return None;
            }
            span = self.take_span(owner, SLOTTED, class as u8)?;
            self.list(owner, class, span);
        }
        let (size, count) = slots(class);
        let taken = self.span(span);
        let slot = taken.take_slot(count)?;
        let is_full = usize::from(taken.used) == count;
        let is_first = taken.used == 1;
        if is_full {
            self.unlist(owner, class, span);
        }
        if is_first && let Some(owner) = self.owners.get_mut(&owner) {
            owner.idle.iter_mut().for_each(|idle| *idle &= !(1 << class));
        }
        Some(self.place(span) + slot * size)
    }

    /// Frees a buffer.
    pub(super) fn free(&mut self, place: usize) {
        let Some(span) = self.span_at(place) else { return };
        let start = self.place(span);
        let freed = self.span(span);
        let (owner, class) = (freed.owner, usize::from(freed.class));
        if freed.class == WHOLE {
            return self.free_span(span);
        }
        let (size, count) = slots(class);
        let was_full = usize::from(freed.used) == count;
        if !freed.free_slot((place - start) / size) {
            return;
        }
        let is_empty = freed.used == 0;
        if was_full {
            self.list(owner, class, span);
        }
        if !is_empty {
            return;
        }
        let listed = self.span(span);
        if (listed.next, listed.previous) == (NONE, NONE) {
            // The next message of this size would need a span at once.
            if let Some(owner) = self.owners.get_mut(&owner) {
                owner.idle[1] |= 1 << class;
                self.is_idle = true;
            }
        } else {
            self.unlist(owner, class, span);
            self.free_span(span);
        }
    }

    /// Gives a large buffer to another owner, who may get at most `growth` bytes more; false if it cannot.
    pub(super) fn give(&mut self, place: usize, to: u32, growth: usize) -> bool {
        let Some(number) = self.span_at(place) else { return false };
        let span = self.span(number);
        let (from, units) = (span.owner, usize::from(span.units));
        if from == to {
            return true;
        }
        if span.class != WHOLE || units * UNIT > growth {
            return false;
        }
        span.owner = to;
        self.change(to, units as isize);
        self.change(from, -(units as isize));
        true
    }

    /// The owner of a buffer.
    #[cfg(test)]
    fn owner_of(&mut self, place: usize) -> u32 {
        self.span_at(place).map_or(NOBODY, |span| self.span(span).owner)
    }

    /// Bytes that an owner has.
    pub(super) fn held(&self, owner: u32) -> usize {
        self.owners.get(&owner).map_or(0, |owner| owner.units * UNIT)
    }

    /// The next owner that has more or less than was last reported.
    pub(super) fn take_changed(&mut self) -> Option<u32> {
        self.changed.pop()
    }

    /// Whether no change is left to report.
    pub(super) fn is_reported(&self) -> bool {
        self.changed.is_empty()
    }

    /// Whether [`Self::trim`] has something to give back, now or the next time.
    pub(super) fn needs_trim(&self) -> bool {
        self.dirty > 0 || self.is_idle
    }

    /// Gives back unused memory, and spans that were already empty at the last call.
    pub(super) fn trim(&mut self) {
        if core::mem::take(&mut self.is_idle) {
            self.trim_owners();
        }
        for bin in 0..self.bins.len() {
            let mut chunk = self.bins[bin];
            while self.dirty > 0 && chunk != NONE {
                let next = self.window.chunk(chunk).next;
                self.clean(chunk);
                chunk = next;
            }
        }
    }

    fn trim_owners(&mut self) {
        let mut idle = Vec::new();
        for (number, owner) in &mut self.owners {
            for class in 0..SIZES.len() {
                if owner.idle[0] >> class & 1 != 0 {
                    idle.push((*number, class, owner.partial[class]));
                }
            }
            owner.idle = [owner.idle[1], 0];
            self.is_idle |= owner.idle[0] != 0;
        }
        for (owner, class, span) in idle {
            if span != NONE && self.span(span).used == 0 {
                self.unlist(owner, class, span);
                self.free_span(span);
            }
        }
        self.owners.retain(|_, owner| owner.units > 0);
    }

    /// Gives back the memory of the free units of a chunk.
    fn clean(&mut self, number: u32) {
        let chunk = self.window.chunk(number);
        let dirty = chunk.dirty();
        self.dirty -= dirty;
        if chunk.is_empty() {
            self.unbin(number);
            self.window.decommit(number);
            // Capacity was reserved for it.
            self.unused.push(number);
            return;
        }
        while let Some((first, units)) = self.window.chunk(number).first_dirty() {
            self.window.discard(number, first, units);
            self.window.chunk(number).clean(first, units);
        }
    }

    /// A new span.
    fn take_span(&mut self, owner: u32, units: usize, class: u8) -> Option<u32> {
        let least = BINS.iter().position(|least| units <= *least)?;
        let found = (least + 1..self.bins.len()).map(|bin| self.bins[bin]).find(|chunk| *chunk != NONE);
        let chunk = match found {
            Some(chunk) => chunk,
            None => self.start_chunk()?,
        };
        let (index, dirty) = self.window.chunk(chunk).take(units, class, owner)?;
        self.dirty -= dirty;
        self.rebin(chunk);
        self.change(owner, units as isize);
        Some(chunk * SPANS as u32 + index as u32)
    }

    fn free_span(&mut self, number: u32) {
        let (chunk, index) = (number / SPANS as u32, number as usize % SPANS);
        let span = self.span(number);
        let (owner, first, units) = (span.owner, usize::from(span.first), usize::from(span.units));
        self.window.chunk(chunk).put(index);
        self.rebin(chunk);
        self.dirty += units;
        if self.dirty > MOST_DIRTY {
            if self.window.chunk(chunk).is_empty() {
                self.clean(chunk);
            } else {
                self.window.discard(chunk, first, units);
                self.window.chunk(chunk).clean(first, units);
                self.dirty -= units;
            }
        }
        self.change(owner, -(units as isize));
    }

    /// Makes memory of a chunk.
    fn start_chunk(&mut self) -> Option<u32> {
        let number = match self.unused.pop() {
            Some(number) => number,
            None => {
                // Keeps capacity in the list for every chunk.
                self.unused.try_reserve(self.started as usize + 1).ok()?;
                let number = self.started;
                (number < self.window.chunks() as u32).then_some(number)?
            }
        };
        if !self.window.commit(number) {
            if number < self.started {
                self.unused.push(number);
            }
            return None;
        }
        self.started = self.started.max(number + 1);
        self.window.chunk(number).start();
        self.bin(number, BINS.len());
        Some(number)
    }

    /// Puts a chunk into the list for its longest run of free units.
    fn rebin(&mut self, number: u32) {
        let chunk = self.window.chunk(number);
        let longest = chunk.longest();
        let bin = BINS.iter().filter(|least| longest >= **least).count();
        if usize::from(chunk.bin) != bin {
            self.unbin(number);
            self.bin(number, bin);
        }
    }

    fn bin(&mut self, number: u32, bin: usize) {
        let first = core::mem::replace(&mut self.bins[bin], number);
        let chunk = self.window.chunk(number);
        (chunk.next, chunk.previous, chunk.bin) = (first, NONE, bin as u8);
        if first != NONE {
            self.window.chunk(first).previous = number;
        }
    }

    fn unbin(&mut self, number: u32) {
        let chunk = self.window.chunk(number);
        let (next, previous, bin) = (chunk.next, chunk.previous, usize::from(chunk.bin));
        match previous {
            NONE => self.bins[bin] = next,
            previous => self.window.chunk(previous).next = next,
        }
        if next != NONE {
            self.window.chunk(next).previous = previous;
        }
    }

    /// Puts a span first in the list of those with free slots.
    fn list(&mut self, owner: u32, class: usize, number: u32) {
        let Some(owner) = self.owners.get_mut(&owner) else { return };
        let first = core::mem::replace(&mut owner.partial[class], number);
        let span = self.span(number);
        (span.next, span.previous) = (first, NONE);
        if first != NONE {
            self.span(first).previous = number;
        }
    }

    fn unlist(&mut self, owner: u32, class: usize, number: u32) {
        let span = self.span(number);
        let (next, previous) = (span.next, span.previous);
        (span.next, span.previous) = (NONE, NONE);
        if previous != NONE {
            self.span(previous).next = next;
        } else if let Some(owner) = self.owners.get_mut(&owner) {
            owner.partial[class] = next;
        }
        if next != NONE {
            self.span(next).previous = previous;
        }
    }

    /// Changes what an owner has by some units.
    fn change(&mut self, number: u32, units: isize) {
        if number == NOBODY {
            return;
        }
        let new = || Owner { units: 0, partial: [NONE; SIZES.len()], idle: [0; 2] };
        let owner = self.owners.entry(number).or_insert_with(new);
        owner.units = owner.units.saturating_add_signed(units);
        self.is_idle |= owner.units == 0;
        if !self.changed.contains(&number) {
            self.changed.push(number);
        }
    }

    fn span(&mut self, number: u32) -> &mut Span {
        self.window.chunk(number / SPANS as u32).span(number as usize % SPANS)
    }

    /// The span that a place lies in.
    fn span_at(&mut self, place: usize) -> Option<u32> {
        let (chunk, unit) = ((place / CHUNK) as u32, place % CHUNK / UNIT);
        if chunk >= self.started || unit < OWN_UNITS {
            return None;
        }
        let index = self.window.chunk(chunk).span_of(unit);
        Some(chunk * SPANS as u32 + index as u32)
    }

    /// Where a span begins.
    fn place(&mut self, number: u32) -> usize {
        let first = usize::from(self.span(number).first);
        (number / SPANS as u32) as usize * CHUNK + first * UNIT
    }
}

/// The class of the smallest slots for `size` bytes.
fn class_of(size: usize) -> usize {
    SIZES.partition_point(|slot| usize::from(*slot) < size)
}

/// Size and number of the slots in a span of a class.
fn slots(class: usize) -> (usize, usize) {
    let size = usize::from(SIZES[class]);
    (size, SLOTTED * UNIT / size)
}

const _: () = assert!(USABLE >= MOST / UNIT && SIZES[SIZES.len() - 1] as usize == MOST_SLOT);

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(mebibytes: usize) -> Spans {
        Spans::new(Window::of(mebibytes << 20).unwrap())
    }

    /// A sequence that looks random.
    fn random(state: &mut u64) -> usize {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*state >> 33) as usize
    }

    #[test]
    fn buffers_do_not_overlap_and_all_memory_returns() {
        let (mut spans, mut state) = (spans(64), 7);
        let mut taken: BTreeMap<usize, (usize, u32)> = BTreeMap::new();
        for round in 0..60_000 {
            let owner = random(&mut state) as u32 % 3;
            if round % 3 < 2 {
                let size = [24, 300, 600, 2600, 19_000, 60_000, 66_060][random(&mut state) % 7];
                let Some(place) = spans.take(owner, size, usize::MAX) else { continue };
                let before = taken.range(..place + size).next_back();
                assert!(before.is_none_or(|(at, (size, _))| at + size <= place), "{size} bytes at {place}");
                assert_eq!(spans.owner_of(place), owner);
                taken.insert(place, (size, owner));
            } else if let Some(place) = taken.keys().copied().nth(random(&mut state) % taken.len().max(1)) {
                let (size, owner) = taken.remove(&place).unwrap();
                let moved = spans.give(place, 9, usize::MAX);
                assert_eq!(moved, size > MOST_SLOT, "only separate spans change their owner");
                assert_eq!(spans.owner_of(place), if moved { 9 } else { owner });
                spans.free(place);
            }
            assert!(spans.dirty <= MOST_DIRTY);
        }
        assert!(taken.len() > 300);
        taken.keys().for_each(|place| spans.free(*place));
        assert_eq!(spans.held(9), 0, "large buffers leave nothing");
        for _ in 0..3 {
            spans.trim();
        }
        assert!(!spans.needs_trim() && spans.owners.is_empty());
        assert_eq!(spans.unused.len(), spans.started as usize, "every chunk is given back");
    }

    #[test]
    fn memory_of_an_owner_is_what_its_spans_take() {
        let mut spans = spans(64);
        let places: Vec<usize> = (0..8000).map(|_| spans.take(1, 324, usize::MAX).unwrap()).collect();
        assert_eq!(spans.held(1), 8000usize.div_ceil(SLOTTED * UNIT / 384) * SLOTTED * UNIT);
        // One of eight is kept: every span still has some.
        let before = spans.held(1);
        places.iter().enumerate().filter(|(i, _)| i % 8 > 0).for_each(|(_, place)| spans.free(*place));
        assert_eq!(spans.held(1), before, "spans that are in use in part are held");
        assert!(spans.take(1, 324, 0).is_some(), "a free slot needs no growth");
        assert!(spans.take(1, 2600, SLOTTED * UNIT - 1).is_none(), "a new span is growth");
        assert!(spans.take(2, 66_000, 16 * UNIT).is_none() && spans.take(2, 66_000, 17 * UNIT).is_some());
        assert_eq!(std::iter::from_fn(|| spans.take_changed()).count(), 2);
    }

    #[test]
    fn full_window_refuses_and_recovers() {
        let mut spans = spans(4);
        let all: Vec<usize> = std::iter::from_fn(|| spans.take(1, 60_000, usize::MAX)).collect();
        assert!(all.len() > 4 * (USABLE / 15) - 4, "{} buffers of 60,000 bytes", all.len());
        all.iter().for_each(|place| spans.free(*place));
        assert!(spans.take(2, 300, usize::MAX).is_some());
    }
}
