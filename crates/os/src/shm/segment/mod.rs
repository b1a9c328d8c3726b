//! [`Segment`]: a mapped piece of memory that processes share, which is a sealed memfd or (for tests) the heap.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::time::Duration;

use rustix::fs::{
    FileType, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::memory::{Fence, Memory};
use crate::{OsError, Result, futex};

mod words;

pub use words::ReadWord;

/// Granularity of mapping and giving back memory, bytes.
pub const PAGE: usize = 4096;

/// Copies up to this size go word by word, so that the compiler can neither repeat nor tear the loads of a header.
const WORDWISE: usize = 64;

/// The access of this process to a segment that it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Load and store.
    ReadWrite,
    /// Load only; the segment must be sealed against future writers.
    ReadOnly,
}

enum Owner {
    Mapping,
    Heap(Layout),
}

/// A piece of shared memory. Unmapped when dropped.
pub struct Segment {
    base: NonNull<u8>,
    size: usize,
    /// `size`, or zero if this process may not store.
    writable: usize,
    owner: Owner,
}

// SAFETY: the memory belongs to the value until it is dropped, and every access goes through atomics or raw copies
// that never make a reference to bytes which others may change.
unsafe impl Send for Segment {}
// SAFETY: as above; no method needs exclusive access.
unsafe impl Sync for Segment {}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({} bytes{})", self.size, if self.writable == 0 { ", read-only" } else { "" })
    }
}

fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

fn failed(name: &str) -> impl Fn(Errno) -> OsError + '_ {
    move |errno| OsError::new("create shared memory", name, errno)
}

impl Segment {
    /// A new segment of `size` bytes (rounded up to pages), all zero and sparse. A process with the descriptor may map
    /// it for reading and writing; its size can never change.
    pub fn create(name: &str, size: usize) -> Result<(Segment, OwnedFd)> {
        let (segment, fd) = Self::unsealed(name, size)?;
        fcntl_add_seals(&fd, seals()).map_err(failed(name))?;
        Ok((segment, fd))
    }

    /// A new segment of `size` bytes (rounded up to pages) that only this process can store to. A process with the
    /// descriptor may map it for reading.
    pub fn publish(name: &str, size: usize) -> Result<(Segment, OwnedFd)> {
        let (segment, fd) = Self::unsealed(name, size)?;
        fcntl_add_seals(&fd, seals() | SealFlags::FUTURE_WRITE).map_err(failed(name))?;
        Ok((segment, fd))
    }

