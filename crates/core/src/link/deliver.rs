//! Incoming packets: order, acknowledgement, delivery. Spec: tipc.md §5.8.

use super::fragment;
use super::protocol::StateNote;
use super::receive::Arrival;
use super::unpack::Carrier;
use super::{DownReason, Link, LinkIo, LinkSignal, State};
use crate::time::Time;
use crate::wire::{User, View};

/// Packets received without sending one after which a STATE acknowledges. Spec: tipc.md §5.8.
pub(super) const ACK_THRESHOLD: u16 = 16;
/// [`ACK_THRESHOLD`] between fragments of one message, if the peer's window is known to be larger. It is below
/// Linux's smallest default window, 50.
const FRAGMENT_ACK_THRESHOLD: u16 = 48;
/// Early packets after which a gap is reported: this many, and each [`ACK_THRESHOLD`] more. Spec: tipc.md §5.8.
const FAST_NACK: usize = 3;

impl Link {
    /// Handles a sequenced packet.
    pub fn receive(&mut self, now: Time, packet: View<'_>, io: &mut LinkIo<'_>) {
        self.session.silence = 0;
        if !self.is_up() {
            if self.state == State::Establishing {
                io.signals.push(LinkSignal::Up);
            }
            return;
        }
        if !self.session.receive.accepts(packet.seqno()) {
            self.session.stats.rx_duplicates += 1;
            return;
        }
        let released = self.session.transmit.release_to(packet.ack(), io.pool);
        match self.session.receive.accept(packet, io.deferral_room) {
            Arrival::InOrder => self.deliver(packet, io),
            Arrival::Deferred => self.report_early(io),
            Arrival::Duplicate => self.session.stats.rx_duplicates += 1,
            Arrival::Full => self.session.stats.refused += 1,
        }
        if released > 0 {
            self.session.round_trip.acknowledged(now, self.session.transmit.head());
        }
        self.released(released, false, io);
    }

    /// Takes the next fragment from the middle of a message if nothing else follows from it: it completes nothing, does
    /// not release packets in flight, and is not acknowledged yet. False for every other packet, which
    /// [`Self::receive`] takes.
    pub(crate) fn take_middle(&mut self, packet: View<'_>) -> bool {
        let is_next = self.is_up()
            && packet.seqno() == self.rcv_nxt()
            && self.session.receive.deferred_len() == 0
            && !self.session.transmit.releases(packet.ack())
            && self.session.acks.unacked + 1 < self.ack_threshold(packet);
        if !is_next || !self.session.unpacker.take_middle(packet) {
            return false;
        }
        self.session.silence = 0;
        self.session.receive.advance();
        self.session.stats.rx_packets += 1;
        self.session.acks.unacked += 1;
        true
    }

    /// Delivers a packet that is in order, and the deferred ones that follow it.
    fn deliver(&mut self, packet: View<'_>, io: &mut LinkIo<'_>) {
        let mut next = Some(Carrier::Borrowed(packet));
        while let Some(carrier) = next {
            self.consume(carrier, io);
            if !self.is_up() {
                return;
            }
            next = self.session.receive.pop().map(Carrier::Owned);
        }
    }

    fn consume(&mut self, carrier: Carrier<'_>, io: &mut LinkIo<'_>) {
        self.session.stats.rx_packets += 1;
        let threshold = self.ack_threshold(carrier.view());
        let done = if carrier.view().user() == User::Tunnel {
            self.receive_tunnel(carrier.view(), io)
        } else {
            self.session.unpacker.unpack(carrier, io.pool, io.delivered)
        };
        if done.is_err() {
            return self.fail_because(DownReason::Reassembly, io);
        }
        self.session.acks.unacked += 1;
        if self.session.acks.unacked >= threshold {
            let count = self.session.acks.unacked;
            if self.send_state(io) {
                self.session.acks.peer_in_flight = self.session.acks.peer_in_flight.saturating_add(count);
            } else {
                self.session.acks.peer_in_flight = count;
            }
            self.session.acks.max_peer_in_flight =
                self.session.acks.max_peer_in_flight.max(self.session.acks.peer_in_flight);
        }
    }

    /// Number of unacknowledged packets, including this one, that triggers an acknowledgement.
    fn ack_threshold(&self, packet: View<'_>) -> u16 {
        let more_to_come = packet.user() == User::Fragmenter && packet.kind() != fragment::LAST;
        if more_to_come && self.session.acks.max_peer_in_flight >= FRAGMENT_ACK_THRESHOLD {
            return FRAGMENT_ACK_THRESHOLD;
        }
        ACK_THRESHOLD
    }

    fn report_early(&mut self, io: &mut LinkIo<'_>) {
        self.session.stats.rx_deferred += 1;
        let early = self.session.receive.deferred_len();
        if early >= FAST_NACK && (early - FAST_NACK).is_multiple_of(usize::from(ACK_THRESHOLD)) {
            let gap = self.session.receive.gap();
            self.send_state_with(StateNote { gap, ..StateNote::default() }, io);
        }
    }
}
