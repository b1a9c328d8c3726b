//! Slow members under a policy: limits of time, messages that are dropped or kept, evictions. Spec: tipc.md §9.8.

use std::time::Duration;

use super::member::Member;
use super::policy::{ACCEPTS_EVICT, GroupPolicy, Kept, SlowCounters, SlowMember, TOO_SLOW};
use super::send::{Refused, Wanted};
use super::state::{Event, MemberState};
use super::{Group, JOIN_TIME, Ready};
use crate::addr::{NodeAddr, PortId};
use crate::time::Time;
use crate::wire::{EventKind, GroupControlKind};

/// How a message reaches its receivers without waiting for one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Once, to all members.
    All,
    /// To each of these members alone; false: it has no room, or earlier messages wait for it.
    Copies(Vec<(PortId, bool)>),
}

impl Member {
    pub(super) fn slow_counters(&self) -> SlowCounters {
        let slow = &self.slow;
        SlowCounters { dropped: slow.dropped, conflated: slow.conflated, kept: slow.backlog.len() as u32 }
    }

    /// Whether it gets messages: a socket that has not joined is no member yet.
    fn is_complete(&self) -> bool {
        self.state.is_receiver() && self.state != MemberState::Published
    }

    /// Whether a message may be sent to it, and need not wait for earlier ones.
    pub(super) fn has_room(&self, cost: u32) -> bool {
        u32::from(self.window) >= cost && self.slow.backlog.is_empty()
    }
}

impl Group {
    /// The policy of the socket.
    #[must_use]
    pub fn policy(&self) -> GroupPolicy {
        self.policy
    }

    /// The member that has evicted the socket from the group.
    #[must_use]
    pub fn evicted_by(&self) -> Option<PortId> {
        self.evicted_by.map(|by| self.address(by))
    }

