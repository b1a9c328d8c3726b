//! Allocation of rings in the region of one direction. The state is private memory of the writing process, never
//! shared.

use std::sync::{Arc, Mutex, PoisonError};

use super::layout::Shape;

/// A ring in use: give it back with [`Rings::free`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) class: u8,
    /// Where it starts, in units of the smallest ring.
    pub(super) unit: u32,
}

/// The rings of one direction. Clones share.
#[derive(Clone, Debug)]
pub(super) struct Rings(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    shape: Shape,
    /// The region in pieces of the largest ring.
    chunks: Vec<Chunk>,
}

/// A piece of the region; cut into rings of one class while any of them is taken.
#[derive(Debug, Default)]
struct Chunk {
    class: u8,
    taken: u32,
    /// One bit per ring, set while taken.
    map: Vec<u64>,
}

impl Rings {
    pub(super) fn new(shape: Shape) -> Rings {
        let count = shape.region >> shape.ring_shifts[3];
        let chunks = (0..count).map(|_| Chunk::default()).collect();
        Rings(Arc::new(Mutex::new(State { shape, chunks })))
    }

    /// Takes the free ring of `class` with the lowest address, so that rings in use stay together. `None`: all are
    /// taken.
    pub(super) fn take(&self, class: u8) -> Option<Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take(class)
    }

    /// Gives a ring back.
    pub(super) fn free(&self, ring: Taken) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).free(ring);
    }

    /// Bytes taken.
    pub(super) fn bytes(&self) -> u64 {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.chunks.iter().map(|c| u64::from(c.taken) << state.shape.ring_shifts[usize::from(c.class)]).sum()
    }
}

impl State {
    /// Rings of `class` in a chunk.
    fn per_chunk(&self, class: u8) -> Option<u32> {
        Some(1 << (self.shape.ring_shifts[3] - *self.shape.ring_shifts.get(usize::from(class))?))
    }

    /// Smallest rings in one of `class`.
    fn units(&self, class: u8) -> u32 {
        1 << (self.shape.ring_shifts[usize::from(class)] - self.shape.ring_shifts[0])
    }

    fn take(&mut self, class: u8) -> Option<Taken> {
        let count = self.per_chunk(class)?;
        let fits = |chunk: &Chunk| chunk.class == class && (1..count).contains(&chunk.taken);
        let at =
            (self.chunks.iter().position(fits)).or_else(|| self.chunks.iter().position(|c| c.taken == 0))?;
        let unit = self.units(class);
        let first = at as u32 * self.units(3);
        let chunk = self.chunks.get_mut(at)?;
        if chunk.taken == 0 {
            chunk.class = class;
            chunk.map = vec![0; count.div_ceil(64) as usize];
        }
        let (index, word) = chunk.map.iter_mut().enumerate().find(|(_, word)| **word != u64::MAX)?;
        let bit = word.trailing_ones();
        *word |= 1 << bit;
        chunk.taken += 1;
        Some(Taken { class, unit: first + (index as u32 * 64 + bit) * unit })
    }

    fn free(&mut self, ring: Taken) {
        let (whole, unit) = (self.units(3), self.units(ring.class));
        let Some(chunk) = self.chunks.get_mut((ring.unit / whole) as usize) else { return };
        let index = ring.unit % whole / unit;
        let Some(word) = chunk.map.get_mut((index / 64) as usize) else { return };
        if chunk.class == ring.class && *word & 1 << (index % 64) != 0 {
            *word &= !(1 << (index % 64));
            chunk.taken -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rings_never_overlap_and_all_are_freed() {
        let shape = Shape { region: 4 << 20, ring_shifts: [12, 15, 18, 20], ..Shape::STANDARD };
        let rings = Rings::new(shape);
        for round in 0..3 {
            let mut taken = Vec::new();
            let mut units = HashSet::new();
            for class in [0, 1, 2, 3, 0, 1, 2, 0].into_iter().cycle().take(40 + round) {
                let Some(ring) = rings.take(class) else { continue };
                let count = 1 << (shape.ring_shifts[usize::from(class)] - 12);
                assert!((ring.unit..ring.unit + count).all(|unit| units.insert(unit) && unit < 1024));
                taken.push(ring);
            }
            taken.into_iter().for_each(|ring| rings.free(ring));
            assert_eq!(rings.bytes(), 0);
        }
    }

    #[test]
    fn full_region_has_no_ring() {
        let rings = Rings::new(Shape { region: 1 << 20, ring_shifts: [12, 15, 18, 20], ..Shape::STANDARD });
        let all: Vec<Taken> = (0..256).map(|_| rings.take(0).unwrap()).collect();
        assert_eq!(rings.take(0), None);
        assert_eq!(rings.take(3), None);
        rings.free(all[77]);
        rings.free(all[77]);
        assert_eq!(rings.bytes(), 255 << 12);
        assert_eq!(rings.take(0), Some(all[77]));
        assert_eq!(rings.take(9), None);
    }
}
