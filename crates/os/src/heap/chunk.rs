//! The state of a chunk: which of its units are free, and the spans of units that are in use.

use super::window::{UNIT, UNITS};

/// Marks the absence of a span or chunk.
pub(super) const NONE: u32 = u32::MAX;
/// Spans of a chunk: each has at least two units.
pub(super) const SPANS: usize = 128;
/// Words of a bit for each unit.
const WORDS: usize = UNITS / 64;
/// Units at the beginning of a chunk that hold its state.
pub(super) const OWN_UNITS: usize = size_of::<Chunk>().div_ceil(UNIT);
/// Units of a chunk for messages.
pub(super) const USABLE: usize = UNITS - OWN_UNITS;

/// Units in use: one large buffer, or slots of one size.
#[repr(C)]
pub(super) struct Span {
    /// Bit for each slot in use.
    pub(super) slots: [u64; WORDS],
    pub(super) owner: u32,
    /// Neighbours in the list of spans with free slots.
    pub(super) next: u32,
    pub(super) previous: u32,
    /// Slots in use.
    pub(super) used: u16,
    /// Number of its size class.
    pub(super) class: u8,
    pub(super) first: u8,
    pub(super) units: u8,
}

impl Span {
    /// Takes the first of `count` slots that is free.
    pub(super) fn take_slot(&mut self, count: usize) -> Option<usize> {
        let (index, word) = self.slots.iter_mut().enumerate().find(|(_, word)| **word != u64::MAX)?;
        let bit = word.trailing_ones() as usize;
        let slot = index * 64 + bit;
        if slot >= count {
            return None;
        }
        *word |= 1 << bit;
        self.used += 1;
        Some(slot)
    }

    /// Frees a slot; false if it is free.
    pub(super) fn free_slot(&mut self, slot: usize) -> bool {
        let Some(word) = self.slots.get_mut(slot / 64) else { return false };
        let bit = 1 << (slot % 64);
        let was_used = *word & bit != 0;
        *word &= !bit;
        self.used -= u16::from(was_used);
        was_used
    }
}

/// The state of a chunk.
#[repr(C)]
pub(super) struct Chunk {
    /// Bit set for each unit that belongs to no span.
    free: [u64; WORDS],
    /// Bit for each free unit that may still have memory.
    dirty: [u64; WORDS],
    /// Bit for each entry of `spans` that is in use.
    used_spans: [u64; SPANS / 64],
    /// Neighbours in the list of chunks with about as many free units in a row.
    pub(super) next: u32,
    pub(super) previous: u32,
    /// That list.
    pub(super) bin: u8,
    /// The span of each unit in use.
    span_of: [u8; UNITS],
    spans: [Span; SPANS],
}

impl Chunk {
    /// The state of a new chunk.
    pub(super) fn start(&mut self) {
        self.free = [u64::MAX; WORDS];
        self.dirty = [0; WORDS];
        self.used_spans = [0; SPANS / 64];
        (self.next, self.previous) = (NONE, NONE);
        set(&mut self.free, 0, OWN_UNITS, false);
    }

    /// Whether no span is in use.
    pub(super) fn is_empty(&self) -> bool {
        self.used_spans.iter().all(|word| *word == 0)
    }

    /// Number of free units that may have memory.
    pub(super) fn dirty(&self) -> usize {
        self.dirty.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Maximum number of free units in a row.
    pub(super) fn longest(&self) -> usize {
        runs(&self.free).map(|(_, units)| units).max().unwrap_or(0)
    }

    /// Takes `units` in a row for a new span; returns its number and how many of them may have memory.
    pub(super) fn take(&mut self, units: usize, class: u8, owner: u32) -> Option<(usize, usize)> {
        let (first, _) = runs(&self.free).find(|(_, free)| *free >= units)?;
        let word = self.used_spans.iter().position(|word| *word != u64::MAX)?;
        let index = word * 64 + self.used_spans[word].trailing_ones() as usize;
        self.used_spans[word] |= 1 << (index % 64);
        let dirty =
            (first..first + units).filter(|unit| self.dirty[unit / 64] >> (unit % 64) & 1 != 0).count();
        set(&mut self.free, first, units, false);
        set(&mut self.dirty, first, units, false);
        self.span_of[first..first + units].fill(index as u8);
        let (first, units) = (first as u8, units as u8);
        let slots = [0; WORDS];
        self.spans[index] = Span { slots, owner, next: NONE, previous: NONE, used: 0, class, first, units };
        Some((index, dirty))
    }

    /// Frees the units of a span; they may still have memory.
    pub(super) fn put(&mut self, index: usize) {
        let (first, units) = (usize::from(self.spans[index].first), usize::from(self.spans[index].units));
        self.used_spans[index / 64] &= !(1 << (index % 64));
        set(&mut self.free, first, units, true);
        set(&mut self.dirty, first, units, true);
    }

    /// Notes that units have no memory.
    pub(super) fn clean(&mut self, first: usize, units: usize) {
        set(&mut self.dirty, first, units, false);
    }

    /// The first run of free units that may have memory.
    pub(super) fn first_dirty(&self) -> Option<(usize, usize)> {
        runs(&self.dirty).next()
    }

    /// A span in use.
    pub(super) fn span(&mut self, index: usize) -> &mut Span {
        &mut self.spans[index % SPANS]
    }

    /// Number of the span that has a unit.
    pub(super) fn span_of(&self, unit: usize) -> usize {
        usize::from(self.span_of[unit % UNITS])
    }
}

/// Sets or clears the bits of some units.
fn set(words: &mut [u64; WORDS], first: usize, units: usize, to: bool) {
    for unit in first..first + units {
        let bit = 1 << (unit % 64);
        match to {
            true => words[unit / 64] |= bit,
            false => words[unit / 64] &= !bit,
        }
    }
}

/// The runs of units whose bits are set: the first, and their number.
fn runs(words: &[u64; WORDS]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        at = next(words, at, true)?;
        let end = next(words, at, false).unwrap_or(UNITS);
        let run = (at, end - at);
        at = end;
        Some(run)
    })
}

/// The first unit from `at` on whose bit is `value`.
fn next(words: &[u64; WORDS], at: usize, value: bool) -> Option<usize> {
    let mut at = at;
    while at < UNITS {
        let word = if value { words[at / 64] } else { !words[at / 64] };
        let rest = word >> (at % 64);
        if rest != 0 {
            return Some(at + rest.trailing_zeros() as usize);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}