    /// Sets the time of the call in progress.
    pub(crate) fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// When [`Self::handle_timeout`] is due. Without a policy: never.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.late.first().map(|(at, _)| *at)
    }

    /// Leaves out the members that are late.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        while let Some((_, port)) = self.late.first().copied().filter(|(at, _)| *at <= now) {
            self.clear_late(port);
            match self.members.get(&port).map(|member| member.state) {
                Some(MemberState::Published) => _ = self.change(port, Event::Ignore),
                Some(_) if self.policy.never_waits() => self.give_up_joining(port),
                Some(_) => self.evict(port),
                None => {}
            }
        }
    }

    pub(super) fn set_late(&mut self, port: PortId, after: Duration) {
        let at = self.now + after;
        if let Some(member) = self.members.get_mut(&port)
            && member.slow.late_at.is_none()
        {
            member.slow.late_at = Some(at);
            self.late.insert((at, port));
        }
    }

    /// A member has joined, and its first window has yet to arrive: sends wait for it, with every policy.
    pub(super) fn begin_joining(&mut self, port: PortId) {
        if self.policy.never_waits() && self.is_joining(port) {
            self.set_late(port, JOIN_TIME);
        }
    }

    /// A member has granted a window.
    pub(super) fn end_joining(&mut self, port: PortId) {
        let is_published =
            self.members.get(&port).is_some_and(|member| member.state == MemberState::Published);
        if self.policy.never_waits() && !is_published {
            self.clear_late(port);
        }
    }

    /// A member has not granted its first window in time: it counts as slow from now on.
    fn give_up_joining(&mut self, port: PortId) {
        if let Some(member) = self.members.get_mut(&port) {
            member.slow.has_granted = true;
            self.blocked.clear();
        }
    }

    /// Whether a member has joined and has not granted a window yet.
    pub(crate) fn is_joining(&self, port: PortId) -> bool {
        self.members.get(&port).is_some_and(|member| member.is_complete() && !member.slow.has_granted)
    }

    fn clear_late(&mut self, port: PortId) {
        let late_at = self.members.get_mut(&port).and_then(|member| member.slow.late_at.take());
        if let Some(at) = late_at {
            self.late.remove(&(at, port));
        }
    }

    /// A send has to wait: for each member that it waits for the time begins.
    pub(super) fn start_limits(&mut self, wanted: Wanted, cost: u32) {
        let Some(limit) = self.policy.limit() else { return };
        let all = self.members.iter().filter(|(port, member)| holds_up(wanted, cost, **port, member));
        // The first window comes with the answer to this socket's JOIN, not from the application.
        let all: Vec<(PortId, bool)> = all.map(|(port, member)| (*port, member.slow.has_granted)).collect();
        for (port, has_granted) in all {
            self.set_late(port, if has_granted { limit } else { limit.max(JOIN_TIME) });
        }
    }

    /// Ends the time of a member that holds up no send any more.
    pub(super) fn review_limit(&mut self, port: PortId) {
        let Some(member) = self.members.get(&port) else { return };
        let has_limit = member.slow.late_at.is_some() && self.policy.limit().is_some();
        if !has_limit || member.state == MemberState::Published {
            return;
        }
        if !self.blocked.iter().any(|blocked| holds_up(blocked.wanted, blocked.cost, port, member)) {
            self.clear_late(port);
        }
    }

    /// Leaves a member out, because it holds this socket up. One that accepts it leaves the group, which all members
    /// see; any other one sees this socket leave.
    fn evict(&mut self, port: PortId) {
        let Some(member) = self.members.get(&port) else { return };
        let (instance, accepts) = (member.instance, member.slow.accepts_evict);
        let sync_point = self.next;
        if self.change(port, Event::Evict) {
            let kind = if accepts { GroupControlKind::Evict } else { GroupControlKind::Leave { sync_point } };
            self.controls.push((port, kind));
            self.report_evicted(port, instance);
        }
    }

    /// A member evicts this socket: it leaves, and all members learn why.
    pub(super) fn receive_evict(&mut self, from: PortId, extension: u32) {
        let is_member = self.members.get(&from).is_some_and(|member| member.state.is_sender());
        if is_member && self.policy.accepts_evict() && extension == TOO_SLOW {
            self.leave();
            (self.evicted_by, self.is_evicted) = (Some(from), true);
            let (kind, instance) = (EventKind::Withdrawn, self.request.member.instance);
            // Also without events: it explains why nothing can be sent any more.
            self.ready.push(Ready::Event { member: self.own, instance, kind, evicted: true });
        }
    }

    /// Whether the socket was evicted since the last call: its binding is to be withdrawn.
    pub(crate) fn take_eviction(&mut self) -> bool {
        core::mem::take(&mut self.is_evicted)
    }

    /// Word 8 of a protocol message of this socket.
    pub(crate) fn extension(&self, kind: GroupControlKind) -> u32 {
        match kind {
            GroupControlKind::Join { .. } if self.policy.accepts_evict() => ACCEPTS_EVICT,
            GroupControlKind::Leave { .. } if self.evicted_by.is_some() => TOO_SLOW,
            GroupControlKind::Evict => TOO_SLOW,
            _ => 0,
        }
    }

    pub(super) fn report_evicted(&mut self, member: PortId, instance: u32) {
        if self.request.events {
            let (kind, evicted) = (EventKind::Withdrawn, self.policy.has_news());
            self.ready.push(Ready::Event { member, instance, kind, evicted });
        }
    }

    /// A socket joins that was no member so far. It may have ignored the JOIN that it got before it joined.
    pub(super) fn readmit(&mut self, port: PortId) {
        let sync_point = self.next;
        self.must_replicast = true;
        self.controls.push((port, GroupControlKind::Join { sync_point, window: 0 }));
    }

    /// Forgets what the policy keeps for a member that gets no more messages.
    pub(super) fn forget_slow(&mut self, port: PortId) {
        self.clear_late(port);
        if self.keeping.remove(&port)
            && let Some(member) = self.members.get_mut(&port)
        {
            let lost = core::mem::take(&mut member.slow.backlog);
            member.slow.dropped += lost.len() as u64;
            self.kept_bytes -= lost.bytes();
        }
    }

    /// How a message to all members, or to those with `instance`, is sent without waiting for a window.
    pub(crate) fn spread(&mut self, instance: Option<u32>, cost: u32) -> Result<Spread, Refused> {
        let is_meant = |member: &Member| {
            member.is_complete() && instance.is_none_or(|instance| member.instance == instance)
        };
        let all = &self.members;
        let receivers = || all.iter().filter(|(_, member)| member.state.is_receiver());
        // A member that is to learn of its loss gets a message of its own. A broadcast reaches sockets that have not
        // joined, and would overtake this socket's JOIN to them.
        let takes_part =
            |member: &Member| member.is_complete() && member.has_room(cost) && !member.slow.is_missing;
        if !self.members.values().any(is_meant) {
            return Err(Refused::NoMember);
        }
        let joining = receivers().find(|(_, member)| is_meant(member) && !member.slow.has_granted);
        if let Some(port) = joining.map(|(port, _)| *port) {
            return self.attempt(Wanted::Member(port), cost).map(|_| Spread::All);
        }
        if receivers().all(|(_, member)| takes_part(member)) {
            return self.attempt(Wanted::All, cost).map(|_| Spread::All);
        }
        let copies = receivers().filter(|(_, member)| is_meant(member));
        let copies = copies.map(|(port, member)| (*port, member.has_room(cost))).collect();
        self.blocked.clear();
        Ok(Spread::Copies(copies))
    }

    /// Forgets the sends that were refused: none of them waits.
    pub(crate) fn forget_refused(&mut self) {
        self.blocked.clear();
    }

    /// Whether a member has joined and has no room for a message, or gets earlier ones first.
    pub(crate) fn is_slow(&self, port: PortId, cost: u32) -> bool {
        let is_slow = |member: &Member| member.slow.has_granted && !member.has_room(cost);
        self.members.get(&port).is_some_and(|member| member.is_complete() && is_slow(member))
    }

    /// Whether messages for a member are missing since the last one that it got.
    pub(crate) fn is_missing(&self, port: PortId) -> bool {
        self.members.get(&port).is_some_and(|member| member.slow.is_missing)
    }

    /// A member does not get a message now: it is dropped, or kept by its key. `room`: memory that messages may still
    /// take, bytes.
    pub(crate) fn skip(&mut self, port: PortId, key: u64, message: Kept, room: u64) {
        // It may wait for this socket in the same way.
        self.advertise(port);
        let Some(member) = self.members.get_mut(&port) else { return };
        let slow = &mut member.slow;
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

    /// A message that was kept for a member could not be sent.
    pub(crate) fn lost_kept(&mut self, port: PortId) {
        if let Some(member) = self.members.get_mut(&port) {
            member.slow.dropped += 1;
            member.slow.is_missing = true;
        }
    }

    /// Takes the next message that a member now has room for. The links to `congested` nodes take nothing.
    pub(crate) fn take_kept(&mut self, congested: impl Fn(NodeAddr) -> bool) -> Option<(PortId, Kept)> {
        let port = self.keeping.iter().copied().find(|port| {
            let Some(member) = self.members.get(port) else { return false };
            let cost = member.slow.backlog.front().map_or(u32::MAX, |kept| kept.cost);
            u32::from(member.window) >= cost && !congested(port.node)
        })?;
        let backlog = &mut self.members.get_mut(&port)?.slow.backlog;
        let before = backlog.bytes();
        let kept = backlog.pop()?;
        self.kept_bytes -= before - backlog.bytes();
        if backlog.is_empty() {
            self.keeping.remove(&port);
        }
        Some((port, kept))
    }
}

/// Whether a member is one that a send waits for.
fn holds_up(wanted: Wanted, cost: u32, port: PortId, member: &Member) -> bool {
    let is_meant = match wanted {
        Wanted::Member(wanted) => port == wanted,
        Wanted::Instance(instance) => member.instance == instance,
        Wanted::All => true,
    };
    let lacks_room = u32::from(member.window) < cost || wanted == Wanted::All && member.owes_ack;
    is_meant && member.state.is_receiver() && lacks_room
}
