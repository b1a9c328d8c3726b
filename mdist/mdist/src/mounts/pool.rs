//! The output buffers that all mounts of all workers share beyond their own guarantee.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of one output buffer: the largest frame payload of the transport. Limits are counted in these. Spec: rssl.md §1.8
pub const BUFFER: usize = 6144;

/// How many shared buffers are free; taken and given by workers on any thread.
#[derive(Debug)]
pub struct Pool {
    size: usize,
    free: AtomicUsize,
}

impl Pool {
    /// A pool of `size` buffers of [`BUFFER`] bytes. Nothing is allocated: the pool counts.
    pub fn new(size: usize) -> Self {
        Self { size, free: AtomicUsize::new(size) }
    }

    /// How many buffers the pool has in all.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many of them nobody holds.
    pub fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    /// Takes `count` buffers, all or none.
    pub fn take(&self, count: usize) -> bool {
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(count)).is_ok()
    }

    /// Gives back what was taken.
    pub fn give(&self, count: usize) {
        let before = self.free.fetch_add(count, Ordering::Relaxed);
        debug_assert!(before + count <= self.size, "more was given back than taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_no_more_than_it_has() {
        let pool = Pool::new(3);
        assert!(pool.take(2));
        assert!(!pool.take(2), "all or none");
        assert!(pool.take(1));
        assert_eq!(pool.free(), 0);
        pool.give(3);
        assert_eq!(pool.free(), 3);
    }
}
