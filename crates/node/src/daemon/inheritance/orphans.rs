//! Orphaned sockets: their program owns the descriptor, passes it on or keeps it over an exec, and no attachment holds
//! them.
//!
//! A socket is orphaned between an exec, or the end of the process that passed its descriptor on, and the claim of
//! the process that has the descriptor now. The close of the last copy ends it. If the connection is over, the daemon
//! may miss that close (see `NearEnd::HungUp`), so the socket also ends after a fixed time.

use utipc_core::Time;
use utipc_core::timers::Deadlines;

/// Time for which an orphaned socket whose connection is over waits for its new process, milliseconds: an exec
/// and a program's start.
const ORPHAN_MS: u64 = 30_000;

/// Orphaned sockets whose descriptor is hung up, with the time at which each of them ends.
#[derive(Debug, Default)]
pub(crate) struct Orphans(Deadlines<u32>);

impl Orphans {
    /// Time when [`Self::expire`] has something to return.
    pub(crate) fn deadline(&self) -> Time {
        self.0.first()
    }

    /// A socket waits for its new process from now on.
    pub(crate) fn add(&mut self, now: Time, port: u32) {
        self.0.set(port, now.plus_millis(ORPHAN_MS));
    }

    /// A socket has ended, or a process has claimed it.
    pub(crate) fn remove(&mut self, port: u32) {
        self.0.remove(port);
    }

    /// A socket whose time is over.
    pub(crate) fn expire(&mut self, now: Time) -> Option<u32> {
        self.0.take_due(now)
    }
}
