//! Slow members under a policy: limits of time, messages that are dropped or kept, evictions. Spec: tipc.md §9.8.

use super::member::Member;
use super::policy::{ACCEPTS_EVICT, GroupPolicy, Kept, SlowCounters, TOO_SLOW};
use super::sending::{Refused, Wanted};
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
        self.slow.policy()
    }

    /// The member that has evicted the socket from the group.
    #[must_use]
    pub fn evicted_by(&self) -> Option<PortId> {
        self.slow.evicted_by().map(|by| self.address(by))
    }

    /// Sets the time of the call in progress.
    pub(crate) fn set_now(&mut self, now: Time) {
        self.slow.set_now(now);
    }

    /// When [`Self::handle_timeout`] is due. Without a policy: never.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.slow.deadline()
    }

    /// Leaves out the members that are late.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.slow.set_now(now);
        while let Some(port) = self.slow.next_late() {
            match self.members.get(port).map(|member| member.state) {
                Some(MemberState::Published) => _ = self.change(port, Event::Ignore),
                Some(_) if self.policy().never_waits() => self.give_up_joining(port),
                Some(_) => self.evict(port),
                None => {}
            }
        }
    }

    /// A member has joined, and its first window has yet to arrive: sends wait for it, with every policy.
    pub(super) fn begin_joining(&mut self, port: PortId) {
        if self.policy().never_waits() && self.is_joining(port) {
            self.slow.limit(port, JOIN_TIME);
        }
    }

    /// A member has granted a window.
    pub(super) fn end_joining(&mut self, port: PortId) {
        let is_published =
            self.members.get(port).is_some_and(|member| member.state == MemberState::Published);
        if self.policy().never_waits() && !is_published {
            self.slow.end_limit(port);
        }
    }

    /// A member has not granted its first window in time: it counts as slow from now on.
    fn give_up_joining(&mut self, port: PortId) {
        if let Some(member) = self.members.get_mut(port) {
            member.slow.has_granted = true;
            self.sending.forget_refused();
        }
    }

    /// Whether a member has joined and has not granted a window yet.
    pub(crate) fn is_joining(&self, port: PortId) -> bool {
        self.members.get(port).is_some_and(|member| member.is_complete() && !member.slow.has_granted)
    }

    /// Leaves a member out, because it holds this socket up. One that accepts it leaves the group, which all members
    /// see; any other one sees this socket leave.
    fn evict(&mut self, port: PortId) {
        let Some(member) = self.members.get(port) else { return };
        let (instance, accepts) = (member.instance, member.slow.accepts_evict);
        let sync_point = self.sending.next();
        if self.change(port, Event::Evict) {
            let kind = if accepts { GroupControlKind::Evict } else { GroupControlKind::Leave { sync_point } };
            self.controls.push((port, kind));
            self.report_evicted(port, instance);
        }
    }

    /// A member evicts this socket: it leaves, and all members learn why.
    pub(super) fn receive_evict(&mut self, from: PortId, extension: u32) {
        let is_member = self.members.get(from).is_some_and(|member| member.state.is_sender());
        if is_member && self.policy().accepts_evict() && extension == TOO_SLOW {
            self.leave();
            self.slow.evicted(from);
            let (kind, instance) = (EventKind::Withdrawn, self.request.member.instance);
            // Also without events: it explains why nothing can be sent any more.
            self.ready.push(Ready::Event { member: self.own, instance, kind, evicted: true });
        }
    }

    /// Whether the socket was evicted since the last call: its binding is to be withdrawn.
    pub(crate) fn take_eviction(&mut self) -> bool {
        self.slow.take_eviction()
    }

    /// Word 8 of a protocol message of this socket.
    pub(crate) fn extension(&self, kind: GroupControlKind) -> u32 {
        match kind {
            GroupControlKind::Join { .. } if self.policy().accepts_evict() => ACCEPTS_EVICT,
            GroupControlKind::Leave { .. } if self.slow.evicted_by().is_some() => TOO_SLOW,
            GroupControlKind::Evict => TOO_SLOW,
            _ => 0,
        }
    }

    pub(super) fn report_evicted(&mut self, member: PortId, instance: u32) {
        if self.request.events {
            let (kind, evicted) = (EventKind::Withdrawn, self.policy().has_news());
            self.ready.push(Ready::Event { member, instance, kind, evicted });
        }
    }

    /// A socket joins that was no member so far. It may have ignored the JOIN that it got before it joined.
    pub(super) fn readmit(&mut self, port: PortId) {
        let sync_point = self.sending.next();
        self.sending.replicast_next();
        self.controls.push((port, GroupControlKind::Join { sync_point, window: 0 }));
    }

    /// How a message to all members, or to those with `instance`, is sent without waiting for a window.
    pub(crate) fn spread(&mut self, instance: Option<u32>, cost: u32) -> Result<Spread, Refused> {
        let is_meant = |member: &Member| {
            member.is_complete() && instance.is_none_or(|instance| member.instance == instance)
        };
        // A member that is to learn of its loss gets a message of its own. A broadcast reaches sockets that have not
        // joined, and would overtake this socket's JOIN to them.
        let takes_part =
            |member: &Member| member.is_complete() && member.has_room(cost) && !member.slow.is_missing;
        if !self.members.iter().any(|(_, member)| is_meant(member)) {
            return Err(Refused::NoMember);
        }
        let is_joining = |member: &Member| is_meant(member) && !member.slow.has_granted;
        let joining = self.members.receivers().find(|(_, member)| is_joining(member));
        if let Some(port) = joining.map(|(port, _)| *port) {
            return self.attempt(Wanted::Member(port), cost).map(|_| Spread::All);
        }
        if self.members.receivers().all(|(_, member)| takes_part(member)) {
            return self.attempt(Wanted::All, cost).map(|_| Spread::All);
        }
        let copies = self.members.receivers().filter(|(_, member)| is_meant(member));
        let copies = copies.map(|(port, member)| (*port, member.has_room(cost))).collect();
        self.sending.forget_refused();
        Ok(Spread::Copies(copies))
    }

    /// Forgets the sends that were refused: none of them waits.
    pub(crate) fn forget_refused(&mut self) {
        self.sending.forget_refused();
    }

    /// Whether a member has joined and has no room for a message, or gets earlier ones first.
    pub(crate) fn is_slow(&self, port: PortId, cost: u32) -> bool {
        let is_slow = |member: &Member| member.slow.has_granted && !member.has_room(cost);
        self.members.get(port).is_some_and(|member| member.is_complete() && is_slow(member))
    }

    /// Whether messages for a member are missing since the last one that it got.
    pub(crate) fn is_missing(&self, port: PortId) -> bool {
        self.members.get(port).is_some_and(|member| member.slow.is_missing)
    }

    /// A member does not get a message now: it is dropped, or kept by its key. `room`: memory that messages may still
    /// take, bytes.
    pub(crate) fn skip(&mut self, port: PortId, key: u64, message: Kept, room: u64) {
        // It may wait for this socket in the same way.
        self.advertise(port);
        if let Some(member) = self.members.get_mut(port) {
            self.slow.skip(port, &mut member.slow, key, message, room);
        }
    }

    /// A message that was kept for a member could not be sent.
    pub(crate) fn lost_kept(&mut self, port: PortId) {
        if let Some(member) = self.members.get_mut(port) {
            member.slow.dropped += 1;
            member.slow.is_missing = true;
        }
    }

    /// Takes the next message that a member now has room for. The links to `congested` nodes take nothing.
    pub(crate) fn take_kept(&mut self, congested: impl Fn(NodeAddr) -> bool) -> Option<(PortId, Kept)> {
        self.slow.take_kept(&mut self.members, congested)
    }
}
