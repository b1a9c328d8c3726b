//! The receiving side of the broadcast link, for one peer. Spec: tipc.md §7.3.

use std::collections::VecDeque;

use thiserror::Error;

use crate::addr::{ClusterId, NodeAddr};
use crate::limits::{MAX_WINDOW, capability};
use crate::link::{Arrival, Carrier, ReceiveQueue, Unpacker};
use crate::planted::{self, Fault};
use crate::pool::Pool;
use crate::time::Time;
use crate::wire::{GapBlock, Message, MessageType, User, View, seq};

/// Packets received without acknowledgement after which a STATE may be due. Spec: tipc.md §7.3.
const ACK_THRESHOLD: u16 = 16;
/// Least interval of answers to a STATE that announces missing packets, milliseconds; the sender does not retransmit
/// more often. Without it two nodes that miss packets of each other would answer each other's answers forever.
const ANSWER_INTERVAL_MS: u64 = 10;
/// Largest gap that fits the 10 bits in a STATE. Spec: tipc.md §3.1.
const MAX_GAP: u16 = 0x3ff;

/// Reason why a broadcast packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refused {
    /// The peer has not announced the start of its sequence yet.
    #[error("the broadcast link from the peer is not synchronised yet")]
    NotOpen,
    /// The packet is from another cluster.
    #[error("broadcast of cluster {0}")]
    OtherCluster(u32),
    /// A user or type that may not be broadcast, or a header too short for it.
    #[error("user {user} type {kind} with a header of {header} bytes may not be broadcast")]
    NotBroadcast {
        /// Message user.
        user: u8,
        /// Message type.
        kind: u8,
        /// Header size, bytes.
        header: usize,
    },
    /// Received before, or outside the window.
    #[error("broadcast packet {0} is a duplicate")]
    Duplicate(u16),
    /// Early, and the memory for early packets is used up.
    #[error("no room to keep broadcast packet {0} until those before it arrive")]
    NoRoom(u16),
}

/// Counters since the start or the last clearing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Packets received in order or put in order.
    pub packets: u64,
    /// Packets received early.
    pub early: u64,
    /// Packets dropped as duplicates.
    pub duplicates: u64,
    /// Fragments and inner messages dropped.
    pub dropped: u64,
}

/// State of a peer's broadcasts.
#[derive(Debug)]
pub struct BroadcastReceiver {
    own: NodeAddr,
    capabilities: u16,
    queue: ReceiveQueue,
    unpacker: Unpacker,
    unpacked: VecDeque<Message>,
    open: bool,
    /// Number of the peer's next packet, as far as announced.
    announced: u16,
    /// The number that is acknowledged while the receiver is held.
    held_ack: Option<u16>,
    /// Packets received since the last acknowledgement.
    unacked: u16,
    /// Earliest time of the next answer to an announcement.
    answer_at: Time,
    stats: ReceiverStats,
}

impl BroadcastReceiver {
    /// The receiving side at node `own` for a peer with these capability bits; starts closed.
    #[must_use]
    pub fn new(own: NodeAddr, capabilities: u16) -> Self {
        Self {
            own,
            capabilities,
            queue: ReceiveQueue::new(1),
            unpacker: Unpacker::default(),
            unpacked: VecDeque::new(),
            open: false,
            announced: 1,
            held_ack: None,
            unacked: 0,
            answer_at: Time::ZERO,
            stats: ReceiverStats::default(),
        }
    }

    /// True if an announcement may be answered now; starts the interval until the next one.
    pub(super) fn take_answer(&mut self, now: Time) -> bool {
        let due = self.answer_at <= now;
        if due {
            self.answer_at = now.plus_millis(ANSWER_INTERVAL_MS);
        }
        due
    }

    /// Sets the peer's capability bits.
    pub fn set_capabilities(&mut self, capabilities: u16) {
        self.capabilities = capabilities;
    }

