//! How many small packets leave one by one before the next ones wait to leave together. Spec: tipc.md §5.7.
//!
//! A packet that leaves alone costs its sender and its receiver a system call each. As many as keep the path busy gain
//! nothing by company; later ones only queue up at the receiver. So they wait for the next acknowledgement in the
//! backlog, where they join bundles and runs. What keeps the path busy follows from the shortest round trip seen.

use crate::time::Time;
use crate::wire::seq;

/// The fastest that packets leave one by one: a system call each costs a microsecond or more.
const NS_PER_PACKET: u64 = 2000;
/// So many may always be under way: an acknowledgement is due every 16, and another 16 bridge its way back.
const LEAST: u16 = 32;
/// Ticks after which the shortest round trip of the period before is forgotten: about 6 s at the default tolerance.
const PERIOD_TICKS: u32 = 16;

/// The shortest round trip of a link, and what follows from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    /// A packet under way, and when it left.
    probe: Option<(u16, Time)>,
    /// Shortest round trip in this period and in the one before, nanoseconds.
    least: [Option<u64>; 2],
    ticks: u32,
}

impl Pace {
    /// Packet `seqno` leaves now.
    pub(crate) fn sent(&mut self, now: Time, seqno: u16) {
        self.probe.get_or_insert((seqno, now));
    }

    /// All packets before `head` have arrived.
    pub(crate) fn acknowledged(&mut self, now: Time, head: u16) {
        if let Some((_, left)) = self.probe.take_if(|(seqno, _)| seq::lt(*seqno, head)) {
            let round_trip = now.since(left).as_nanos() as u64;
            let least = self.least[0].get_or_insert(round_trip);
            *least = round_trip.min(*least);
        }
    }

    /// Something was sent again: which copy is acknowledged is not known.
    pub(crate) fn repeated(&mut self) {
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

    /// How many may be under way; all if nothing is known.
    pub(crate) fn limit(&self) -> u16 {
        let least = self.least.iter().flatten().min();
        least.map_or(u16::MAX, |ns| u16::try_from(ns / NS_PER_PACKET).unwrap_or(u16::MAX).max(LEAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_round_trip_sets_the_limit_until_it_is_old() {
        let at = Time::from_nanos;
        let mut pace = Pace::default();
        assert_eq!(pace.limit(), u16::MAX, "nothing known");
        pace.sent(at(0), 7);
        pace.sent(at(90_000), 8);
        pace.acknowledged(at(95_000), 7);
        assert_eq!(pace.limit(), u16::MAX, "packet 7 is not acknowledged yet");
        pace.acknowledged(at(800_000), 9);
        assert_eq!(pace.limit(), 400);
        for (left, back) in [(900_000, 950_000), (1_000_000, 1_900_000)] {
            pace.sent(at(left), 9);
            pace.acknowledged(at(back), 10);
            assert_eq!(pace.limit(), LEAST, "50 us are 25 packets");
        }
        (0..PERIOD_TICKS).for_each(|_| pace.tick());
        assert_eq!(pace.limit(), LEAST);
        pace.sent(at(2_000_000), 10);
        pace.acknowledged(at(2_400_000), 11);
        (0..PERIOD_TICKS).for_each(|_| pace.tick());
        assert_eq!(pace.limit(), 200, "the path has become longer");
    }

    #[test]
    fn a_packet_that_may_have_been_repeated_measures_nothing() {
        let mut pace = Pace::default();
        pace.sent(Time::ZERO, 65_535);
        pace.repeated();
        pace.acknowledged(Time::from_nanos(1), 0);
        assert_eq!(pace.limit(), u16::MAX);
    }
}
