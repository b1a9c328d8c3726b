//! Statistics of measurements: latency distributions, medians, spreads and quantiles.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest time that a histogram holds, nanoseconds; longer ones count as this.
const LONGEST: u64 = 60_000_000_000;

/// Records latencies in nanoseconds, with exact mean and deviation.
#[derive(Clone, Debug)]
pub struct LatencyRecorder {
    histogram: Histogram<u64>,
    mean: f64,
    /// Sum of the squared deviations from the mean.
    squares: f64,
    /// Number of latencies below zero. If there are any, sender and receiver do not share a clock, and no
    /// result is valid.
    impossible: u64,
}

/// Latencies in microseconds; all 0 if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of latencies.
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
    /// Number of latencies below zero. If it is not 0, the other values are not valid.
    pub impossible: u64,
}

/// An empty histogram of nanoseconds, with three significant digits.
#[must_use]
pub fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are constants that fit")
}

/// The histogram of (nanoseconds, count); `None` if there are none.
#[must_use]
pub fn histogram(times: &[(u64, u64)]) -> Option<Histogram<u64>> {
    let mut all = empty_histogram();
    for &(nanoseconds, count) in times {
        all.saturating_record_n(nanoseconds, count);
    }
    (!all.is_empty()).then_some(all)
}

impl Default for LatencyRecorder {
    fn default() -> Self {
        Self { histogram: empty_histogram(), mean: 0.0, squares: 0.0, impossible: 0 }
    }
}

impl LatencyRecorder {
    /// Records one latency, from two times of the same clock.
    pub fn record(&mut self, sent: Duration, received: Duration) {
        let Some(latency) = received.checked_sub(sent) else {
            self.impossible += 1;
            return;
        };
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST);
        self.histogram.saturating_record(nanoseconds.max(1));
        let value = nanoseconds as f64;
        let deviation = value - self.mean;
        self.mean += deviation / self.histogram.len() as f64;
        self.squares += deviation * (value - self.mean);
    }

    /// Adds the latencies of another recorder.
    pub fn add(&mut self, other: &Self) {
        let (a, b) = (self.histogram.len() as f64, other.histogram.len() as f64);
        self.impossible += other.impossible;
        if b == 0.0 || self.histogram.add(&other.histogram).is_err() {
            return;
        }
        let deviation = other.mean - self.mean;
        self.squares += other.squares + deviation * deviation * a * b / (a + b);
        self.mean += deviation * b / (a + b);
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
        Summary {
            mean: self.mean / 1e3,
            stddev: (self.squares / points as f64).sqrt() / 1e3,
            impossible: self.impossible,
            ..Summary::of_histogram(&self.histogram)
        }
    }

    /// Non-empty classes: (upper bound in microseconds, count).
    #[must_use]
    pub fn classes(&self) -> Vec<(f64, u64)> {
        self.histogram
            .iter_log(1_000, 2.0)
            .filter(|class| class.count_since_last_iteration() > 0)
            .map(|class| (class.value_iterated_to() as f64 / 1e3, class.count_since_last_iteration()))
            .collect()
    }
}

impl Summary {
    /// The summary of a histogram of nanoseconds.
    #[must_use]
    pub fn of_histogram(all: &Histogram<u64>) -> Self {
        let at = |share| all.value_at_quantile(share) as f64 / 1e3;
        Self {
            points: all.len(),
            mean: all.mean() / 1e3,
            stddev: all.stdev() / 1e3,
            min: all.min() as f64 / 1e3,
            max: all.max() as f64 / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            impossible: 0,
        }
    }

    /// The median of each figure over several summaries, and the number of all latencies.
    #[must_use]
    pub fn medians(all: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(all.iter().map(figure));
        Self {
            points: all.iter().map(|each| each.points).sum(),
            mean: of(|each| each.mean),
            stddev: of(|each| each.stddev),
            min: of(|each| each.min),
            max: of(|each| each.max),
            p50: of(|each| each.p50),
            p90: of(|each| each.p90),
            p99: of(|each| each.p99),
            p999: of(|each| each.p999),
            impossible: all.iter().map(|each| each.impossible).sum(),
        }
    }

    /// The summary of (nanoseconds, count); `None` if there are none.
    #[must_use]
    pub fn of_times(times: &[(u64, u64)]) -> Option<Self> {
        histogram(times).map(|all| Self::of_histogram(&all))
    }
}

/// The median of some values, and (largest − smallest) ÷ median; NaN of none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median, the lower of two: always one of the values.
    pub median: f64,
    /// The spread.
    pub spread: f64,
}

impl FromIterator<f64> for Spread {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let values = sorted(values);
        let median = values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN);
        let range = values.last().zip(values.first()).map_or(f64::NAN, |(last, first)| last - first);
        Self { median, spread: range / median }
    }
}

/// [`Spread::median`].
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().collect::<Spread>().median
}

/// The smallest value that at least `share` (0 to 1) of the values do not exceed; NaN of none.
pub fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let values = sorted(values);
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(value: u64) -> Duration {
        Duration::from_micros(value)
    }

    #[test]
    fn mean_and_deviation_are_exact() {
        let mut all = LatencyRecorder::default();
        let (mut left, mut right) = (all.clone(), all.clone());
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
    fn latency_below_zero_is_counted_apart() {
        let mut all = LatencyRecorder::default();
        all.record(us(9), us(8));
        assert_eq!(all.summary(), Summary { impossible: 1, ..Summary::default() });
    }

    #[test]
    fn median_and_quantile_are_measured_values() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.0);
        assert!(median([]).is_nan() && Spread::from_iter([]).spread.is_nan());
        assert_eq!(Spread::from_iter([9.0, 10.0, 12.0]).spread, 0.3);
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(quantile(values.clone(), 0.99), 198.0);
        assert_eq!((quantile(values.clone(), 1.0), quantile(values, 0.0)), (200.0, 1.0));
        assert!(quantile(Vec::new(), 0.5).is_nan());
    }

    #[test]
    fn percentiles_come_from_all_counts() {
        let rtt = Summary::of_times(&[(1_000, 98), (50_000, 1), (2_000_000, 1)]).unwrap();
        assert!((rtt.p50 - 1.0).abs() < 0.01 && (rtt.p99 - 50.0).abs() < 0.1, "{rtt:?}");
        assert!((rtt.p999 - 2_000.0).abs() < 2.0 && (rtt.max - 2_000.0).abs() < 2.0, "{rtt:?}");
        assert!(Summary::of_times(&[]).is_none());
    }
}
