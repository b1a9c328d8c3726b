//! Memory for what cannot be refused, when the system has none left.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Bytes of the reserve. Our choice: what one turn of the daemon may need for replies, tables and frames.
const RESERVE: usize = 16 << 20;

/// No reserve is wanted yet.
const UNUSED: *mut u8 = ptr::null_mut();
/// The reserve is spent.
const SPENT: *mut u8 = ptr::without_provenance_mut(1);

static MEMORY: AtomicPtr<u8> = AtomicPtr::new(UNUSED);

/// Allocates; if that fails, gives the reserve to the system's allocator and tries once more.
#[inline]
pub(super) fn or_retry(mut allocate: impl FnMut() -> *mut u8) -> *mut u8 {
    let block = allocate();
    if block.is_null() && spend() { allocate() } else { block }
}

#[cold]
fn spend() -> bool {
    let memory = MEMORY.load(Ordering::Acquire);
    if memory == UNUSED || memory == SPENT {
        return false;
    }
    if MEMORY.compare_exchange(memory, SPENT, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return true; // another thread has just spent it
    }
    // SAFETY: the mapping of `restore`, to which nothing refers; the exchange makes this its only user.
    let _ = unsafe { munmap(memory.cast(), RESERVE) };
    true
}

/// Whether it was spent and not restored.
pub(super) fn is_spent() -> bool {
    MEMORY.load(Ordering::Relaxed) == SPENT
}

/// Makes the reserve, which uses addresses only; false if the system refuses it.
pub(super) fn restore() -> bool {
    let before = MEMORY.load(Ordering::Acquire);
    if before != UNUSED && before != SPENT {
        return true;
    }
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let memory = match unsafe { mmap_anonymous(ptr::null_mut(), RESERVE, rights, MapFlags::PRIVATE) } {
        Ok(memory) => memory,
        Err(_) => {
            MEMORY.store(SPENT, Ordering::Release);
            return false;
        }
    };
    if MEMORY.compare_exchange(before, memory.cast(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // SAFETY: the mapping made above, which nothing knows.
        let _ = unsafe { munmap(memory, RESERVE) };
    }
    true
}
