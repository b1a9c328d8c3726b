//! LINK_PROTOCOL messages: acceptance, effects and sending. Spec: tipc.md §3.1, §5.3 to §5.5.

use super::parts;
use super::path::is_large;
use super::{DownReason, Event, Link, LinkIo, LinkSignal, State, Transition, fit};
use crate::limits::{MAX_TOLERANCE_MS, MIN_TOLERANCE_MS, capability};
use crate::planted::{self, Fault};
use crate::time::Time;
use crate::wire::{
    BareHeader, GapBlock, GapRecord, INTERFACE_NAME_LEN, INTERNAL_HEADER, InterfaceName, LinkProtocolType,
    Message, User, View, seq,
};

/// The largest priority. Spec: tipc.md §15.
const MAX_PRIORITY: u8 = 31;
/// Maximum amount of data in a protocol message, bytes. Spec: tipc.md §5.3.
const MAX_PROTOCOL_DATA: usize = 65_535;
/// Least time between two retransmissions of a packet, milliseconds. Spec: tipc.md §5.8.
const RETRANSMIT_SPACING_MS: u64 = 1;
/// A packet first retransmitted this many tolerances ago fails the link. Spec: tipc.md §5.8.
const RETRANSMIT_TOLERANCES: u64 = 10;

/// Contents of a STATE message besides the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StateNote {
    /// Requests a reply.
    pub(super) probe: bool,
    /// Is a reply.
    pub(super) reply: bool,
    /// Packets missing.
    pub(super) gap: u16,
    /// New tolerance, milliseconds, or 0.
    pub(super) tolerance: u16,
    /// New priority, or 0.
    pub(super) priority: u8,
    /// Bytes to which the frame is filled up, to prove that the path carries them; 0 for none.
    pub(super) filled_to: usize,
}

/// Consecutive acknowledgements of packets that were never sent after which the link fails: the ends have different
/// sessions (a packet of an earlier session came late) and would never agree. Ours: a few ticks.
const MAX_IMPLAUSIBLE: u32 = 8;

impl Link {
    /// True if a LINK_PROTOCOL message belongs to the session and its size and MTU are valid. Spec: tipc.md §5.3,
    /// §14.2.
    #[must_use]
    pub fn accepts_protocol(&self, msg: View<'_>) -> bool {
        if msg.user() != User::LinkProtocol || !msg.header_fits() || msg.payload().len() > MAX_PROTOCOL_DATA {
            return false;
        }
        let session = msg.session();
        match msg.link_type() {
            LinkProtocolType::Reset => {
                let fresh = seq::gt(session, self.peer_session) || planted::active(Fault::StaleSession);
                self.is_setup(msg) && (!self.session.is_joined || fresh)
            }
            LinkProtocolType::Activate => {
                self.is_setup(msg) && (!self.session.is_joined || !seq::lt(session, self.peer_session))
            }
            LinkProtocolType::State => {
                self.session.is_joined && session == self.peer_session && self.is_state(msg)
            }
            LinkProtocolType::Part | LinkProtocolType::Other(_) => false,
        }
    }

    fn is_setup(&self, msg: View<'_>) -> bool {
        let mtu = u32::from(msg.max_packet()) * 4;
        mtu >= u32::from(self.config.min_mtu) && msg.payload().len() >= INTERFACE_NAME_LEN
    }

    fn is_state(&self, msg: View<'_>) -> bool {
        let record = !self.peer_can(capability::GAP_ACK_BLOCK) || GapRecord::parse(msg.payload()).is_ok();
        let nothing_acked = msg.ack() == self.config.first_seqno.wrapping_sub(1);
        let fresh = !self.numbers_states() || !seq::lt(msg.seqno(), self.session.state_rcv_nxt);
        record && fresh && (self.is_up() || nothing_acked)
    }

    /// Handles a LINK_PROTOCOL message from the peer.
    pub fn receive_protocol(&mut self, now: Time, msg: View<'_>, io: &mut LinkIo<'_>) {
        if self.is_blocked() {
            return;
        }
        if self.config.own > msg.prev_node() {
            self.net_plane = msg.net_plane();
        }
        if !self.accepts_protocol(msg) {
            self.session.stats.refused += 1;
            return;
        }
        match msg.link_type() {
            LinkProtocolType::State => self.receive_state(now, msg, io),
            _ => self.receive_setup(msg, io),
        }
    }

