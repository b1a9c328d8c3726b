//! Configuration of a link, and its inputs and outputs during a call.

use std::collections::VecDeque;

use crate::addr::{Importance, NodeAddr, NodeId};
use crate::outbox::{BearerId, FrameSink};
use crate::pool::Pool;
use crate::wire::{GapBlock, Message};

/// Number of the first packet and the first STATE after a reset. Spec: tipc.md §5.7.
pub const FIRST_SEQNO: u16 = 1;

/// Configuration of a link.
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
    /// Name of this node's interface of the bearer; at most 15 bytes are sent.
    pub interface: String,
    /// Name without the peer's interface; see [`base_name`].
    pub name: String,
    /// First session number; random.
    pub session: u16,
    /// MTU of the bearer, bytes: largest packet sent.
    pub mtu: u16,
    /// Largest packet that the bearer can receive, bytes; announced to the peer.
    pub max_receive: u16,
    /// Smallest MTU accepted from the peer, bytes.
    pub min_mtu: u16,
    /// Largest packet that needs no proof that the path carries it, bytes; from `mtu` on nothing is probed.
    pub base_mtu: u16,
    /// Bytes that encryption adds to a packet.
    pub overhead: u16,
    /// Tolerance, milliseconds, 50 to 30000.
    pub tolerance_ms: u32,
    /// Priority, 0 to 31.
    pub priority: u8,
    /// Smallest send window, packets.
    pub min_window: u16,
    /// Largest send window, packets, at most 8191.
    pub max_window: u16,
    /// Capability bits of the peer. Spec: tipc.md §4.6.
    pub peer_capabilities: u16,
    /// [`FIRST_SEQNO`] in production. All nodes of a simulated cluster may use another number, to make it wrap early.
    pub first_seqno: u16,
}

/// The part of a link's name that is known before the peer sends: `<self>:<interface>-<peer>`. Spec: tipc.md §5.1.
#[must_use]
pub fn base_name(own: (&NodeId, NodeAddr), interface: &str, peer: (&NodeId, NodeAddr)) -> String {
    let text = |(id, addr): (&NodeId, NodeAddr)| {
        let text = id.to_string();
        if text.len() <= 16 && !id.is_none() { text } else { addr.to_string() }
    };
    format!("{}:{interface}-{}", text(own), text(peer))
}

/// The broadcast state that is stamped into packets to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BcastStamp {
    /// Last broadcast packet received in order from the peer.
    pub ack: u16,
    /// The start of the peer's broadcasts is not known yet.
    pub ack_invalid: bool,
    /// Last broadcast packet sent by this node.
    pub last_sent: u16,
    /// Broadcast packets missing from the peer after `ack`.
    pub gap: u16,
    /// Blocks received beyond that gap.
    pub gap_blocks: Vec<GapBlock>,
    /// Broadcast packets received from the peer are not acknowledged yet.
    pub unacked: bool,
    /// The peer has not acknowledged all broadcast packets.
    pub waiting: bool,
}

/// Everything that a link reads and writes during one call.
#[derive(Debug)]
pub struct LinkIo<'a> {
    /// Destination of frames.
    pub frames: FrameSink<'a>,
    /// Pool for buffers of large messages.
    pub pool: &'a mut Pool,
    /// Broadcast state to stamp.
    pub bcast: &'a BcastStamp,
    /// Memory that the link may still use for packets that arrive early, bytes.
    pub deferral_room: usize,
    /// Messages in order, of any user except those of the link itself.
    pub delivered: &'a mut VecDeque<Message>,
    /// Ports that may send again.
    pub wakeups: &'a mut Vec<Wakeup>,
    /// Signals for the node.
    pub signals: &'a mut Vec<LinkSignal>,
}

/// Tells a port that it may send again at this importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// The waiting port.
    pub port: u32,
    /// Importance of the message that had to wait.
    pub importance: Importance,
}

/// A report of a link to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkSignal {
    /// Both ends are ready: the node calls [`Link::establish`](super::Link::establish).
    Up,
    /// The link has failed; the node must take it down.
    Down(DownReason),
    /// The size of packets of a link that is up has changed, bytes.
    Mtu {
        /// Before.
        from: u16,
        /// From now on.
        to: u16,
    },
    /// A search for the size that the path carries has ended with another result than the last one.
    Path,
}