    fn unsealed(name: &str, size: usize) -> Result<(Segment, OwnedFd)> {
        let size = size.max(1).checked_next_multiple_of(PAGE).ok_or_else(|| failed(name)(Errno::NOMEM))?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Never executable, if the kernel (6.3) supports that.
        let fd = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create(name, flags))
            .map_err(failed(name))?;
        ftruncate(&fd, size as u64).map_err(failed(name))?;
        Ok((Self::map(&fd, size, Access::ReadWrite)?, fd))
    }

    /// Maps a segment that a peer has created, after checking its kind, its size (at most `max_size` bytes) and its
    /// seals, so that no process can truncate it. The descriptor may be closed afterwards.
    ///
    /// # Errors
    /// The descriptor is of another kind, too large or not sealed.
    pub fn open(fd: impl AsFd, access: Access, max_size: usize) -> Result<Segment> {
        let refuse = |errno: Errno| OsError::new("use", "a descriptor as shared memory", errno);
        let stat = fstat(&fd).map_err(refuse)?;
        let size = usize::try_from(stat.st_size).unwrap_or(0);
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(
                refuse(Errno::INVAL).with_remedy("its sender broke the protocol: it is not shared memory")
            );
        }
        if size == 0 || size > max_size || !size.is_multiple_of(PAGE) {
            return Err(refuse(Errno::FBIG).with_remedy("its sender broke the protocol: its size is wrong"));
        }
        let mut wanted = seals();
        if access == Access::ReadOnly {
            wanted |= SealFlags::FUTURE_WRITE;
        }
        if !fcntl_get_seals(&fd).map_err(refuse)?.contains(wanted) {
            return Err(refuse(Errno::PERM).with_remedy("its sender broke the protocol: it is not sealed"));
        }
        Self::map(fd, size, access)
    }

    fn map(fd: impl AsFd, size: usize, access: Access) -> Result<Segment> {
        let (protection, writable) = match access {
            Access::ReadWrite => (ProtFlags::READ | ProtFlags::WRITE, size),
            Access::ReadOnly => (ProtFlags::READ, 0),
        };
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), size, protection, flags, fd, 0) }
            .map_err(|errno| OsError::new("map", format_args!("{size} bytes of shared memory"), errno))?;
        let base = NonNull::new(base.cast()).ok_or_else(|| {
            OsError::new("map", "shared memory", Errno::NOMEM).with_remedy("raise vm.mmap_min_addr above 0")
        })?;
        Ok(Segment { base, size, writable, owner: Owner::Mapping })
    }

    /// Allocates private memory of this process, all zero: for tests, and for tools such as Miri that do not support
    /// mappings.
    pub fn heap(size: usize) -> Segment {
        let size = size.max(1).next_multiple_of(PAGE);
        let layout = Layout::from_size_align(size, PAGE).unwrap_or(Layout::new::<[u64; PAGE / 8]>());
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        Segment { base, size: layout.size(), writable: layout.size(), owner: Owner::Heap(layout) }
    }

    /// Checks `len` bytes at `at` against `limit`; returns their address.
    #[inline(always)]
    fn place(&self, at: usize, len: usize, align: usize, limit: usize) -> *mut u8 {
        assert!(at & (align - 1) == 0 && at <= limit && len <= limit - at, "outside shared memory");
        // SAFETY: `at` is at most the size of the memory, which `base` points to.
        unsafe { self.base.as_ptr().add(at) }
    }

    #[inline(always)]
    fn word64(&self, at: usize, limit: usize) -> &AtomicU64 {
        // SAFETY: eight mapped bytes, aligned (checked by `place`; the base is page-aligned), that live as long as
        // `self`; all processes use this place atomically only.
        unsafe { AtomicU64::from_ptr(self.place(at, 8, 8, limit).cast()) }
    }

    #[inline(always)]
    pub(super) fn word32(&self, at: usize, limit: usize) -> &AtomicU32 {
        // SAFETY: as in `word64`, with four bytes.
        unsafe { AtomicU32::from_ptr(self.place(at, 4, 4, limit).cast()) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        match self.owner {
            // SAFETY: base and size are those of the mapping that this value made, and nothing borrows from it.
            Owner::Mapping => drop(unsafe { munmap(self.base.as_ptr().cast(), self.size) }),
            // SAFETY: allocated in `heap` with the same layout.
            Owner::Heap(layout) => unsafe { dealloc(self.base.as_ptr(), layout) },
        }
    }
}

impl Memory for Segment {
    fn size(&self) -> usize {
        self.size
    }

    #[inline(always)]
    fn load64(&self, at: usize, order: Ordering) -> u64 {
        self.word64(at, self.size).load(order)
    }

    #[inline(always)]
    fn store64(&self, at: usize, value: u64, order: Ordering) {
        self.word64(at, self.writable).store(value, order);
    }

    fn swap64(&self, at: usize, value: u64) -> u64 {
        self.word64(at, self.writable).swap(value, Ordering::AcqRel)
    }

