//! Values with stable indices, and collections that give their memory back.

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

/// Places in a piece of [`Sparse`].
const PIECE: usize = 128;

/// Values by index. They lie in pieces: no value moves when there are more, and a piece without values is freed.
#[derive(Debug)]
pub(crate) struct Sparse<T> {
    pieces: Vec<Piece<T>>,
}

#[derive(Debug)]
struct Piece<T> {
    values: usize,
    /// Empty if there is no value.
    places: Box<[Option<T>]>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self { pieces: Vec::new() }
    }
}

impl<T> Sparse<T> {
    /// Sets the value of an index; returns the one before.
    pub(crate) fn insert(&mut self, index: usize, value: T) -> Option<T> {
        let at = index / PIECE;
        if self.pieces.len() <= at {
            self.pieces.resize_with(at + 1, || Piece { values: 0, places: Box::default() });
        }
        let piece = self.pieces.get_mut(at)?;
        if piece.places.is_empty() {
            piece.places = (0..PIECE).map(|_| None).collect();
        }
        let before = piece.places.get_mut(index % PIECE)?.replace(value);
        piece.values += usize::from(before.is_none());
        before
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        let piece = self.pieces.get_mut(index / PIECE)?;
        let value = piece.places.get_mut(index % PIECE)?.take()?;
        piece.values -= 1;
        // The first one stays: it serves a node with few values, which come and go.
        if piece.values == 0 && index >= PIECE {
            piece.places = Box::default();
        }
        Some(value)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.pieces.get(index / PIECE)?.places.get(index % PIECE)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.pieces.get_mut(index / PIECE)?.places.get_mut(index % PIECE)?.as_mut()
    }
}

/// Index of a value in a [`Slab`].
pub(crate) type Slot = u32;

/// Values with stable indices; freed slots are reused.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    values: Sparse<T>,
    free: Vec<Slot>,
    slots: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { values: Sparse::default(), free: Vec::new(), slots: 0 }
    }
}

impl<T> Slab<T> {
    /// Number of slots; all slots are below this.
    pub(crate) fn capacity(&self) -> usize {
        self.slots
    }

    /// The slot that the next inserted value gets.
    pub(crate) fn next(&self) -> Slot {
        self.free.last().copied().unwrap_or(self.slots as Slot)
    }

    pub(crate) fn insert(&mut self, value: T) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            (self.slots - 1) as Slot
        });
        self.values.insert(slot as usize, value);
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        let value = self.values.remove(slot as usize);
        if value.is_some() {
            self.free.push(slot);
        }
        value
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.values.get_mut(slot as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_without_values_are_freed() {
        let mut values = Sparse::default();
        for index in 0..10 * PIECE {
            assert_eq!(values.insert(index, index), None);
        }
        assert_eq!(values.insert(5, 6), Some(5));
        assert_eq!((values.get(5), values.get(10 * PIECE)), (Some(&6), None));
        for index in (0..10 * PIECE).filter(|index| *index != 3 * PIECE) {
            assert!(values.remove(index).is_some() && values.remove(index).is_none());
        }
        let kept = values.pieces.iter().filter(|piece| !piece.places.is_empty()).count();
        assert_eq!(
            (kept, values.get_mut(3 * PIECE)),
            (2, Some(&mut (3 * PIECE))),
            "the first, and one with a value"
        );
    }

    #[test]
    fn slots_are_used_again() {
        let mut slab = Slab::default();
        let slots: Vec<Slot> = (0..300).map(|value| slab.insert(value)).collect();
        assert_eq!((slab.capacity(), slab.next()), (300, 300));
        assert_eq!((slab.remove(slots[7]), slab.remove(slots[7])), (Some(7), None));
        assert_eq!((slab.next(), slab.insert(1), slab.capacity()), (7, 7, 300));
        assert_eq!(slab.get_mut(7), Some(&mut 1));
    }
}
