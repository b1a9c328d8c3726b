//! Pacing: a rate divided into ticks, whose scheduled times do not move when the sender is late.

use std::time::Duration;

/// The messages of one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Number of messages.
    pub count: u64,
    /// Time when they are due. Latency is measured from this time, so that it includes the delay of a late
    /// sender.
    pub scheduled: Duration,
}

/// A rate divided into ticks.
#[derive(Clone, Debug)]
pub struct Pace {
    rate: u64,
    ticks: u64,
    start: Duration,
    tick: u64,
    behind_max: u64,
    missed: u64,
}

const SECOND: u128 = 1_000_000_000;
/// Longest delay that a late sender makes up for. Messages that are later are not sent, and counted as missed.
const CATCH_UP: Duration = Duration::from_millis(100);

impl Pace {
    /// `rate` messages per second in `ticks` parts per second (1 to 1,000,000), from `start` on.
    #[must_use]
    pub fn new(rate: u64, ticks: u64, start: Duration) -> Self {
        let ticks = ticks.clamp(1, 1_000_000);
        let behind_max = (u128::from(ticks) * CATCH_UP.as_nanos() / SECOND).max(1) as u64;
        Self { rate, ticks, start, tick: 0, behind_max, missed: 0 }
    }

    fn time_of(&self, tick: u64) -> Duration {
        let nanoseconds = u128::from(tick) * SECOND / u128::from(self.ticks);
        self.start + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Messages of all ticks before `tick`.
    fn sum(&self, tick: u64) -> u64 {
        (u128::from(tick) * u128::from(self.rate) / u128::from(self.ticks)) as u64
    }

    /// Takes the oldest tick that is due. Call until `None`.
    pub fn due(&mut self, now: Duration) -> Option<Burst> {
        let elapsed = now.checked_sub(self.start)?;
        // Ticks that are due, tick 0 at the start.
        let due = (elapsed.as_nanos() * u128::from(self.ticks) / SECOND) as u64 + 1;
        if self.tick >= due {
            return None;
        }
        let keep = due.saturating_sub(self.behind_max);
        if self.tick < keep {
            self.missed += self.sum(keep) - self.sum(self.tick);
            self.tick = keep;
        }
        let burst = Burst {
            count: self.sum(self.tick + 1) - self.sum(self.tick),
            scheduled: self.time_of(self.tick),
        };
        self.tick += 1;
        Some(burst)
    }

    /// Time at which the next tick is due.
    #[must_use]
    pub fn next(&self) -> Duration {
        self.time_of(self.tick)
    }

    /// Messages that were left out because the sender was too late.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Messages per second.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(pace: &mut Pace, now: Duration) -> u64 {
        std::iter::from_fn(|| pace.due(now)).map(|burst| burst.count).sum()
    }

    #[test]
    fn ticks_of_a_second_add_up_to_the_rate() {
        for (rate, ticks) in [(1_000, 1_000), (7, 1_000), (3_000_001, 1_000), (100_000, 30), (0, 10)] {
            let start = Duration::from_secs(9);
            let mut pace = Pace::new(rate, ticks, start);
            let mut sum = 0;
            for step in 0..2000u64 {
                sum += drain(&mut pace, start + Duration::from_micros(step * 500));
            }
            assert!(sum.abs_diff(rate) <= 1, "{rate} in {ticks}: {sum}");
            assert_eq!(pace.missed(), 0);
        }
    }

    #[test]
    fn scheduled_times_do_not_move_when_the_sender_is_late() {
        let mut pace = Pace::new(10_000, 1_000, Duration::ZERO);
        assert!(pace.due(Duration::ZERO).is_some_and(|burst| burst.count == 10));
        let late = Duration::from_micros(3_500);
        let times: Vec<_> = std::iter::from_fn(|| pace.due(late)).map(|burst| burst.scheduled).collect();
        assert_eq!(times, [1, 2, 3].map(Duration::from_millis));
        assert_eq!(pace.next(), Duration::from_millis(4));
        assert_eq!(pace.missed(), 0);
    }

    #[test]
    fn catching_up_is_bounded_and_missed_messages_are_counted() {
        let mut pace = Pace::new(10_000, 1_000, Duration::ZERO);
        let sum = drain(&mut pace, Duration::from_millis(999));
        assert_eq!((sum, pace.missed()), (1_000, 9_000));
    }
}
