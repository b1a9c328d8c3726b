//! What arrives from members: protocol messages, and messages for the application, which are put in order.
//! Spec: tipc.md §9.4, §9.6.

use super::member::{Again, Arrived, Member};
use super::policy::{ACCEPTS_EVICT, TOO_SLOW};
use super::state::{Event, MemberState};
use super::{ACTIVE_WINDOW, Group, IDLE_WINDOW, Ready, places};
use crate::addr::PortId;
use crate::wire::{EventKind, GroupControlKind, Message, MessageType, blocks};

/// An active member gets more window when it may send no more than this. Spec: tipc.md §9.4.
const ADVERTISE_ACTIVE: u32 = ACTIVE_WINDOW as u32 * 3 / 4;
/// A member that waits for a place gets more window when it may send no more than this. Ours: it must not depend on
/// other members that never give their place back.
const ADVERTISE_PENDING: u32 = IDLE_WINDOW as u32 / 2;
/// Bit of word 10: the receiver acknowledges the broadcast. Spec: tipc.md §2.1.
const ACK_REQUEST: u32 = 1;

impl Group {
    /// Handles a protocol message of the socket `from`, without extension.
    #[cfg(test)]
    pub(crate) fn control(&mut self, from: PortId, kind: GroupControlKind) {
        self.control_with(from, kind, 0);
    }

    /// Handles a protocol message of the socket `from`; `extension` is its word 8.
    pub(crate) fn control_with(&mut self, from: PortId, kind: GroupControlKind, extension: u32) {
        match kind {
            GroupControlKind::Join { sync_point, window } => {
                self.receive_join(from, (sync_point, window), extension);
            }
            GroupControlKind::Leave { sync_point } => self.receive_leave(from, sync_point, extension),
            GroupControlKind::Advertise { window } => {
                if let Some(member) = self.living(from) {
                    member.extend_window(window);
                    self.end_joining(from);
                    self.recheck(from);
                }
            }
            GroupControlKind::Ack { acked } => self.receive_ack(from, acked),
            GroupControlKind::Reclaim => self.receive_reclaim(from),
            GroupControlKind::Remit { window } => self.receive_remit(from, window.into()),
            GroupControlKind::Evict => self.receive_evict(from, extension),
        }
    }

    /// A member that does not leave.
    fn living(&mut self, port: PortId) -> Option<&mut Member> {
        let is_living =
            |member: &&mut Member| !matches!(member.state, MemberState::Leaving | MemberState::Evicted);
        self.members.get_mut(port).filter(is_living)
    }

    /// JOIN counts once in a membership: a repeated one would move the sequence point and add window.
    fn receive_join(&mut self, from: PortId, (sync_point, window): (u16, u16), extension: u32) {
        if from == self.own && !self.request.loopback || self.slow.evicted_by().is_some() {
            return;
        }
        let Some(member) = self.members.get_mut(from) else {
            self.make_room_to_join(from);
            let mut member = Member::new(MemberState::Joining, 0);
            (member.next, member.window) = (sync_point, window.min(ACTIVE_WINDOW));
            member.slow.accepts_evict = extension == ACCEPTS_EVICT;
            member.slow.has_granted = window > 0;
            self.members.add(from, member);
            return;
        };
        match member.state {
            MemberState::Leaving => {
                member.again.joined = Some((sync_point, window));
                member.again.extension = extension;
            }
            state @ (MemberState::Published | MemberState::Stranger) => {
                member.next = sync_point;
                member.slow.accepts_evict = extension == ACCEPTS_EVICT;
                member.extend_window(window);
                if state == MemberState::Stranger {
                    self.readmit(from);
                }
                self.change(from, Event::Join);
                self.begin_joining(from);
                self.advertise(from);
                self.joined(from);
            }
            _ => {}
        }
    }

    /// Makes room for one more member of its node whose binding is unknown: one of them gives way, because a correct
    /// member is not in this state for long. Those of this node are told of bindings in steps.
    fn make_room_to_join(&mut self, from: PortId) {
        if from.node.is_none() {
            return;
        }
        if let Some(port) = self.members.excess_joining(from.node) {
            self.change(port, Event::Lose);
        }
    }

    fn receive_leave(&mut self, from: PortId, sync_point: u16, extension: u32) {
        let Some(member) = self.members.get_mut(from) else { return };
        member.slow.was_evicted |= extension == TOO_SLOW && member.state.is_sender();
        match member.state {
            MemberState::Leaving if member.leaves_at.is_some() => {
                // The membership that has begun meanwhile has ended too.
                member.again = Again::default();
            }
            MemberState::Leaving => member.leaves_at = Some(sync_point),
            state if state.is_sender() => {
                member.leaves_at = Some(sync_point);
                self.change(from, Event::Leave);
            }
            _ => {
                self.change(from, Event::Leave);
            }
        }
        self.finish_leaving(from);
    }

