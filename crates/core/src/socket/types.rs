//! The values that applications and endpoints exchange.

use core::fmt;

use crate::addr::{Importance, NodeAddr, PortId, ServiceAddr, ServiceRange};
use crate::wire::ErrorCode;

/// Type of a socket. Spec: tipc.md §8.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SocketKind {
    /// Connected, a stream of bytes.
    Stream,
    /// Connected, messages with boundaries.
    SeqPacket,
    /// Connectionless; messages that cannot be delivered may come back.
    Rdm,
    /// Connectionless; messages that cannot be delivered vanish.
    Dgram,
}

impl SocketKind {
    /// True for the kinds that make connections.
    #[must_use]
    pub const fn is_connection_oriented(self) -> bool {
        matches!(self, Self::Stream | Self::SeqPacket)
    }
}

/// Where a message or a connection request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Destination {
    /// To one of the sockets bound to a service address ("anycast").
    Service {
        /// The service address.
        addr: ServiceAddr,
        /// Look for it on this node only; 0 for everywhere. Spec: tipc.md §1.4.
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

    /// The same service, looked for on one node only; other destinations stay as they are. Spec: tipc.md §1.4.
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

/// How one call receives; the default takes what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RecvOptions {
    /// Leave what was read in the queue (MSG_PEEK).
    pub peek: bool,
    /// STREAM: fill the whole buffer (MSG_WAITALL). A single call yields what is there; whoever blocks calls again
    /// for the rest, see [`super::Endpoint::receive_goal`].
    pub wait_all: bool,
    /// Not STREAM: leave what does not fit for the next call instead of cutting it off (MSG_EOR).
    pub keep_remainder: bool,
    /// Report an aborted connection as [`Received::returned`] instead of [`super::RecvError::ConnectionReset`]
    /// (the caller of recvmsg supplied a control buffer).
    pub control: bool,
}

/// A message that came back, or the end of a connection, with what is left of the data. Spec: tipc.md §8.10.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Returned {
    /// Why.
    pub code: ErrorCode,
    /// The start of the data that was sent, at most 1024 bytes.
    pub data: Vec<u8>,
}

/// What a receive call yields beside the bytes in the caller's buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Received {
    /// Bytes copied; 0 also at the orderly end of a connection and for a message that came back.
    pub len: usize,
    /// The socket that sent it.
    pub source: PortId,
    /// The service range that the sender addressed (a single address has equal ends), if it used one.
    pub destination: Option<ServiceRange>,
    /// Set if this is an own message that came back (connectionless) or the end of the connection.
    pub returned: Option<Returned>,
    /// The message did not fit, the rest is lost (MSG_TRUNC).
    pub truncated: bool,
    /// The message ends here; reported only to callers that set [`RecvOptions::keep_remainder`] (MSG_EOR).
    pub end_of_record: bool,
    /// Importance of the message.
    pub importance: Importance,
}

/// What a socket can do without blocking. Spec: tipc.md §8.11.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Readiness {
    /// A receive, or accept on a listener, does not block (IN, RDNORM).
    pub readable: bool,
    /// A send does not block (OUT).
    pub writable: bool,
    /// Nothing more will be received (RDHUP).
    pub read_closed: bool,
    /// The connection is over (HUP).
    pub hung_up: bool,
}

/// Why a call would block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum WaitReason {
    /// Receive or accept: the queue is empty.
    NothingReceived,
    /// The peer has not yet answered the connection request.
    Connecting {
        /// The node asked; [`NodeAddr::NONE`] if the request waits for its link.
        node: NodeAddr,
    },
    /// The peer's application does not read: its window is used up.
    PeerWindow {
        /// The peer.
        peer: PortId,
        /// Blocks of 1024 bytes (messages, if the peer is old) sent and not consumed.
        unacked: u32,
        /// Blocks allowed.
        window: u32,
    },
    /// The send queue of the link to a node is full for this importance.
    LinkCongested {
        /// The node; [`NodeAddr::NONE`] for the broadcast link.
        node: NodeAddr,
        /// Importance of this socket.
        importance: Importance,
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
        }
    }
}

pub use crate::wire::Method;

/// Counters of one socket, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EndpointStats {
    /// Messages handed to the node.
    pub sent_messages: u64,
    /// Data bytes accepted from the application.
    pub sent_bytes: u64,
    /// Messages given to the application.
    pub received_messages: u64,
    /// Data bytes given to the application.
    pub received_bytes: u64,
    /// Sends that would block for the peer's window.
    pub window_waits: u64,
    /// Sends that would block for a link.
    pub link_waits: u64,
    /// Own messages that came back.
    pub returned_to_us: u64,
    /// Messages sent back to their sender.
    pub rejected: u64,
    /// Messages dropped: droppable, or not legal in this state.
    pub dropped: u64,
    /// Messages refused because the receive queue was full (also counted as rejected or dropped).
    pub overloads: u64,
    /// Connection acknowledgements sent.
    pub acks_sent: u64,
    /// Connection requests sent again.
    pub syn_retries: u64,
}
