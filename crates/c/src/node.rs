//! The node of the process: started at first use, and again after a fork from an embedded node or the end of its
//! daemon.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use utipc::{Error, Node, Socket, SocketKind};
use utipc_os::fork::{self, Hooks};

use crate::call::{Fault, guard, status};
use crate::options::limit;
use crate::table;

#[derive(Debug)]
pub(crate) enum State {
    None,
    /// A thread of the process with this fork generation starts the node.
    Starting(u32),
    Ready(Current),
}

/// A running node with its own number.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    number: u32,
    node: Node,
}

static STATE: Mutex<State> = Mutex::new(State::None);
/// Signals that the state is no longer `Starting`.
static STARTED: Condvar = Condvar::new();

thread_local! {
    /// The locks of a thread that forks.
    static HELD: RefCell<Option<(table::Held, MutexGuard<'static, State>)>> = const { RefCell::new(None) };
}

fn hold() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All locks of this crate, held over a fork. While a fork holds them, no call goes to other crates, so the lock order
/// cannot conflict with theirs.
static HOOKS: Hooks = Hooks {
    before: || {
        let held = (table::hold(), hold());
        let _ = HELD.try_with(|slot| slot.replace(Some(held)));
    },
    parent: release,
    child: release,
};

fn release() {
    let _ = HELD.try_with(|slot| slot.take());
}

/// The node, started if necessary.
pub(crate) fn own() -> Result<Node, Fault> {
    current().map(|current| current.node)
}

fn current() -> Result<Current, Fault> {
    static NUMBERS: AtomicU32 = AtomicU32::new(0);
    // If memory for it is missing, a child of a process with threads may find a lock taken.
    let _ = fork::add_hooks(&HOOKS);
    let generation = fork::generation();
    let mut state = hold();
    loop {
        match &*state {
            State::Ready(current) => return Ok(current.clone()),
            State::Starting(by) if *by == generation => {
                state = STARTED.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            // A thread of the parent process does not exist in this child and would never finish.
            State::None | State::Starting(_) => break,
        }
    }
    *state = State::Starting(generation);
    drop(state);
    // Reset to `None` if the start panics, so that other threads can try.
    let mut outcome = Outcome(State::None);
    let current = Current { node: Node::start()?, number: NUMBERS.fetch_add(1, Relaxed) };
    leave_in_order();
    outcome.0 = State::Ready(current.clone());
    Ok(current)
}

/// Sets the state and wakes all waiters when it goes out of scope.
struct Outcome(State);

impl Drop for Outcome {
    fn drop(&mut self) {
        *hold() = std::mem::replace(&mut self.0, State::None);
        STARTED.notify_all();
    }
}

/// Opens a socket, on a new node if the current one is gone.
pub(crate) fn open(kind: SocketKind) -> Result<Socket, Fault> {
    let Current { number, node } = current()?;
    match node.socket(kind) {
        Err(Error::DaemonDied { .. } | Error::Forked) => forget(|current| current.number == number),
        done => return Ok(done?),
    }
    Ok(own()?.socket(kind)?)
}

/// Drops the node if `is_meant` accepts it.
fn forget(is_meant: impl FnOnce(&Current) -> bool) {
    let mut state = hold();
    let State::Ready(current) = &*state else { return };
    if is_meant(current) {
        let old = std::mem::replace(&mut *state, State::None);
        drop(state);
        drop(old);
    }
}

/// `int utipc_barrier(int timeout_ms)`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn utipc_barrier(timeout_ms: c_int) -> c_int {
    status(|| Ok(own()?.barrier(limit(timeout_ms).unwrap_or(Duration::MAX))?))
}

/// `void utipc_leave(void)`: closes all sockets and leaves the cluster, so that peers see it at once. For processes
/// that end without `exit`, like those of Go.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn utipc_leave() {
    guard((), || {
        table::clear();
        forget(|_| true);
        Ok(())
    });
}

/// Calls [`utipc_leave`] at `exit`.
fn leave_in_order() {
    static ONCE: Once = Once::new();
    // SAFETY: the function lives as long as the program, which cannot unload this library, and does not unwind.
    ONCE.call_once(|| _ = unsafe { libc::atexit(utipc_leave) });
}
