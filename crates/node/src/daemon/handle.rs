//! The handle of a running daemon.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use thiserror::Error;
use utipc_core::Time;
use utipc_core::stack::Stack;
use utipc_manage::{Entry, Refusal, Request};

use crate::daemon::attachments::Policy;
use crate::daemon::config::{DaemonConfig, DaemonError, Limits};
use crate::daemon::counters::DaemonCounters;
use crate::daemon::dispatcher::Dispatcher;
use crate::daemon::orders::{Order, Orders};
use crate::driver::StartError;

/// A running daemon: a node that serves other processes from its own thread. It leaves its cluster when it is
/// stopped or dropped. A panic on that thread aborts the process: a service manager restarts a process, and does not
/// see that a thread is missing.
#[derive(Debug)]
pub struct Daemon {
    socket: PathBuf,
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts a daemon: when this returns, processes may attach.
    ///
    /// # Errors
    /// See [`DaemonError`].
    pub fn start(config: DaemonConfig) -> Result<Daemon, DaemonError> {
        let socket = config.socket.clone();
        let (mut dispatcher, orders) = Dispatcher::new(config)?;
        let thread = std::thread::Builder::new()
            .name("utipcd".to_owned())
            .spawn(move || {
                let _guard = AbortOnPanic;
                dispatcher.run();
            })
            .map_err(StartError::Thread)?;
        Ok(Daemon { socket, orders, thread: Some(thread) })
    }

    /// Path of the socket on which processes attach.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Replaces policy and limits, for later requests.
    pub fn change(&self, policy: Policy, limits: Limits) {
        self.orders.give(Order::Change(Box::new(policy), limits));
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> DaemonCounters {
        self.orders.ask(Order::Count).recv().unwrap_or_default()
    }

    /// Runs a command on its node and returns the result; `None` if the daemon has ended.
    pub fn with<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Stack, Time) -> T + Send + 'static,
    ) -> Option<T> {
        let run = |answer: mpsc::Sender<T>| {
            Order::Run(Box::new(move |stack, now| {
                // It fails if the caller is gone.
                let _ = answer.send(command(stack, now));
            }))
        };
        self.orders.ask(run).recv().ok()
    }

    /// Shows a watchdog whether its event loop runs.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        Pulse(Arc::clone(&self.orders))
    }

    /// Reads its state from another thread.
    #[must_use]
    pub fn meter(&self) -> Meter {
        Meter(Arc::clone(&self.orders))
    }

    /// Leaves the cluster and ends; the sockets of all processes end with it.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.orders.give(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// See [`Daemon::pulse`].
#[derive(Debug)]
pub struct Pulse(Arc<Orders>);

impl Pulse {
    /// Waits until the event loop has begun a turn after this call; false if it has not within `limit`, or the daemon
    /// has ended.
    #[must_use]
    pub fn beats_within(&self, limit: Duration) -> bool {
        let run = |answer: mpsc::Sender<()>| {
            Order::Run(Box::new(move |_, _| {
                // It fails if the caller waits no longer.
                let _ = answer.send(());
            }))
        };
        self.0.ask(run).recv_timeout(limit).is_ok()
    }
}

/// See [`Daemon::meter`].
#[derive(Debug)]
pub struct Meter(Arc<Orders>);

impl Meter {
    /// The daemon's counters; `None` if its event loop does not answer within `limit`, or the daemon has ended.
    #[must_use]
    pub fn counters_within(&self, limit: Duration) -> Option<DaemonCounters> {
        self.0.ask(Order::Count).recv_timeout(limit).ok()
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
            let part = self.0.ask(|answer| Order::List(Box::new(request.clone()), from, answer));
            let part = part.recv_timeout(limit).map_err(|_| Unread::Silent)?;
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