    /// Removes a member that has left and of which everything is delivered; begins its next membership.
    fn finish_leaving(&mut self, port: PortId) {
        let Some(member) = self.members.get(port).filter(|member| member.has_left()) else { return };
        let (instance, again, was_evicted) = (member.instance, member.again, member.slow.was_evicted);
        self.change(port, Event::Lose);
        if was_evicted {
            self.report_evicted(port, instance);
        } else {
            self.report(port, instance, EventKind::Withdrawn);
        }
        if let Some(joined) = again.joined {
            self.receive_join(port, joined, again.extension);
        }
        if let Some(instance) = again.published {
            self.published(port, instance);
        }
    }

    /// An acknowledgement counts once in a round, and only if it is of the last broadcast.
    fn receive_ack(&mut self, from: PortId, acked: u16) {
        let next = self.sending.next();
        let Some(member) = self.members.get_mut(from).filter(|member| member.owes_ack && acked == next)
        else {
            return;
        };
        member.owes_ack = false;
        self.sending.acknowledged();
        self.recheck(from);
    }

    fn receive_reclaim(&mut self, from: PortId) {
        let knows =
            |member: &&mut Member| !matches!(member.state, MemberState::Joining | MemberState::Stranger);
        let Some(member) = self.living(from).filter(knows) else {
            return;
        };
        let window = member.window;
        member.window = IDLE_WINDOW;
        self.controls.push((from, GroupControlKind::Remit { window }));
        self.recheck(from);
    }

    fn receive_remit(&mut self, from: PortId, remitted: u32) {
        let Some(member) = self.members.get_mut(from) else { return };
        if member.state != MemberState::Reclaiming {
            return;
        }
        let in_flight = member.advertised.saturating_sub(remitted);
        member.advertised = u32::from(IDLE_WINDOW) + in_flight;
        self.change(from, if in_flight > 0 { Event::RemitEarly } else { Event::RemitLate });
    }

    /// Takes a message of a member; false if it is not accepted. `room` is the memory that messages may still take,
    /// bytes.
    pub(crate) fn receive(&mut self, from: PortId, message: Message, room: u64) -> bool {
        let is_accepted = self.members.accept(from, Arrived::new(message, room));
        if is_accepted {
            self.release(from);
        }
        is_accepted
    }

    /// Passes on the messages of a member that are next in its order.
    fn release(&mut self, from: PortId) {
        while let Some((member, arrived)) = self.members.next_in_order(from) {
            let is_numbered = arrived.is_numbered();
            let is_duplicate = is_numbered && arrived.message.group_seqno() != member.next;
            let is_for_others = arrived.message.message_type() == MessageType::GroupMcast
                && arrived.message.name_instance() != self.request.member.instance;
            let mut message = arrived.message;
            // The other kind of message may have this bit set, left over from a broadcast.
            let wants_ack = is_numbered && !is_duplicate && message.word(10) & ACK_REQUEST != 0;
            if is_numbered && !is_duplicate {
                member.next = member.next.wrapping_add(1);
            }
            let acked = member.next;
            if is_duplicate || is_for_others || arrived.is_lost || message.data().is_empty() {
                self.consumed(from, arrived.cost);
            } else {
                message.set_name_instance(member.instance);
                self.ready.push(Ready::Message(message));
            }
            if wants_ack {
                self.controls.push((from, GroupControlKind::Ack { acked }));
            }
        }
        self.finish_leaving(from);
    }

    /// The application has read a message of this size, header included.
    pub(crate) fn read(&mut self, from: PortId, size: usize) {
        self.consumed(from, blocks(size));
    }

    /// Blocks of a member are consumed: it may send again, within the limits of its state.
    pub(super) fn consumed(&mut self, from: PortId, cost: u32) {
        let Some(member) = self.members.get_mut(from) else { return };
        member.held = member.held.saturating_sub(cost);
        member.advertised = member.advertised.saturating_sub(cost);
        let advertised = member.advertised;
        match member.state {
            MemberState::Joined => self.activate(from),
            MemberState::Active => {
                self.places.read(from);
                if advertised <= ADVERTISE_ACTIVE {
                    self.advertise(from);
                }
            }
            MemberState::Pending if advertised <= ADVERTISE_PENDING => self.advertise(from),
            MemberState::Remitted if advertised <= IDLE_WINDOW.into() => {
                self.change(from, Event::Drain);
                self.advertise(from);
            }
            _ => {}
        }
    }

    /// A member has sent: it becomes active, or waits for a place. When few places are left, the member that was read
    /// least recently gives its place back.
    fn activate(&mut self, from: PortId) {
        let (taken, most) = (self.places.taken(), places::most(self.members.len()));
        if taken <= most {
            self.change(from, Event::Promote);
            self.advertise(from);
        } else {
            self.change(from, Event::Wait);
        }
        if taken < most * 3 / 4 {
            return;
        }
        if let Some(oldest) = self.places.least_recent() {
            self.change(oldest, Event::Reclaim);
            self.controls.push((oldest, GroupControlKind::Reclaim));
        } else if let Some(longest) = self.places.longest_pending() {
            self.change(longest, Event::Demote);
            self.advertise(longest);
        }
    }
}
