//! Latency statistics.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency in the histogram, in nanoseconds; longer ones count as this.
const LONGEST: u64 = 60_000_000_000;

/// Records latencies in nanoseconds and summarises them in microseconds.
#[derive(Clone, Debug)]
pub struct LatencyRecorder {
    histogram: Histogram<u64>,
    mean: f64,
    squares: f64,
    /// Stamps from the future: sender and receiver do not share a clock, so no value is valid.
    impossible: u64,
}

/// Summary of latencies in microseconds; all 0 without a stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of stamps.
    pub points: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Shortest.
    pub min: f64,
    /// Longest.
    pub max: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Stamps from the future; unless this is 0 the other values are invalid.
    pub impossible: u64,
}

impl Default for LatencyRecorder {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are constants that fit");
        Self { histogram, mean: 0.0, squares: 0.0, impossible: 0 }
    }
}

impl LatencyRecorder {
    /// Records one latency; both times are of the same clock.
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

    /// Adds the latencies of another recorder.
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

    /// Number of latencies.
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

    /// The histogram in classes that double: upper bound in microseconds and number; empty classes are left out.
    #[must_use]
    pub fn classes(&self) -> Vec<(f64, u64)> {
        self.histogram
            .iter_log(1_000, 2.0)
            .filter(|class| class.count_since_last_iteration() > 0)
            .map(|class| (class.value_iterated_to() as f64 / 1e3, class.count_since_last_iteration()))
            .collect()
    }
}

/// The median, the lower of two; NaN if there are no values.
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
    fn mean_and_deviation_are_exact_and_survive_merging() {
        let (mut all, mut left, mut right) =
            (LatencyRecorder::default(), LatencyRecorder::default(), LatencyRecorder::default());
        for value in 1..=1000 {
            all.record(us(5), us(5 + value));
            if value % 3 == 0 { &mut left } else { &mut right }.record(us(0), us(value));
        }
        left.add(&right);
        for summary in [all.summary(), left.summary()] {
            assert_eq!(summary.points, 1000);
            assert!(
                (summary.mean - 500.5).abs() < 1e-6 && (summary.stddev - 288.675).abs() < 1e-2,
                "{summary:?}"
            );
            assert!(
                (summary.p99 - 990.0).abs() < 2.0 && (summary.max - 1000.0).abs() < 2.0 && summary.min < 1.01
            );
        }
        assert_eq!(all.classes().iter().map(|class| class.1).sum::<u64>(), 1000);
    }

    #[test]
    fn stamps_from_the_future_are_counted_separately() {
        let mut all = LatencyRecorder::default();
        all.record(us(9), us(8));
        assert_eq!(all.summary(), Summary { impossible: 1, ..Summary::default() });
    }

    #[test]
    fn median_of_three_is_the_middle_and_of_none_is_nan() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9 && median(&[]).is_nan());
    }
}
