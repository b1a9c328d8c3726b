//! Containers with a deterministic order and hash (decision 1): the standard map with a hasher that the owner seeds.

use core::hash::{BuildHasher, Hasher};

/// A hash map for hot paths. Do not iterate over it where the order is visible from outside.
#[allow(clippy::disallowed_types)] // the hasher below is seeded, not random: nothing here differs between runs
pub(crate) type FixedMap<K, V> = std::collections::HashMap<K, V, SeededState>;

/// Builds hashers from one seed. The node's seed keeps peers from choosing keys that collide.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeededState(u64);

impl SeededState {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl BuildHasher for SeededState {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        SeededHasher(self.0)
    }
}

/// A hasher that multiplies and folds each word into its state; made for keys of a few integers.
#[derive(Debug)]
pub(crate) struct SeededHasher(u64);

impl SeededHasher {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xe703_7ed1_a0b4_28db;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for SeededHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            self.mix(chunk.iter().fold(0, |w, b| w << 8 | u64::from(*b)));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.mix(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }
}

/// Index of a value in a [`Slab`].
pub(crate) type Slot = u32;

/// Values with stable indices; freed slots are reused.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<Slot>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Number of slots; all slots are below this.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The slot that the next inserted value gets.
    pub(crate) fn next(&self) -> Slot {
        self.free.last().copied().unwrap_or(self.slots.len() as Slot)
    }

    pub(crate) fn insert(&mut self, value: T) -> Slot {
        if let Some(slot) = self.free.pop()
            && let Some(place) = self.slots.get_mut(slot as usize)
        {
            *place = Some(value);
            return slot;
        }
        self.slots.push(Some(value));
        (self.slots.len() - 1) as Slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        let value = self.slots.get_mut(slot as usize)?.take();
        if value.is_some() {
            self.free.push(slot);
        }
        value
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }
}
