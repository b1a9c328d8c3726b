//! The places of active members: which members may send within the large window. Spec: tipc.md §9.2, §9.4.

use std::collections::VecDeque;

use super::state::MemberState;
use crate::addr::PortId;
use crate::waiting::Waiters;

/// Fewest and most members that are active at a time. Spec: tipc.md §9.2.
const ACTIVE_MEMBERS: [usize; 2] = [16, 64];

/// The members that have a place, and those that wait for one.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Members that are active, the least recently read first. Bounded by [`ACTIVE_MEMBERS`].
    active: VecDeque<PortId>,
    /// Members that wait for a place among them.
    pending: Waiters<PortId, u64>,
    /// Places taken: by the active members, and by those that give theirs back.
    taken: usize,
}

/// Maximum number of members that are active at a time, in a group of `members` others. Spec: tipc.md §9.2.
pub(super) fn most(members: usize) -> usize {
    let [least, most] = ACTIVE_MEMBERS;
    ((members + 1) / 8).clamp(least, most)
}

impl Places {
    /// Number of places taken.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// The state of a member has changed, `None`: it was removed. True if a place has become free.
    pub(super) fn change(&mut self, port: PortId, before: MemberState, after: Option<MemberState>) -> bool {
        match before {
            MemberState::Active => self.active.retain(|other| *other != port),
            MemberState::Pending => _ = self.pending.leave(port),
            _ => {}
        }
        match after {
            Some(MemberState::Active) => self.active.push_back(port),
            Some(MemberState::Pending) => _ = self.pending.join_last(port),
            _ => {}
        }
        let (was_active, is_active) = (before.is_active(), after.is_some_and(MemberState::is_active));
        self.taken = self.taken + usize::from(is_active) - usize::from(was_active);
        was_active && !is_active
    }

    /// A message of an active member was read.
    pub(super) fn read(&mut self, port: PortId) {
        if self.active.back() != Some(&port) {
            self.active.retain(|other| *other != port);
            self.active.push_back(port);
        }
    }

    /// The active member that was read least recently.
    pub(super) fn least_recent(&self) -> Option<PortId> {
        self.active.front().copied()
    }

    /// The member that has waited longest for a place.
    pub(super) fn longest_pending(&self) -> Option<PortId> {
        self.pending.first().map(|(_, port)| port)
    }

    /// Numbers of places taken, of active members, and of those that wait.
    #[cfg(test)]
    pub(super) fn counts(&self) -> [usize; 3] {
        [self.taken, self.active.len(), self.pending.len()]
    }
}
