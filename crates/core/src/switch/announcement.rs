//! What the sockets of a group on this node are told one after the other: a group may have more of them than one step
//! may visit.

use crate::addr::{NodeAddr, Scope};
use crate::names::Change;
use crate::quota::UserId;
use crate::wire::GroupControl;

/// Memory of an announcement that waits, bytes.
pub(crate) const ANNOUNCEMENT_MEMORY: u64 = 256;

/// What is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    /// A binding of the group's type has changed.
    Changed(Change),
    /// Contact with a node is lost: for the members of all groups.
    Lost(NodeAddr),
    /// A member sends this to all others on this node with its scope.
    Control { service: u32, scope: Scope, control: GroupControl },
}

/// An announcement, and whom it has not reached yet.
#[derive(Debug)]
pub(crate) struct Announcement {
    pub(crate) told: Told,
    /// The group and the port of the socket that was visited last.
    pub(crate) last: Option<(u32, u32)>,
    /// Sockets that have joined with this number or a later one know it already.
    pub(crate) before: u64,
    /// What the user who caused it is charged for while it waits.
    pub(crate) charge: Option<(UserId, u64)>,
}

impl Announcement {
    /// The only group that it concerns.
    pub(crate) fn group(&self) -> Option<u32> {
        match self.told {
            Told::Changed(change) => Some(change.binding.range.service),
            Told::Control { service, .. } => Some(service),
            Told::Lost(_) => None,
        }
    }

    /// Whether it is told before a JOIN that the same socket sends: members know the binding when they answer.
    pub(super) fn is_before(&self, other: &Self) -> bool {
        matches!(self.told, Told::Changed(change) if change.up)
            && matches!(other.told, Told::Control { control, .. } if control.is_join())
    }
}
