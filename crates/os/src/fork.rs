//! Forks: how often this process's ancestors have forked since utipc was first used, and calls before and after a fork.
//!
//! What belongs to one process (a connection, memory shared with a partner) notes the [`generation`] in which it was made;
//! in a forked child it differs. `posix_spawn` and `vfork` do not count: their children run no code of the program.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::{OsError, Result};

/// Changes in each child. Only the child's one thread writes it.
static GENERATION: AtomicU32 = AtomicU32::new(0);

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// What is called around a fork, by the thread that forks. None of them may panic.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Before.
    pub before: fn(),
    /// After it (or after it has failed) in the parent.
    pub parent: fn(),
    /// After it in the child, where no other thread lives and locks of other threads stay locked for ever: it may do what a
    /// signal handler may, and release locks that `before` has taken.
    pub child: fn(),
}

/// Which generation this process is: one load.
#[inline]
pub fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// Counts forks from now on.
///
/// # Errors
/// There is no memory.
pub fn count() -> Result<()> {
    static REGISTERED: OnceLock<i32> = OnceLock::new();
    let code = *REGISTERED.get_or_init(|| {
        // SAFETY: the three functions live as long as the program, never unwind (a panic in an `extern "C"` function aborts)
        // and, in the child, store to an atomic and call a hook that promises the same.
        unsafe { pthread_atfork(Some(before), Some(parent), Some(child)) }
    });
    if code == 0 {
        Ok(())
    } else {
        Err(OsError::new("register", "what is done at a fork", std::io::Error::from_raw_os_error(code)))
    }
}

/// Counts forks, and calls `hooks` around each from now on; those of the first call count.
///
/// # Errors
/// As [`count`].
pub fn set_hooks(hooks: Hooks) -> Result<()> {
    let _ = HOOKS.set(hooks);
    count()
}

// SAFETY: the signature is that of POSIX: three functions without parameters, each of which may be null, and a number back.
unsafe extern "C" {
    /// POSIX; not among the declarations of `libc` for Linux.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> libc::c_int;
}

extern "C" fn before() {
    if let Some(hooks) = HOOKS.get() {
        (hooks.before)();
    }
}

extern "C" fn parent() {
    if let Some(hooks) = HOOKS.get() {
        (hooks.parent)();
    }
}

extern "C" fn child() {
    GENERATION.fetch_add(1, Relaxed);
    if let Some(hooks) = HOOKS.get() {
        (hooks.child)();
    }
}

/// A forked child of this process.
#[derive(Debug)]
pub struct Child {
    pid: rustix::process::Pid,
}

/// Forks; the child runs `work` and exits with what it returns, without the parent's destructors and exit handlers.
///
/// # Errors
/// The system has no process left.
pub fn run(work: impl FnOnce() -> u8) -> Result<Child> {
    // SAFETY: the child has the forking thread alone. What other threads have locked stays locked in it, which can stop the
    // child but breaks no memory; the allocator is usable, for the C library takes its locks before a fork.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(101);
        // SAFETY: ends this process and does nothing else.
        unsafe { libc::_exit(i32::from(code)) };
    }
    rustix::process::Pid::from_raw(pid)
        .filter(|_| pid > 0)
        .map(|pid| Child { pid })
        .ok_or_else(|| OsError::new("fork", "this process", std::io::Error::last_os_error()))
}

impl Child {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Ends it at once.
    pub fn kill(&self) {
        let _ = rustix::process::kill_process(self.pid, rustix::process::Signal::KILL);
    }

    /// Waits for its end: what it exited with; `None` if a signal ended it.
    pub fn wait(self) -> Option<i32> {
        loop {
            match rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(Some((_, status))) => return status.exit_status(),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_that_it_is_one() {
        count().unwrap();
        let before = generation();
        let child = run(|| u8::from(generation() != before)).unwrap();
        assert_eq!((child.wait(), generation()), (Some(1), before));
    }
}
