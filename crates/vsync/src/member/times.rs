//! The times of a member: when things happened on which it waits, and when it does something by itself.

use utipc_core::Time;

/// Times of one member.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// Time of the last call.
    pub(super) now: Time,
    /// When it began to look for a view.
    pub(super) joined: Time,
    /// When it installed its view.
    pub(super) installed: Time,
    /// No ballot before this time.
    pub(super) not_before: Time,
    /// When the coordinator that it waits for is given up.
    pub(super) patience: Option<Time>,
    /// When it leaves without the others' agreement, if it wants to leave.
    pub(super) leave_by: Option<Time>,
}

impl Times {
    /// A time that has not come yet.
    pub(super) fn later(&self, at: Time) -> Option<Time> {
        (at > self.now).then_some(at)
    }

    /// Whether a time has come.
    pub(super) fn is_due(&self, at: Option<Time>) -> bool {
        at.is_some_and(|at| at <= self.now)
    }
}
