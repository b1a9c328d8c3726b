//! Collections whose length processes control. They have no iterator, so a loop over all of one does not compile: work
//! on many elements is done in steps, with a key as the cursor. The daemon uses them for everything that belongs to
//! processes.

use std::collections::btree_map::{BTreeMap, Entry as Place};
use std::collections::hash_map::{Entry, HashMap};
use std::hash::Hash;
use std::ops::Bound::{Excluded, Unbounded};

use crate::heap::shrink_map;

/// Maximum number of keys that one step takes.
const STEP_MAX: usize = 64;

/// Elements in the order of their keys.
#[derive(Debug)]
pub struct Many<K, V = ()>(BTreeMap<K, V>);

/// Elements that are only looked up.
#[derive(Debug)]
pub struct Index<K, V>(HashMap<K, V>);

/// Common to both collections.
macro_rules! lookups {
    ($name:ident, $map:ident, $($key:tt)+) => {
        impl<K, V> Default for $name<K, V> {
            fn default() -> Self {
                Self($map::new())
            }
        }

        impl<K: $($key)+, V> $name<K, V> {
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
        }
    };
}

lookups!(Many, BTreeMap, Ord + Copy);
lookups!(Index, HashMap, Eq + Hash);

impl<K: Ord + Copy, V> Many<K, V> {
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
    /// Gives back memory if most elements have left.
    pub fn shrink(&mut self) {
        shrink_map(&mut self.0);
    }

    /// The place of a key.
    pub fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        self.0.entry(key)
    }
}
