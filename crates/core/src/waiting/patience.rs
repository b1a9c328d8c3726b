//! How long senders wait for a receiver that is full. Spec: tipc.md §8.7, decision 50.

use core::ops::Sub;
use core::time::Duration;

/// Longest time for which senders wait for a receiver that has not read [`READ_BEFORE_MORE`] yet.
const FIRST_WAIT: Duration = Duration::from_millis(40);
/// Longest time for which senders wait for a receiver each time that it has read `READ_BEFORE_MORE`. Busy hosts may
/// keep a process from running for longer than `FIRST_WAIT`.
pub const MAX_WAIT: Duration = Duration::from_millis(80);
/// Bytes that a receiver has to read before the full time is available again. A receiver that reads less than
/// 6.4 MB/s cannot slow its senders down to its own pace. It is more than a daemon hands out to a lane in advance.
const READ_BEFORE_MORE: u64 = 512 << 10;

/// The wait for one receiver: since when, and for how much longer. A receiver that does not read uses its time up once.
///
/// `T` is the caller's time: [`crate::Time`] at an endpoint, `Instant` at a lane. `read` is, in all calls, the number
/// of bytes that the receiver has read since its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Patience<T> {
    /// When the present wait began.
    since: Option<T>,
    left: Duration,
    /// Bytes that the receiver had read when the full time was available last.
    mark: u64,
}

impl<T> Default for Patience<T> {
    fn default() -> Self {
        Self { since: None, left: FIRST_WAIT, mark: 0 }
    }
}

impl<T: Copy + Sub<Output = Duration>> Patience<T> {
    /// Whether senders wait.
    #[inline]
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// Begins a wait, or goes on with the present one.
    pub fn begin(&mut self, now: T) {
        self.since.get_or_insert(now);
    }

    /// Ends the wait, if there is one: its time is spent.
    pub fn end(&mut self, now: T, read: u64) {
        let Some(since) = self.since.take() else { return };
        if self.is_renewed(read) {
            (self.left, self.mark) = (MAX_WAIT, read);
        }
        self.left = self.left.saturating_sub(now - since);
    }

    /// The rest of the present wait; without one, the longest time of the next one.
    #[must_use]
    pub fn left(&self, now: T, read: u64) -> Duration {
        self.budget(read).saturating_sub(self.since.map_or(Duration::ZERO, |since| now - since))
    }

    /// Longest time of a wait that begins now.
    #[must_use]
    pub fn budget(&self, read: u64) -> Duration {
        if self.is_renewed(read) { MAX_WAIT } else { self.left }
    }

    fn is_renewed(&self, read: u64) -> bool {
        read.saturating_sub(self.mark) >= READ_BEFORE_MORE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;

    const STEP: Duration = Duration::from_millis(15);

    fn wait(patience: &mut Patience<Time>, time: Duration, read: u64) {
        patience.begin(Time::ZERO);
        patience.end(Time::ZERO + time, read);
    }

    #[test]
    fn receiver_that_does_not_read_is_waited_for_once() {
        let mut patience = Patience::default();
        for left in [25, 10, 0, 0] {
            wait(&mut patience, STEP, 1000);
            assert_eq!(patience.budget(1000), Duration::from_millis(left));
        }
        assert_eq!(patience.budget(READ_BEFORE_MORE - 1), Duration::ZERO);
        assert_eq!(patience.budget(READ_BEFORE_MORE), MAX_WAIT);
    }

    #[test]
    fn wait_goes_on_until_it_is_ended() {
        let mut patience = Patience::default();
        let at = Time::from_millis;
        assert_eq!((patience.is_waiting(), patience.left(at(5), 0)), (false, FIRST_WAIT));
        patience.begin(at(10));
        patience.begin(at(20));
        assert_eq!(patience.left(at(20), 0), Duration::from_millis(30));
        assert_eq!((patience.left(at(60), 0), patience.is_waiting()), (Duration::ZERO, true));
        patience.end(at(30), 0);
        patience.end(at(60), 0);
        assert_eq!((patience.is_waiting(), patience.left(at(60), 0)), (false, Duration::from_millis(20)));
    }

    #[test]
    fn receiver_that_reads_is_always_waited_for() {
        let mut patience = Patience::default();
        for round in 1..100 {
            let read = round * READ_BEFORE_MORE;
            assert_eq!(patience.budget(read), MAX_WAIT);
            wait(&mut patience, STEP, read);
        }
    }

    #[test]
    fn slow_reader_delays_its_senders_no_more_than_one_wait_per_amount() {
        let (mut patience, mut waited, mut read) = (Patience::default(), Duration::ZERO, 0);
        // Its reports of progress are as small and as late as it likes.
        while read < 4 * READ_BEFORE_MORE {
            let time = STEP.min(patience.budget(read));
            wait(&mut patience, time, read);
            waited += time;
            read += 1000;
        }
        assert!(waited <= FIRST_WAIT + 4 * MAX_WAIT, "{waited:?}");
    }
}
