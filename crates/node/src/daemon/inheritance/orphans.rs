//! Orphaned sockets: their program owns the descriptor, passes it on or keeps it over an exec, and no attachment holds
//! them.
//!
//! A socket is orphaned between an exec, or the end of the process that passed its descriptor on, and the claim of
//! the process that has the descriptor now. The close of the last copy ends it. If the connection is over, the daemon
//! may miss that close (see `NearEnd::HungUp`), so the socket also ends after a fixed time.

use utipc_core::Time;
use utipc_core::waiting::Waiters;

/// Time for which an orphaned socket whose connection is over waits for its new process, milliseconds: an exec
/// and a program's start.
const ORPHAN_MS: u64 = 30_000;

/// Orphaned sockets whose descriptor is hung up, by the time when they end.
#[derive(Debug, Default)]
pub(crate) struct Orphans(Waiters<u32, Time>);

impl Orphans {
    /// Time when [`Self::expire`] has something to return.
    pub(crate) fn deadline(&self) -> Time {
        self.0.deadline()
    }

    /// A socket waits for its new process from now on.
    pub(crate) fn add(&mut self, now: Time, port: u32) {
        self.0.set(port, now.plus_millis(ORPHAN_MS));
    }

    /// A socket has ended, or a process has claimed it.
    pub(crate) fn remove(&mut self, port: u32) {
        self.0.leave(port);
    }

    /// A socket whose time is over.
    pub(crate) fn expire(&mut self, now: Time) -> Option<u32> {
        self.0.pop_up_to(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orphans_expire_in_order_after_their_time() {
        let (start, mut orphans) = (Time::ZERO, Orphans::default());
        orphans.add(start, 1);
        orphans.add(start.plus_millis(5), 2);
        let end = start.plus_millis(ORPHAN_MS);
        assert_eq!((orphans.deadline(), orphans.expire(start)), (end, None));
        assert_eq!((orphans.expire(end), orphans.expire(end)), (Some(1), None));
        assert_eq!(orphans.expire(end.plus_millis(5)), Some(2));
        assert_eq!(orphans.deadline(), Time::NEVER);
    }

    #[test]
    fn orphan_that_was_claimed_in_between_waits_its_whole_time_again() {
        let (start, mut orphans) = (Time::ZERO, Orphans::default());
        orphans.add(start, 1);
        orphans.remove(1);
        assert_eq!(orphans.deadline(), Time::NEVER);
        let later = start.plus_millis(7);
        orphans.add(start, 1);
        orphans.add(later, 1);
        assert_eq!(orphans.expire(start.plus_millis(ORPHAN_MS)), None);
        assert_eq!(orphans.expire(later.plus_millis(ORPHAN_MS)), Some(1));
        assert!(orphans.0.is_empty());
    }
}
