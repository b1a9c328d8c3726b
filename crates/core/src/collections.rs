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

/// A queue whose items lie in pieces: none moves when there are more, and a piece without items is freed.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// All but the first and the last one are full.
    pieces: VecDeque<VecDeque<T>>,
    len: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { pieces: VecDeque::new(), len: 0 }
    }
}

impl<T> Queue<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push_back(&mut self, item: T) {
        self.len += 1;
        match self.pieces.back_mut().filter(|piece| piece.len() < PIECE) {
            Some(last) => last.push_back(item),
            None => self.pieces.push_back(VecDeque::from([item])),
        }
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.pieces.front()?.front()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let first = self.pieces.front()?;
        match index.checked_sub(first.len()) {
            None => first.get(index),
            Some(behind) => self.pieces.get(1 + behind / PIECE)?.get(behind % PIECE),
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let item = self.pieces.front_mut()?.pop_front()?;
        self.len -= 1;
        // The last piece stays: it serves a queue with few items, which come and go.
        if self.pieces.len() > 1 && self.pieces.front().is_some_and(VecDeque::is_empty) {
            self.pieces.pop_front();
            shrink(&mut self.pieces);
        }
        Some(item)
    }
}

/// A set of numbers, of which the lowest is taken first. It has a bit for each number up to the highest one ever, so
/// free numbers of many values that have left keep little memory.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    words: Vec<u64>,
    /// A bit for each word that is not zero.
    used_words: Vec<u64>,
    len: usize,
}

impl Numbers {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, number: u32) {
        let set = |words: &mut Vec<u64>, at: usize| {
            let (word, bit) = (at / 64, 1 << (at % 64));
            if words.len() <= word {
                words.resize(word + 1, 0);
            }
            words.get_mut(word).is_some_and(|bits| {
                let is_new = *bits & bit == 0;
                *bits |= bit;
                is_new
            })
        };
        self.len += usize::from(set(&mut self.words, number as usize));
        set(&mut self.used_words, number as usize / 64);
    }

    pub(crate) fn first(&self) -> Option<u32> {
        let lowest = |words: &[u64], at: usize| Some(at * 64 + words.get(at)?.trailing_zeros() as usize);
        let word = lowest(&self.used_words, self.used_words.iter().position(|word| *word != 0)?)?;
        u32::try_from(lowest(&self.words, word)?).ok()
    }

    pub(crate) fn take_first(&mut self) -> Option<u32> {
        let first = self.first()?;
        let word = first as usize / 64;
        let bits = self.words.get_mut(word)?;
        *bits &= *bits - 1;
        if *bits == 0 {
            let used = self.used_words.get_mut(word / 64)?;
            *used &= *used - 1;
        }
        self.len -= 1;
        Some(first)
    }
}

/// Index of a value in a [`Slab`].
pub(crate) type Slot = u32;

/// Values with stable indices; freed slots are reused, the lowest first.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    values: Sparse<T>,
    free: Numbers,
    slots: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { values: Sparse::default(), free: Numbers::default(), slots: 0 }
    }
}

impl<T> Slab<T> {
    /// Number of slots; all slots are below this.
    pub(crate) fn capacity(&self) -> usize {
        self.slots
    }

    /// The slot that the next inserted value gets.
    pub(crate) fn next(&self) -> Slot {
        self.free.first().unwrap_or(self.slots as Slot)
    }

    pub(crate) fn insert(&mut self, value: T) -> Slot {
        let slot = self.free.take_first().unwrap_or_else(|| {
            self.slots += 1;
            (self.slots - 1) as Slot
        });
        self.values.insert(slot as usize, value);
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        let value = self.values.remove(slot as usize);
        if value.is_some() {
            self.free.insert(slot);
        }
        value
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.values.get_mut(slot as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rng::Rng;

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
    fn queue_in_pieces_has_the_items_of_one_in_a_piece() {
        let (mut rng, mut queue, mut items) = (Rng::new(3), Queue::default(), VecDeque::new());
        for step in 0..200_000 {
            // Longer and shorter in turns.
            let grows = step / 3000 % 2 == 0;
            match rng.below(10) {
                0..4 => assert_eq!(queue.pop_front(), items.pop_front()),
                4..7 if !grows => assert_eq!(queue.pop_front(), items.pop_front()),
                _ => {
                    queue.push_back(step);
                    items.push_back(step);
                }
            }
            assert_eq!((queue.len(), queue.front()), (items.len(), items.front()));
            let index = rng.below(items.len() as u64 + 2) as usize;
            assert_eq!(queue.get(index), items.get(index));
            assert!(queue.pieces.len() <= items.len() / PIECE + 2, "{} pieces", queue.pieces.len());
        }
    }

    #[test]
    fn lowest_number_is_taken_first() {
        let (mut rng, mut numbers, mut model) = (Rng::new(5), Numbers::default(), BTreeSet::new());
        for step in 0..20_000 {
            // More and fewer in turns.
            if rng.below(10) < if step / 2000 % 2 == 0 { 7 } else { 3 } {
                let number = rng.below(20_000) as u32;
                numbers.insert(number);
                model.insert(number);
            } else {
                assert_eq!(numbers.take_first(), model.pop_first());
            }
            assert_eq!((numbers.len(), numbers.first()), (model.len(), model.first().copied()));
        }
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
