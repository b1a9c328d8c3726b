//! Headers of messages in lanes: the same as those of messages between two sockets of one node. Spec: tipc.md §2.
//!
//! What arrives is a claim of another process: it is copied out first, checked, and only then believed.

use utipc_core::addr::{Importance, NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use utipc_core::socket::{OptionValue, SocketKind, SocketOption};
use utipc_core::wire::{
    BASIC_HEADER, ErrorCode, MULTICAST_HEADER, MessageType, NAMED_HEADER, SHORT_HEADER, View,
};

/// The largest header that a lane carries, bytes.
pub(crate) const HEAD_MAX: usize = 60;

/// What a socket's options say about the messages that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) importance: Importance,
    pub(crate) source_droppable: bool,
    pub(crate) dest_droppable: bool,
}

impl Style {
    /// The defaults of a kind. Spec: tipc.md §8.1.
    pub(crate) fn new(kind: SocketKind) -> Self {
        Self {
            importance: Importance::Low,
            source_droppable: kind == SocketKind::Dgram,
            dest_droppable: !kind.is_connection_oriented(),
        }
    }

    /// Follows an option that the node has accepted.
    pub(crate) fn set(&mut self, option: SocketOption, value: OptionValue) {
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
pub(crate) enum Address {
    /// On a connection.
    Connection,
    /// To a socket.
    Direct,
    /// To one of those bound to a service address; the scope of the lookup: 2 cluster, 3 node.
    Named(ServiceAddr, u8),
    /// To all of a range.
    Multicast(ServiceRange),
}

/// A header, ready to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    bytes: [u8; MULTICAST_HEADER],
    len: usize,
}

impl Head {
    /// The header of a message with `data` bytes from `own` to the socket `to` of the same node.
    pub(crate) fn new(style: Style, own: PortId, to: u32, address: Address, data: usize) -> Self {
        let (kind, len) = match address {
            Address::Connection => (MessageType::Conn, SHORT_HEADER),
            Address::Direct => (MessageType::Direct, BASIC_HEADER),
            Address::Named(..) => (MessageType::Named, NAMED_HEADER),
            Address::Multicast(_) => (MessageType::Mcast, MULTICAST_HEADER),
        };
        let mut head = Self { bytes: [0; MULTICAST_HEADER], len };
        // On a multicast the bit tells how it travels.
        let source_droppable = style.source_droppable && kind != MessageType::Mcast;
        head.set(
            0,
            2 << 29
                | (style.importance as u32) << 25
                | ((len / 4) as u32) << 21
                | u32::from(style.dest_droppable) << 19
                | u32::from(source_droppable) << 18
                | (len + data) as u32,
        );
        let scope = match address {
            Address::Named(_, scope) => u32::from(scope),
            Address::Multicast(_) => u32::from(Scope::Cluster.number()),
            Address::Connection | Address::Direct => 0,
        };
        head.set(1, u32::from(u8::from(kind)) << 29 | scope << 19);
        head.set(3, own.node.0);
        head.set(4, own.port);
        head.set(5, to);
        if len > SHORT_HEADER {
            head.set(6, own.node.0);
            head.set(7, own.node.0);
        }
        match address {
            Address::Named(service, _) => {
                head.set(8, service.service);
                head.set(9, service.instance);
            }
            Address::Multicast(range) => {
                head.set(8, range.service);
                head.set(9, range.lower);
                head.set(10, range.upper);
            }
            Address::Connection | Address::Direct => {}
        }
        head
    }

    /// The same for a socket of another node.
    pub(crate) fn at(mut self, node: NodeAddr) -> Self {
        self.set(7, node.0);
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn set(&mut self, word: usize, value: u32) {
        self.bytes[word * 4..word * 4 + 4].copy_from_slice(&value.to_be_bytes());
    }
}

/// Who may send what by a lane: what its header has to say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The node of the socket that reads.
    pub(crate) node: NodeAddr,
    /// The socket that reads.
    pub(crate) port: u32,
    /// The socket whose messages come by the lane; `None`: those of other nodes, as the own one has received them.
    pub(crate) from: Option<PortId>,
    pub(crate) kind: SocketKind,
}

/// What a header that passed says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Bytes of the header.
    pub(crate) header: usize,
    /// Bytes of data behind it.
    pub(crate) data: usize,
    pub(crate) importance: Importance,
    /// Who sent it.
    pub(crate) origin: PortId,
    /// The service that the sender addressed.
    pub(crate) destination: Option<ServiceRange>,
}

