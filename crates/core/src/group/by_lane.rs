//! Members on this node whose messages go by lanes, past the windows of the group. Decision 50.

use super::policy::GroupPolicy;
use super::{Group, MemberInfo};
use crate::addr::PortId;

impl Group {
    /// Whether a member has come or gone since the last call.
    pub(crate) fn take_change(&mut self) -> bool {
        self.members.take_change()
    }

    /// The members, if all are on this node, complete, and at most `most`.
    pub(crate) fn members_here(&self, most: usize) -> Option<Vec<MemberInfo>> {
        if self.members.len() > most || self.policy() != GroupPolicy::LINUX {
            return None;
        }
        let is_here =
            |member: MemberInfo| (member.port.node.is_none() && member.state.is_complete()).then_some(member);
        self.members().map(is_here).collect()
    }

    /// Whether the socket of this node with this port is a complete member.
    pub(crate) fn knows(&self, port: u32) -> bool {
        let member = PortId { port, ..self.own };
        self.members.get(member).is_some_and(|member| member.state.is_complete())
    }

    /// A message of a member was in a lane, which its window has not counted: reading it gives no window back.
    pub(crate) fn adopted(&mut self, from: PortId, cost: u32) {
        if let Some(member) = self.members.get_mut(from) {
            member.held = member.held.saturating_add(cost);
            member.advertised = member.advertised.saturating_add(cost);
        }
    }
}
