//! What is done around a fork: nobody else holds a lock of this crate then, and the child knows that it is one.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{node, table};

/// How many forks lie between this process and the first one that used the library.
static GENERATION: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static HELD: RefCell<Option<(table::Held, node::Held)>> = const { RefCell::new(None) };
}

// SAFETY: the signature is that of POSIX.
unsafe extern "C" {
    /// POSIX; not among the declarations of `libc` for Linux.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

pub(crate) fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// From now on forks are heeded. Without memory for it, a child of a process with threads may find a lock taken.
pub(crate) fn heed() {
    static HEEDED: OnceLock<c_int> = OnceLock::new();
    HEEDED.get_or_init(|| {
        // SAFETY: the functions live as long as the program, which cannot unload this library, and do not unwind.
        unsafe { pthread_atfork(Some(before), Some(release), Some(child)) }
    });
}

extern "C" fn before() {
    // The calls of other crates are never made with these locks held: no order with theirs can go wrong.
    let held = (table::hold(), node::hold());
    let _ = HELD.try_with(|slot| slot.replace(Some(held)));
}

extern "C" fn release() {
    let _ = HELD.try_with(|slot| slot.take());
}

extern "C" fn child() {
    GENERATION.fetch_add(1, Relaxed);
    release();
}
