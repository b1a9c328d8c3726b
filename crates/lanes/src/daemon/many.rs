//! Collections whose length processes control. They have no iterator, so a loop over all of one does not compile: work
//! on many elements is done in steps, with a key as the cursor ([`super::Work`]).

use std::borrow::Borrow;
use std::collections::btree_map::{BTreeMap, Entry as Place};
use std::collections::hash_map::{Entry, HashMap};
use std::hash::Hash;
use std::ops::Bound::{Excluded, Unbounded};

use utipc_os::heap::shrink_map;

/// Elements in the order of their keys.
#[derive(Debug)]
pub(super) struct Many<K, V>(BTreeMap<K, V>);

impl<K, V> Default for Many<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy, V> Many<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        self.0.insert(key, value);
    }

    /// The value of a key, which is added if it is missing.
    pub(super) fn get_or_insert(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        match self.0.entry(key) {
            Place::Occupied(place) => place.into_mut(),
            Place::Vacant(place) => place.insert(value()),
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first key.
    pub(super) fn first(&self) -> Option<K> {
        self.0.first_key_value().map(|(key, _)| *key)
    }

    /// The first key behind `last`; the first of all if that is `None`.
    pub(super) fn next_after(&self, last: Option<K>) -> Option<K> {
        let after = last.map_or(Unbounded, Excluded);
        self.0.range((after, Unbounded)).next().map(|(key, _)| *key)
    }

    /// Keys behind `last` for one step: at most `count`.
    pub(super) fn some_after(&self, last: Option<K>, count: usize) -> Vec<K> {
        let after = last.map_or(Unbounded, Excluded);
        self.0.range((after, Unbounded)).take(count.min(STEP_MAX)).map(|(key, _)| *key).collect()
    }
}

/// Most keys that one step takes.
const STEP_MAX: usize = 64;

/// Elements that are only looked up.
#[derive(Debug)]
pub(super) struct Index<K, V>(HashMap<K, V>);

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V> Index<K, V> {
    /// Gives back memory if most elements have left.
    pub(super) fn shrink(&mut self) {
        shrink_map(&mut self.0);
    }

    #[inline]
    pub(super) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    #[inline]
    pub(super) fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.0.get_mut(key)
    }

    pub(super) fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        self.0.entry(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    pub(super) fn contains_key(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
