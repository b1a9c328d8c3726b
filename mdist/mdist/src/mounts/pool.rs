//! The pool of output buffers that all mounts of all workers share, beyond the buffers that each is guaranteed.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Size of one output buffer in bytes: the largest frame payload of the transport. Spec: rssl.md §1.8
pub const BUFFER: usize = 6144;

/// Counts the free shared buffers. Workers on any thread take them and give them back.
#[derive(Debug)]
pub struct Pool {
    size: usize,
    free: AtomicUsize,
}

impl Pool {
    /// Creates a pool of `size` buffers of [`BUFFER`] bytes. Nothing is allocated: the pool only counts.
    pub fn new(size: usize) -> Self {
        Self { size, free: AtomicUsize::new(size) }
    }

    /// Number of buffers.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Number of free buffers.
    pub fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    /// Takes `count` buffers; `false`: fewer are free, and none is taken.
    pub fn take(&self, count: usize) -> bool {
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(count)).is_ok()
    }

    /// Gives back `count` taken buffers.
    pub fn give(&self, count: usize) {
        let before = self.free.fetch_add(count, Ordering::Relaxed);
        debug_assert!(before + count <= self.size, "more was given back than taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_gives_all_requested_buffers_or_none() {
        let pool = Pool::new(3);
        assert!(pool.take(2));
        assert!(!pool.take(2), "all or none");
        assert!(pool.take(1));
        assert_eq!(pool.free(), 0);
        pool.give(3);
        assert_eq!(pool.free(), 3);
    }
}