/// Reason why a link went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DownReason {
    /// Nothing was received for longer than the tolerance.
    Silence,
    /// The peer's endpoint was reset.
    PeerReset,
    /// The peer is taking its endpoint down.
    PeerStopping,
    /// A packet was not acknowledged within ten times the tolerance.
    Retransmission,
    /// A fragment does not continue the previous ones.
    Reassembly,
    /// Too many system messages are waiting.
    Backlog,
    /// The peer changed the priority.
    PriorityChange,
    /// The neighbour monitor found that the peer is down.
    Monitor,
    /// The peer acknowledges packets that were never sent.
    Implausible,
    /// The peer does not acknowledge broadcasts.
    Broadcast,
    /// The peer's name updates are inconsistent.
    Names,
    /// The peer moved to another media address.
    AddressChange,
    /// The medium reports that the peer has left it.
    PeerLeft,
    /// The other link could not take over its packets.
    Failover,
    /// The last link to the peer went down, or another part of the node requested it.
    Node,
    /// Its early packets took memory that an established peer needs.
    Memory,
    /// The bearer was disabled, or an administrator requested it.
    Administrator,
}

impl DownReason {
    /// A short name, used as the name of a counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silence => "silence",
            Self::PeerReset => "peer-reset",
            Self::PeerStopping => "peer-stopping",
            Self::Retransmission => "retransmission",
            Self::Reassembly => "reassembly",
            Self::Backlog => "backlog",
            Self::PriorityChange => "priority-change",
            Self::Monitor => "monitor",
            Self::Implausible => "implausible",
            Self::Broadcast => "broadcast",
            Self::Names => "names",
            Self::AddressChange => "address-change",
            Self::PeerLeft => "peer-left",
            Self::Failover => "failover",
            Self::Node => "node",
            Self::Memory => "memory",
            Self::Administrator => "administrator",
        }
    }
}

impl core::fmt::Display for DownReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Silence => "peer silent for longer than the tolerance",
            Self::PeerReset => "reset by the peer",
            Self::PeerStopping => "peer is going down",
            Self::Retransmission => "a packet did not get through",
            Self::Reassembly => "inconsistent fragments from the peer",
            Self::Backlog => "too many system messages waiting",
            Self::PriorityChange => "peer changed the priority",
            Self::Monitor => "neighbours report the peer lost",
            Self::Implausible => "peer acknowledges packets that were never sent",
            Self::Broadcast => "peer does not acknowledge broadcasts",
            Self::Names => "inconsistent name updates from the peer",
            Self::AddressChange => "peer moved to another media address",
            Self::PeerLeft => "peer left the medium",
            Self::Failover => "the other link could not take over its packets",
            Self::Node => "contact with the node lost",
            Self::Memory => "memory for its early packets is needed for another peer",
            Self::Administrator => "closed by this node",
        })
    }
}

/// The link has accepted a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Accepted {
    /// Sent, or queued within the limits.
    Sent,
    /// Queued beyond the limit; the origin port must wait for its wake-up before it sends more.
    Congested,
}

/// Reason why a message was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendFault {
    /// The link is down.
    #[error("the link is down")]
    Down,
    /// A packet that may not be fragmented exceeds the MTU.
    #[error("packet of {size} bytes exceeds the link's {mtu} (send it in parts)")]
    TooLarge {
        /// Size of the packet, bytes.
        size: usize,
        /// MTU of the link, bytes.
        mtu: u16,
    },
    /// Too many system messages are waiting; the link fails.
    #[error("too many system messages waiting, the link goes down")]
    Overflow,
    /// The backlog has reached its absolute limit.
    #[error("the link's backlog is full (wait for the wake-up)")]
    NoBuffers,
}

/// The neighbour monitor's view of the peer. Spec: tipc.md §11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorVerdict {
    /// This node supervises the peer itself: its silence counts.
    pub supervised: bool,
    /// Neighbours report that the peer is lost, or an acknowledgement is due: send probes.
    pub probing: bool,
    /// Probe at every tick of an idle link: this node supervises the peer, or keys need packets.
    pub probes_when_idle: bool,
    /// The peer is down: reset the link.
    pub reset: bool,
}

impl Default for MonitorVerdict {
    /// Full mesh: every peer is supervised.
    fn default() -> Self {
        Self { supervised: true, probing: false, probes_when_idle: true, reset: false }
    }
}
