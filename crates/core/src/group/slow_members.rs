//! What the policy of a socket keeps about slow members: when they are too late, messages that wait for their windows,
//! and an eviction of the socket itself. Spec: tipc.md §9.8.

use std::collections::BTreeSet;
use std::time::Duration;

use super::JOIN_TIME;
use super::member::{Member, Slow};
use super::members::Members;
use super::policy::{GroupPolicy, Kept, SlowMember};
use super::sending::{Sending, Wanted};
use super::state::MemberState;
use crate::addr::{NodeAddr, PortId};
use crate::time::Time;
use crate::waiting::Waiters;

/// The policy, and what follows from it.
#[derive(Debug)]
pub(super) struct SlowMembers {
    policy: GroupPolicy,
    /// The time of the call in progress.
    now: Time,
    /// Members that a send waits for, or that have not joined, by the time when they become too late.
    late: Waiters<PortId, Time>,
    /// Members for which messages are kept.
    keeping: BTreeSet<PortId>,
    kept_bytes: usize,
    /// The member that has evicted this socket. It is in the group without members until it leaves.
    evicted_by: Option<PortId>,
    /// The endpoint has yet to learn it.
    is_evicted: bool,
}

impl SlowMembers {
    pub(super) fn new(policy: GroupPolicy) -> Self {
        Self {
            policy,
            now: Time::ZERO,
            late: Waiters::default(),
            keeping: BTreeSet::new(),
            kept_bytes: 0,
            evicted_by: None,
            is_evicted: false,
        }
    }

    pub(super) fn policy(&self) -> GroupPolicy {
        self.policy
    }

    pub(super) fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// When the first member is too late.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.late.first().map(|(at, _)| at)
    }

    /// The next member that is too late now.
    pub(super) fn next_late(&mut self) -> Option<PortId> {
        self.late.pop_up_to(self.now)
    }

    /// A member is too late after this time, unless its time has begun before.
    pub(super) fn limit(&mut self, port: PortId, after: Duration) {
        self.late.join(port, self.now + after);
    }

    /// A member is not late.
    pub(super) fn end_limit(&mut self, port: PortId) {
        self.late.leave(port);
    }

    /// A send has to wait: for each member that it waits for the time begins.
    pub(super) fn begin_limits(&mut self, members: &Members, wanted: Wanted, cost: u32) {
        let Some(limit) = self.policy.limit() else { return };
        for (port, member) in members.iter().filter(|(port, member)| wanted.waits_for(cost, **port, member)) {
            // The first window comes with the answer to this socket's JOIN, not from the application.
            self.limit(*port, if member.slow.has_granted { limit } else { limit.max(JOIN_TIME) });
        }
    }

    /// Ends the time of a member that holds up no send any more.
    pub(super) fn review(&mut self, port: PortId, member: &Member, sending: &Sending) {
        let has_limit = self.policy.limit().is_some() && self.late.contains(port);
        if has_limit && member.state != MemberState::Published && !sending.is_held_up_by(port, member) {
            self.late.leave(port);
        }
    }

    /// A member gets no more messages; `kept` bytes of them were forgotten.
    pub(super) fn forget(&mut self, port: PortId, kept: usize) {
        self.late.leave(port);
        self.keeping.remove(&port);
        self.kept_bytes -= kept;
    }

    /// Memory of the messages kept for slow members, bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// A member does not get a message now: it is dropped, or kept by its key. `room`: memory that messages may still
    /// take, bytes.
    pub(super) fn skip(&mut self, port: PortId, slow: &mut Slow, key: u64, message: Kept, room: u64) {
        let (conflated, dropped) = match self.policy.slow {
            SlowMember::Conflate { keys, bytes } => {
                self.kept_bytes -= slow.backlog.bytes();
                let lost = slow.backlog.keep(key, message, keys, bytes, room);
                self.kept_bytes += slow.backlog.bytes();
                if slow.backlog.is_empty() {
                    self.keeping.remove(&port);
                } else {
                    self.keeping.insert(port);
                }
                lost
            }
            _ => (0, 1),
        };
        slow.conflated += conflated;
        slow.dropped += dropped;
        slow.is_missing |= conflated + dropped > 0;
    }

    /// Takes the next message that a member now has room for. The links to `congested` nodes take nothing.
    pub(super) fn take_kept(
        &mut self,
        members: &mut Members,
        congested: impl Fn(NodeAddr) -> bool,
    ) -> Option<(PortId, Kept)> {
        let port = self.keeping.iter().copied().find(|port| {
            let Some(member) = members.get(*port) else { return false };
            let cost = member.slow.backlog.front().map_or(u32::MAX, |kept| kept.cost);
            u32::from(member.window) >= cost && !congested(port.node)
        })?;
        let backlog = &mut members.get_mut(port)?.slow.backlog;
        let before = backlog.bytes();
        let kept = backlog.pop()?;
        self.kept_bytes -= before - backlog.bytes();
        if backlog.is_empty() {
            self.keeping.remove(&port);
        }
        Some((port, kept))
    }

    /// The socket has left: there is no member.
    pub(super) fn leave(&mut self) {
        self.late.clear();
        self.keeping.clear();
        self.kept_bytes = 0;
    }

    /// A member has evicted this socket.
    pub(super) fn evicted(&mut self, by: PortId) {
        (self.evicted_by, self.is_evicted) = (Some(by), true);
    }

    pub(super) fn evicted_by(&self) -> Option<PortId> {
        self.evicted_by
    }

    /// Whether the socket was evicted since the last call.
    pub(super) fn take_eviction(&mut self) -> bool {
        core::mem::take(&mut self.is_evicted)
    }

    /// The members with a limit, and those for which messages are kept.
    #[cfg(test)]
    pub(super) fn members(&self) -> (BTreeSet<PortId>, BTreeSet<PortId>) {
        (self.late.iter().collect(), self.keeping.clone())
    }
}
