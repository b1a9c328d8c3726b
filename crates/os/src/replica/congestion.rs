//! The congested destinations: a hash table with one word for each, which has a bit per level.
//!
//! A destination's word is in the first free one of a few consecutive places. Words change one at a time; a reader
//! either finds a destination's word or treats the destination as not congested.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::shm::ReadWord;

/// Words of the table: more than twice the destinations that a node can have.
pub(super) const WORDS: usize = 8192;
/// Number of places at which the word of one destination may be.
const PLACES: usize = 64;
/// Number of levels.
pub(super) const LEVELS: u8 = 8;

fn places(destination: u32) -> impl Iterator<Item = usize> {
    let first = destination.wrapping_mul(0x9e37_79b1) as usize >> 8;
    (first..first + PLACES).map(|place| place % WORDS)
}

const fn destination(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn levels(word: u64) -> u32 {
    word as u32
}

const fn is_of(word: u64, wanted: u32) -> bool {
    word != 0 && destination(word) == wanted
}

/// The word of the destination `of`, 0 if it has none.
pub(super) fn word(words: &[ReadWord], of: u32) -> u64 {
    let mut found = places(of).map(|place| words.get(place).map_or(0, ReadWord::load));
    found.find(|word| *word == 0 || is_of(*word, of)).unwrap_or(0)
}

pub(super) fn has(word: u64, level: u8) -> bool {
    level < LEVELS && levels(word) >> level & 1 != 0
}

/// Sets or clears a level; false if all places of the destination are occupied.
pub(super) fn set(words: &[AtomicU64], of: u32, level: u8, congested: bool) -> bool {
    let load = |place: usize| words.get(place).map_or(0, |word| word.load(Ordering::Relaxed));
    let store = |place: usize, value: u64| {
        if let Some(word) = words.get(place) {
            word.store(value, Ordering::Release);
        }
    };
    let bit = 1_u32.checked_shl(level.into()).filter(|_| level < LEVELS).unwrap_or(0);
    // Look for an existing word first: the destination must not get two.
    let known = places(of).take_while(|place| load(*place) != 0).find(|place| is_of(load(*place), of));
    let place = known.or_else(|| congested.then(|| places(of).find(|p| levels(load(*p)) == 0)).flatten());
    let Some(place) = place else { return !congested };
    let old = if known.is_some() { levels(load(place)) } else { 0 };
    let new = if congested { old | bit } else { old & !bit };
    store(place, u64::from(of) << 32 | u64::from(new));
    // Remove empty words that are followed by a free place, the last one first: no search has to skip them.
    let mut last = place;
    while levels(load(last)) == 0 && load(last) != 0 && load((last + 1) % WORDS) == 0 {
        store(last, 0);
        last = (last + WORDS - 1) % WORDS;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::shm::Segment;

    #[test]
    fn congestion_table_agrees_with_a_set() {
        let segment = Segment::heap(WORDS * 8);
        let (words, seen) = (segment.words(0, WORDS), segment.words_to_read(0, WORDS));
        let mut model = BTreeSet::new();
        let mut state = 1_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 0..60_000 {
            // Destinations that share places, and as many as a node can have.
            let of = match next(3) {
                0 => 0x0100_1001 + next(40) as u32,
                _ => (next(4000) as u32).wrapping_mul(0x0100_1003) | 1,
            };
            let level = next(4) as u8;
            let congested = next(2) == 0;
            assert!(set(words, of, level, congested), "step {step}");
            if congested {
                model.insert((of, level))
            } else {
                model.remove(&(of, level))
            };
            for level in 0..4 {
                assert_eq!(has(word(seen, of), level), model.contains(&(of, level)), "step {step}");
            }
        }
        for (of, level) in &model {
            assert!(has(word(seen, *of), *level));
        }
        for (of, level) in model {
            set(words, of, level, false);
        }
        assert!(seen.iter().all(|word| levels(word.load()) == 0));
    }

    #[test]
    fn full_places_are_reported() {
        let segment = Segment::heap(WORDS * 8);
        let words = segment.words(0, WORDS);
        words.iter().for_each(|word| word.store(1 << 32 | 1, Ordering::Relaxed));
        assert!(!set(words, 7, 0, true));
        assert!(set(words, 7, 0, false));
        assert!(!has(word(segment.words_to_read(0, WORDS), 7), 0));
        assert!(!set(words, 7, LEVELS, true));
    }
}
