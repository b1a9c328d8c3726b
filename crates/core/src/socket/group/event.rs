//! Messages of a group as an application sees them: member events, and copies that stand for a broadcast or multicast.
//! Spec: tipc.md §2.1, §9.7, §9.8.

use crate::addr::{PortId, ServiceAddr, ServiceRange};
use crate::socket::header::{COPY_OF_BROADCAST, COPY_OF_MULTICAST};
use crate::socket::types::{GroupMessage, GroupMessageKind};
use crate::wire::{
    ByteOrder, EventKind, Filter, MULTICAST_HEADER, Message, MessageType, Subscription, TopologyEvent, User,
};

/// Kind of the event that a member has joined, in word 10. Spec: tipc.md §2.1.
const JOINED: u32 = 1;
/// Kind of the event that a member has left.
const LEFT: u32 = 2;
/// Kind of the event that a member was evicted. Ours; no other node sees it.
const EVICTED: u32 = 3;

/// The properties of a message of a group. Its instance is that of the sending member.
pub(super) fn describe(msg: &Message) -> Option<GroupMessage> {
    let kind = match msg.message_type() {
        MessageType::GroupUcast if msg.word(10) & COPY_OF_BROADCAST != 0 => GroupMessageKind::Broadcast,
        MessageType::GroupUcast if msg.word(10) & COPY_OF_MULTICAST != 0 => GroupMessageKind::Multicast,
        MessageType::GroupEvent => match msg.word(10) {
            LEFT => GroupMessageKind::Left,
            EVICTED => GroupMessageKind::Evicted,
            _ => GroupMessageKind::Joined,
        },
        payload => GroupMessageKind::of(payload)?,
    };
    Some(GroupMessage { member: msg.service(), kind })
}

/// The message by which the socket `to` learns that a member has joined, left, or was evicted. Spec: tipc.md §9.7.
pub(super) fn message(from: PortId, member: ServiceAddr, kind: GroupMessageKind, to: PortId) -> Message {
    let (event, number) = match kind {
        GroupMessageKind::Evicted => (EventKind::Withdrawn, EVICTED),
        GroupMessageKind::Left => (EventKind::Withdrawn, LEFT),
        _ => (EventKind::Published, JOINED),
    };
    let range: ServiceRange = member.into();
    let subscription = Subscription { range, timeout_ms: 0, filter: Filter::default(), handle: [0; 8] };
    let event = TopologyEvent { kind: event, found: range, port: from, subscription };
    let data = event.to_bytes(ByteOrder::NATIVE);
    let mut msg = Message::build(User::Critical, MessageType::GroupEvent.into(), MULTICAST_HEADER, &data);
    msg.set_dest_droppable(true);
    msg.set_prev_node(from.node);
    msg.set_origin_node(from.node);
    msg.set_origin_port(from.port);
    msg.set_dest_node(to.node);
    msg.set_dest_port(to.port);
    msg.set_name_type(member.service);
    msg.set_name_instance(member.instance);
    msg.set_word(10, number);
    msg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_described_as_it_was_built() {
        let (from, to) = (PortId { port: 7, ..PortId::default() }, PortId { port: 8, ..PortId::default() });
        let member = ServiceAddr { service: 4300, instance: 1 };
        for kind in [GroupMessageKind::Joined, GroupMessageKind::Left, GroupMessageKind::Evicted] {
            let event = message(from, member, kind, to);
            assert_eq!(describe(&event), Some(GroupMessage { member, kind }));
            assert_eq!((event.origin(), event.dest_port()), (from, 8));
        }
    }
}
