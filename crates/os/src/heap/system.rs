//! How the system's allocator, and tables in its memory, give memory back.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};

/// Bytes of a large block of the system's allocator.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: libc::c_int = 128 << 10;
/// Free bytes at the end of its memory above which it returns them at once.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const FREE: libc::c_int = 1 << 20;

/// Number of entries for which [`shrink_queue`] always keeps the memory.
const LEAST: usize = 1024;

/// Shrinks a map that uses less than a quarter of its memory, if that holds more than `least` entries. Takes time
/// in proportion to the entries left, and to the memory that goes back.
pub fn shrink_map<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>, least: usize) {
    if map.capacity() > least && map.len() < map.capacity() / 4 {
        map.shrink_to(map.len() * 2);
    }
}

/// As [`shrink_map`], for a queue.
pub fn shrink_queue<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > LEAST && queue.len() < queue.capacity() / 4 {
        queue.shrink_to(queue.len() * 2);
    }
}

/// Gives free memory of the system's allocator back to the system. Takes about 0.1 ms for each MiB.
pub fn trim_system() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: gives back the pages of free blocks; the allocator has its own locks.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Large blocks of the system's allocator are separate mappings, which return to the system when they are freed. By
/// default each freed block raises the size above which this holds, up to 32 MiB.
pub(super) fn map_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets parameters of the allocator, which has its own locks.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, FREE);
    }
}