/// Checks the copy of a header, `total` being the bytes of header and data.
///
/// # Errors
/// What is wrong: the lane's writer is broken or malicious.
#[inline]
pub(crate) fn check(copy: &[u8], total: usize, expected: &Expected) -> Result<Arrived, &'static str> {
    let view = View::parse_header(copy, total).map_err(|_| "a message without a proper header")?;
    if !view.is_data() {
        return Err("a message that is no payload");
    }
    let kind = view.message_type();
    let (need, destination) = match kind {
        MessageType::Conn => (SHORT_HEADER, None),
        MessageType::Direct => (BASIC_HEADER, None),
        MessageType::Named => (NAMED_HEADER, Some(ServiceRange::from(view.service()))),
        MessageType::Mcast => (MULTICAST_HEADER, Some(view.service_range())),
        _ => return Err("a message of a type that lanes do not carry"),
    };
    let header = view.header_size();
    let far = expected.from.is_none();
    // Among several ways of a multicast the bit tells the last message of one.
    if header < need || view.error_code() != ErrorCode::Ok || view.syn() && !far {
        return Err("a message that only the node may send");
    }
    if (kind == MessageType::Conn) != expected.kind.is_connection_oriented() {
        return Err("a message for another kind of socket");
    }
    if expected.from.is_some_and(|from| view.origin() != from) {
        return Err("a message in the name of another socket");
    }
    // A broadcast names no node.
    let elsewhere = !far && view.dest_node().is_some_and(|node| node != expected.node);
    if view.dest_port() != expected.port || elsewhere {
        return Err("a message for another socket");
    }
    let (importance, origin) = (view.importance(), view.origin());
    Ok(Arrived { header, data: total - header, importance, origin, destination })
}

#[cfg(test)]
mod tests {
    use super::*;
    use utipc_core::wire::{Message, User};

    const NODE: NodeAddr = NodeAddr(0x0100_1001);
    const OWN: PortId = PortId { port: 17, node: NODE };
    const SERVICE: ServiceAddr = ServiceAddr { service: 1000, instance: 7 };

    fn expected(kind: SocketKind) -> Expected {
        Expected { node: NODE, port: 99, from: Some(OWN), kind }
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

    #[test]
    fn headers_are_those_of_the_core() {
        for (address, kind) in addresses() {
            let style = Style { importance: Importance::High, ..Style::new(kind) };
            let head = Head::new(style, OWN, 99, address, 5);
            let (message_type, size) = match address {
                Address::Connection => (MessageType::Conn, SHORT_HEADER),
                Address::Direct => (MessageType::Direct, BASIC_HEADER),
                Address::Named(..) => (MessageType::Named, NAMED_HEADER),
                Address::Multicast(_) => (MessageType::Mcast, MULTICAST_HEADER),
            };
            let mut message = Message::build(User::High, message_type.into(), size, b"12345");
            message.set_dest_droppable(style.dest_droppable);
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
                Address::Connection | Address::Direct => {}
            }
            assert_eq!(head.bytes(), &message.bytes()[..size], "{address:?}");
            let arrived = check(head.bytes(), size + 5, &expected(kind)).unwrap();
            assert_eq!((arrived.header, arrived.data, arrived.importance), (size, 5, Importance::High));
        }
    }

    #[test]
    fn every_lie_is_found() {
        for (address, kind) in addresses() {
            let style = Style::new(kind);
            let honest = Head::new(style, OWN, 99, address, 5);
            let total = honest.bytes().len() + 5;
            let word = |n: usize, value: u32| {
                let mut head = honest;
                let old = u32::from_be_bytes(head.bytes[n * 4..n * 4 + 4].try_into().unwrap());
                head.set(n, old ^ value);
                check(head.bytes(), total, &expected(kind))
            };
            assert!(word(0, 0).is_ok());
            // Version, user, size of the header, size, type, error code, request, nodes and ports.
            let lies = [
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
            for (n, value) in lies {
                assert!(word(n, value).is_err(), "{address:?}: word {n} ^ {value:#x}");
            }
            let node = if address == Address::Connection { 3 } else { 6 };
            assert!(word(node, 1).is_err());
            assert!(address == Address::Connection || word(7, 1).is_err());
            for short in 0..24 {
                assert!(check(&honest.bytes()[..short], total, &expected(kind)).is_err());
            }
            assert!(check(honest.bytes(), total + 1, &expected(kind)).is_err());
            let other = if kind == SocketKind::SeqPacket { SocketKind::Rdm } else { SocketKind::Stream };
            assert!(check(honest.bytes(), total, &expected(other)).is_err());
        }
    }

    #[test]
    fn options_change_what_is_sent() {
        let mut style = Style::new(SocketKind::Rdm);
        assert!(style.dest_droppable && !style.source_droppable);
        style.set(SocketOption::DestDroppable, OptionValue::Number(0));
        style.set(SocketOption::SourceDroppable, OptionValue::Number(1));
        style.set(SocketOption::Importance, OptionValue::Number(3));
        let expected =
            Style { importance: Importance::Critical, source_droppable: true, dest_droppable: false };
        assert_eq!(style, expected);
    }
}
