//! A set of slots that one side adds to and the other takes from. A hint: a peer can write anything there.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use utipc_os::shm::Memory;

/// The set: one bit per slot in `words`, one bit per word in `summary`.
#[derive(Debug)]
pub(super) struct Bits<M> {
    memory: Arc<M>,
    summary: usize,
    words: usize,
    slots: u32,
}

impl<M> Clone for Bits<M> {
    fn clone(&self) -> Self {
        Self { memory: self.memory.clone(), ..*self }
    }
}

impl<M: Memory> Bits<M> {
    pub(super) fn new(memory: Arc<M>, (summary, words): (usize, usize), slots: u32) -> Self {
        Self { memory, summary, words, slots }
    }

    /// Adds a slot. Word first, then summary: the taker clears them the other way round.
    pub(super) fn add(&self, slot: u32) {
        let word = slot as usize / 64;
        self.memory.or64(self.words + word * 8, 1 << (slot % 64));
        self.memory.or64(self.summary + word / 64 * 8, 1 << (word % 64));
    }

    fn summary_words(&self) -> usize {
        self.slots.div_ceil(64 * 64) as usize
    }

    /// Whether the set is empty, as far as this side sees: a few loads of one line.
    pub(super) fn is_empty(&self) -> bool {
        (0..self.summary_words()).all(|n| self.memory.load64(self.summary + n * 8, Relaxed) == 0)
    }

    /// Takes all slots out and hands them to `each`. The work is bounded by the number of slots.
    pub(super) fn take(&self, each: impl FnMut(u32)) {
        self.take_some(self.slots, each);
    }

    /// Takes slots out until there are `most`, or up to 63 more, and hands them to `each`.
    pub(super) fn take_some(&self, most: u32, mut each: impl FnMut(u32)) {
        let count = self.slots.div_ceil(64);
        let mut taken = 0;
        for group in 0..self.summary_words() {
            let at = self.summary + group * 8;
            if taken >= most || self.memory.load64(at, Relaxed) == 0 {
                continue;
            }
            let mut words = self.memory.swap64(at, 0);
            while words != 0 {
                if taken >= most {
                    self.memory.or64(at, words);
                    break;
                }
                let word = group as u32 * 64 + words.trailing_zeros();
                words &= words - 1;
                // A peer may have set bits for slots that do not exist.
                if word < count {
                    ones(self.memory.swap64(self.words + word as usize * 8, 0))
                        .map(|bit| word * 64 + bit)
                        .filter(|slot| *slot < self.slots)
                        .for_each(|slot| {
                            taken += 1;
                            each(slot);
                        });
                }
            }
        }
    }
}

/// The numbers of the bits that are set.
fn ones(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use utipc_os::shm::Segment;

    #[test]
    fn added_slots_are_taken_once() {
        let bits = Bits::new(Arc::new(Segment::heap(4096)), (0, 128), 10_000);
        assert!(bits.is_empty());
        for slot in [0, 63, 64, 5000, 9999, 64] {
            bits.add(slot);
        }
        assert!(!bits.is_empty());
        let mut got = Vec::new();
        bits.take(|slot| got.push(slot));
        assert_eq!(got, [0, 63, 64, 5000, 9999]);
        assert!(bits.is_empty());
        bits.take(|slot| panic!("{slot}"));
    }

    #[test]
    fn slots_out_of_range_are_not_reported() {
        let memory = Arc::new(Segment::heap(4096));
        memory.write(0, &[0xff; 4096]);
        let bits = Bits::new(memory, (0, 128), 70);
        let mut got = Vec::new();
        bits.take(|slot| got.push(slot));
        assert_eq!(got, (0..70).collect::<Vec<_>>());
    }
}
