//! Payload: users 0 to 3. Spec: tipc.md §2.1, §2.2.

use super::{Envelope, ErrorCode, Message, MessageType, User, View};
use crate::addr::{Importance, ServiceAddr, ServiceRange};
use crate::error::WireError;

/// A payload message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Importance.
    pub importance: Importance,
    /// Destination.
    pub to: Addressing,
    /// The receiver may drop the message instead of returning it.
    pub dest_droppable: bool,
    /// Bit 18. On a connection: "acknowledgement wanted"; of a multicast: "sent by replicast"; else: "may be dropped at
    /// the sender".
    pub bit18: bool,
    /// Connection request, or change of the multicast method.
    pub syn: bool,
    /// Reason why the message was returned, or why a connection ends.
    pub error: ErrorCode,
    /// Number of times the message was redirected.
    pub reroute_count: u8,
    /// Scope of a deferred lookup.
    pub lookup_scope: u8,
    /// Port of the sender.
    pub origin_port: u32,
    /// Port of the receiver; the cluster id in a packet broadcast on a bearer.
    pub dest_port: u32,
    /// The user's bytes.
    pub data: &'a [u8],
}

/// Addressing of a payload message: its type and the header words from 8 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// On a connection.
    Connection,
    /// Service multicast.
    Multicast(ServiceRange),
    /// Anycast to a service address.
    Named(ServiceAddr),
    /// To a socket address.
    Direct,
    /// To members of a group.
    Group(GroupAddressing),
}

/// Addressing of a group message. Spec: tipc.md §9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupAddressing {
    /// Broadcast, multicast or unicast: one of the three group message types.
    pub kind: MessageType,
    /// Group id.
    pub group: u32,
    /// Instance addressed.
    pub instance: u32,
    /// Number of the sender's broadcast.
    pub seqno: u16,
    /// Every receiver must acknowledge the broadcast.
    pub ack_request: bool,
}

const ACK_REQUEST: u32 = 1;

impl<'a> Data<'a> {
    /// Reads a payload message.
    ///
    /// # Errors
    /// [`WireError`] if it has another user, its header is too small for its type, or its type is valid on one node
    /// only.
    pub fn parse(v: View<'a>) -> Result<Self, WireError> {
        let user = v.user();
        let importance =
            Importance::from_number(u8::from(user).into()).ok_or(WireError::User(user.into()))?;
        super::expect_header(v)?;
        let to = match v.message_type() {
            MessageType::Conn => Addressing::Connection,
            MessageType::Mcast => Addressing::Multicast(v.service_range()),
            MessageType::Named => Addressing::Named(v.service()),
            MessageType::Direct => Addressing::Direct,
            kind @ (MessageType::GroupBcast | MessageType::GroupMcast | MessageType::GroupUcast) => {
                Addressing::Group(GroupAddressing {
                    kind,
                    group: v.name_type(),
                    instance: v.name_instance(),
                    seqno: v.group_seqno(),
                    ack_request: v.word(10) & ACK_REQUEST != 0,
                })
            }
            kind => return Err(WireError::Type { user: user.into(), kind: kind.into() }),
        };
        Ok(Self {
            importance,
            to,
            dest_droppable: v.dest_droppable(),
            bit18: v.src_droppable(),
            syn: v.syn(),
            error: v.error_code(),
            reroute_count: v.reroute_count(),
            lookup_scope: v.lookup_scope(),
            origin_port: v.origin_port(),
            dest_port: v.dest_port(),
            data: v.payload(),
        })
    }

    /// Encodes the message.
    #[must_use]
    pub fn to_message(&self, envelope: &Envelope) -> Message {
        let kind = match self.to {
            Addressing::Connection => MessageType::Conn,
            Addressing::Multicast(_) => MessageType::Mcast,
            Addressing::Named(_) => MessageType::Named,
            Addressing::Direct => MessageType::Direct,
            Addressing::Group(group) => group.kind,
        };
        let mut m = envelope.message(User::from(self.importance as u8), kind.into(), self.data);
        m.set_dest_droppable(self.dest_droppable);
        m.set_src_droppable(self.bit18);
        m.set_syn(self.syn);
        m.set_error_code(self.error);
        m.set_reroute_count(self.reroute_count);
        m.set_lookup_scope(self.lookup_scope);
        m.set_origin_port(self.origin_port);
        m.set_dest_port(self.dest_port);
        match self.to {
            Addressing::Connection | Addressing::Direct => {}
            Addressing::Multicast(range) => {
                m.set_name_type(range.service);
                m.set_name_lower(range.lower);
                m.set_name_upper(range.upper);
            }
            Addressing::Named(service) => {
                m.set_name_type(service.service);
                m.set_name_instance(service.instance);
            }
            Addressing::Group(group) => {
                m.set_name_type(group.group);
                m.set_name_instance(group.instance);
                m.set_word(10, u32::from(group.ack_request) * ACK_REQUEST);
                m.set_group_seqno(group.seqno);
            }
        }
        m
    }
}
