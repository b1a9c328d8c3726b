//! Lists of groups: the sockets of this node in groups, and the members that each of them knows.

use utipc_core::addr::{NodeAddr, PortId};
use utipc_core::group::{GroupPolicy, MemberInfo, SlowMember};
use utipc_core::socket::{Endpoint, WaitReason};
use utipc_manage::{Entry, Group, GroupMember, Refusal};

use super::{Access, LIST_ITEMS, Part, invalid};

impl Access<'_> {
    /// By group, then by port. A position has the group in its upper half.
    pub(super) fn show_groups(&self, from: u64) -> Part {
        let all = self.driver.stack.sockets_in_groups_from(high(from), low(from)).take(LIST_ITEMS);
        all.filter_map(|(group, port, endpoint)| {
            let entry = Entry::Group(self.group(port, endpoint)?);
            Some((position(group, port).saturating_add(1), entry))
        })
        .collect()
    }

    fn group(&self, port: u32, endpoint: &Endpoint) -> Option<Group> {
        let group = endpoint.group()?;
        let request = group.request();
        let process = self.process(port, endpoint);
        let waits_for_member = endpoint.wait_reason().filter(|reason| {
            matches!(reason, WaitReason::MemberWindow { .. } | WaitReason::MemberAck { .. })
        });
        Some(Group {
            port,
            service: request.member.service,
            instance: request.member.instance,
            scope: request.scope.number().into(),
            loopback: request.loopback,
            events: request.events,
            members: u32::try_from(group.member_count()).unwrap_or(u32::MAX),
            pid: process.pid,
            uid: process.uid,
            program: process.program,
            wait: waits_for_member.map(|reason| reason.to_string()),
            policy: policy(group.policy()),
            evicted: group.evicted_by().map(|by| by.to_string()),
        })
    }

    /// By port, then by node, as in the group. A position has the port in its upper half.
    pub(super) fn show_group_members(&self, port: u32, from: u64) -> Result<Part, Refusal> {
        let group = self.driver.stack.endpoint(port).and_then(Endpoint::group);
        let Some(group) = group else {
            return Err(invalid(format!("socket {port} is not in a group")));
        };
        let own = self.driver.stack.own_node();
        let first = PortId { port: high(from), node: NodeAddr(low(from)) };
        let all = group.members_from(first).take(LIST_ITEMS);
        Ok(all
            .map(|member| {
                let after = position(member.port.port, member.port.node.0).saturating_add(1);
                (after, Entry::GroupMember(entry(&member, own)))
            })
            .collect())
    }
}

/// The policy for slow members as text; `None` is Linux's policy.
fn policy(policy: GroupPolicy) -> Option<String> {
    let mut text = match policy.slow {
        SlowMember::Conflate { keys, bytes } => format!("conflate, {keys} keys and {bytes} bytes each"),
        SlowMember::Evict { after_ms } => format!("evict after {after_ms} ms"),
        slow => slow.name().to_owned(),
    };
    if policy.ignores_bindings {
        text.push_str(", ignores sockets that never join");
    }
    (policy != GroupPolicy::LINUX).then_some(text)
}

fn entry(member: &MemberInfo, own: NodeAddr) -> GroupMember {
    let node = member.port.node.or(own);
    GroupMember {
        port: member.port.port,
        node: node.0,
        instance: member.instance,
        state: member.state.name().to_owned(),
        window: member.window.into(),
        granted: member.advertised,
        unread: member.unread,
        deferred: u32::try_from(member.deferred).unwrap_or(u32::MAX),
        dropped: member.slow.dropped,
        conflated: member.slow.conflated,
        kept: member.slow.kept,
    }
}

fn position(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn high(position: u64) -> u32 {
    (position >> 32) as u32
}

fn low(position: u64) -> u32 {
    (position & 0xffff_ffff) as u32
}