    /// Handles RESET and ACTIVATE, in the order of §5.4.
    fn receive_setup(&mut self, msg: View<'_>, io: &mut LinkIo<'_>) {
        let name = msg.payload().first_chunk().copied().unwrap_or_default();
        self.peer_interface = InterfaceName(name).text();
        self.adopt_tolerance(msg);
        if msg.link_priority() > self.config.priority && msg.link_priority() <= MAX_PRIORITY {
            self.config.priority = msg.link_priority();
        }
        if msg.peer_stopping() {
            self.fail_because(DownReason::PeerStopping, io);
            return;
        }
        let activate = msg.link_type() == LinkProtocolType::Activate;
        if !self.is_heard {
            self.is_heard = activate && msg.dest_session_valid() && msg.dest_session() == self.own_session;
            self.session.setup_ticks = 0;
        }
        if activate && msg.dest_session_valid() && msg.dest_session() != self.own_session {
            if seq::lt(self.own_session, msg.dest_session()) {
                self.own_session = msg.dest_session().wrapping_add(1);
            }
            // The peer took an old RESET of this end for the latest one. If this end holds an old one of the peer too,
            // neither would accept the other's ACTIVATE: send the current session.
            self.tell_session(io);
            return;
        }
        if (!activate || !self.is_up())
            && let Transition::Down(_) = self.event(Event::PeerReset)
        {
            io.signals.push(LinkSignal::Down(DownReason::PeerReset));
        }
        if activate && self.state == State::Establishing {
            io.signals.push(LinkSignal::Up);
        }
        self.peer_session = msg.session();
        self.session.is_joined = true;
        self.peer_bearer = msg.bearer_id();
        self.session.path.restrict(u16::try_from(u32::from(msg.max_packet()) * 4).unwrap_or(u16::MAX));
        self.adopt_path(io);
    }

    /// Handles STATE, in the order of §5.5.
    fn receive_state(&mut self, now: Time, msg: View<'_>, io: &mut LinkIo<'_>) {
        let record = if self.peer_can(capability::GAP_ACK_BLOCK) {
            GapRecord::parse(msg.payload()).unwrap_or_default()
        } else {
            GapRecord::default()
        };
        self.session.state_rcv_nxt = msg.seqno().wrapping_add(1);
        self.adopt_tolerance(msg);
        let priority = msg.link_priority();
        if (1..=MAX_PRIORITY).contains(&priority) && priority != self.config.priority {
            self.config.priority = priority;
            self.fail_because(DownReason::PriorityChange, io);
        }
        self.session.silence = 0;
        self.session.stats.rx_states += 1;
        self.session.stats.rx_probes += u64::from(msg.probe());
        if !self.is_up() {
            if self.state == State::Establishing {
                io.signals.push(LinkSignal::Up);
            }
            return;
        }
        let asked = msg.probe() || msg.keepalive();
        let behind = seq::gt(msg.next_sent(), self.rcv_nxt());
        let nothing_deferred = self.session.receive.deferred_len() == 0;
        let gap = if asked && behind && !self.is_synching() && nothing_deferred {
            msg.next_sent().wrapping_sub(self.rcv_nxt())
        } else {
            0
        };
        if gap != 0 || msg.probe() || planted::active(Fault::StateStorm) {
            self.send_state_with(StateNote { reply: msg.probe(), gap, ..StateNote::default() }, io);
        }
        self.session.stats.rx_nacks += u64::from(msg.seq_gap() != 0);
        if msg.keepalive() && !msg.probe() && self.take_reply() && self.session.path.answered() {
            self.adopt_path(io);
        }
        self.probe_path(now, io);
        self.acknowledge(now, msg.ack(), msg.seq_gap(), &record.unicast, io);
    }

    fn adopt_tolerance(&mut self, msg: View<'_>) {
        let tolerance = u32::from(msg.link_tolerance());
        if (MIN_TOLERANCE_MS..=MAX_TOLERANCE_MS).contains(&tolerance) {
            self.config.tolerance_ms = tolerance;
        }
    }

