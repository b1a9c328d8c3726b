//! Sending to members: which of them, and whether their windows allow it. Spec: tipc.md §9.5.

use super::Group;
use super::sending::{Refused, Wanted};
use super::state::MemberState;
use crate::addr::{NodeAddr, PortId};

impl Group {
    /// Checks that a message of `cost` blocks may be sent to a member.
    pub(crate) fn may_send_to(&mut self, to: PortId, cost: u32) -> Result<(), Refused> {
        self.attempt(Wanted::Member(to), cost)?;
        Ok(())
    }

    /// Checks that a message of `cost` blocks may be sent to all members.
    pub(crate) fn may_send_to_all(&mut self, cost: u32) -> Result<(), Refused> {
        self.attempt(Wanted::All, cost)?;
        Ok(())
    }

    /// Chooses the member with this instance that is least loaded; those that are equally loaded take turns. The links
    /// to `congested` nodes take nothing.
    pub(crate) fn choose(
        &mut self,
        instance: u32,
        cost: u32,
        congested: impl Fn(NodeAddr) -> bool,
    ) -> Result<PortId, Refused> {
        let chosen = self.attempt(Wanted::Instance(instance), cost)?;
        Ok(self.sending.choose(&self.members, instance, cost, congested, chosen))
    }

    /// The members with an instance that messages are sent to.
    pub(crate) fn with_instance(&self, instance: u32) -> impl Iterator<Item = PortId> + '_ {
        self.members.with_instance(instance).map(|(port, _)| port)
    }

    pub(super) fn attempt(&mut self, wanted: Wanted, cost: u32) -> Result<PortId, Refused> {
        let result = self.sending.attempt(&self.members, wanted, cost);
        if matches!(result, Err(Refused::Window(_) | Refused::Ack(_))) {
            self.slow.begin_limits(&self.members, wanted, cost);
        }
        if let Err(Refused::Window(port)) = result {
            // It may wait for this socket in the same way.
            self.advertise(port);
        }
        result
    }

    /// Something has changed about a member: a send that was refused because of it may be possible now.
    pub(super) fn recheck(&mut self, changed: PortId) {
        if let Some(member) = self.members.get(changed) {
            self.slow.review(changed, member, &self.sending);
        }
        self.sending.recheck(&self.members, changed);
    }

    /// Why the last send was refused, if it still would be; with it, whether the member has joined, and its window.
    pub(crate) fn blocked_by(&self) -> Option<(Refused, bool, u16)> {
        let reason = self.sending.last_refused()?;
        let (Refused::Window(port) | Refused::Ack(port)) = reason else { return None };
        let member = self.members.get(port)?;
        Some((reason, member.state != MemberState::Published, member.window))
    }

    /// A message was sent to a member. The next broadcast must not overtake it.
    pub(crate) fn sent_to(&mut self, to: PortId, cost: u32) {
        if let Some(member) = self.members.get_mut(to) {
            member.charge(cost);
            member.slow.is_missing = false;
        }
        self.sending.replicast_next();
    }

    /// Whether the next broadcast is sent to each node and acknowledged.
    pub(crate) fn must_replicast(&self) -> bool {
        self.sending.must_replicast()
    }

    /// The socket's option asks for replicast.
    pub(crate) fn force_replicast(&mut self) {
        self.sending.replicast_next();
    }

    /// A broadcast was sent to all members.
    pub(crate) fn sent_to_all(&mut self, cost: u32) {
        self.sending.sent_to_all(&mut self.members, cost);
    }
}
