//! Fork handlers: hold the table of handles during a fork, so that no child finds it locked for ever.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::Once;

use crate::handles::{self, Held};

thread_local! {
    /// The lock of a thread that forks.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
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

/// Installs the fork handlers, and leaves the groups at `exit`, both once.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions live as long as the program, which cannot unload this library, and do not unwind.
        // Failures for lack of memory have no consequence but a lock or peers that wait longer.
        unsafe {
            pthread_atfork(Some(before), Some(after), Some(after));
            libc::atexit(at_exit);
        }
    });
}

extern "C" fn before() {
    let held = handles::hold();
    let _ = HELD.try_with(|slot| slot.replace(Some(held)));
}

extern "C" fn after() {
    let _ = HELD.try_with(|slot| slot.take());
}

extern "C" fn at_exit() {
    let _ = std::panic::catch_unwind(handles::abandon_all);
}
