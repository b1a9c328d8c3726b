//! [`Memory`]: the operations on shared memory that lanes and doorbells use.
//!
//! Because they use this trait only, the same code runs in a mapped segment, on the heap (Miri, ThreadSanitizer) and on
//! the modelled atomics of loom.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// The place of a full fence in the code. Real memory ignores it; a model may omit a fence to show that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Writer: between committing a record and checking whether the reader wants to be notified.
    Commit,
    /// Reader: between requesting a notification and checking once more whether there is a record.
    Arm,
    /// Sleeper: between announcing its sleep and checking its condition once more.
    Park,
    /// Ringer: between the change that it announces and checking whether a thread sleeps; also between marking a lane
    /// gone and reading its unread records.
    Ring,
    /// Reader: between freeing space and checking whether the writer waits for it.
    Release,
    /// Writer: between announcing that it waits for room and checking for room once more.
    WantRoom,
    /// Process: between cancelling a request and checking whether the daemon has begun it; daemon: between announcing
    /// that it begins a request and checking whether it is cancelled.
    Cancel,
}

/// Maximum number of lines that [`prefetch`] fetches.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const VALUE_LINES: usize = 8;

/// Prefetches a value of this process.
#[inline]
pub fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (0..size_of::<T>()).step_by(LINE).take(VALUE_LINES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which touches nothing; the address lies in the value.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast::<i8>().add(line)) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

/// A flat piece of memory that several threads or processes change at the same time.
///
/// Offsets are in bytes. Words are aligned to their size, and a given place is used as 32-bit or as 64-bit words,
/// never as both.
///
/// # Panics
/// Every method panics if an offset is misaligned or outside (or the memory is read-only): offsets that come from a
/// peer are checked before they get here.
pub trait Memory: Send + Sync {
    /// Size, bytes.
    fn size(&self) -> usize;
    /// Atomic load.
    fn load64(&self, at: usize, order: Ordering) -> u64;
    /// Atomic store.
    fn store64(&self, at: usize, value: u64, order: Ordering);
    /// Atomic exchange (AcqRel): the old value.
    fn swap64(&self, at: usize, value: u64) -> u64;
    /// Atomic compare-and-exchange (AcqRel): whether the word was `from` and now is `to`.
    fn exchange64(&self, at: usize, from: u64, to: u64) -> bool;
    /// Atomic or (AcqRel): the old value.
    fn or64(&self, at: usize, bits: u64) -> u64;
    /// Atomic load.
    fn load32(&self, at: usize, order: Ordering) -> u32;
    /// Atomic store.
    fn store32(&self, at: usize, value: u32, order: Ordering);
    /// Atomic wrapping addition (AcqRel): the old value.
    fn add32(&self, at: usize, value: u32) -> u32;
    /// Atomic or (AcqRel): the old value.
    fn or32(&self, at: usize, bits: u32) -> u32;
    /// Atomic and (AcqRel): the old value.
    fn and32(&self, at: usize, bits: u32) -> u32;
    /// Sequentially consistent fence.
    fn fence(&self, which: Fence);
    /// Copies bytes out, each exactly once. Bytes that a peer changes during the copy may be torn, which is defined
    /// behaviour.
    fn read(&self, at: usize, into: &mut [u8]);
    /// Appends a copy of `len` bytes to `into`, as [`Memory::read`] reads them.
    fn append(&self, at: usize, len: usize, into: &mut Vec<u8>) {
        let from = into.len();
        into.resize(from + len, 0);
        self.read(at, into.get_mut(from..).unwrap_or_default());
    }
    /// Prefetches the line at `at` for reading. Any offset is allowed.
    fn prefetch(&self, at: usize) {
        let _ = at;
    }
    /// Prefetches the line at `at` for writing. Any offset is allowed.
    fn prefetch_write(&self, at: usize) {
        let _ = at;
    }
    /// Copies bytes in.
    fn write(&self, at: usize, from: &[u8]);
    /// Sleeps while the word is `expected`, at most `timeout`. May return spuriously.
    fn wait32(&self, at: usize, expected: u32, timeout: Option<Duration>);
    /// Wakes all threads that sleep on the word.
    fn wake32(&self, at: usize);
    /// Frees the whole pages inside `range`; afterwards they read as zero or as before.
    fn release(&self, range: Range<usize>);
}
