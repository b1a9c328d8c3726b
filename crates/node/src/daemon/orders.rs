//! Orders of the daemon's owner to its thread.

use std::sync::{Mutex, PoisonError, mpsc};

use utipc_core::Time;
use utipc_core::stack::Stack;
use utipc_manage::{Entry, Refusal, Request};

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
#[derive(Default)]
pub(super) struct Orders(Mutex<Vec<Order>>);

impl Orders {
    pub(super) fn give(&self, order: Order) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(order);
    }

    pub(super) fn take(&self) -> Vec<Order> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
