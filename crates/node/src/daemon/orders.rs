//! Orders of the daemon's owner to its thread.

use std::sync::{Mutex, PoisonError, mpsc};

use utipc_core::Time;
use utipc_core::stack::Stack;
use utipc_manage::{Entry, Refusal, Request};
use utipc_os::reactor::Waker;

use super::attachments::Policy;
use super::config::Limits;
use super::counters::DaemonCounters;

/// A part of a list, and the position of the next part if there may be more.
pub(super) type Part = (Vec<Entry>, Option<u64>);

type Command = Box<dyn FnOnce(&mut Stack, Time) + Send>;

/// An order of the owner to the daemon's thread.
pub(super) enum Order {
    Stop,
    Change(Box<Policy>, Limits),
    Count(mpsc::Sender<DaemonCounters>),
    /// Reads a list of the management family from a position on.
    List(Box<Request>, u64, mpsc::Sender<Result<Part, Refusal>>),
    Run(Command),
}

/// Orders that the thread has not read yet.
pub(super) struct Orders {
    given: Mutex<Vec<Order>>,
    /// Wakes the thread.
    waker: Waker,
}

impl std::fmt::Debug for Orders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Orders").finish_non_exhaustive()
    }
}

impl Orders {
    pub(super) fn new(waker: Waker) -> Self {
        Self { given: Mutex::default(), waker }
    }

    pub(super) fn give(&self, order: Order) {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        self.waker.wake();
    }

    /// Gives an order with an answer, which comes unless the daemon has ended.
    pub(super) fn ask<T>(&self, order: impl FnOnce(mpsc::Sender<T>) -> Order) -> mpsc::Receiver<T> {
        let (sender, receiver) = mpsc::channel();
        self.give(order(sender));
        receiver
    }

    pub(super) fn take(&self) -> Vec<Order> {
        std::mem::take(&mut *self.given.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
