//! The handle of a running daemon.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use thiserror::Error;
use utipc_core::Time;
use utipc_core::stack::Stack;
use utipc_manage::{Entry, Refusal, Request};
use utipc_os::reactor::Waker;

use crate::daemon::attachments::Policy;
use crate::daemon::config::{DaemonConfig, DaemonError, Limits};
use crate::daemon::counters::DaemonCounters;
use crate::daemon::dispatcher::Dispatcher;
use crate::daemon::orders::{Order, Orders};
use crate::driver::StartError;

/// A running daemon: a node that serves other processes from its own thread. It leaves its cluster when it is
/// stopped or dropped. A panic on that thread aborts the process: a service manager restarts a process, and does not
/// see that a thread is missing.
pub struct Daemon {
    socket: PathBuf,
    orders: Arc<Orders>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Daemon {
    /// Starts a daemon: when this returns, processes may attach.
    ///
    /// # Errors
    /// See [`DaemonError`].
    pub fn start(config: DaemonConfig) -> Result<Daemon, DaemonError> {
        let socket = config.socket.clone();
        let orders = Arc::new(Orders::default());
        let (mut dispatcher, waker) = Dispatcher::new(config, Arc::clone(&orders))?;
        let thread = std::thread::Builder::new()
            .name("utipcd".to_owned())
            .spawn(move || {
                let _guard = AbortOnPanic;
                dispatcher.run();
            })
            .map_err(StartError::Thread)?;
        Ok(Daemon { socket, orders, waker, thread: Some(thread) })
    }

    /// Path of the socket on which processes attach.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Replaces policy and limits, for later requests.
    pub fn change(&self, policy: Policy, limits: Limits) {
        self.order(Order::Change(Box::new(policy), limits));
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> DaemonCounters {
        let (sender, receiver) = mpsc::channel();
        self.order(Order::Count(sender));
        receiver.recv().unwrap_or_default()
    }

    /// Runs a command on its node and returns the result; `None` if the daemon has ended.
    pub fn with<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Stack, Time) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = mpsc::channel();
        self.order(Order::Run(Box::new(move |stack, now| {
            // It fails if the caller is gone.
            let _ = sender.send(command(stack, now));
        })));
        receiver.recv().ok()
    }

    /// Shows a watchdog whether its event loop runs.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        Pulse { orders: Arc::clone(&self.orders), waker: self.waker.clone() }
    }

    /// Reads its state from another thread.
    #[must_use]
    pub fn meter(&self) -> Meter {
        Meter { orders: Arc::clone(&self.orders), waker: self.waker.clone() }
    }

    /// Leaves the cluster and ends; the sockets of all processes end with it.
    pub fn stop(self) {
        drop(self);
    }

    fn order(&self, order: Order) {
        self.orders.give(order);
        self.waker.wake();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// See [`Daemon::pulse`].
pub struct Pulse {
    orders: Arc<Orders>,
    waker: Waker,
}

impl std::fmt::Debug for Pulse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pulse").finish_non_exhaustive()
    }
}

impl Pulse {
    /// Waits until the event loop has begun a turn after this call; false if it has not within `limit`, or the daemon
    /// has ended.
    #[must_use]
    pub fn beats_within(&self, limit: Duration) -> bool {
        let (sender, receiver) = mpsc::channel();
        self.orders.give(Order::Run(Box::new(move |_, _| {
            // It fails if the caller waits no longer.
            let _ = sender.send(());
        })));
        self.waker.wake();
        receiver.recv_timeout(limit).is_ok()
    }
}

/// See [`Daemon::meter`].
pub struct Meter {
    orders: Arc<Orders>,
    waker: Waker,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

impl Meter {
    /// The daemon's counters; `None` if its event loop does not answer within `limit`, or the daemon has ended.
    #[must_use]
    pub fn counters_within(&self, limit: Duration) -> Option<DaemonCounters> {
        let (sender, receiver) = mpsc::channel();
        self.orders.give(Order::Count(sender));
        self.waker.wake();
        receiver.recv_timeout(limit).ok()
    }

    /// A list of the management family, fetched in parts so that the daemon serves its programs in between; it ends
    /// with the part that reaches `most` entries.
    ///
    /// # Errors
    /// [`Unread::Silent`] if the event loop does not answer within `limit` for a part, or the daemon has ended;
    /// [`Unread::Refused`] if `request` is not for a list.
    pub fn list_within(&self, request: &Request, most: usize, limit: Duration) -> Result<List, Unread> {
        let mut list = List { entries: Vec::new(), is_complete: false };
        let mut from = 0;
        loop {
            let (sender, receiver) = mpsc::channel();
            self.orders.give(Order::List(Box::new(request.clone()), from, sender));
            self.waker.wake();
            let part = receiver.recv_timeout(limit).map_err(|_| Unread::Silent)?;
            let (entries, next) = part.map_err(Unread::Refused)?;
            list.entries.extend(entries);
            match next {
                Some(_) if list.entries.len() >= most => return Ok(list),
                Some(next) => from = next,
                None => return Ok(List { is_complete: true, ..list }),
            }
        }
    }
}

/// Entries of the management family.
#[derive(Clone, Debug)]
pub struct List {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Whether these are all.
    pub is_complete: bool,
}

/// Why a list was not read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Unread {
    /// The event loop does not answer.
    #[error("the event loop does not answer")]
    Silent,
    /// The daemon refuses the request.
    #[error("the daemon refuses a list: {0}")]
    Refused(Refusal),
}

/// Ends the process when a panic unwinds the thread that has it. The panic hook has reported the panic.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulse_stops_while_a_turn_does_not_end() {
        let socket = std::env::temp_dir().join(format!("utipc-pulse-{}.sock", std::process::id()));
        let config = DaemonConfig { socket: socket.clone(), ..DaemonConfig::default() };
        let daemon = Daemon::start(config).unwrap();
        let pulse = daemon.pulse();
        let far_longer = Duration::from_secs(30);
        let meter = daemon.meter();
        assert!(pulse.beats_within(far_longer) && meter.counters_within(far_longer).is_some());
        let (end, ends) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                daemon.with(move |_, _| {
                    begun.send(()).unwrap();
                    let _ = ends.recv();
                })
            });
            has_begun.recv().unwrap();
            assert!(!pulse.beats_within(Duration::from_millis(10)));
            assert!(meter.counters_within(Duration::from_millis(10)).is_none());
            drop(end);
        });
        assert!(pulse.beats_within(far_longer));
        daemon.stop();
        assert!(!pulse.beats_within(Duration::from_millis(10)));
        let _ = std::fs::remove_file(format!("{}.lock", socket.display()));
    }
}
