//! Shortest round trip of a link, which limits how many small packets leave one by one. Spec: tipc.md §5.7.
//!
//! A packet that leaves alone costs its sender and its receiver a system call each. That pays only for as many packets
//! as keep the path busy; more would merely queue at the receiver. Beyond this limit packets wait in the backlog for
//! the next acknowledgement, where they are bundled and sent in batches. The limit follows from the shortest round trip
//! measured.

use crate::time::Time;
use crate::wire::seq;

/// Shortest interval of packets that leave one by one: each costs a system call, which takes a microsecond or more.
const NS_PER_PACKET: u64 = 2000;
/// Lower bound of the limit: an acknowledgement is due every 16 packets, and another 16 cover its way back.
const LEAST: u16 = 32;
/// Length of a measuring period; a round trip counts for this period and the next (about 6 s at the default tolerance).
const PERIOD_TICKS: u32 = 16;

/// Estimates the shortest round trip of a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundTrip {
    /// A packet in flight that is being measured, and when it left.
    probe: Option<(u16, Time)>,
    /// Shortest round trip of this period and of the previous one, nanoseconds.
    least: [Option<u64>; 2],
    ticks: u32,
}

impl RoundTrip {
    /// Packet `seqno` is being sent.
    pub(crate) fn sent(&mut self, now: Time, seqno: u16) {
        self.probe.get_or_insert((seqno, now));
    }

    /// All packets before `head` are acknowledged.
    pub(crate) fn acknowledged(&mut self, now: Time, head: u16) {
        if let Some((_, left)) = self.probe.take_if(|(seqno, _)| seq::lt(*seqno, head)) {
            let round_trip = now.since(left).as_nanos() as u64;
            let least = self.least[0].get_or_insert(round_trip);
            *least = round_trip.min(*least);
        }
    }

    /// A packet was retransmitted; the acknowledgement may be for either copy, so the measurement is dropped.
    pub(crate) fn retransmitted(&mut self) {
        self.probe = None;
    }

    /// One tick of the link's timer.
    pub(crate) fn tick(&mut self) {
        self.ticks += 1;
        if self.ticks == PERIOD_TICKS {
            self.ticks = 0;
            self.least = [None, self.least[0]];
        }
    }

    /// Maximum number of packets in flight; unlimited before the first measurement.
    pub(crate) fn in_flight_limit(&self) -> u16 {
        let least = self.least.iter().flatten().min();
        least.map_or(u16::MAX, |ns| u16::try_from(ns / NS_PER_PACKET).unwrap_or(u16::MAX).max(LEAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_round_trip_sets_the_limit_until_it_expires() {
        let at = Time::from_nanos;
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.in_flight_limit(), u16::MAX, "no measurement yet");
        round_trip.sent(at(0), 7);
        round_trip.sent(at(90_000), 8);
        round_trip.acknowledged(at(95_000), 7);
        assert_eq!(round_trip.in_flight_limit(), u16::MAX, "packet 7 is not acknowledged yet");
        round_trip.acknowledged(at(800_000), 9);
        assert_eq!(round_trip.in_flight_limit(), 400);
        for (left, back) in [(900_000, 950_000), (1_000_000, 1_900_000)] {
            round_trip.sent(at(left), 9);
            round_trip.acknowledged(at(back), 10);
            assert_eq!(round_trip.in_flight_limit(), LEAST, "50 us are 25 packets");
        }
        (0..PERIOD_TICKS).for_each(|_| round_trip.tick());
        assert_eq!(round_trip.in_flight_limit(), LEAST);
        round_trip.sent(at(2_000_000), 10);
        round_trip.acknowledged(at(2_400_000), 11);
        (0..PERIOD_TICKS).for_each(|_| round_trip.tick());
        assert_eq!(round_trip.in_flight_limit(), 200, "the path has become longer");
    }

    #[test]
    fn retransmitted_packets_are_not_measured() {
        let mut round_trip = RoundTrip::default();
        round_trip.sent(Time::ZERO, 65_535);
        round_trip.retransmitted();
        round_trip.acknowledged(Time::from_nanos(1), 0);
        assert_eq!(round_trip.in_flight_limit(), u16::MAX);
    }
}
