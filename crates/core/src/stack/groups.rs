//! The sockets of this node that are in groups: which learn of bindings and nodes, and whose members change.
//! Spec: tipc.md §9.1.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::quota::UserId;
use crate::socket::Endpoint;
use crate::switch::{Announcement, Told};

/// The type of the group that a socket is in.
pub(super) fn of(endpoint: &Endpoint) -> Option<u32> {
    endpoint.group().map(|group| group.request().member.service)
}

/// The sockets in groups.
#[derive(Debug, Default)]
pub(super) struct GroupSockets {
    /// By group and port: the number of the last announcement before the socket joined.
    all: BTreeMap<(u32, u32), u64>,
    /// Number of the last announcement.
    announcements: u64,
    /// Sockets that the call in progress has closed, and their users: their bindings end with them.
    closed: BTreeMap<u32, UserId>,
    /// The sockets whose groups have gained or lost members since a caller took them; `None` if no caller does.
    changed: Option<BTreeSet<u32>>,
}

impl GroupSockets {
    /// Whether sockets are in a group.
    pub(super) fn contains(&self, group: u32) -> bool {
        self.all.range((group, 0)..=(group, u32::MAX)).next().is_some()
    }

    /// Notes that a socket has joined or left.
    pub(super) fn change(&mut self, port: u32, before: Option<u32>, after: Option<u32>) {
        if let Some(group) = before {
            self.all.remove(&(group, port));
        }
        if let Some(group) = after {
            self.all.insert((group, port), self.announcements);
        }
    }

    /// Collects, from now on, the sockets in whose groups members come or go.
    pub(super) fn watch(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// A member has come or gone in the group of a socket.
    pub(super) fn note_changed(&mut self, port: u32) {
        if let Some(changed) = &mut self.changed {
            changed.insert(port);
        }
    }

    /// The next socket in whose group members have come or gone.
    pub(super) fn next_changed(&mut self) -> Option<u32> {
        self.changed.as_mut()?.pop_first()
    }

    /// The groups and ports of the sockets, from one on.
    pub(super) fn iter_from(&self, group: u32, port: u32) -> impl Iterator<Item = (u32, u32)> {
        self.all.range((group, port)..).map(|(of, _)| *of)
    }

    /// Notes that a socket of a user is closed.
    pub(super) fn close(&mut self, port: u32, user: Option<UserId>) {
        if !self.all.is_empty() {
            self.closed.extend(user.map(|user| (port, user)));
        }
    }

    /// The user of a socket that the call in progress has closed.
    pub(super) fn closed_by(&self, port: u32) -> Option<UserId> {
        self.closed.get(&port).copied()
    }

    /// The call in progress ends.
    pub(super) fn forget_closed(&mut self) {
        if !self.closed.is_empty() {
            self.closed.clear();
        }
    }

    /// An announcement to those that are in groups now.
    pub(super) fn announcement(&mut self, told: Told) -> Announcement {
        self.announcements += 1;
        Announcement { told, last: None, before: self.announcements, charge: None }
    }

    /// The next socket that an announcement may concern, with its group and its number.
    pub(super) fn after(&self, announcement: &Announcement) -> Option<((u32, u32), u64)> {
        let first = announcement
            .last
            .map_or_else(|| Bound::Included((announcement.group().unwrap_or(0), 0)), Bound::Excluded);
        let last = (announcement.group().unwrap_or(u32::MAX), u32::MAX);
        let (of, joined) = self.all.range((first, Bound::Included(last))).next()?;
        Some((*of, *joined))
    }
}