    /// The peer's capability bits.
    #[must_use]
    pub fn capabilities(&self) -> u16 {
        self.capabilities
    }

    /// Contact with the peer is lost: closes the receiver and clears its state.
    pub fn reset(&mut self) {
        if planted::active(Fault::BroadcastNotReset) {
            return;
        }
        let stats = self.stats;
        *self = Self { stats, ..Self::new(self.own, self.capabilities) };
    }

    /// The peer's BCAST_PROTOCOL message: its sequence starts at `last_bcast + 1`. Ignored if already open.
    pub fn synchronize(&mut self, last_bcast: u16) {
        if !self.open {
            self.start(last_bcast);
            self.open = true;
        }
    }

    /// RESET or ACTIVATE of a peer without BCAST_SYNCH announces the start of its sequence.
    pub fn start_legacy(&mut self, last_bcast: u16) {
        if !self.open && self.capabilities & capability::BCAST_SYNCH == 0 {
            self.start(last_bcast);
        }
    }

    /// The first binding of a peer without BCAST_SYNCH opens its broadcasts. Spec: tipc.md §6.1.
    pub fn open_legacy(&mut self) {
        self.open |= self.capabilities & capability::BCAST_SYNCH == 0;
    }

    /// True once the peer has announced the start of its sequence.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Processes a broadcast packet of the peer and appends the messages that are now in order to `delivered`: payload
    /// of multicast and group types, and bindings. Returns true if a STATE to the peer is due at once.
    ///
    /// A packet that is early is kept if it needs at most `room` bytes.
    ///
    /// # Errors
    /// [`Refused`]: why the packet was dropped.
    pub fn receive(
        &mut self,
        view: View<'_>,
        cluster: ClusterId,
        room: usize,
        delivered: &mut VecDeque<Message>,
    ) -> Result<bool, Refused> {
        if view.cluster_id() != cluster {
            return Err(Refused::OtherCluster(view.cluster_id().0));
        }
        if !self.open {
            return Err(Refused::NotOpen);
        }
        if !may_be_broadcast(view) {
            let (user, kind, header) = (view.user().into(), view.kind(), view.header_size());
            return Err(Refused::NotBroadcast { user, kind, header });
        }
        match self.queue.accept(view, room) {
            Arrival::InOrder => {
                let mut state_due = self.deliver(Carrier::Borrowed(view), delivered);
                while let Some(packet) = self.queue.pop() {
                    state_due |= self.deliver(Carrier::Owned(packet), delivered);
                }
                Ok(state_due)
            }
            Arrival::Deferred => {
                self.stats.early += 1;
                // Receivers report a lost packet at different times: the first report serves all of them.
                Ok(self.stats.early & 0xf == u64::from(self.own.0 & 0xf))
            }
            Arrival::Duplicate => {
                self.stats.duplicates += 1;
                Err(Refused::Duplicate(view.seqno()))
            }
            Arrival::Full => Err(Refused::NoRoom(view.seqno())),
        }
    }

    /// The peer announces in a STATE that it has sent everything up to `last_bcast`. Returns true if a packet is
    /// missing, so that a STATE must be sent in answer.
    #[must_use]
    pub fn announce(&mut self, last_bcast: u16) -> bool {
        let next = last_bcast.wrapping_add(1);
        let ahead = next.wrapping_sub(self.queue.rcv_nxt());
        if !self.open || ahead > MAX_WINDOW {
            return false;
        }
        self.announced = next;
        self.gap() != 0
    }

    /// Acknowledges no packet that arrives from now on, so that the peer's window fills, or all of them again.
    pub fn hold_ack(&mut self, on: bool) {
        self.held_ack = on.then(|| self.ack());
    }

