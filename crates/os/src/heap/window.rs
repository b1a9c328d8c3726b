//! A range of reserved addresses, of which chunks of 1 MiB become memory and are given back.

use std::ffi::c_void;
use std::ptr;

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use rustix::process::{Resource, getrlimit};

use super::chunk::Chunk;

/// Bytes of a unit: the memory of a chunk is divided into units.
pub(super) const UNIT: usize = 4096;
/// Units of a chunk.
pub(super) const UNITS: usize = 256;
/// Bytes of a chunk.
pub(super) const CHUNK: usize = UNIT * UNITS;

/// Largest window, bytes.
#[cfg(target_pointer_width = "64")]
const MOST: usize = 64 << 30;
#[cfg(not(target_pointer_width = "64"))]
const MOST: usize = 256 << 20;
/// Smallest window, bytes.
const LEAST: usize = 4 << 20;

/// The reserved addresses.
pub(super) struct Window {
    base: usize,
    chunks: usize,
    /// Whether parts of a chunk can be given back: the system's pages are not larger than a unit.
    has_small_pages: bool,
}

impl Window {
    /// Reserves four times the machine's memory, because chunks may be in use in part; at most half of what the system
    /// lets the process map.
    pub(super) fn reserve() -> Option<Self> {
        let memory = usize::try_from(crate::machine::physical_memory()).unwrap_or(usize::MAX);
        let mapped = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
        let mapped = usize::try_from(mapped).unwrap_or(usize::MAX);
        Self::of(memory.saturating_mul(4).min(MOST).min(mapped / 2))
    }

    /// Reserves about `bytes`, or as much as the system allows.
    pub(super) fn of(bytes: usize) -> Option<Self> {
        let mut bytes = bytes.max(LEAST) / CHUNK * CHUNK;
        while bytes >= LEAST {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a new mapping at an address that the kernel chooses.
            if let Ok(base) = unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::empty(), flags) } {
                let has_small_pages = rustix::param::page_size() <= UNIT;
                return Some(Self { base: base.addr(), chunks: bytes / CHUNK, has_small_pages });
            }
            bytes = bytes / 2 / CHUNK * CHUNK;
        }
        None
    }

    /// First address.
    pub(super) fn base(&self) -> usize {
        self.base
    }

    /// Number of chunks.
    pub(super) fn chunks(&self) -> usize {
        self.chunks
    }

    /// Address of a unit of a chunk.
    fn address(&self, chunk: u32, unit: usize) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.base + chunk as usize * CHUNK + unit * UNIT)
    }

    /// Makes memory of a chunk; false if the system refuses it. Its bytes are zero.
    pub(super) fn commit(&mut self, chunk: u32) -> bool {
        let (at, flags) = (self.address(chunk, 0), MprotectFlags::READ | MprotectFlags::WRITE);
        // SAFETY: the chunk lies in the window, and no reference to it exists: it has no access rights.
        if unsafe { mprotect(at, CHUNK, flags) }.is_err() {
            return false;
        }
        // A huge page would take unused memory. A kernel without huge pages refuses it.
        // SAFETY: as above; the contents do not change.
        let _ = unsafe { madvise(at, CHUNK, Advice::LinuxNoHugepage) };
        true
    }

    /// Gives back all memory of an unused chunk.
    pub(super) fn decommit(&mut self, chunk: u32) {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let at = self.address(chunk, 0);
        // SAFETY: the new mapping replaces a chunk of the window that nothing refers to. If the system refuses it, the
        // chunk keeps its access rights, which does no harm.
        if unsafe { mmap_anonymous(at, CHUNK, ProtFlags::empty(), flags) }.is_err() {
            self.discard(chunk, 0, UNITS);
        }
    }

    /// Gives back the memory of unused units; their addresses stay usable.
    pub(super) fn discard(&mut self, chunk: u32, first: usize, units: usize) {
        if !self.has_small_pages && units < UNITS {
            return;
        }
        // SAFETY: the units lie in a committed chunk of the window, and nothing refers to them.
        let _ = unsafe { madvise(self.address(chunk, first), units * UNIT, Advice::LinuxDontNeed) };
    }

    /// The state of a committed chunk, which is at its beginning.
    pub(super) fn chunk(&mut self, chunk: u32) -> &mut Chunk {
        // SAFETY: the first units of a committed chunk are readable and writable, aligned to a page, and used for its
        // state only; zeros are a valid value. Exclusive because the reference to the window is.
        unsafe { &mut *self.address(chunk, 0).cast::<Chunk>() }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the owner of the window has given back everything in it.
        let _ = unsafe { munmap(self.address(0, 0), self.chunks * CHUNK) };
    }
}
