//! A running node, and the rules that decide which thread drives its event loop.
//!
//! 1. A call that need not wait locks the node driver, acts, sends its frames and returns (`call.rs`).
//! 2. A call that has to wait *drives*, if no other call does: it waits in the event loop itself, without the
//!    lock, and runs turns of the loop until its condition holds (`drive.rs`). A message reaches it without a
//!    switch to another thread.
//! 3. Other calls wait on their socket's slot and are woken when its readiness changes. A call that stops driving hands
//!    over to one of them.
//! 4. The *supervisor*, a background thread, drives while no call is in progress (`supervisor.rs`). While calls
//!    come and go it only checks every `TICK` (2 ms); so no thread is woken between one message and the next.
//!
//! A call takes over from the supervisor without waking it: each has its own event loop on the same descriptors, and
//! when the supervisor wakes and finds that a call drives, it returns to checking (rule 4).
//!
//! While frames come from one peer alone, a call waits on the *express path* of the bearer instead: it sleeps in the
//! system call that reads the next frame. During that time the supervisor watches all other descriptors.

mod call;
mod drive;
mod driven;
mod slot;
mod state;
mod supervisor;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use utipc_core::Time;
use utipc_core::stack::Stack;
use utipc_os::pollable::Pollable;
use utipc_os::reactor::{Reactor, Waker};
use utipc_os::{OsError, Wait, fork};

use crate::driver::{NodeConfig, StartError, now};
use crate::observe::Counters;

pub use slot::{Slot, Want};

use driven::Driven;
use state::Supervision;

/// Interval of the supervisor's checks while calls are made: the longest wait of an arrived frame while no call
/// is in progress.
const TICK: Duration = Duration::from_millis(2);

/// A running node; clones are handles on the same node. When the last is gone it leaves the cluster.
#[derive(Clone)]
pub struct Node {
    running: Arc<Running>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

struct Running {
    shared: Arc<Shared>,
    /// The process that started it, see [`fork::generation`].
    generation: u32,
    supervisor: Option<JoinHandle<()>>,
}

/// Numbers of [`Shared::wakers`].
const CALLERS: usize = 0;
const SUPERVISOR: usize = 1;
const OTHERS: usize = 2;

struct Shared {
    driven: Mutex<Driven>,
    /// Condition variable on which the supervisor sleeps while calls drive.
    supervisor: Condvar,
    /// Wakers of the calls' event loop, of the supervisor's, and of the one in which the supervisor watches all
    /// descriptors but the express paths.
    wakers: [Waker; 3],
    /// The reactor for programs with their own event loop.
    outside: OnceLock<Reactor>,
}

type Guard<'a> = MutexGuard<'a, Driven>;

impl Node {
    /// Starts a node: enables its bearers and begins to look for other nodes.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: NodeConfig) -> Result<Node, StartError> {
        let label: Arc<str> = config.label.as_str().into();
        let mut driven = Driven::new(config, Arc::clone(&label))?;
        let (own, others) = (Reactor::new()?, Reactor::new()?);
        driven.node.watch(&own, true)?;
        driven.node.watch(&others, false)?;
        let mut wakers = [own.waker(), own.waker(), others.waker()];
        if let Some(callers) = &driven.idle {
            driven.node.watch(&callers.reactor, true)?;
            wakers[CALLERS] = callers.reactor.waker();
        }
        driven.send_and_notify();
        fork::count()?;
        let shared = Arc::new(Shared {
            driven: Mutex::new(driven),
            supervisor: Condvar::new(),
            wakers,
            outside: OnceLock::new(),
        });
        let supervised = Arc::clone(&shared);
        let supervisor = std::thread::Builder::new()
            .name(format!("utipc {label}").trim_end().to_owned())
            .spawn(move || supervised.supervise(own, others))
            .map_err(StartError::Thread)?;
        Ok(Node {
            running: Arc::new(Running {
                shared,
                generation: fork::generation(),
                supervisor: Some(supervisor),
            }),
        })
    }