    /// The last packet received in order, or the last one before the receiver was held: the broadcast ack of every
    /// packet to the peer.
    #[must_use]
    pub fn ack(&self) -> u16 {
        // A gap counts from the acknowledgement on.
        if let Some(held) = self.held_ack
            && self.gap() == 0
        {
            return held;
        }
        let ahead = u16::from(planted::active(Fault::BroadcastAckBeyond));
        self.queue.rcv_nxt().wrapping_sub(1).wrapping_add(ahead)
    }

    /// Number of packets missing after [`Self::ack`], at most 1023: the broadcast gap of a STATE to the peer.
    #[must_use]
    pub fn gap(&self) -> u16 {
        let deferred = self.queue.gap();
        let announced = self.announced.wrapping_sub(self.queue.rcv_nxt());
        let gap = if deferred != 0 { deferred } else { announced };
        if self.open { gap.min(MAX_GAP) } else { 0 }
    }

    /// The blocks received beyond the gap: the broadcast blocks of a STATE to the peer.
    #[must_use]
    pub fn gap_blocks(&self) -> Vec<GapBlock> {
        self.queue.gap_blocks()
    }

    /// True if packets arrived since the last acknowledgement: a STATE is due at the next tick.
    #[must_use]
    pub fn is_unacked(&self) -> bool {
        self.unacked != 0
    }

    /// A STATE went to the peer.
    pub fn state_sent(&mut self) {
        self.unacked = 0;
    }

    /// True for the next packet in order.
    pub(crate) fn is_next(&self, view: View<'_>) -> bool {
        view.seqno() == self.queue.rcv_nxt()
    }

    /// Memory of packets that wait for earlier ones, and of a message that waits for its last fragment, bytes.
    pub(crate) fn deferred_bytes(&self) -> usize {
        self.queue.deferred_bytes() + self.unpacker.reassembly.bytes()
    }

    /// Sets the counters to zero.
    pub fn clear_stats(&mut self) {
        self.stats = ReceiverStats::default();
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    fn start(&mut self, last_bcast: u16) {
        let late = u16::from(planted::active(Fault::BroadcastSyncOffByOne));
        let first = last_bcast.wrapping_add(1).wrapping_add(late);
        self.queue = ReceiveQueue::new(first);
        self.announced = first;
        self.held_ack = None;
    }

    /// Unpacks the next packet in order; true if it must be acknowledged now.
    fn deliver(&mut self, packet: Carrier<'_>, delivered: &mut VecDeque<Message>) -> bool {
        self.stats.packets += 1;
        let next = self.queue.rcv_nxt();
        if seq::lt(self.announced, next) {
            self.announced = next;
        }
        // A fragment that does not fit belongs to a message from before this node joined.
        self.stats.dropped +=
            u64::from(self.unpacker.unpack(packet, &mut Pool::default(), &mut self.unpacked).is_err());
        let before = self.unpacked.len();
        let kept = delivered.len();
        delivered.extend(self.unpacked.drain(..).filter(|m| is_broadcast_payload(m.view())));
        self.stats.dropped += (before - (delivered.len() - kept)) as u64;
        self.unacked = self.unacked.saturating_add(1);
        // Nodes acknowledge at different times, so that the sender is not flooded.
        self.unacked >= ACK_THRESHOLD && (u32::from(next) ^ self.own.0) & 0xf == 0xf
    }
}

/// True if the broadcast link may carry this packet. Spec: tipc.md §14.2.
fn may_be_broadcast(view: View<'_>) -> bool {
    let carrier = matches!(view.user(), User::Bundler | User::Fragmenter) && view.header_fits();
    carrier || is_broadcast_payload(view)
}

/// True if the broadcast link delivers this message.
fn is_broadcast_payload(view: View<'_>) -> bool {
    let to_many =
        matches!(view.message_type(), MessageType::Mcast | MessageType::GroupBcast | MessageType::GroupMcast);
    let system = matches!(view.user(), User::NameDistributor | User::Crypto);
    let known = system || view.is_data() && to_many;
    known && view.header_fits()
}
