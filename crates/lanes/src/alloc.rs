//! Allocation of the rings of one direction: each lane has the first ring of its slot, and larger ones lie behind
//! these. The state is private memory of the writing process, never shared.

use std::sync::{Arc, Mutex, PoisonError};

use super::layout::{Layout, Shape};

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
    /// Where the region of larger rings starts, in units of the first ones.
    larger: u32,
    /// That region, in pieces of the largest ring.
    chunks: Vec<Chunk>,
    /// First rings in use.
    firsts: u32,
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
    pub(super) fn new(layout: &Layout) -> Rings {
        let (shape, larger) = (layout.shape, layout.larger());
        let count = shape.region >> shape.ring_shifts[3];
        let chunks = (0..count).map(|_| Chunk::default()).collect();
        Rings(Arc::new(Mutex::new(State { shape, larger, chunks, firsts: 0 })))
    }

    /// Takes a ring for the lane in this slot: the slot's own ring of class 0, whose only user is that lane, or the
    /// free ring of a larger class with the lowest address, so that rings in use stay together. `None`: all are taken.
    pub(super) fn take(&self, class: u8, slot: u32) -> Option<Taken> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if class == 0 {
            state.firsts += 1;
            return Some(Taken { class, unit: slot });
        }
        state.take(class)
    }

    /// Gives a ring back.
    pub(super) fn free(&self, ring: Taken) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).free(ring);
    }

    /// Bytes taken.
    pub(super) fn bytes(&self) -> u64 {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let size = |class: u8| state.shape.ring_shifts[usize::from(class)];
        let larger: u64 = state.chunks.iter().map(|c| u64::from(c.taken) << size(c.class)).sum();
        larger + (u64::from(state.firsts) << size(0))
    }
}

impl State {
    /// Rings of `class` in a chunk.
    fn per_chunk(&self, class: u8) -> Option<u32> {
        Some(1 << (self.shape.ring_shifts[3] - *self.shape.ring_shifts.get(usize::from(class))?))
    }

    /// Number of smallest rings in a ring of `class`.
    fn units(&self, class: u8) -> u32 {
        1 << (self.shape.ring_shifts[usize::from(class)] - self.shape.ring_shifts[0])
    }

    fn take(&mut self, class: u8) -> Option<Taken> {
        let count = self.per_chunk(class)?;
        let fits = |chunk: &Chunk| chunk.class == class && (1..count).contains(&chunk.taken);
        let at =
            (self.chunks.iter().position(fits)).or_else(|| self.chunks.iter().position(|c| c.taken == 0))?;
        let unit = self.units(class);
        let first = self.larger + at as u32 * self.units(3);
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
        if ring.class == 0 {
            self.firsts = self.firsts.saturating_sub(1);
            return;
        }
        let (whole, unit) = (self.units(3), self.units(ring.class));
        let Some(place) = ring.unit.checked_sub(self.larger) else { return };
        let Some(chunk) = self.chunks.get_mut((place / whole) as usize) else { return };
        let index = place % whole / unit;
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

    fn rings(region: u64) -> (Rings, Shape) {
        let shape = Shape { slots: 300, region, ring_shifts: [12, 15, 18, 20] };
        (Rings::new(&Layout::new(shape).unwrap()), shape)
    }

    #[test]
    fn rings_never_overlap_and_all_are_freed() {
        let (rings, shape) = rings(4 << 20);
        for round in 0..3 {
            let mut taken = Vec::new();
            let mut units = HashSet::new();
            for (slot, class) in [0, 1, 2, 3, 0, 1, 2, 0].into_iter().cycle().take(40 + round).enumerate() {
                let Some(ring) = rings.take(class, slot as u32) else { continue };
                let count = 1 << (shape.ring_shifts[usize::from(class)] - 12);
                // 300 first rings take 2 MiB.
                assert!((ring.unit..ring.unit + count).all(|unit| units.insert(unit) && unit < 512 + 1024));
                taken.push(ring);
            }
            taken.into_iter().for_each(|ring| rings.free(ring));
            assert_eq!(rings.bytes(), 0);
        }
    }

    #[test]
    fn full_region_has_no_ring() {
        let (rings, _) = rings(1 << 20);
        let all: Vec<Taken> = (0..32).map(|_| rings.take(1, 0).unwrap()).collect();
        assert_eq!(rings.take(1, 0), None);
        assert_eq!(rings.take(3, 0), None);
        rings.free(all[17]);
        rings.free(all[17]);
        assert_eq!(rings.bytes(), 31 << 15);
        assert_eq!(rings.take(1, 0), Some(all[17]));
        assert_eq!(rings.take(9, 0), None);
        assert_eq!(rings.take(0, 7), Some(Taken { class: 0, unit: 7 }), "every slot has its first ring");
    }
}
