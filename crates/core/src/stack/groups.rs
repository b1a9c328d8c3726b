//! The sockets of this node that are in groups: what they learn of bindings and nodes. Spec: tipc.md §9.1.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::Stack;
use crate::addr::ServiceAddr;
use crate::group::{GroupPolicy, GroupRequest, JoinError, LeaveError, MemberInfo};
use crate::quota::UserId;
use crate::socket::{BindError, Endpoint};
use crate::switch::{Announcement, Told};
use crate::time::Time;

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

impl Stack {
    /// Lets a socket join a group: from then on it sends to members of the group and receives from them only.
    ///
    /// ```
    /// use utipc_core::group::GroupRequest;
    /// use utipc_core::{SocketKind, Stack, StackConfig, Time};
    /// let now = Time::ZERO;
    /// let mut node = Stack::new(now, StackConfig::default());
    /// let members: Vec<u32> = (0..3).map(|_| node.open(now, SocketKind::Rdm).unwrap()).collect();
    /// for (instance, member) in members.iter().enumerate() {
    ///     node.join(now, *member, GroupRequest::new(4300, instance as u32)).unwrap();
    /// }
    /// // Without a destination a message goes to all other members.
    /// node.send(now, members[0], b"hello", None).unwrap();
    /// let mut buffer = [0; 100];
    /// for member in &members[1..] {
    ///     let got = node.recv(now, *member, &mut buffer, Default::default()).unwrap();
    ///     assert_eq!((&buffer[..got.len], got.source.port), (&b"hello"[..], members[0]));
    /// }
    /// ```
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(&mut self, now: Time, port: u32, request: GroupRequest) -> Result<(), JoinError> {
        self.join_with(now, port, request, GroupPolicy::LINUX)
    }

    /// [`Self::join`] with a policy for slow members.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join_with(
        &mut self,
        now: Time,
        port: u32,
        request: GroupRequest,
        policy: GroupPolicy,
    ) -> Result<(), JoinError> {
        self.on(now, port, JoinError::Bind(BindError::InvalidState), |e, uplink| {
            e.join_with(now, request, policy, uplink)
        })
    }

    /// Lets a socket leave its group. What it has received before can still be read.
    ///
    /// # Errors
    /// See [`LeaveError`].
    pub fn leave(&mut self, now: Time, port: u32) -> Result<(), LeaveError> {
        self.on(now, port, LeaveError::NotJoined, |e, uplink| e.leave(uplink))
    }

    /// The sockets that are in groups: group, port and socket, from a group and a port in it on.
    pub fn sockets_in_groups_from(
        &self,
        group: u32,
        port: u32,
    ) -> impl Iterator<Item = (u32, u32, &Endpoint)> {
        let all = self.groups.all.range((group, port)..);
        all.filter_map(|((group, port), _)| Some((*group, *port, self.endpoint(*port)?)))
    }

    /// The other members of a socket's group, each with its address in the group, if messages to them may go by lanes:
    /// all are on this node, at most `most`, each knows this socket as a member, and none has a policy.
    #[must_use]
    pub fn members_here(&self, port: u32, most: usize) -> Option<Vec<(u32, ServiceAddr)>> {
        let group = self.endpoint(port)?.group()?;
        let service = group.request().member.service;
        let may_read = |member: MemberInfo| {
            let other = self.endpoint(member.port.port)?.group()?;
            let may = other.knows(port) && other.policy() == GroupPolicy::LINUX;
            may.then_some((member.port.port, ServiceAddr { service, instance: member.instance }))
        };
        group.members_here(most)?.into_iter().map(may_read).collect()
    }

    /// Collects, from now on, the sockets in whose groups members come or go.
    pub fn watch_groups(&mut self) {
        self.changed_groups.get_or_insert_default();
    }

    /// Takes one of the sockets in whose group members have come or gone.
    pub fn take_changed_group(&mut self) -> Option<u32> {
        self.changed_groups.as_mut()?.pop_first()
    }
}
