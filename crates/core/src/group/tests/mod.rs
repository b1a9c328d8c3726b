//! A group of one socket, with members on another node that exist only as what they send.

mod hostile;
mod membership;
mod order;
mod slow;
mod windows;

use super::*;
use crate::wire::{GroupControlKind as Control, MULTICAST_HEADER, MessageType, User};

const PEER: NodeAddr = NodeAddr(0x0100_1002);
/// Enough memory for everything.
const ROOM: u64 = 1 << 30;

fn port(number: u32) -> PortId {
    PortId { port: number, node: PEER }
}

/// A group with events; the socket's instance is 1.
fn group() -> Group {
    Group::new(GroupRequest::new(4300, 1).with_events(), 1000)
}

/// A member with instance 2 that has joined; what that has produced is taken.
fn join(group: &mut Group, number: u32) -> PortId {
    let member = port(number);
    group.published(member, 2);
    group.control(member, Control::Join { sync_point: 0, window: 0 });
    group.control(member, Control::Advertise { window: IDLE_WINDOW });
    assert_eq!(state(group, member), Some(MemberState::Joined));
    group.take_controls();
    group.take_ready();
    member
}

fn joined_group(members: u32) -> (Group, Vec<PortId>) {
    let mut group = group();
    let members = (1..=members).map(|number| join(&mut group, number)).collect();
    (group, members)
}

fn state(group: &Group, member: PortId) -> Option<MemberState> {
    info(group, member).map(|member| member.state)
}

fn info(group: &Group, member: PortId) -> Option<MemberInfo> {
    group.members().find(|info| info.port == member)
}

/// A message of a member with `data` bytes, of which the first is `mark`.
fn message(kind: MessageType, seqno: u16, mark: u8, data: usize) -> Message {
    let mut bytes = vec![0; data];
    bytes[0] = mark;
    let mut message = Message::build(User::Low, kind.into(), MULTICAST_HEADER, &bytes);
    message.set_name_type(4300);
    message.set_group_seqno(seqno);
    message
}

fn broadcast(seqno: u16, mark: u8) -> Message {
    message(MessageType::GroupBcast, seqno, mark, 10)
}

fn unicast(seqno: u16, mark: u8) -> Message {
    message(MessageType::GroupUcast, seqno, mark, 10)
}

/// The marks of the messages that are ready, `+` for a member that has joined and `-` for one that has left.
fn ready(group: &mut Group) -> String {
    let all = group.take_ready().into_iter().map(|item| match item {
        Ready::Message(message) => char::from(message.data()[0]),
        Ready::Event { kind: EventKind::Published, .. } => '+',
        Ready::Event { .. } => '-',
    });
    all.collect()
}

/// A member sends a unicast, which is read at once.
fn send_and_read(group: &mut Group, member: PortId, data: usize) {
    let message = message(MessageType::GroupUcast, 0, b'x', data);
    let size = message.size();
    assert!(group.receive(member, message, ROOM));
    group.take_ready();
    group.read(member, size);
}
