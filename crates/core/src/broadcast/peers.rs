//! Sets of peers, by slot number; cheap to copy for every packet.

/// A set of small numbers; the first 64 need no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PeerSet {
    first: u64,
    rest: Vec<u64>,
    count: usize,
}

impl PeerSet {
    /// Adds a slot; false if it was in the set.
    pub(super) fn insert(&mut self, slot: usize) -> bool {
        let at = slot / 64;
        if at > self.rest.len() {
            self.rest.resize(at, 0);
        }
        let added = self.change(slot, |word, bit| *word |= bit);
        self.count += usize::from(added);
        added
    }

    /// Removes a slot; false if it was not in the set.
    pub(super) fn remove(&mut self, slot: usize) -> bool {
        let removed = self.change(slot, |word, bit| *word &= !bit);
        self.count -= usize::from(removed);
        removed
    }

    /// True if the slot is in the set.
    pub(super) fn contains(&self, slot: usize) -> bool {
        let word = match slot / 64 {
            0 => Some(&self.first),
            at => self.rest.get(at - 1),
        };
        word.is_some_and(|word| word & 1 << (slot % 64) != 0)
    }

    /// Number of slots in the set.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// True if the set is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The smallest number that is not in the set.
    pub(super) fn first_free(&self) -> usize {
        let words = core::iter::once(&self.first).chain(&self.rest);
        let free = words.enumerate().find(|(_, word)| **word != u64::MAX);
        free.map_or(64 * (1 + self.rest.len()), |(at, word)| at * 64 + word.trailing_ones() as usize)
    }

    /// Modifies the word that holds a slot; true if the word changed.
    fn change(&mut self, slot: usize, how: impl FnOnce(&mut u64, u64)) -> bool {
        let word = match slot / 64 {
            0 => Some(&mut self.first),
            at => self.rest.get_mut(at - 1),
        };
        let Some(word) = word else { return false };
        let before = *word;
        how(word, 1 << (slot % 64));
        *word != before
    }
}
