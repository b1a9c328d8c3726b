//! Fork handlers: hold the locks of this crate during a fork, and count forks.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{node, table};

/// Number of forks between this process and the first one that used the library; it differs in each child.
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

/// Installs the fork handlers, once. If that fails for lack of memory, a child of a process with threads may find a
/// lock taken.
pub(crate) fn install_handlers() {
    static INSTALLED: OnceLock<c_int> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // SAFETY: the functions live as long as the program, which cannot unload this library, and do not unwind.
        unsafe { pthread_atfork(Some(before), Some(release), Some(child)) }
    });
}

extern "C" fn before() {
    // No call into other crates is made with these locks held, so lock order cannot conflict with theirs.
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
