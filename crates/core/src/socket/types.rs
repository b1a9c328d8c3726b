//! Types exchanged between applications and endpoints.

use core::fmt;

use crate::addr::{Importance, NodeAddr, PortId, ServiceAddr, ServiceRange};
use crate::wire::{ErrorCode, MessageType};

/// Type of a socket. Spec: tipc.md §8.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SocketKind {
    /// Connected; a stream of bytes.
    Stream,
    /// Connected; messages with boundaries.
    SeqPacket,
    /// Connectionless; undeliverable messages may be returned.
    Rdm,
    /// Connectionless; undeliverable messages are dropped.
    Dgram,
}

impl SocketKind {
    /// True for the connection-oriented kinds.
    #[must_use]
    pub const fn is_connection_oriented(self) -> bool {
        matches!(self, Self::Stream | Self::SeqPacket)
    }
}

/// Destination of a message or a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Destination {
    /// To one of the sockets bound to a service address ("anycast").
    Service {
        /// The service address.
        addr: ServiceAddr,
        /// Node to which the lookup is limited; 0 for the whole cluster. Spec: tipc.md §1.4.
        domain: NodeAddr,
    },
    /// To all sockets bound in a service range ("multicast").
    Range(ServiceRange),
    /// To one socket.
    Port(PortId),
}

impl Destination {
    /// Anycast to {service, instance} anywhere in the cluster.
    #[must_use]
    pub const fn service(service: u32, instance: u32) -> Self {
        Self::Service { addr: ServiceAddr { service, instance }, domain: NodeAddr::NONE }
    }

    /// Limits the lookup of a service to one node; other destinations are unchanged. Spec: tipc.md §1.4.
    #[must_use]
    pub const fn on(self, node: NodeAddr) -> Self {
        match self {
            Self::Service { addr, .. } => Self::Service { addr, domain: node },
            other => other,
        }
    }
}

impl From<ServiceAddr> for Destination {
    fn from(addr: ServiceAddr) -> Self {
        Self::Service { addr, domain: NodeAddr::NONE }
    }
}

impl From<ServiceRange> for Destination {
    fn from(range: ServiceRange) -> Self {
        Self::Range(range)
    }
}

impl From<PortId> for Destination {
    fn from(port: PortId) -> Self {
        Self::Port(port)
    }
}

/// Options of one receive call; the default takes what is available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RecvOptions {
    /// Leave the data in the queue (MSG_PEEK).
    pub peek: bool,
    /// STREAM: fill the whole buffer (MSG_WAITALL). A single call returns what is available; a blocking caller repeats
    /// it, see [`super::Endpoint::receive_goal`].
    pub wait_all: bool,
    /// Not STREAM: keep what does not fit for the next call instead of discarding it (MSG_EOR).
    pub keep_remainder: bool,
    /// Report an aborted connection as [`Received::returned`] instead of [`super::RecvError::ConnectionReset`] (the
    /// caller of recvmsg has a control buffer).
    pub control: bool,
}

/// A returned message, or the end of a connection, with the rest of the data. Spec: tipc.md §8.10.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Returned {
    /// Error code.
    pub code: ErrorCode,
    /// The start of the data that was sent, at most 1024 bytes.
    pub data: Vec<u8>,
}

/// What the message of a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum GroupMessageKind {
    /// To this member alone: sent to its address, or an anycast.
    Unicast,
    /// To all members with this member's instance.
    Multicast,
    /// To all members.
    Broadcast,
    /// No message: the member has joined. The buffer holds an event of the topology server.
    Joined,
    /// No message: the member has left, or is lost.
    Left,
    /// A message, but the kernel does not tell to whom it was sent.
    Unknown,
    /// No message: the member was left out because it held others up. If it is this socket, it is in the group no
    /// more. Only for sockets that joined with a policy; for others it is [`GroupMessageKind::Left`].
    Evicted,
}

impl GroupMessageKind {
    /// The kind of a payload message of this type; `None` if it is no payload of a group.
    #[must_use]
    pub const fn of(payload: MessageType) -> Option<Self> {
        match payload {
            MessageType::GroupUcast => Some(Self::Unicast),
            MessageType::GroupMcast => Some(Self::Multicast),
            MessageType::GroupBcast => Some(Self::Broadcast),
            _ => None,
        }
    }

    /// Whether a member has joined or left.
    #[must_use]
    pub const fn is_event(self) -> bool {
        matches!(self, Self::Joined | Self::Left | Self::Evicted)
    }

    /// Whether a member has left, or was evicted.
    #[must_use]
    pub const fn has_left(self) -> bool {
        matches!(self, Self::Left | Self::Evicted)
    }
}

/// The sender of a message in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GroupMessage {
    /// The group, and the instance of the member that sent the message, or that the event is about.
    pub member: ServiceAddr,
    /// What it is.
    pub kind: GroupMessageKind,
}

