//! A slot: the place where the threads of one socket wait.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, OnceLock};

use utipc_core::socket::Readiness;
use utipc_core::stack::Stack;
use utipc_os::pollable::{Level, Pollable};

/// The slot of a socket: its waiting threads, and the descriptor that an application may poll.
#[derive(Debug, Default)]
pub struct Slot {
    pub(super) ready: Condvar,
    /// Threads that wait, by [`Want`], the driving one among them; changed under the driver's lock.
    waiting: [AtomicU32; 3],
    /// The number of waiting threads that sleep; a wake-up costs a system call even if none does.
    sleepers: AtomicU32,
    pub(super) pollable: OnceLock<Pollable>,
}

/// The condition that a call waits for on its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Something to receive or accept, or the end of the connection.
    Read,
    /// Room to send.
    Write,
    /// Any change.
    Change,
}

impl Slot {
    pub(super) fn enter(&self, want: Want) {
        self.waiting[want as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn leave(&self, want: Want) {
        self.waiting[want as usize].fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn begin_sleep(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_sleep(&self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    fn is_wanted(&self, want: Want) -> bool {
        self.waiting[want as usize].load(Ordering::Relaxed) > 0
    }

    /// True if a thread waits for a condition that this readiness includes; a socket that is gone satisfies
    /// every wait.
    pub(super) fn is_served_by(&self, readiness: Option<Readiness>) -> bool {
        let Some(Readiness { readable, writable, read_closed, hung_up }) = readiness else { return true };
        self.is_wanted(Want::Change)
            || self.is_wanted(Want::Read) && (readable || read_closed || hung_up)
            || self.is_wanted(Want::Write) && (writable || hung_up)
    }
}

/// Updates the polled descriptor of a socket, if it has one.
pub(super) fn update_pollable(stack: &Stack, port: u32, slot: &Slot) {
    if let (Some(pollable), Some(endpoint)) = (slot.pollable.get(), stack.endpoint(port)) {
        let readiness = endpoint.readiness();
        pollable.set(Level {
            readable: readiness.readable,
            writable: readiness.writable,
            hung_up: readiness.hung_up,
        });
    }
}
