//! How long senders wait for a receiver that is full. Spec: tipc.md §8.7, decision 22.

use core::time::Duration;

/// Longest time for which senders wait for a receiver that has not read [`READ_BEFORE_MORE`] yet.
const FIRST_WAIT: Duration = Duration::from_millis(40);
/// Longest time for which senders wait for a receiver each time that it has read `READ_BEFORE_MORE`. Busy hosts may
/// keep a process from running for longer than `FIRST_WAIT`.
pub const MAX_WAIT: Duration = Duration::from_millis(80);
/// Bytes that a receiver has to read before the full time is available again. A receiver that reads less than
/// 6.4 MB/s cannot slow its senders down to its own pace. It is more than a daemon hands out to a lane in advance.
const READ_BEFORE_MORE: u64 = 512 << 10;

/// The time for which senders still wait for one receiver. A receiver that does not read uses it up once.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    left: Duration,
    /// Bytes that the receiver had read when the full time was available last.
    mark: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { left: FIRST_WAIT, mark: 0 }
    }
}

impl Patience {
    /// Longest time of the next wait; `read`: bytes that the receiver has read since its beginning.
    #[must_use]
    pub fn left(&self, read: u64) -> Duration {
        if self.is_renewed(read) { MAX_WAIT } else { self.left }
    }

    /// Counts a wait that has ended.
    pub fn spend(&mut self, waited: Duration, read: u64) {
        if self.is_renewed(read) {
            (self.left, self.mark) = (MAX_WAIT, read);
        }
        self.left = self.left.saturating_sub(waited);
    }

    fn is_renewed(&self, read: u64) -> bool {
        read.saturating_sub(self.mark) >= READ_BEFORE_MORE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(15);

    #[test]
    fn receiver_that_does_not_read_is_waited_for_once() {
        let mut patience = Patience::default();
        for left in [25, 10, 0, 0] {
            patience.spend(STEP, 1000);
            assert_eq!(patience.left(1000), Duration::from_millis(left));
        }
        assert_eq!(patience.left(READ_BEFORE_MORE - 1), Duration::ZERO);
        assert_eq!(patience.left(READ_BEFORE_MORE), MAX_WAIT);
    }

    #[test]
    fn receiver_that_reads_is_always_waited_for() {
        let mut patience = Patience::default();
        for round in 1..100 {
            let read = round * READ_BEFORE_MORE;
            assert_eq!(patience.left(read), MAX_WAIT);
            patience.spend(STEP, read);
        }
    }

    #[test]
    fn slow_reader_delays_its_senders_no_more_than_one_wait_per_amount() {
        let (mut patience, mut waited, mut read) = (Patience::default(), Duration::ZERO, 0);
        // Its reports of progress are as small and as late as it likes.
        while read < 4 * READ_BEFORE_MORE {
            let wait = STEP.min(patience.left(read));
            patience.spend(wait, read);
            waited += wait;
            read += 1000;
        }
        assert!(waited <= FIRST_WAIT + 4 * MAX_WAIT, "{waited:?}");
    }
}
