//! The sockets of this node that are in groups: what they learn of bindings and nodes. Spec: tipc.md §9.1.

use super::Stack;
use crate::addr::{NodeAddr, ServiceAddr};
use crate::group::{GroupPolicy, GroupRequest, JoinError, LeaveError, MemberInfo};
use crate::names::Change;
use crate::socket::{BindError, Endpoint};
use crate::time::Time;

/// The type of the group that a socket is in.
pub(super) fn of(endpoint: &Endpoint) -> Option<u32> {
    endpoint.group().map(|group| group.request().member.service)
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
        let all = self.groups.range(group..).flat_map(move |(of, ports)| {
            let first = if *of == group { port } else { 0 };
            ports.range(first..).map(|port| (*of, *port))
        });
        all.filter_map(|(group, port)| Some((group, port, self.endpoint(port)?)))
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

    /// Notes that a socket has joined or left.
    pub(super) fn regroup(&mut self, port: u32, before: Option<u32>, after: Option<u32>) {
        if let Some(group) = before
            && let Some(ports) = self.groups.get_mut(&group)
        {
            ports.remove(&port);
            if ports.is_empty() {
                self.groups.remove(&group);
            }
        }
        if let Some(group) = after {
            self.groups.entry(group).or_default().insert(port);
        }
    }

    /// Tells the members of a group that a binding of its type has changed.
    pub(super) fn tell_group(&mut self, now: Time, change: &Change) {
        let binding = change.binding;
        let Some(ports) = self.groups.get(&binding.range.service) else { return };
        for port in ports.clone() {
            let news = |endpoint: &mut Endpoint, uplink: &mut super::uplink::Direct<'_>| {
                endpoint.group_now(now);
                endpoint.group_changed(binding.range, (binding.port, binding.scope), change.up, uplink);
            };
            self.change_endpoint(now, port, news, |()| false);
        }
    }

    /// Tells all sockets in groups that contact with a node is lost.
    pub(super) fn tell_groups_of_loss(&mut self, now: Time, node: NodeAddr) {
        let all: Vec<u32> = self.groups.values().flatten().copied().collect();
        for port in all {
            let news = |endpoint: &mut Endpoint, uplink: &mut super::uplink::Direct<'_>| {
                endpoint.group_now(now);
                endpoint.group_node_lost(node, uplink);
            };
            self.change_endpoint(now, port, news, |()| false);
        }
    }
}
