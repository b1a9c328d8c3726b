//! What the sockets of a group on this node learn one after the other: a group may have more of them than one step may
//! visit.

use crate::addr::{NodeAddr, Scope};
use crate::names::{Change, Walk};
use crate::quota::UserId;
use crate::wire::GroupControl;

/// Memory of an announcement that waits, bytes.
pub(crate) const ANNOUNCEMENT_MEMORY: u64 = 256;

/// What is told.
#[derive(Debug)]
pub(crate) enum Told {
    /// To the sockets of a group: a binding of its type has changed.
    Changed(Change),
    /// To all sockets in groups: contact with a node is lost.
    Lost(NodeAddr),
    /// To those of a group with this scope: a member leaves.
    Left { service: u32, scope: Scope, control: GroupControl },
    /// To a socket that has joined: bindings with this scope that it has not seen yet.
    Found { port: u32, scope: Scope, walk: Walk },
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
            Told::Left { service, .. } => Some(service),
            Told::Lost(_) | Told::Found { .. } => None,
        }
    }
}
