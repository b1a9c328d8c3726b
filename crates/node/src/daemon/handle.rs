//! The handle of a running daemon.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use utipc_core::Time;
use utipc_core::stack::Stack;
use utipc_os::reactor::Waker;

use crate::daemon::attachments::Policy;
use crate::daemon::config::{DaemonConfig, DaemonError, Limits};
use crate::daemon::counters::DaemonCounters;
use crate::daemon::dispatcher::Dispatcher;
use crate::daemon::orders::{Order, Orders};
use crate::driver::StartError;

/// A running daemon: a node that serves other processes from a thread of its own. It leaves its cluster when it is
/// stopped or dropped.
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
            .spawn(move || dispatcher.run())
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