/// Result of a receive call, in addition to the bytes in the caller's buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Received {
    /// Bytes copied; also 0 at the orderly end of a connection and for a returned message without data.
    pub len: usize,
    /// The sending socket.
    pub source: PortId,
    /// The service range that the sender addressed, if any; both ends are equal for a service address.
    pub destination: Option<ServiceRange>,
    /// Set for a returned message of this socket (connectionless), or the end of the connection.
    pub returned: Option<Returned>,
    /// The message did not fit; the rest is lost (MSG_TRUNC).
    pub truncated: bool,
    /// The message ends here; reported only with [`RecvOptions::keep_remainder`] (MSG_EOR).
    pub end_of_record: bool,
    /// Importance of the message.
    pub importance: Importance,
    /// Set for what a member of the socket's group has sent, and for events of members. Of an event `source` is the
    /// member, and `len` is 0, although the buffer holds the event, as far as it fits. Not encoded: a protocol that
    /// carries it does so beside this value.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub group: Option<GroupMessage>,
    /// Messages of this member to this socket are missing since the one before: the member's policy has dropped or
    /// replaced them. Only for sockets that joined with a policy. Not encoded, as [`Received::group`].
    #[cfg_attr(feature = "serde", serde(skip))]
    pub after_loss: bool,
}

/// Operations that do not block on a socket. Spec: tipc.md §8.11.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Readiness {
    /// A receive, or accept on a listener, does not block (IN, RDNORM).
    pub readable: bool,
    /// A send does not block (OUT).
    pub writable: bool,
    /// Nothing more will be received (RDHUP).
    pub read_closed: bool,
    /// The connection has ended (HUP).
    pub hung_up: bool,
}

/// Reason why a call would block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum WaitReason {
    /// Receive or accept: the queue is empty.
    NothingReceived,
    /// The peer has not accepted the connection request yet.
    Connecting {
        /// The peer's node; [`NodeAddr::NONE`] if the request waits for a link.
        node: NodeAddr,
    },
    /// The peer's application does not read: its window is used up.
    PeerWindow {
        /// The peer.
        peer: PortId,
        /// Blocks of 1024 bytes (messages, if the peer is old) sent and not acknowledged.
        unacked: u32,
        /// Blocks allowed.
        window: u32,
    },
    /// The send queue of the link to a node is full for this importance, or a receiver on the own node is full.
    LinkCongested {
        /// The node; [`NodeAddr::NONE`] for the broadcast link.
        node: NodeAddr,
        /// Importance of this socket.
        importance: Importance,
    },
    /// A member of the group has no window left: its application does not read.
    MemberWindow {
        /// The member; without a node if it is on this node.
        member: PortId,
        /// False if it has never joined: a socket that is bound to the group's type and is not in the group.
        joined: bool,
        /// Blocks left.
        window: u16,
    },
    /// A member of the group has not acknowledged the last broadcast.
    MemberAck {
        /// The member; without a node if it is on this node.
        member: PortId,
    },
    /// All receivers of a service address are full, or the links to them are: the sender waits for any of them.
    ReceiversFull {
        /// The service address.
        service: ServiceAddr,
        /// The number of receivers.
        receivers: u32,
    },
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingReceived => f.write_str("waiting for a message: the receive queue is empty"),
            Self::Connecting { node } if node.is_none() => {
                f.write_str("waiting for a link to send the connection request")
            }
            Self::Connecting { node } => write!(f, "waiting for node {node} to accept the connection"),
            Self::PeerWindow { peer, unacked, window } => {
                write!(f, "waiting for {peer} to read: {unacked} blocks unread, window {window}")
            }
            Self::LinkCongested { node, importance } if node.is_none() => {
                write!(f, "waiting for the broadcast link: its {importance:?} queue is full")
            }
            Self::LinkCongested { node, importance } => {
                write!(f, "waiting for the link to node {node}: its {importance:?} queue is full")
            }
            Self::MemberWindow { member, joined: true, window } => {
                write!(f, "waiting for member {member} of the group to read: {window} blocks left")
            }
            Self::MemberWindow { member, .. } => {
                write!(
                    f,
                    "waiting for socket {member}: it is bound to the group's type and never joined the group"
                )
            }
            Self::MemberAck { member } => {
                write!(f, "waiting for member {member} of the group to acknowledge the last broadcast")
            }
            Self::ReceiversFull { service, receivers } => {
                write!(f, "waiting for any of {receivers} receivers of {service} to read: all are full")
            }
        }
    }
}

pub use crate::wire::Method;

/// Counters of one socket since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EndpointStats {
    /// Messages passed to the node.
    pub sent_messages: u64,
    /// Data bytes accepted from the application.
    pub sent_bytes: u64,
    /// Messages passed to the application.
    pub received_messages: u64,
    /// Data bytes passed to the application.
    pub received_bytes: u64,
    /// Sends that would block because of the peer's window.
    pub window_waits: u64,
    /// Sends that would block because of a link.
    pub link_waits: u64,
    /// Own messages that were returned.
    pub returned_to_us: u64,
    /// Messages rejected to their sender.
    pub rejected: u64,
    /// Messages dropped: droppable, or illegal in the current state.
    pub dropped: u64,
    /// Messages refused because the receive queue was full (also counted as rejected or dropped).
    pub overloads: u64,
    /// Connection acknowledgements sent.
    pub acks_sent: u64,
    /// Connection requests repeated.
    pub syn_retries: u64,
}
