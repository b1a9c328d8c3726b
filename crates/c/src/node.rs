//! The one node of the process: started at the first use, again after a fork that has left it behind and after the end of
//! its daemon.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};

use utipc::{Error, Node, Socket, SocketKind};

use crate::call::{Fault, guard};
use crate::{forking, table};

#[derive(Debug)]
pub(crate) enum State {
    None,
    /// A thread of the process of this generation starts it.
    Starting(u32),
    Ready(Current),
}

/// A node of the process; their numbers differ.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    number: u32,
    node: Node,
}

static STATE: Mutex<State> = Mutex::new(State::None);
/// The state is not `Starting` any more.
static STARTED: Condvar = Condvar::new();

/// The lock over a fork.
pub(crate) type Held = MutexGuard<'static, State>;

pub(crate) fn hold() -> Held {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The node; starts it if there is none.
pub(crate) fn own() -> Result<Node, Fault> {
    current().map(|current| current.node)
}

fn current() -> Result<Current, Fault> {
    static NUMBERS: AtomicU32 = AtomicU32::new(0);
    forking::heed();
    let me = forking::generation();
    let mut state = hold();
    loop {
        match &*state {
            State::Ready(current) => return Ok(current.clone()),
            State::Starting(by) if *by == me => {
                state = STARTED.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            // A thread of the parent's would never be done.
            State::None | State::Starting(_) => break,
        }
    }
    *state = State::Starting(me);
    drop(state);
    // If it panics, others may try.
    let mut outcome = Outcome(State::None);
    let current = Current { node: Node::start()?, number: NUMBERS.fetch_add(1, Relaxed) };
    leave_in_order();
    outcome.0 = State::Ready(current.clone());
    Ok(current)
}

/// Tells the state when it goes out of scope.
struct Outcome(State);

impl Drop for Outcome {
    fn drop(&mut self) {
        *hold() = std::mem::replace(&mut self.0, State::None);
        STARTED.notify_all();
    }
}

/// A new socket; on a new node if the old one is gone.
pub(crate) fn open(kind: SocketKind) -> Result<Socket, Fault> {
    let Current { number, node } = current()?;
    match node.socket(kind) {
        Err(Error::DaemonDied { .. } | Error::Forked) => forget(|current| current.number == number),
        done => return Ok(done?),
    }
    Ok(own()?.socket(kind)?)
}

/// Drops the node if it is the one that is meant.
fn forget(is_meant: impl FnOnce(&Current) -> bool) {
    let mut state = hold();
    let State::Ready(current) = &*state else { return };
    if is_meant(current) {
        let old = std::mem::replace(&mut *state, State::None);
        drop(state);
        drop(old);
    }
}

/// At `exit` sockets close and the node leaves its cluster, as if the program had closed all; others see it at once.
fn leave_in_order() {
    extern "C" fn leave() {
        guard((), || {
            table::clear();
            forget(|_| true);
            Ok(())
        });
    }
    static ONCE: Once = Once::new();
    // SAFETY: the function lives as long as the program, which cannot unload this library, and does not unwind.
    ONCE.call_once(|| _ = unsafe { libc::atexit(leave) });
}
