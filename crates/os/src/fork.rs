//! Forks: a generation number that differs in each forked child, and hooks before and after a fork.
//!
//! A value that belongs to one process (a connection, memory shared with a peer) notes the [`generation`] in which it
//! was created; in a forked child the number differs. `posix_spawn` and `vfork` do not count: their children run no
//! code of the program.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::{OsError, Result};

/// The generation. Only the single thread of a new child writes it.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The hooks, in the order in which they were added. A child may only read them.
static HOOKS: [OnceLock<&'static Hooks>; MAX_HOOKS] = [const { OnceLock::new() }; MAX_HOOKS];

/// One for the library, one for its connections to daemons, one spare.
const MAX_HOOKS: usize = 3;

/// Functions that the forking thread calls around a fork. None of them may panic.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Before the fork.
    pub before: fn(),
    /// After the fork, or its failure, in the parent.
    pub parent: fn(),
    /// After the fork, in the child. The child has no other thread, and the locks of other threads stay locked: the
    /// function may only do what a signal handler may, and release locks that `before` has taken.
    pub child: fn(),
}

/// The generation of this process. Costs one load.
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
        // SAFETY: the three functions live as long as the program and never unwind (a panic in an `extern "C"` function
        // aborts). In the child they store to an atomic and call hooks, which do only what a signal handler may.
        unsafe { pthread_atfork(Some(before), Some(parent), Some(child)) }
    });
    if code == 0 {
        Ok(())
    } else {
        Err(OsError::new("register", "the hooks of forks", std::io::Error::from_raw_os_error(code)))
    }
}

/// Counts forks, and calls `hooks` around each from now on, once also if they are added again. Before a fork those that
/// were added last come first, after it those that were added first.
///
/// # Errors
/// As [`count`]; the process has three others.
pub fn add_hooks(hooks: &'static Hooks) -> Result<()> {
    if !HOOKS.iter().any(|slot| std::ptr::eq(*slot.get_or_init(|| hooks), hooks)) {
        let full = std::io::Error::from_raw_os_error(libc::ENOSPC);
        return Err(OsError::new("register", "more hooks of forks", full));
    }
    count()
}

fn hooks() -> impl DoubleEndedIterator<Item = &'static Hooks> {
    HOOKS.iter().filter_map(|slot| slot.get().copied())
}

// SAFETY: the signature is that of POSIX: three functions without parameters, each of which may be null; it returns a
// number.
unsafe extern "C" {
    /// POSIX; not among the declarations of `libc` for Linux.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> libc::c_int;
}

extern "C" fn before() {
    hooks().rev().for_each(|hooks| (hooks.before)());
}

extern "C" fn parent() {
    hooks().for_each(|hooks| (hooks.parent)());
}

extern "C" fn child() {
    GENERATION.fetch_add(1, Relaxed);
    hooks().for_each(|hooks| (hooks.child)());
}

/// A forked child of this process.
#[derive(Debug)]
pub struct Child {
    pid: rustix::process::Pid,
}

/// Forks; the child runs `work` and exits with what it returns, without the parent's destructors and exit handlers.
///
/// # Errors
/// The system cannot create a process.
pub fn run(work: impl FnOnce() -> u8) -> Result<Child> {
    // SAFETY: the child has only the forking thread. Locks of other threads stay locked in it, which can stop the child
    // but breaks no memory; the allocator is usable, because the C library takes its locks before a fork.
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
    /// Its pid.
    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Kills it.
    pub fn kill(&self) {
        let _ = rustix::process::kill_process(self.pid, rustix::process::Signal::KILL);
    }

    /// Waits for its end; returns its exit status, `None` if a signal ended it.
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
    use std::sync::Mutex;

    use super::*;
    use crate::lock;

    /// Held by a test that forks: its hooks are called by no other thread.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn generation_differs_in_a_child() {
        let _alone = lock(&ALONE);
        count().unwrap();
        let before = generation();
        let child = run(|| u8::from(generation() != before)).unwrap();
        assert_eq!((child.wait(), generation()), (Some(1), before));
    }

    static CALLS: Mutex<Vec<&str>> = Mutex::new(Vec::new());

    fn note(call: &'static str) {
        lock(&CALLS).push(call);
    }

    static OUTER: Hooks = Hooks {
        before: || note("before outer"),
        parent: || note("parent outer"),
        child: || note("child outer"),
    };
    static INNER: Hooks = Hooks {
        before: || note("before inner"),
        parent: || note("parent inner"),
        child: || note("child inner"),
    };

    #[test]
    fn hooks_are_called_once_and_in_the_order_of_their_locks() {
        let _alone = lock(&ALONE);
        for hooks in [&OUTER, &INNER, &OUTER] {
            add_hooks(hooks).unwrap();
        }
        let before = ["before inner", "before outer"];
        let child = run(|| {
            let calls = lock(&CALLS);
            u8::from(*calls == [before, ["child outer", "child inner"]].concat())
        });
        assert_eq!(child.unwrap().wait(), Some(1));
        assert_eq!(*lock(&CALLS), [before, ["parent outer", "parent inner"]].concat());
    }
}
