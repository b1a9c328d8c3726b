//! Values with stable indices, and queues that give their memory back.

use std::collections::VecDeque;

/// Places for which a queue keeps its memory in any case.
const LEAST_PLACES: usize = 64;

/// Halves the memory of a queue that uses less than a quarter of it. Call it after an item has left.
#[inline]
pub(crate) fn shrink<T>(queue: &mut VecDeque<T>) {
    let places = queue.capacity();
    if places > LEAST_PLACES && queue.len() < places / 4 {
        queue.shrink_to(places / 2);
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
