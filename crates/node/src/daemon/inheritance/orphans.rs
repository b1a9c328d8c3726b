//! Orphaned sockets: their program owns the descriptor, passes it on or keeps it over an exec, and no attachment holds
//! them.
//!
//! A socket is orphaned between an exec, or the end of the process that passed its descriptor on, and the claim of the
//! process that has the descriptor now. The hang-up of the descriptor ends it. Where the connection is over, so that
//! the descriptor is hung up already, it ends after a fixed time.

use std::collections::VecDeque;

use utipc_core::Time;

/// Time for which an orphaned socket whose connection is over waits for its new process, milliseconds: an exec
/// and a program's start.
const ORPHAN_MS: u64 = 30_000;

/// Orphaned sockets whose descriptor is hung up.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Orphans {
    /// Ports, oldest first, with the time when they end.
    waiting: VecDeque<(Time, u32)>,
}

impl Orphans {
    /// Time when [`Self::expire`] has something to return.
    pub(in crate::daemon) fn deadline(&self) -> Time {
        self.waiting.front().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// A socket waits for its new process.
    pub(in crate::daemon) fn add(&mut self, now: Time, port: u32) {
        self.waiting.push_back((now.plus_millis(ORPHAN_MS), port));
    }

    /// A socket whose time is over; a process may have claimed it.
    pub(in crate::daemon) fn expire(&mut self, now: Time) -> Option<u32> {
        let (at, _) = self.waiting.front()?;
        if *at > now {
            return None;
        }
        self.waiting.pop_front().map(|(_, port)| port)
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
}