    /// Releases acknowledged packets and retransmits missing ones. Spec: tipc.md §5.8.
    fn acknowledge(&mut self, now: Time, ack: u16, gap: u16, blocks: &[GapBlock], io: &mut LinkIo<'_>) {
        if !self.session.transmit.is_plausible(ack, gap, blocks) {
            self.session.stats.refused += 1;
            self.session.implausible += 1;
            if self.session.implausible > MAX_IMPLAUSIBLE {
                self.fail_because(DownReason::Implausible, io);
            }
            return;
        }
        self.session.implausible = 0;
        let (link_ack, bcast_ack) = (self.ack(), io.bcast.ack);
        let (part, arrived) = (self.part_header(), self.session.transmit.large_acknowledged());
        let mut from = self.session.transmit.head();
        let mut largest = self.largest();
        let mut released = 0;
        let mut repeated = 0;
        for &(to, missing) in core::iter::once(&(ack, gap)).chain(blocks) {
            released += self.session.transmit.release_range(from, to, io.pool);
            from = to.wrapping_add(missing).wrapping_add(1);
            if missing == 0 {
                continue;
            }
            if self.is_stuck(now) {
                self.fail_because(DownReason::Retransmission, io);
                return;
            }
            for sent in self.session.transmit.range_mut(to.wrapping_add(1), to.wrapping_add(missing)) {
                if sent.try_retransmit(now, RETRANSMIT_SPACING_MS) {
                    sent.packet.edit().set_ack(link_ack);
                    sent.packet.edit().set_bcast_ack(bcast_ack);
                    let size = sent.packet.size();
                    if is_large(size) && self.session.path.lost(now, arrived) {
                        largest = fit(self.session.path.size(), self.config.overhead);
                    }
                    if size > largest {
                        sent.packet.push_parts(part, largest, &mut io.frames);
                    }
                    if size <= largest || sent.tries_whole() {
                        sent.packet.push(&mut io.frames);
                    }
                    repeated += 1;
                }
            }
        }
        self.adopt_path(io);
        self.probe_path(now, io);
        self.session.stats.retransmitted += repeated;
        if repeated > 0 {
            self.session.window.retransmitted();
            self.session.round_trip.retransmitted();
        } else if released > 0 {
            self.session.round_trip.acknowledged(now, self.session.transmit.head());
        }
        self.released(released, repeated > 0, io);
    }

    /// A reply has arrived; true if only one probe waited for it. The latest counts as answered: a lost one is
    /// forgotten when it is old.
    fn take_reply(&mut self) -> bool {
        let is_only = self.session.asked.iter().map(|asked| u32::from(*asked)).sum::<u32>() == 1;
        if let Some(asked) = self.session.asked.iter_mut().find(|asked| **asked > 0) {
            *asked -= 1;
        }
        is_only
    }

    /// Sends a probe of the path's size if one is due, and no other request for a reply is on its way.
    pub(crate) fn probe_path(&mut self, now: Time, io: &mut LinkIo<'_>) -> bool {
        if !self.is_up() || self.session.asked.iter().any(|asked| *asked > 0) {
            return false;
        }
        let Some(size) = self.session.path.next_probe(now) else { return false };
        let filled_to = fit(size, self.config.overhead);
        self.send_state_with(StateNote { probe: true, filled_to, ..StateNote::default() }, io);
        true
    }

    /// The peer lacks large packets that reached it in another way than over this link's sequence: proves the path's
    /// size again.
    pub(crate) fn distrust_path(&mut self, now: Time, io: &mut LinkIo<'_>) {
        if self.is_up() && self.session.path.distrust() {
            self.adopt_path(io);
            self.probe_path(now, io);
        }
    }

    /// The header of a part of a packet to the peer.
    pub(super) fn part_header(&self) -> BareHeader {
        let mut header = parts::header(self.config.own, self.config.peer);
        header.set_session(self.own_session);
        header.set_bearer_id(self.config.bearer);
        header.set_net_plane(self.net_plane);
        header
    }

    /// True if the oldest packet has been retransmitted for too long.
    fn is_stuck(&self, now: Time) -> bool {
        let since = self.session.transmit.first().and_then(|sent| sent.first_retransmit());
        let limit = u64::from(self.config.tolerance_ms) * RETRANSMIT_TOLERANCES;
        since.is_some_and(|since| now > since.plus_millis(limit))
    }

    /// Sends a STATE as an acknowledgement: after received packets, as the first message on a link that came up
    /// (§6.4), and when the broadcast side requests it. Returns true if it replaced an earlier one that was not
    /// sent yet.
    pub fn send_state(&mut self, io: &mut LinkIo<'_>) -> bool {
        self.session.acks.unacked = 0;
        self.session.stats.tx_acks += u64::from(self.is_up());
        self.send_state_with(StateNote::default(), io)
    }

    /// Asks the peer for its acknowledgements.
    pub(crate) fn probe(&mut self, io: &mut LinkIo<'_>) {
        self.send_state_with(StateNote { probe: true, ..StateNote::default() }, io);
    }

