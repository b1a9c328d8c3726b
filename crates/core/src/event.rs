//! Events that a node reports. They are typed, so that logs, counters and tests use the same values.

use core::fmt;

use crate::addr::NodeAddr;
use crate::broadcast::Refused;
use crate::discovery::Refusal;
use crate::error::WireError;
use crate::link::DownReason;
use crate::outbox::BearerId;

/// Something that an operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The node's own address is final: explicit, or the trial period is over.
    AddressFinal(NodeAddr),
    /// Another node claims this node's address; its messages are ignored.
    DuplicateAddress(NodeAddr),
    /// Contact with a node is established.
    NodeUp(NodeAddr),
    /// Contact with a node is lost.
    NodeDown(NodeAddr),
    /// A link came up.
    LinkUp {
        /// Name of the link.
        link: String,
        /// The peer.
        peer: NodeAddr,
    },
    /// A link went down.
    LinkDown {
        /// Name of the link.
        link: String,
        /// The peer.
        peer: NodeAddr,
        /// The reason.
        reason: DownReason,
    },
    /// A link has found the size of packets that its path carries.
    PathSize {
        /// Name of the link.
        link: String,
        /// The peer.
        peer: NodeAddr,
        /// Largest packet that the path carries, bytes.
        mtu: u16,
        /// Largest packet that the bearer and the peer allow, bytes.
        limit: u16,
    },
    /// A frame was not accepted.
    Dropped {
        /// Bearer on which it arrived.
        bearer: BearerId,
        /// Node address that the frame claims as its sender.
        peer: NodeAddr,
        /// The reason.
        reason: Drop,
    },
}

/// Reason why a frame or message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drop {
    /// The frame violates the wire format.
    Malformed(WireError),
    /// Encrypted; this node has no key.
    Encrypted,
    /// Encrypted with a key that this node does not have, or altered.
    WrongKey,
    /// Encrypted; its number was received before, or is too old.
    Replayed,
    /// Not encrypted, which this node refuses since it has keys.
    ClearText,
    /// Addressed to another node.
    NotForUs,
    /// From a node that is not a neighbour.
    UnknownPeer,
    /// The peer has no link on the bearer on which the frame arrived.
    NoLink,
    /// Not legal in the current state of the contact or link.
    State,
    /// Beyond what may wait of a peer that sends faster than this node works; it arrives again.
    Held,
    /// A user or type that is not accepted on this path.
    IllegalUser(u8),
    /// A broadcast that the peer may not send, or may not send now.
    Broadcast(Refused),
    /// Refused by discovery.
    Discovery(Refusal),
}

impl Drop {
    /// The reason without values chosen by the peer; used as the name of a counter.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::Encrypted => "encrypted",
            Self::WrongKey => "wrong key",
            Self::Replayed => "replayed",
            Self::ClearText => "clear text",
            Self::NotForUs => "not for us",
            Self::UnknownPeer => "unknown peer",
            Self::NoLink => "no link",
            Self::State => "state",
            Self::Held => "held",
            Self::IllegalUser(_) => "illegal user",
            Self::Broadcast(_) => "broadcast",
            Self::Discovery(_) => "discovery",
        }
    }
}

impl fmt::Display for Drop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(e) => write!(f, "malformed: {e}"),
            Self::Encrypted => f.write_str("encrypted, and this node has no key"),
            Self::WrongKey => f.write_str("encrypted with another key, or altered"),
            Self::Replayed => f.write_str("encrypted, and received before"),
            Self::ClearText => f.write_str("not encrypted, which this node refuses"),
            Self::NotForUs => f.write_str("addressed to another node"),
            Self::UnknownPeer => f.write_str("sender is not a neighbour"),
            Self::NoLink => f.write_str("no link on this bearer"),
            Self::State => f.write_str("not legal in the state of the link"),
            Self::Held => f.write_str("too many messages of this peer wait already"),
            Self::IllegalUser(user) => write!(f, "user {user} is not legal here"),
            Self::Broadcast(refused) => write!(f, "{refused}"),
            Self::Discovery(refusal) => write!(f, "{refusal}"),
        }
    }
}
