//! Joining and leaving a group, and what a socket learns of bindings and nodes. Spec: tipc.md §9.1.

use super::{GroupCall, member_id};
use crate::addr::{NodeAddr, PortId, Scope, ServiceRange};
use crate::group::{Group, GroupPolicy, GroupRequest, JoinError, LeaveError};
use crate::limits::RESERVED_TYPES;
use crate::socket::call::Call;
use crate::socket::endpoint::{Endpoint, Role};
use crate::socket::uplink::{BindError, Uplink};
use crate::time::Time;

impl Endpoint {
    /// Joins a group. From then on the socket sends to members and receives from them only, until it leaves or closes.
    /// It does not wait for the answers of members: messages to them wait. Spec: tipc.md §9.1.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(&mut self, request: GroupRequest, uplink: &mut dyn Uplink) -> Result<(), JoinError> {
        self.join_with(Time::ZERO, request, GroupPolicy::LINUX, uplink)
    }

    /// [`Self::join`] with a policy for slow members, which concerns what this socket sends. Spec: tipc.md §9.8.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join_with(
        &mut self,
        now: Time,
        request: GroupRequest,
        policy: GroupPolicy,
        uplink: &mut dyn Uplink,
    ) -> Result<(), JoinError> {
        if !policy.is_valid() {
            return Err(JoinError::Policy);
        }
        if request.member.service < RESERVED_TYPES {
            return Err(JoinError::Reserved);
        }
        let Role::Datagram(datagram) = &mut self.role else { return Err(JoinError::WrongKind) };
        let call = &mut Call::new(&mut self.base, uplink);
        if datagram.group().is_some() {
            return Err(JoinError::AlreadyJoined);
        }
        if call.base.is_closed() {
            return Err(BindError::InvalidState.into());
        }
        let mut group = Group::new(request, call.base.port()).with_policy(policy);
        group.set_now(now);
        group.limit_members(call.base.room(datagram.bytes()));
        let (own, port) = (call.own(), call.base.port());
        for (member, instance) in call.uplink.group_bindings(port, request.member.service, request.scope) {
            group.published(member_id(member, own), instance);
        }
        // Before the JOINs, so that members know the binding when they answer.
        call.bind(request.member.into(), request.scope)?;
        call.base.settings.send.dest_droppable = true;
        datagram.set_group(Some(Box::new(group)));
        if let Some(mut call) = datagram.group_call(call) {
            call.flush();
        }
        Ok(())
    }

    /// Leaves the group. Messages that have arrived before can still be received.
    ///
    /// # Errors
    /// See [`LeaveError`].
    pub fn leave(&mut self, uplink: &mut dyn Uplink) -> Result<(), LeaveError> {
        let Role::Datagram(datagram) = &mut self.role else { return Err(LeaveError::NotJoined) };
        let call = &mut Call::new(&mut self.base, uplink);
        let Some(mut call) = datagram.group_call(call) else { return Err(LeaveError::NotJoined) };
        call.leave();
        datagram.set_group(None);
        Ok(())
    }

    /// The group of the socket.
    #[must_use]
    pub fn group(&self) -> Option<&Group> {
        match &self.role {
            Role::Datagram(datagram) => datagram.group(),
            Role::Connection(_) | Role::Listener => None,
        }
    }

    pub(in crate::socket) fn group_mut(&mut self) -> Option<&mut Group> {
        match &mut self.role {
            Role::Datagram(datagram) => datagram.group_mut(),
            Role::Connection(_) | Role::Listener => None,
        }
    }

    /// Whether a member has come or gone since the last call.
    pub(crate) fn take_group_change(&mut self) -> bool {
        self.group_mut().is_some_and(Group::take_change)
    }

    /// Sets the time of the next call about the group.
    #[inline]
    pub(crate) fn group_now(&mut self, now: Time) {
        if let Some(group) = self.group_mut() {
            group.set_now(now);
        }
    }

    /// A binding of the group's type was published or withdrawn.
    pub(crate) fn group_changed(
        &mut self,
        range: ServiceRange,
        port: PortId,
        scope: Scope,
        up: bool,
        uplink: &mut dyn Uplink,
    ) {
        let is_meant = |group: &Group| {
            let request = group.request();
            range.service == request.member.service && scope == request.scope
        };
        if self.group().is_some_and(is_meant) {
            self.change_group(uplink, |group, uplink| {
                let member = member_id(port, uplink.own_node());
                if up {
                    group.published(member, range.lower);
                } else {
                    group.withdrawn(member, uplink.is_reachable(port.node));
                }
            });
        }
    }

    /// Bindings of the group's type that existed when the socket joined.
    pub(crate) fn group_found(&mut self, found: &[(PortId, u32)], uplink: &mut dyn Uplink) {
        self.change_group(uplink, |group, uplink| {
            let own = uplink.own_node();
            for (port, instance) in found {
                group.published(member_id(*port, own), *instance);
            }
        });
    }

    /// Contact with a node is lost.
    pub(crate) fn group_node_lost(&mut self, node: NodeAddr, uplink: &mut dyn Uplink) {
        self.change_group(uplink, |group, _| group.node_lost(node));
    }

    fn change_group(&mut self, uplink: &mut dyn Uplink, change: impl FnOnce(&mut Group, &dyn Uplink)) {
        let Role::Datagram(datagram) = &mut self.role else { return };
        if let Some(mut call) = datagram.group_call(&mut Call::new(&mut self.base, uplink)) {
            change(call.group, call.call.uplink);
            call.flush();
        }
    }
}

impl GroupCall<'_> {
    /// Tells members that the socket leaves, and withdraws its binding.
    fn leave(&mut self) {
        let (request, was_evicted) = (self.group.request(), self.group.evicted_by().is_some());
        self.group.leave();
        self.flush();
        if !was_evicted {
            let _ = self.call.unbind(Some((request.member.into(), request.scope)));
        }
    }
}
