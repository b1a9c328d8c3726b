//! An allocator for messages that wait: their memory belongs to an owner, is counted as the owner takes it, and goes
//! back to the system when it is empty.
//!
//! A program installs it with `#[global_allocator] static HEAP: Heap = Heap;`. Everything but messages comes from the
//! system's allocator as before. A buffer is freed by dropping its `Vec`, as always: messages are recognised by their
//! range of addresses. In a program without it, [`is_installed`] is false and messages are not stored here.

mod chunk;
mod reserve;
mod spans;
mod system;
mod window;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::lock;
use spans::{MOST, MOST_SLOT, NOBODY, Spans};
use window::{CHUNK, Window};

pub use system::{shrink_map, shrink_queue, trim_system};

/// The allocator of a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

/// Whether the program allocates by [`Heap`].
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// The addresses of messages: the first, and their number. Empty until the first message.
static BASE: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
/// Whether the memory of an owner has changed since [`take_changed`] returned `None`.
static CHANGED: AtomicBool = AtomicBool::new(false);
static SPANS: Mutex<Option<Spans>> = Mutex::new(None);

/// The offset of an address in the range of messages.
fn place(address: usize) -> Option<usize> {
    // The length is stored after the first address.
    let length = LENGTH.load(Ordering::Acquire);
    let place = address.wrapping_sub(BASE.load(Ordering::Relaxed));
    (place < length).then_some(place)
}

/// Runs `change` on the buffers, and notes whether an owner has more or less afterwards.
fn with_spans<T>(change: impl FnOnce(&mut Spans) -> T) -> Option<T> {
    let mut guard = lock(&SPANS);
    if guard.is_none() {
        let window = Window::reserve()?;
        let (base, length) = (window.base(), window.chunks() * CHUNK);
        *guard = Some(Spans::new(window));
        BASE.store(base, Ordering::Relaxed);
        LENGTH.store(length, Ordering::Release);
    }
    let spans = guard.as_mut()?;
    let result = change(spans);
    if !spans.is_reported() {
        CHANGED.store(true, Ordering::Release);
    }
    Some(result)
}

// SAFETY: blocks come from the system's allocator, or are buffers of `Spans`, which no other block overlaps until they
// are freed. The range of addresses decides which it is. No method unwinds.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !INSTALLED.load(Ordering::Relaxed) {
            INSTALLED.store(true, Ordering::Relaxed);
        }
        // SAFETY: the caller's layout has a size.
        reserve::or_retry(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout has a size.
        reserve::or_retry(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(place) = place(block.addr()) {
            with_spans(|spans| spans.free(place));
        } else {
            // SAFETY: a block outside of the range is the system's, with the caller's layout.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if place(block.addr()).is_none() {
            // SAFETY: as above; the caller vouches for the new size.
            return reserve::or_retry(|| unsafe { System.realloc(block, layout, size) });
        }
        // SAFETY: the caller vouches for the new size with the old alignment; both blocks have the bytes copied.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                block.copy_to_nonoverlapping(new, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

/// Prepares the allocators for a program that keeps messages; false if it does not allocate by [`Heap`].
pub fn start() -> bool {
    if is_installed() {
        system::map_large_blocks();
        reserve::restore();
    }
    is_installed()
}

/// Whether the program allocates by [`Heap`].
#[must_use]
pub fn is_installed() -> bool {
    INSTALLED.load(Ordering::Relaxed)
}

/// A buffer of an owner, empty.
fn buffer_of(owner: u32, size: usize, growth: usize) -> Option<Vec<u8>> {
    if size == 0 || size > MOST || !is_installed() {
        return None;
    }
    let place = with_spans(|spans| spans.take(owner, size, growth))??;
    let address = BASE.load(Ordering::Relaxed) + place;
    // SAFETY: the buffer has `size` bytes that nothing else uses, and bytes need no alignment. The program's allocator
    // is `Heap`, which frees it by its address.
    Some(unsafe { Vec::from_raw_parts(std::ptr::with_exposed_provenance_mut(address), 0, size) })
}

/// An empty buffer without an owner, for a message of more than 4 KiB: [`keep`] does not copy it.
#[must_use]
pub fn buffer(size: usize) -> Option<Vec<u8>> {
    if size > MOST_SLOT { buffer_of(NOBODY, size, usize::MAX) } else { None }
}

/// Moves bytes to the memory of an owner, who may get at most `growth` bytes more from the system.
///
/// # Errors
/// The bytes: the owner may not, or the system has no memory left. It has none for messages while
/// [`is_short`].
pub fn keep(owner: u32, bytes: Vec<u8>, growth: usize) -> Result<Vec<u8>, Vec<u8>> {
    if bytes.is_empty() {
        return Ok(bytes);
    }
    if is_short() {
        return Err(bytes);
    }
    // A truncated message would hold the memory of the whole one.
    if bytes.len() > bytes.capacity() / 2
        && let Some(place) = place(bytes.as_ptr().addr())
        && with_spans(|spans| spans.give(place, owner, growth)) == Some(true)
    {
        return Ok(bytes);
    }
    let Some(mut kept) = buffer_of(owner, bytes.len(), growth) else { return Err(bytes) };
    kept.extend_from_slice(&bytes);
    Ok(kept)
}

/// Takes the buffer of a large message from its owner.
pub fn disown(bytes: &[u8]) {
    if let Some(place) = place(bytes.as_ptr().addr()) {
        with_spans(|spans| spans.give(place, NOBODY, usize::MAX));
    }
}

/// The next owner whose memory has changed, and the bytes that it has taken.
#[must_use]
pub fn take_changed() -> Option<(u32, usize)> {
    if !CHANGED.load(Ordering::Acquire) {
        return None;
    }
    CHANGED.store(false, Ordering::Release);
    with_spans(|spans| spans.take_changed().map(|owner| (owner, spans.held(owner)))).flatten()
}

/// Whether [`trim`] has something to do, now or the next time.
#[must_use]
pub fn needs_trim() -> bool {
    LENGTH.load(Ordering::Relaxed) > 0 && with_spans(|spans| spans.needs_trim()) == Some(true)
}

/// Gives back unused memory; some of it only at the next call. Call it every second while [`needs_trim`].
pub fn trim() {
    if LENGTH.load(Ordering::Relaxed) > 0 {
        with_spans(Spans::trim);
    }
}

/// Whether the system refuses memory now: callers then refuse optional work, so that memory is left for the rest.
#[must_use]
pub fn is_short() -> bool {
    reserve::is_spent() && !reserve::restore()
}