    /// Whether this process started it. A forked child has a copy that it must not use: it shares the descriptors of
    /// the parent, and the parent's threads are not in the child.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.running.generation == fork::generation()
    }

    /// Runs one command on the node, sends the frames it caused and returns its result.
    pub fn with<T>(&self, command: impl FnOnce(&mut Stack, Time) -> T) -> T {
        let shared = &self.running.shared;
        let mut driven = shared.lock();
        driven.calls += 1;
        let now = now();
        let result = command(&mut driven.node.stack, now);
        shared.leave_call(driven, now);
        result
    }

    /// Runs a query, which changes nothing, on the node.
    pub fn ask<T>(&self, query: impl FnOnce(&Stack) -> T) -> T {
        query(&self.running.shared.lock().node.stack)
    }

    /// Drives the node and calls `attempt` until it returns something or `wait` is over. `attempt` is called
    /// again whenever the readiness of the slot's socket may have changed; `None` means that it has to wait.
    pub fn block<T>(
        &self,
        slot: &Arc<Slot>,
        want: Want,
        wait: Wait,
        attempt: impl FnMut(&mut Stack, Time) -> Option<T>,
    ) -> Option<T> {
        self.running.shared.block(slot, want, wait, attempt)
    }

    /// The slot of a socket, to wait for it.
    #[must_use]
    pub fn slot(&self, port: u32) -> Arc<Slot> {
        self.running.shared.lock().slot(port)
    }

    /// The slot to wait for nodes, links and the like: with it, [`Node::block`] calls `attempt` again after each event.
    #[must_use]
    pub fn observers(&self) -> Arc<Slot> {
        Arc::clone(&self.running.shared.lock().observers)
    }

    /// Closes a socket. Its unread messages go back to their senders.
    pub fn close(&self, port: u32) {
        let shared = &self.running.shared;
        let mut driven = shared.lock();
        let now = now();
        driven.node.stack.close(now, port);
        driven.forget(port);
        shared.leave_call(driven, now);
    }

    /// The descriptor that reports the readiness of a socket; made at the first call, then kept up to date.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn pollable<'a>(&self, port: u32, slot: &'a Slot) -> Result<&'a Pollable, OsError> {
        if let Some(pollable) = slot.pollable.get() {
            return Ok(pollable);
        }
        let fresh = Pollable::new()?;
        let shared = &self.running.shared;
        let mut driven = shared.lock();
        let pollable = slot.pollable.get_or_init(|| {
            driven.polled += 1;
            fresh
        });
        slot::update_pollable(&driven.node.stack, port, slot);
        // From now on the supervisor must drive while no call is in progress.
        shared.wake_supervisor(&driven);
        Ok(pollable)
    }

    /// Receives frames and handles timers without waiting: for programs that wait for [`Node::descriptor`] in their own
    /// event loop. Returns how long they may wait there; `None`: until it is readable.
    pub fn poll(&self) -> Option<Duration> {
        let shared = &self.running.shared;
        let mut driven = shared.lock();
        driven.calls += 1;
        let now = now();
        driven.node.receive_all(now);
        driven.node.handle_timeout(now);
        let due = driven.node.stack.deadline();
        let more = driven.node.prepare_sleep();
        shared.leave_call(driven, now);
        if more { Some(Duration::ZERO) } else { due.map(|due| due.since(now)) }
    }

    /// Drives the node until something happens to one of its sockets, or to a node or link; false if nothing does
    /// within `wait`. Meant for a program with one driving thread: events that another one receives do not end the
    /// call.
    pub fn drive(&self, wait: Wait) -> bool {
        let happened = |stack: &mut Stack, _| stack.has_ready().then_some(());
        self.block(&self.observers(), Want::Change, wait, happened).is_some()
    }

    /// A descriptor that is readable while [`Node::poll`] has something to receive; made at the first call.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, OsError> {
        let shared = &self.running.shared;
        if let Some(outside) = shared.outside.get() {
            return Ok(outside.as_fd());
        }
        let fresh = Reactor::new()?;
        shared.lock().node.watch(&fresh, true)?;
        Ok(shared.outside.get_or_init(|| fresh).as_fd())
    }

    /// Counters of the node since its start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.running.shared.lock().node.counters()
    }
}

impl Shared {
    /// Locks the driver. A thread that panicked in a call left it between two turns, in a valid state.
    fn lock(&self) -> Guard<'_> {
        self.driven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the supervisor, which then checks which thread drives.
    fn wake_supervisor(&self, driven: &Driven) {
        if driven.supervision == Supervision::WatchingOthers {
            self.wakers[OTHERS].wake();
        }
        self.supervisor.notify_one();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // The node is the parent's; its thread is not in this process, and its locks may be taken for ever.
            std::mem::forget(self.supervisor.take());
            return;
        }
        let mut driven = self.shared.lock();
        driven.stop = true;
        driven.node.leave();
        drop(driven);
        self.shared.supervisor.notify_all();
        self.shared.wakers[SUPERVISOR..].iter().for_each(Waker::wake);
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join();
        }
    }
}

#[cfg(test)]
mod tests;
