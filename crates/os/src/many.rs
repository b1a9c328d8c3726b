//! Collections whose length processes control. They have no iterator, so a loop over all of one does not compile: work
//! on many elements is done in steps, with a key as the cursor. The daemon uses them for everything that belongs to
//! processes.

use std::collections::btree_map::{BTreeMap, Entry as Place};
use std::collections::hash_map::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Bound::{Excluded, Unbounded};

use crate::heap::shrink_map;

/// Maximum number of keys that one step takes.
const STEP_MAX: usize = 64;

/// Elements in the order of their keys.
#[derive(Debug)]
pub struct Many<K, V = ()>(BTreeMap<K, V>);

/// Parts of an [`Index`].
pub const PARTS: usize = 64;

/// Elements that are only looked up.
///
/// They lie in parts, each of which grows and shrinks alone: a single table moves all elements when it doubles, which
/// takes 20 ms for 57,344 of 250 bytes. An empty index takes 3 KiB, so no element of another collection has one.
#[derive(Debug)]
pub struct Index<K, V> {
    parts: Box<[HashMap<K, V>; PARTS]>,
    len: usize,
}

/// Chooses the part of a key. A fast hash is enough: daemon and kernel make the keys, so that no process can aim at one
/// part.
#[derive(Default)]
struct PartHasher(u64);

impl Hasher for PartHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 >> (u64::BITS - PARTS.ilog2())
    }
}

fn part<K: Hash>(key: &K) -> usize {
    let mut hasher = PartHasher::default();
    key.hash(&mut hasher);
    hasher.finish() as usize % PARTS
}

impl<K, V> Default for Many<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self { parts: Box::new(std::array::from_fn(|_| HashMap::new())), len: 0 }
    }
}

impl<K: Ord + Copy, V> Many<K, V> {
    /// The value of a key.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    /// The value of a key, to change it.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// Sets the value of a key; returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// Whether the key has a value.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the collection is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a key, which is added if it is missing.
    pub fn get_or_insert(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        match self.0.entry(key) {
            Place::Occupied(place) => place.into_mut(),
            Place::Vacant(place) => place.insert(value()),
        }
    }

    /// The first key.
    #[must_use]
    pub fn first(&self) -> Option<K> {
        self.0.first_key_value().map(|(key, _)| *key)
    }

    /// The first key behind `last`; the first of all if that is `None`.
    #[must_use]
    pub fn next_after(&self, last: Option<K>) -> Option<K> {
        let after = last.map_or(Unbounded, Excluded);
        self.0.range((after, Unbounded)).next().map(|(key, _)| *key)
    }

    /// Keys behind `last` for one step: at most `count`, and at most 64.
    #[must_use]
    pub fn some_after(&self, last: Option<K>, count: usize) -> Vec<K> {
        let after = last.map_or(Unbounded, Excluded);
        self.0.range((after, Unbounded)).take(count.min(STEP_MAX)).map(|(key, _)| *key).collect()
    }
}

impl<K: Eq + Hash, V> Index<K, V> {
    /// The value of a key.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.parts.get(part(key))?.get(key)
    }

    /// The value of a key, to change it.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.parts.get_mut(part(key))?.get_mut(key)
    }

    /// The value of a key, which is added if it is missing.
    pub fn get_or_insert(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let Self { parts, len } = self;
        parts[part(&key)].entry(key).or_insert_with(|| {
            *len += 1;
            value()
        })
    }

    /// Sets the value of a key; returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.parts[part(&key)].insert(key, value);
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let removed = self.parts[part(key)].remove(key);
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// Whether the key has a value.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the collection is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gives back memory of one of the [`PARTS`], if most of its elements have left.
    pub fn shrink(&mut self, part: usize) {
        if let Some(part) = self.parts.get_mut(part) {
            shrink_map(part, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_index_grow_alike() {
        for step in [1, 2, 64, 4096, 0x9e37_79b9] {
            let mut index = Index::default();
            for number in 0..8192_u32 {
                assert_eq!(index.insert(number.wrapping_mul(step), number), None);
            }
            let most = index.parts.iter().map(HashMap::len).max().unwrap();
            assert!(most < 2 * 8192 / PARTS, "step {step}: {most}");
            assert!((0..8192_u32).all(|number| index.get(&number.wrapping_mul(step)) == Some(&number)));
            assert_eq!(index.len(), 8192);
            for number in 0..8192_u32 {
                assert!(index.remove(&number.wrapping_mul(step)).is_some());
            }
            assert!(index.is_empty());
            (0..PARTS).for_each(|part| index.shrink(part));
            assert!(index.parts.iter().all(|part| part.capacity() == 0));
        }
    }
}
