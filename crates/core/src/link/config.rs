//! What a link is made with, and what it touches while it handles a call.

use std::collections::VecDeque;

use crate::addr::{Importance, NodeAddr, NodeId};
use crate::outbox::{BearerId, FrameSink};
use crate::pool::Pool;
use crate::wire::{GapBlock, Message};

/// The number of the first packet and of the first STATE after a reset. Spec: tipc.md §5.7.
pub const FIRST_SEQNO: u16 = 1;

/// What a link is made with.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// This node.
    pub own: NodeAddr,
    /// The peer.
    pub peer: NodeAddr,
    /// The bearer on this node.
    pub bearer: BearerId,
    /// Net plane, 0 for A.
    pub net_plane: u8,
    /// Name of the bearer's interface here, at most 15 bytes are sent.
    pub interface: String,
    /// Name without the peer's interface, see [`base_name`].
    pub name: String,
    /// Where session numbers start: a random number.
    pub session: u16,
    /// MTU of the bearer, bytes: the most that is sent.
    pub mtu: u16,
    /// Largest packet that the bearer can receive, bytes: what is advertised.
    pub max_receive: u16,
    /// Smallest MTU that the bearer accepts from a peer, bytes.
    pub min_mtu: u16,
    /// Tolerance, milliseconds, 50 to 30000.
    pub tolerance_ms: u32,
    /// Priority, 0 to 31.
    pub priority: u8,
    /// Smallest send window, packets.
    pub min_window: u16,
    /// Largest send window, packets, at most 8191.
    pub max_window: u16,
    /// What the peer can do. Spec: tipc.md §4.6.
    pub peer_capabilities: u16,
    /// [`FIRST_SEQNO`] on every real network. All nodes of a simulated cluster may agree on another number, so that the wrap comes soon.
    pub first_seqno: u16,
}

/// The name of a link as far as it is known before the peer speaks: `<self>:<interface>-<peer>`. Spec: tipc.md §5.1.
#[must_use]
pub fn base_name(own: (&NodeId, NodeAddr), interface: &str, peer: (&NodeId, NodeAddr)) -> String {
    let text = |(id, addr): (&NodeId, NodeAddr)| {
        let text = id.to_string();
        if text.len() <= 16 && !id.is_none() { text } else { addr.to_string() }
    };
    format!("{}:{interface}-{}", text(own), text(peer))
}

/// What the broadcast side knows about this peer when a packet is stamped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BcastStamp {
    /// Last broadcast packet received in order from the peer.
    pub ack: u16,
    /// The peer's broadcast start is not known yet.
    pub ack_invalid: bool,
    /// Last broadcast packet sent by this node.
    pub last_sent: u16,
    /// Broadcast packets missing from the peer after `ack`.
    pub gap: u16,
    /// What was received beyond that gap.
    pub gap_blocks: Vec<GapBlock>,
    /// Broadcast packets of the peer wait for an acknowledgement.
    pub unacked: bool,
    /// The peer owes acknowledgements for broadcast packets.
    pub waiting: bool,
}

/// Everything that a link may touch while it handles one call.
#[derive(Debug)]
pub struct LinkIo<'a> {
    /// Where frames go.
    pub frames: FrameSink<'a>,
    /// Where memory of large messages comes from and goes to.
    pub pool: &'a mut Pool,
    /// What to stamp.
    pub bcast: &'a BcastStamp,
    /// Messages in order, of any user that is not the link's own.
    pub delivered: &'a mut VecDeque<Message>,
    /// Ports that may send again.
    pub wakeups: &'a mut Vec<Wakeup>,
    /// What the node must act on.
    pub signals: &'a mut Vec<LinkSignal>,
}

/// A port that may send again at this importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// The waiting port.
    pub port: u32,
    /// What it wanted to send.
    pub importance: Importance,
}

/// What a link tells its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkSignal {
    /// Both ends are ready: the node calls [`Link::establish`](super::Link::establish).
    Up,
    /// The link has failed: the node takes it down.
    Down(DownReason),
}

/// Why a link went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DownReason {
    /// Nothing was heard for longer than the tolerance.
    Silence,
    /// The peer's endpoint was reset.
    PeerReset,
    /// The peer took its endpoint down.
    PeerStopping,
    /// A packet did not get through in ten times the tolerance.
    Retransmission,
    /// A fragment did not fit the ones before it.
    Reassembly,
    /// Too many system messages wait.
    Backlog,
    /// The peer changed the priority.
    PriorityChange,
    /// The neighbour monitor found the peer lost.
    Monitor,
    /// The peer acknowledges packets that were never sent.
    Implausible,
    /// The peer does not acknowledge broadcasts.
    Broadcast,
    /// The peer's name updates do not fit together.
    Names,
    /// The peer moved to another media address.
    AddressChange,
    /// The other link could not carry its packets on.
    Failover,
    /// The last link to the peer went, or another part of the node asked for it.
    Node,
    /// The bearer was disabled, or an administrator asked for it.
    Administrator,
}

impl core::fmt::Display for DownReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Silence => "peer silent for longer than the tolerance",
            Self::PeerReset => "reset by the peer",
            Self::PeerStopping => "peer is going down",
            Self::Retransmission => "a packet did not get through",
            Self::Reassembly => "fragments do not fit together",
            Self::Backlog => "too many system messages waiting",
            Self::PriorityChange => "peer changed the priority",
            Self::Monitor => "neighbours report the peer lost",
            Self::Implausible => "peer acknowledges what was never sent",
            Self::Broadcast => "peer does not acknowledge broadcasts",
            Self::Names => "name updates of the peer do not fit together",
            Self::AddressChange => "peer moved to another media address",
            Self::Failover => "the other link could not carry its packets on",
            Self::Node => "contact with the node lost",
            Self::Administrator => "taken down locally",
        })
    }
}

/// A message was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Accepted {
    /// On its way.
    Sent,
    /// Queued; the origin port must wait for its wake-up.
    Congested,
}

/// A message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendFault {
    /// The link is down.
    #[error("the link is down")]
    Down,
    /// A packet that may not be cut exceeds the MTU.
    #[error("packet of {size} bytes exceeds the link's {mtu} (send it in parts)")]
    TooLarge {
        /// Size of the packet, bytes.
        size: usize,
        /// MTU of the link, bytes.
        mtu: u16,
    },
    /// Too many system messages wait: the link fails.
    #[error("too many system messages waiting, the link goes down")]
    Overflow,
    /// The backlog is at its absolute limit.
    #[error("the link's backlog is full (wait for the wake-up)")]
    NoBuffers,
}

/// What the neighbour monitor thinks of the peer. Spec: tipc.md §11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorVerdict {
    /// This node supervises the peer itself: silence counts.
    pub supervised: bool,
    /// Neighbours report a loss, or an acknowledgement is due: probe.
    pub probing: bool,
    /// The peer is lost.
    pub reset: bool,
}

impl Default for MonitorVerdict {
    /// Full mesh: every peer is supervised.
    fn default() -> Self {
        Self { supervised: true, probing: false, reset: false }
    }
}
