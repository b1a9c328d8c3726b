//! Supervision of a connection: probes of its peer. Spec: tipc.md §8.4.

use crate::time::Time;

/// Interval at which the peer of an idle connection is probed, milliseconds. Spec: tipc.md §8.4.
const INTERVAL_MS: u64 = 3_600_000;

/// The probes of one connection.
#[derive(Debug)]
pub(super) struct Probe {
    due: Time,
    is_unanswered: bool,
}

impl Probe {
    /// Of a connection that begins.
    pub(super) fn new(now: Time) -> Self {
        Self { due: now.plus_millis(INTERVAL_MS), is_unanswered: false }
    }

    /// Time when [`Self::next`] is due.
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// The peer has sent a protocol message.
    pub(super) fn answered(&mut self) {
        self.is_unanswered = false;
    }

    /// Begins the next probe; false if the last one was not answered.
    pub(super) fn next(&mut self, now: Time) -> bool {
        self.due = now.plus_millis(INTERVAL_MS);
        !core::mem::replace(&mut self.is_unanswered, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_without_an_answer_is_the_last_one() {
        let mut probe = Probe::new(Time::ZERO);
        for hour in 1..4 {
            let now = probe.due();
            assert_eq!(now, Time::from_millis(hour * INTERVAL_MS));
            assert!(probe.next(now));
            probe.answered();
        }
        assert!(probe.next(probe.due()));
        assert!(!probe.next(probe.due()));
    }
}