    fn exchange64(&self, at: usize, from: u64, to: u64) -> bool {
        let word = self.word64(at, self.writable);
        word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn or64(&self, at: usize, bits: u64) -> u64 {
        self.word64(at, self.writable).fetch_or(bits, Ordering::AcqRel)
    }

    #[inline(always)]
    fn load32(&self, at: usize, order: Ordering) -> u32 {
        self.word32(at, self.size).load(order)
    }

    fn store32(&self, at: usize, value: u32, order: Ordering) {
        self.word32(at, self.writable).store(value, order);
    }

    fn add32(&self, at: usize, value: u32) -> u32 {
        self.word32(at, self.writable).fetch_add(value, Ordering::AcqRel)
    }

    fn or32(&self, at: usize, bits: u32) -> u32 {
        self.word32(at, self.writable).fetch_or(bits, Ordering::AcqRel)
    }

    fn and32(&self, at: usize, bits: u32) -> u32 {
        self.word32(at, self.writable).fetch_and(bits, Ordering::AcqRel)
    }

    #[inline(always)]
    fn fence(&self, _: Fence) {
        // The compiler's fence is `mfence`, which is slow on many processors. A locked instruction orders all ordinary
        // loads and stores too and takes a fraction of the time.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: it does not change the word that it accesses, the top of this thread's stack. The compiler moves no
        // access across an assembly block that may access memory.
        unsafe {
            std::arch::asm!("lock or dword ptr [rsp], 0");
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn read(&self, at: usize, into: &mut [u8]) {
        let from = self.place(at, into.len(), 1, self.size);
        if into.len() <= WORDWISE && at.is_multiple_of(8) && self.size - at >= into.len().next_multiple_of(8)
        {
            let (words, rest) = into.as_chunks_mut::<8>();
            // SAFETY: `from` is aligned (the base is, and `at` was checked), and all words lie in the memory, as was
            // checked above; all processes use it atomically or as plain bytes of any value.
            let word = |index: usize| unsafe { AtomicU64::from_ptr(from.cast::<u64>().add(index)) };
            for (index, chunk) in words.iter_mut().enumerate() {
                *chunk = word(index).load(Ordering::Relaxed).to_ne_bytes();
            }
            if !rest.is_empty() {
                let last = word(words.len()).load(Ordering::Relaxed).to_ne_bytes();
                rest.copy_from_slice(last.get(..rest.len()).unwrap_or_default());
            }
            return;
        }
        // SAFETY: `place` checked the source; the destination is an exclusive slice of this process, outside any
        // segment. A peer may write at the same time: these are plain bytes, any value of which is valid.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        // Keeps the compiler from reading the source again in place of the copy.
        compiler_fence(Ordering::SeqCst);
    }

    /// The space is not cleared first: for a large message that takes a fifth of the copy's time.
    fn append(&self, at: usize, len: usize, into: &mut Vec<u8>) {
        let from = self.place(at, len, 1, self.size);
        into.reserve(len);
        let space = into.spare_capacity_mut().as_mut_ptr();
        // SAFETY: `place` checked the source; the vector has space for `len` more bytes outside any segment. A peer may
        // write at the same time: these are plain bytes, any value of which is valid.
        unsafe {
            std::ptr::copy_nonoverlapping(from, space.cast::<u8>(), len);
            compiler_fence(Ordering::SeqCst);
            into.set_len(into.len() + len);
        }
    }

    #[inline(always)]
    fn prefetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        if at < self.size {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint, which touches nothing; the address lies in the mapping.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().add(at).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    #[inline(always)]
    fn prefetch_write(&self, at: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if at < self.writable {
            // SAFETY: a hint, which touches nothing (processors that do not know it ignore it); the
            // address lies in the mapping.
            unsafe {
                std::arch::asm!("prefetchw [{}]", in(reg) self.base.as_ptr().add(at), options(nostack, preserves_flags));
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = at;
    }

    #[inline(always)]
    fn write(&self, at: usize, from: &[u8]) {
        let into = self.place(at, from.len(), 1, self.writable);
        // SAFETY: `place` checked the destination; the source is memory of this process, outside any segment.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) };
    }

    fn wait32(&self, at: usize, expected: u32, timeout: Option<Duration>) {
        // An error means that the word is not mapped, which `word32` rules out.
        let _ = futex::wait(self.word32(at, self.size), expected, timeout);
    }

    fn wake32(&self, at: usize) {
        futex::wake(self.word32(at, self.size), u32::MAX);
    }

    fn release(&self, range: Range<usize>) {
        let start = range.start.next_multiple_of(PAGE);
        let end = range.end.min(self.writable) / PAGE * PAGE;
        if matches!(self.owner, Owner::Mapping) && start < end {
            let address = self.place(start, end - start, PAGE, self.writable);
            // SAFETY: whole pages of this mapping; the call punches a hole, after which they read as zero. If it is
            // refused (the segment is sealed against writing) the pages stay, which `Memory::release` permits.
            let _ = unsafe { madvise(address.cast(), end - start, Advice::LinuxRemove) };
        }
    }
}

#[cfg(test)]
mod tests;
