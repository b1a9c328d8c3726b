//! How many events wait, and for which connection the most.

use std::collections::BTreeSet;

/// Events of one level: connections with fewer are not listed, so that an event for a subscriber that reads costs
/// nothing here. Ours: less than the mean of [`super::MAX_CONNECTIONS`] when all events wait.
const LEVEL: usize = super::MAX_ALL_WAITING_EVENTS / super::MAX_CONNECTIONS;

/// The events that wait for all connections.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    total: usize,
    /// Connections by level, from the first one on.
    slow: BTreeSet<(usize, u32)>,
}

impl Waiting {
    /// Events that wait for all connections together.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// The events that wait for a connection have become more or fewer.
    pub(super) fn change(&mut self, connection: u32, before: usize, after: usize) {
        self.total = self.total + after - before;
        let (old, new) = (before / LEVEL, after / LEVEL);
        if old != new {
            self.slow.remove(&(old, connection));
            if new > 0 {
                self.slow.insert((new, connection));
            }
        }
    }

    /// A connection for which as many events wait as for any other, except for fewer than [`LEVEL`].
    pub(super) fn slowest(&self) -> Option<u32> {
        self.slow.last().map(|(_, connection)| *connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn slowest_connection_has_the_most_events_within_a_level() {
        let (mut rng, mut waiting, mut events) = (Rng::new(1), Waiting::default(), [0_usize; 20]);
        for _ in 0..10_000 {
            let connection = rng.below(20) as usize;
            let after = if rng.below(3) == 0 { 0 } else { rng.below(10 * LEVEL as u64) as usize };
            waiting.change(connection as u32, events[connection], after);
            events[connection] = after;
            assert_eq!(waiting.total(), events.iter().sum::<usize>());
            let most = events.iter().max().unwrap();
            match waiting.slowest() {
                Some(slowest) => assert_eq!(events[slowest as usize] / LEVEL, most / LEVEL),
                None => assert!(*most < LEVEL),
            }
        }
    }
}
