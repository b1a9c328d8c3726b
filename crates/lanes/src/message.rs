//! The check of headers that a process reads in its lanes. Spec: tipc.md §2.
//!
//! A received header is a claim of another process: it is copied out first and checked before any of it is used.

use utipc_core::addr::{Importance, NodeAddr, PortId, ServiceRange};
use utipc_core::socket::{GroupMessageKind, SocketKind};
use utipc_core::wire::{
    BASIC_HEADER, ErrorCode, MULTICAST_HEADER, MessageType, NAMED_HEADER, SHORT_HEADER, View,
};

/// The largest header in a lane, bytes.
pub const HEADER_MAX: usize = 60;

/// The rules for the header of a message in a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The node of the socket that reads.
    pub(crate) node: NodeAddr,
    /// The socket that reads.
    pub(crate) port: u32,
    /// The socket that writes the lane; `None` for a node lane, which carries messages of any socket on other nodes.
    pub(crate) from: Option<PortId>,
    /// Kind of the socket that reads.
    pub(crate) kind: SocketKind,
    /// The lane leads from one member of a group to another.
    pub(crate) in_group: bool,
}

/// The content of a header that has passed the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    /// Bytes of the header.
    pub(crate) header: usize,
    /// Bytes of data behind it.
    pub(crate) data: usize,
    pub(crate) importance: Importance,
    /// The socket that sent it.
    pub(crate) origin: PortId,
    /// The service that the sender addressed.
    pub(crate) destination: Option<ServiceRange>,
    /// The kind of a group message.
    pub(crate) group: Option<GroupMessageKind>,
}

/// Checks the copy of a header; `total` is the size of header and data, bytes.
///
/// # Errors
/// The fault: the lane's writer is broken or malicious.
#[inline]
pub(crate) fn check(copy: &[u8], total: usize, expected: &Expected) -> Result<Checked, &'static str> {
    let view = View::parse_header(copy, total).map_err(|_| "a message without a proper header")?;
    if !view.is_data() {
        return Err("not a payload message");
    }
    let kind = view.message_type();
    let mut group = None;
    let (need, destination) = match kind {
        _ if expected.in_group => {
            group = GroupMessageKind::of(kind);
            if group.is_none() {
                return Err("a message that is none of the group");
            }
            (MULTICAST_HEADER, None)
        }
        MessageType::Conn => (SHORT_HEADER, None),
        MessageType::Direct => (BASIC_HEADER, None),
        MessageType::Named => (NAMED_HEADER, Some(ServiceRange::from(view.service()))),
        MessageType::Mcast => (MULTICAST_HEADER, Some(view.service_range())),
        _ => return Err("a message of a type that lanes do not carry"),
    };
    let header = view.header_size();
    let from_node = expected.from.is_none();
    // In a multicast from another node the bit means that the sender changes its method.
    if header < need || view.error_code() != ErrorCode::Ok || view.syn() && !from_node {
        return Err("a message that only the node may send");
    }
    if (kind == MessageType::Conn) != expected.kind.is_connection_oriented() {
        return Err("a message for another kind of socket");
    }
    // A node on trial has no address. Reader and writer learn of its address at different times.
    let differ = |one: NodeAddr, other: NodeAddr| one != other && !one.is_none() && !other.is_none();
    let mut origin = view.origin();
    if expected.from.is_some_and(|from| origin.port != from.port || differ(origin.node, from.node)) {
        return Err("a message in the name of another socket");
    }
    // A broadcast names no node.
    let elsewhere = !from_node && view.dest_node().is_some_and(|node| differ(node, expected.node));
    if view.dest_port() != expected.port || elsewhere {
        return Err("a message for another socket");
    }
    if !from_node {
        origin = origin.on(expected.node);
    }
    let importance = view.importance();
    Ok(Checked { header, data: total - header, importance, origin, destination, group })
}

#[cfg(test)]
mod tests {
    use super::*;
    use utipc_core::addr::{Scope, ServiceAddr};
    use utipc_core::group::CopyOf;
    use utipc_core::socket::{Address, GroupAddress, SendOptions, header};
    use utipc_core::wire::{DataHeader, Message, User};

    const NODE: NodeAddr = NodeAddr(0x0100_1001);
    const OWN: PortId = PortId { port: 17, node: NODE };
    const SERVICE: ServiceAddr = ServiceAddr { service: 1000, instance: 7 };

    fn expected(kind: SocketKind) -> Expected {
        Expected { node: NODE, port: 99, from: Some(OWN), kind, in_group: false }
    }

    fn addresses() -> [(Address, SocketKind); 4] {
        let range = ServiceRange::new(1000, 1, 9);
        [
            (Address::Connection, SocketKind::SeqPacket),
            (Address::Direct, SocketKind::Rdm),
            (Address::Named(SERVICE, 3), SocketKind::Rdm),
            (Address::Multicast(range), SocketKind::Dgram),
        ]
    }

    fn new_header(options: SendOptions, address: Address) -> DataHeader {
        header(options, OWN, PortId { port: 99, node: NODE }, address, 5)
    }

