//! A socket in a group: sending to members, and what arrives from them. Spec: tipc.md §9.

mod calls;
mod event;
mod send;
mod slow_members;

use super::call::Call;
use super::header::AFTER_LOSS;
use super::queue::charge;
use super::types::{GroupMessage, GroupMessageKind, WaitReason};
use crate::addr::{NodeAddr, PortId, ServiceAddr};
use crate::group::{Group, Ready, Refused};
use crate::time::Time;
use crate::wire::{
    Envelope, ErrorCode, EventKind, GroupControl, GroupControlKind, INTERNAL_HEADER, Message, MessageType,
};

/// A call about the group of a socket.
pub(super) struct GroupCall<'a> {
    group: &'a mut Group,
    /// Bytes of messages that wait outside of queue and group.
    waiting: u64,
    call: Call<'a>,
}

impl<'a> GroupCall<'a> {
    pub(super) fn new(group: &'a mut Group, waiting: u64, call: &'a mut Call<'_>) -> Self {
        Self { group, waiting, call: Call::new(call.base, call.uplink) }
    }

    /// Bytes of messages that wait outside of the queue.
    fn role_bytes(&self) -> u64 {
        self.waiting + self.group.bytes() as u64
    }

    /// How many more bytes messages may use.
    fn room(&self) -> u64 {
        self.call.base.room(self.role_bytes())
    }

    /// Handles members that are late.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.group.deadline().is_some_and(|at| at <= now) {
            self.group.handle_timeout(now);
            self.flush();
        }
    }

    /// Handles GROUP_PROTOCOL.
    pub(super) fn handle_control(&mut self, msg: &Message) {
        let from = member_id(msg.origin(), self.call.own());
        match GroupControl::parse(msg.view()) {
            Ok(control) if self.group.includes(from.node) => {
                self.group.control_with(from, control.kind, control.extension);
                self.flush();
            }
            _ => self.call.base.stats.dropped += 1,
        }
    }

    /// Handles a payload message: only those of members count.
    pub(super) fn handle_data(&mut self, msg: Message) {
        let own = self.call.own();
        let from = member_id(msg.origin(), own);
        let (room, request) = (self.room(), self.group.request());
        let is_own = from == member_id(PortId { port: self.call.base.port(), node: own }, own);
        if is_own && !request.loopback {
            return; // the copy of an own broadcast
        }
        let belongs = GroupMessageKind::of(msg.message_type()).is_some()
            && msg.name_type() == request.member.service
            && msg.error_code() == ErrorCode::Ok
            && self.group.includes(from.node);
        if !belongs {
            self.call.base.stats.dropped += 1;
            return;
        }
        if charge(&msg) as u64 > room {
            self.call.base.account.refuse();
            self.call.base.stats.overloads += 1;
        }
        if !self.group.receive(from, msg, room) {
            self.call.base.stats.dropped += 1;
        }
        self.flush();
    }

    /// The application has read a message of a member.
    pub(super) fn read(&mut self, msg: &Message) {
        if is_group(msg) && msg.message_type() != MessageType::GroupEvent {
            self.group.read(member_id(msg.origin(), self.call.own()), msg.size());
            self.flush();
        }
    }

    /// Sends what the group has produced, and queues what it has for the application.
    fn flush(&mut self) {
        let (own, port) = (self.call.own(), self.call.base.port());
        self.group.set_own_node(own);
        let request = self.group.request();
        let (service, is_evicted) = (request.member.service, self.group.take_eviction());
        let (ready, has_refused) = (self.group.take_ready(), self.group.take_refused());
        let mut controls = self.group.take_controls();
        if let Some(kind) = Group::left_by_many(&controls) {
            let control = control_of(port, 0, kind, self.group);
            if self.call.uplink.tell_group(service, request.scope, control) {
                controls.retain(|(to, kind)| !to.node.is_none() || !kind.is_leave());
            }
        }
        for item in ready {
            match item {
                Ready::Message(message) => self.call.base.queue.push(message),
                Ready::Event { member, instance, kind, evicted } => {
                    let kind = match kind {
                        _ if evicted => GroupMessageKind::Evicted,
                        EventKind::Withdrawn => GroupMessageKind::Left,
                        _ => GroupMessageKind::Joined,
                    };
                    let address = ServiceAddr { service, instance };
                    let to = PortId { port, node: own };
                    self.call.base.queue.push(event::message(member.on(own), address, kind, to));
                }
            }
        }
        for (to, kind) in controls {
            let node = to.node.or(own);
            let control = control_of(port, to.port, kind, self.group);
            // A member that is not reachable is gone, which is reported otherwise.
            let envelope = Envelope::between(own, node, INTERNAL_HEADER);
            let _ = self.call.uplink.submit(node, control.to_message(&envelope));
        }
        if has_refused {
            self.call.base.account.refuse();
        }
        if is_evicted {
            let _ = self.call.unbind(Some((request.member.into(), request.scope)));
        }
        self.send_kept();
    }
}

/// A protocol message of a member to another one.
fn control_of(from: u32, to: u32, kind: GroupControlKind, group: &Group) -> GroupControl {
    let extension = group.extension(kind);
    GroupControl { kind, extension, origin_port: from, dest_port: to, dest_droppable: true }
}

/// Why the group takes no message like the last one that it refused.
pub(super) fn wait_reason(group: &Group) -> Option<WaitReason> {
    let (refused, joined, window) = group.blocked_by()?;
    Some(match refused {
        Refused::Window(member) => WaitReason::MemberWindow { member: group.address(member), joined, window },
        Refused::Ack(member) => WaitReason::MemberAck { member: group.address(member) },
        Refused::NoMember => return None,
    })
}

/// The identity of a member: sockets of this node have no node, because its address may become known later.
pub(super) fn member_id(port: PortId, own: NodeAddr) -> PortId {
    PortId { node: if port.node == own { NodeAddr::NONE } else { port.node }, ..port }
}

/// Whether a message is one of a group's.
#[inline]
pub(super) fn is_group(msg: &Message) -> bool {
    let kind = msg.message_type();
    kind == MessageType::GroupEvent || GroupMessageKind::of(kind).is_some()
}

/// What a receive reports of a message of a group, and whether earlier ones are missing. Linux knows neither evictions
/// nor losses, so that only sockets that are in a `group` with a policy learn of them.
#[inline]
pub(super) fn message_properties(msg: &Message, group: Option<&Group>) -> (Option<GroupMessage>, bool) {
    if !is_group(msg) {
        return (None, false);
    }
    let has_news = group.is_some_and(|group| group.policy().has_news());
    let properties = event::describe(msg).map(|properties| match properties.kind {
        GroupMessageKind::Evicted if !has_news => GroupMessage { kind: GroupMessageKind::Left, ..properties },
        _ => properties,
    });
    let is_unicast = msg.is_data() && msg.message_type() == MessageType::GroupUcast;
    (properties, has_news && is_unicast && msg.word(10) & AFTER_LOSS != 0)
}
