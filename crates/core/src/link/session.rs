//! The session of a link: what a reset replaces as a whole.

use super::config::{LinkConfig, MonitorVerdict};
use super::path::{Path, REPLY_TICKS};
use super::stats::LinkStats;
use super::{ReceiveQueue, RoundTrip, TransmitQueue, Unpacker, Window, path_of, tunnel};

/// Everything that a link knows of its present session with the peer.
#[derive(Debug)]
pub(super) struct Session {
    /// The peer's session is known.
    pub(super) is_joined: bool,
    /// Number of the next STATE to send, and the lowest number accepted.
    pub(super) state_snd_nxt: u16,
    pub(super) state_rcv_nxt: u16,
    pub(super) path: Path,
    /// Probes that may still be answered, by age: those since the last tick first.
    pub(super) asked: [u16; REPLY_TICKS],
    pub(super) transmit: TransmitQueue,
    pub(super) window: Window,
    pub(super) round_trip: RoundTrip,
    /// `snd_nxt` at the previous tick.
    pub(super) checkpoint: u16,
    pub(super) receive: ReceiveQueue,
    pub(super) unpacker: Unpacker,
    pub(super) acks: Acks,
    /// Ticks without a packet from the peer.
    pub(super) silence: u32,
    /// Consecutive acknowledgements of packets that were never sent.
    pub(super) implausible: u32,
    /// Ticks of the node's timer while the link was down; of a peer that has not shown that it hears this node, since
    /// its last message.
    pub(super) setup_ticks: u32,
    pub(super) monitor: MonitorVerdict,
    /// The monitor record that every STATE carries after the gap record.
    pub(super) monitor_record: Vec<u8>,
    /// The receiving state of a failed link, whose packets arrive over this one.
    pub(super) inherited: Option<tunnel::Inherited>,
    pub(super) stats: LinkStats,
}

/// What the peer is told of its packets, and when.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// The number that is acknowledged while the receiving side is held.
    pub(super) held: Option<u16>,
    /// Packets received in order since the last own packet.
    pub(super) unacked: u16,
    /// Packets that the peer sent after the last acknowledgement, and the highest such number: the peer's window is at
    /// least that large.
    pub(super) peer_in_flight: u16,
    pub(super) max_peer_in_flight: u16,
}

impl Session {
    /// A session in which nothing was sent or received.
    pub(super) fn new(config: &LinkConfig) -> Self {
        let first = config.first_seqno;
        Self {
            is_joined: false,
            state_snd_nxt: first,
            state_rcv_nxt: first,
            path: path_of(config),
            asked: [0; REPLY_TICKS],
            transmit: TransmitQueue::new(first),
            window: Window::new(config.min_window, config.max_window),
            round_trip: RoundTrip::default(),
            checkpoint: first,
            receive: ReceiveQueue::new(first),
            unpacker: Unpacker::default(),
            acks: Acks::default(),
            silence: 0,
            implausible: 0,
            setup_ticks: 0,
            monitor: MonitorVerdict::default(),
            monitor_record: Vec::new(),
            inherited: None,
            stats: LinkStats::default(),
        }
    }
}