    /// Sends a STATE if the link is up; true if it replaced an earlier one that was not sent yet.
    pub(super) fn send_state_with(&mut self, mut note: StateNote, io: &mut LinkIo<'_>) -> bool {
        if !self.is_up() {
            return false;
        }
        if (note.probe || note.reply) && self.session.receive.deferred_len() > 0 {
            note.gap = self.session.receive.gap();
        }
        if note.gap > 0 && self.session.acks.held.is_some() {
            // A gap counts from the acknowledgement on.
            self.session.acks.held = Some(self.rcv_nxt().wrapping_sub(1));
        }
        let mut data = if self.peer_can(capability::GAP_ACK_BLOCK) {
            let unicast = if note.gap > 0 { self.session.receive.gap_blocks() } else { Vec::new() };
            GapRecord::new(&io.bcast.gap_blocks, &unicast).to_bytes()
        } else {
            Vec::new()
        };
        data.extend_from_slice(&self.session.monitor_record);
        let mut msg = self.protocol_message(LinkProtocolType::State, &data, io);
        if self.numbers_states() {
            msg.set_seqno(self.session.state_snd_nxt);
            self.session.state_snd_nxt = self.session.state_snd_nxt.wrapping_add(1);
        }
        msg.set_bcast_ack(io.bcast.ack);
        msg.set_seq_gap(note.gap);
        msg.set_bcast_gap(io.bcast.gap);
        msg.set_probe(note.probe);
        msg.set_keepalive(note.probe || note.reply);
        msg.set_link_tolerance(note.tolerance);
        msg.set_link_priority(note.priority);
        if note.probe {
            self.session.asked[0] = self.session.asked[0].saturating_add(1);
        }
        if note.probe && note.filled_to == 0 {
            self.session.path.forget_probe();
        }
        self.session.acks.unacked = 0;
        self.session.stats.tx_states += 1;
        self.session.stats.tx_probes += u64::from(note.probe);
        self.session.stats.tx_nacks += u64::from(note.gap > 0);
        if note == StateNote::default() {
            return io.frames.push_ack(msg.bytes());
        }
        if note.filled_to > 0 {
            let mut frame = msg.bytes().to_vec();
            frame.resize(note.filled_to.max(frame.len()), 0);
            io.frames.push(&frame);
            return false;
        }
        io.frames.push(msg.bytes());
        false
    }

    /// Sends ACTIVATE in ESTABLISHING, RESET in RESET, and nothing in other states. The node may call it as soon as it
    /// has created the link or it enters ESTABLISHING, instead of at the next tick; `stopping` marks a RESET that takes
    /// the link down (§6.6).
    pub fn send_setup(&mut self, stopping: bool, io: &mut LinkIo<'_>) {
        let kind = match self.state {
            State::Reset => LinkProtocolType::Reset,
            State::Establishing => LinkProtocolType::Activate,
            _ => return,
        };
        self.send_setup_as(kind, stopping, io);
    }

    /// Sends RESET, with this end's session, if an ACTIVATE waits for its answer. The ACTIVATE names the session of the
    /// peer that this end knows; a peer that has another one by now answers RESET only.
    pub(crate) fn tell_session(&mut self, io: &mut LinkIo<'_>) {
        if self.state == State::Establishing {
            self.send_setup_as(LinkProtocolType::Reset, false, io);
        }
    }

    fn send_setup_as(&mut self, kind: LinkProtocolType, stopping: bool, io: &mut LinkIo<'_>) {
        let name = InterfaceName::from(self.config.interface.as_str());
        let mut msg = self.protocol_message(kind, &name.0, io);
        if kind == LinkProtocolType::Activate {
            msg.set_dest_session_valid(true);
            msg.set_dest_session(self.peer_session);
        } else {
            msg.set_bcast_ack(io.bcast.ack);
            msg.set_peer_stopping(stopping);
        }
        msg.set_max_packet(self.config.max_receive / 4);
        io.frames.push(msg.bytes());
    }

    /// A LINK_PROTOCOL message with the fields that all three types share. Spec: tipc.md §3.1.
    fn protocol_message(&self, kind: LinkProtocolType, data: &[u8], io: &LinkIo<'_>) -> Message {
        let mut msg = Message::build(User::LinkProtocol, kind.into(), INTERNAL_HEADER, data);
        msg.set_prev_node(self.config.own);
        msg.set_origin_node(self.config.own);
        msg.set_dest_node(self.config.peer);
        msg.set_ack(self.ack());
        msg.set_seqno(self.snd_nxt().wrapping_add(32_767));
        msg.set_last_bcast(io.bcast.last_sent);
        msg.set_next_sent(self.snd_nxt());
        msg.set_session(self.own_session);
        msg.set_bcast_ack_invalid(io.bcast.ack_invalid);
        msg.set_redundant_link(!io.bcast.ack_invalid);
        msg.set_bearer_id(self.config.bearer);
        msg.set_net_plane(self.net_plane);
        msg
    }
}