    #[test]
    fn reader_and_writer_may_learn_of_the_address_at_different_times() {
        for (address, kind) in addresses() {
            for (written, read) in [(NodeAddr::NONE, NODE), (NODE, NodeAddr::NONE)] {
                let (from, to) = (PortId { port: 17, node: written }, PortId { port: 99, node: written });
                let built = header(SendOptions::new(kind), from, to, address, 5);
                let from = Some(PortId { port: 17, node: read });
                let expected = Expected { node: read, from, ..expected(kind) };
                let checked = check(built.header(), built.header().len() + 5, &expected).unwrap();
                assert_eq!(checked.origin, OWN, "{address:?}");
            }
        }
    }

    #[test]
    fn headers_equal_those_that_the_core_builds() {
        for (address, kind) in addresses() {
            let options = SendOptions { importance: Importance::High, ..SendOptions::new(kind) };
            let built = new_header(options, address);
            let (message_type, size) = match address {
                Address::Connection => (MessageType::Conn, SHORT_HEADER),
                Address::Direct => (MessageType::Direct, BASIC_HEADER),
                Address::Named(..) => (MessageType::Named, NAMED_HEADER),
                Address::Multicast(_) => (MessageType::Mcast, MULTICAST_HEADER),
                Address::Group(_) => unreachable!("tested below"),
            };
            let mut message = Message::build(User::High, message_type.into(), size, b"12345");
            message.set_dest_droppable(options.dest_droppable);
            message.set_prev_node(NODE);
            message.set_origin_node(NODE);
            message.set_dest_node(NODE);
            message.set_origin_port(17);
            message.set_dest_port(99);
            match address {
                Address::Named(service, scope) => {
                    message.set_lookup_scope(scope);
                    message.set_name_type(service.service);
                    message.set_name_instance(service.instance);
                }
                Address::Multicast(range) => {
                    message.set_lookup_scope(Scope::Cluster.number());
                    message.set_name_type(range.service);
                    message.set_name_lower(range.lower);
                    message.set_name_upper(range.upper);
                }
                Address::Connection | Address::Direct | Address::Group(_) => {}
            }
            assert_eq!(built.header(), &message.bytes()[..size], "{address:?}");
            let checked = check(built.header(), size + 5, &expected(kind)).unwrap();
            assert_eq!((checked.header, checked.data, checked.importance), (size, 5, Importance::High));
        }
    }

    #[test]
    fn lanes_between_members_carry_messages_of_the_group_only() {
        let address = |kind| {
            Address::Group(GroupAddress {
                kind,
                member: SERVICE,
                scope: Scope::Cluster,
                seqno: 0,
                ack_request: false,
                copy_of: CopyOf::Unicast,
                after_loss: false,
            })
        };
        let in_group = Expected { in_group: true, ..expected(SocketKind::Rdm) };
        let checked = |address, expected: &Expected| {
            let built = new_header(SendOptions::new(SocketKind::Rdm), address);
            check(built.header(), built.header().len() + 5, expected)
        };
        for (kind, told) in [
            (MessageType::GroupUcast, GroupMessageKind::Unicast),
            (MessageType::GroupMcast, GroupMessageKind::Multicast),
            (MessageType::GroupBcast, GroupMessageKind::Broadcast),
        ] {
            let found = checked(address(kind), &in_group).unwrap();
            assert_eq!((found.group, found.origin, found.destination), (Some(told), OWN, None));
            assert!(checked(address(kind), &expected(SocketKind::Rdm)).is_err(), "outside of a group");
        }
        // An event that only the node may report.
        assert!(checked(address(MessageType::GroupEvent), &in_group).is_err());
        for (other, kind) in addresses() {
            assert!(kind.is_connection_oriented() || checked(other, &in_group).is_err(), "{other:?}");
        }
    }

    #[test]
    fn every_false_field_is_found() {
        for (address, kind) in addresses() {
            let good = new_header(SendOptions::new(kind), address);
            let total = good.header().len() + 5;
            let flip = |n: usize, bits: u32| {
                let mut header = good;
                header.set_word(n, good.word(n) ^ bits);
                check(&header.bytes()[..good.header().len()], total, &expected(kind))
            };
            assert!(flip(0, 0).is_ok());
            // Version, user, size of the header, size, type, error code, request, nodes and ports.
            let false_fields = [
                (0, 1 << 29),
                (0, 8 << 25),
                (0, 4 << 21),
                (0, 1),
                (0, 1 << 17),
                (1, 4 << 29),
                (1, 1 << 25),
                (4, 1),
                (5, 1),
            ];
            for (n, bits) in false_fields {
                assert!(flip(n, bits).is_err(), "{address:?}: word {n} ^ {bits:#x}");
            }
            let node = if address == Address::Connection { 3 } else { 6 };
            assert!(flip(node, 1).is_err());
            assert!(address == Address::Connection || flip(7, 1).is_err());
            for short in 0..24 {
                assert!(check(&good.header()[..short], total, &expected(kind)).is_err());
            }
            assert!(check(good.header(), total + 1, &expected(kind)).is_err());
            let other = if kind == SocketKind::SeqPacket { SocketKind::Rdm } else { SocketKind::Stream };
            assert!(check(good.header(), total, &expected(other)).is_err());
        }
    }
}
