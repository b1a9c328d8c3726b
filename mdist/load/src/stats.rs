//! What was measured: latency in full, CPU of processes and of the machine.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency that the histogram holds, nanoseconds; what is longer counts as this.
const LONGEST: u64 = 60_000_000_000;

/// Latencies, nanoseconds in, microseconds out.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    mean: f64,
    squares: f64,
    /// Stamps from the future: the clocks are not one, so nothing here is to be trusted.
    impossible: u64,
}

/// Microseconds; everything 0 when there was no stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Stamps.
    pub points: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub stddev: f64,
    /// The shortest.
    pub min: f64,
    /// The longest.
    pub max: f64,
    /// The median.
    pub p50: f64,
    /// 90 of 100 are not longer.
    pub p90: f64,
    /// 99 of 100 are not longer.
    pub p99: f64,
    /// 999 of 1,000 are not longer.
    pub p999: f64,
    /// Stamps from the future; anything but 0 makes the rest worthless.
    pub impossible: u64,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are constants that fit");
        Self { histogram, mean: 0.0, squares: 0.0, impossible: 0 }
    }
}

impl Latency {
    /// Takes one: sent and received on the same clock.
    pub fn record(&mut self, sent: Duration, received: Duration) {
        let Some(took) = received.checked_sub(sent) else {
            self.impossible += 1;
            return;
        };
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(LONGEST);
        self.histogram.saturating_record(nanoseconds.max(1));
        let value = nanoseconds as f64;
        let off = value - self.mean;
        self.mean += off / self.histogram.len() as f64;
        self.squares += off * (value - self.mean);
    }

    /// Adds what another thread measured.
    pub fn add(&mut self, other: &Self) {
        let (a, b) = (self.histogram.len() as f64, other.histogram.len() as f64);
        self.impossible += other.impossible;
        if b == 0.0 || self.histogram.add(&other.histogram).is_err() {
            return;
        }
        let off = other.mean - self.mean;
        self.squares += other.squares + off * off * a * b / (a + b);
        self.mean += off * b / (a + b);
    }

    /// How many.
    #[must_use]
    pub fn points(&self) -> u64 {
        self.histogram.len()
    }

    /// Mean, deviation, extremes and percentiles.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let points = self.points();
        if points == 0 {
            return Summary { impossible: self.impossible, ..Summary::default() };
        }
        let at = |share| self.histogram.value_at_quantile(share) as f64 / 1e3;
        Summary {
            points,
            mean: self.mean / 1e3,
            stddev: (self.squares / points as f64).sqrt() / 1e3,
            min: self.histogram.min() as f64 / 1e3,
            max: self.histogram.max() as f64 / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            impossible: self.impossible,
        }
    }

    /// (upper end in microseconds, how many), empty classes left out.
    #[must_use]
    pub fn classes(&self) -> Vec<(f64, u64)> {
        self.histogram
            .iter_log(1_000, 2.0)
            .filter(|class| class.count_since_last_iteration() > 0)
            .map(|class| (class.value_iterated_to() as f64 / 1e3, class.count_since_last_iteration()))
            .collect()
    }
}

/// The middle value, the lower of two; NaN of none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(value: u64) -> Duration {
        Duration::from_micros(value)
    }

    #[test]
    fn mean_and_deviation_are_exact() {
        let (mut all, mut left, mut right) = (Latency::default(), Latency::default(), Latency::default());
        for value in 1..=1000 {
            all.record(us(5), us(5 + value));
            if value % 3 == 0 { &mut left } else { &mut right }.record(us(0), us(value));
        }
        left.add(&right);
        for seen in [all.summary(), left.summary()] {
            assert_eq!(seen.points, 1000);
            assert!((seen.mean - 500.5).abs() < 1e-6 && (seen.stddev - 288.675).abs() < 1e-2, "{seen:?}");
            assert!((seen.p99 - 990.0).abs() < 2.0 && (seen.max - 1000.0).abs() < 2.0 && seen.min < 1.01);
        }
        assert_eq!(all.classes().iter().map(|class| class.1).sum::<u64>(), 1000);
    }

    #[test]
    fn a_stamp_from_the_future_is_counted_apart() {
        let mut all = Latency::default();
        all.record(us(9), us(8));
        assert_eq!(all.summary(), Summary { impossible: 1, ..Summary::default() });
    }

    #[test]
    fn the_median_of_few() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9 && median(&[]).is_nan());
    }
}
