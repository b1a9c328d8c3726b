//! Fork handlers: hold the locks of this crate during a fork, and count forks.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Number of forks between this process and the first one that used the library; it differs in each child.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The locks of this crate, taken by the thread that forks and released in parent and child.
pub(crate) struct Locks {
    pub(crate) hold: fn(),
    pub(crate) release: fn(),
}

static LOCKS: OnceLock<Locks> = OnceLock::new();

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
pub(crate) fn install_handlers(locks: Locks) {
    LOCKS.get_or_init(|| {
        // SAFETY: the functions live as long as the program, which cannot unload this library, and do not unwind.
        unsafe { pthread_atfork(Some(before), Some(release), Some(child)) };
        locks
    });
}

extern "C" fn before() {
    if let Some(locks) = LOCKS.get() {
        (locks.hold)();
    }
}

extern "C" fn release() {
    if let Some(locks) = LOCKS.get() {
        (locks.release)();
    }
}

extern "C" fn child() {
    GENERATION.fetch_add(1, Relaxed);
    release();
}
