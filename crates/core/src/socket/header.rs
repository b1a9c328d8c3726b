//! The header of a payload message. Everything that builds one calls [`header`]: an endpoint, and a process that writes
//! messages into a lane. Spec: tipc.md §2.2.

use super::options::{OptionValue, SocketOption};
use super::types::SocketKind;
use crate::addr::{Importance, PortId, Scope, ServiceAddr, ServiceRange};
use crate::group::CopyOf;
use crate::wire::{DataHeader, MessageType};

/// The options of a socket that appear in the headers of its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOptions {
    /// Importance.
    pub importance: Importance,
    /// A message may be dropped at the sender.
    pub source_droppable: bool,
    /// The receiver may drop a message instead of returning it.
    pub dest_droppable: bool,
}

impl SendOptions {
    /// The defaults of a kind. Spec: tipc.md §8.1.
    #[must_use]
    pub fn new(kind: SocketKind) -> Self {
        Self {
            importance: Importance::Low,
            source_droppable: kind == SocketKind::Dgram,
            dest_droppable: !kind.is_connection_oriented(),
        }
    }

    /// Applies an option that the node has accepted.
    pub fn set(&mut self, option: SocketOption, value: OptionValue) {
        let OptionValue::Number(n) = value else { return };
        match option {
            SocketOption::Importance => {
                self.importance = Importance::from_number(n).unwrap_or(self.importance);
            }
            SocketOption::SourceDroppable => self.source_droppable = n != 0,
            SocketOption::DestDroppable => self.dest_droppable = n != 0,
            _ => {}
        }
    }
}

/// How a message is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// On a connection.
    Connection,
    /// To a socket.
    Direct,
    /// Anycast to a service address; the [number](Scope::number) of the lookup's scope.
    Named(ServiceAddr, u8),
    /// Multicast to a service range.
    Multicast(ServiceRange),
    /// To members of a group.
    Group(GroupAddress),
}

/// How a message to members of a group is addressed. Spec: tipc.md §9.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupAddress {
    /// Unicast, multicast or broadcast of a group.
    pub kind: MessageType,
    /// The group, and the instance of the members that get a multicast.
    pub member: ServiceAddr,
    /// Scope of the group.
    pub scope: Scope,
    /// Number of this broadcast or multicast; of a unicast, the number of the next one.
    pub seqno: u16,
    /// Every receiver acknowledges it.
    pub ack_request: bool,
    /// What the application sent, if this is a message to one member.
    pub copy_of: CopyOf,
    /// Messages of this socket to this member are missing since the one before.
    pub after_loss: bool,
}

/// Bit of word 10: the receiver acknowledges the broadcast. Spec: tipc.md §2.1.
const ACK_REQUEST: u32 = 1;
/// Bit of word 10 of a unicast: a copy of a broadcast. Ours, as the next two. Spec: tipc.md §9.8.
pub(super) const COPY_OF_BROADCAST: u32 = 2;
/// A copy of a multicast.
pub(super) const COPY_OF_MULTICAST: u32 = 4;
/// Messages before this one are missing.
pub(super) const AFTER_LOSS: u32 = 8;

/// The header of a message with `data` bytes from the socket `own` to the socket `to`.
#[inline]
#[must_use]
pub fn header(options: SendOptions, own: PortId, to: PortId, address: Address, data: usize) -> DataHeader {
    let kind = match address {
        Address::Connection => MessageType::Conn,
        Address::Direct => MessageType::Direct,
        Address::Named(..) => MessageType::Named,
        Address::Multicast(_) => MessageType::Mcast,
        Address::Group(group) => group.kind,
    };
    let mut header = DataHeader::of_data(options.importance, kind, data);
    header.set_dest_droppable(options.dest_droppable);
    // In a multicast the bit means "sent by replicast".
    let to_many = matches!(kind, MessageType::Mcast | MessageType::GroupMcast | MessageType::GroupBcast);
    header.set_src_droppable(options.source_droppable && !to_many);
    header.set_prev_node(own.node);
    header.set_origin_port(own.port);
    header.set_dest_port(to.port);
    header.set_origin_node(own.node);
    header.set_dest_node(to.node);
    match address {
        Address::Named(service, scope) => {
            header.set_lookup_scope(scope);
            header.set_name_type(service.service);
            header.set_name_instance(service.instance);
        }
        Address::Multicast(range) => {
            header.set_lookup_scope(Scope::Cluster.number());
            header.set_name_type(range.service);
            header.set_name_lower(range.lower);
            header.set_name_upper(range.upper);
        }
        Address::Group(group) => {
            header.set_lookup_scope(group.scope.number());
            header.set_name_type(group.member.service);
            header.set_name_instance(group.member.instance);
            let copy = match group.copy_of {
                CopyOf::Unicast => 0,
                CopyOf::Multicast => COPY_OF_MULTICAST,
                CopyOf::Broadcast => COPY_OF_BROADCAST,
            };
            let flags = u32::from(group.ack_request) * ACK_REQUEST + u32::from(group.after_loss) * AFTER_LOSS;
            header.set_word(10, flags + copy);
            header.set_group_seqno(group.seqno);
        }
        Address::Connection | Address::Direct => {}
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_change_the_header() {
        let mut options = SendOptions::new(SocketKind::Rdm);
        assert!(options.dest_droppable && !options.source_droppable);
        options.set(SocketOption::DestDroppable, OptionValue::Number(0));
        options.set(SocketOption::SourceDroppable, OptionValue::Number(1));
        options.set(SocketOption::Importance, OptionValue::Number(3));
        let expected =
            SendOptions { importance: Importance::Critical, source_droppable: true, dest_droppable: false };
        assert_eq!(options, expected);
    }
}
