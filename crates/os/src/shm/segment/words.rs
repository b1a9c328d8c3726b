//! Access to a part of a segment as a slice of words.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Segment;

/// A word that this process may only read, and another process may write at any time.
#[derive(Debug)]
#[repr(transparent)]
pub struct ReadWord(AtomicU64);

impl ReadWord {
    /// Relaxed load: the only one that is guaranteed to work on memory that is mapped read-only.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Segment {
    /// `count` words from byte `at` on.
    ///
    /// # Panics
    /// If they are not in the segment, `at` is not a multiple of 8, or the segment is read-only.
    #[inline]
    pub fn words(&self, at: usize, count: usize) -> &[AtomicU64] {
        let first = self.place(at, bytes(count), 8, self.writable);
        // SAFETY: `place` checked range and alignment (the base is page-aligned). The memory is mapped for writing and
        // lives as long as `self`; any bytes are valid words, and this place is used as 64-bit words only.
        unsafe { std::slice::from_raw_parts(first.cast(), count) }
    }

    /// [`Segment::words`] for reading only.
    ///
    /// # Panics
    /// If they are not in the segment, or `at` is not a multiple of 8.
    #[inline]
    pub fn words_to_read(&self, at: usize, count: usize) -> &[ReadWord] {
        let first = self.place(at, bytes(count), 8, self.size);
        // SAFETY: as in `words`; a `ReadWord` has the layout of an atomic and is never written through.
        unsafe { std::slice::from_raw_parts(first.cast(), count) }
    }
}

/// Bytes of `count` words; saturates, and no segment is that large.
fn bytes(count: usize) -> usize {
    count.saturating_mul(8)
}
