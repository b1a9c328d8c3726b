//! Medians, spreads and histograms.

use hdrhistogram::Histogram;

/// Round-trip times, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rtt {
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
}

/// Longest time that a histogram holds, nanoseconds; what is longer counts as this.
const LONGEST: u64 = 60_000_000_000;

/// A histogram of (nanoseconds, how often).
pub(super) fn histogram(times: &[(u64, u64)]) -> Option<Histogram<u64>> {
    let mut all = Histogram::new_with_bounds(1, LONGEST, 3).ok()?;
    for &(nanoseconds, count) in times {
        all.saturating_record_n(nanoseconds, count);
    }
    (!all.is_empty()).then_some(all)
}

impl Rtt {
    pub(super) fn of(times: &[(u64, u64)]) -> Option<Self> {
        let all = histogram(times)?;
        let at = |share| all.value_at_quantile(share) as f64 / 1e3;
        let (mean, max) = (all.mean() / 1e3, all.max() as f64 / 1e3);
        Some(Self { mean, p50: at(0.5), p99: at(0.99), p999: at(0.999), max })
    }
}

/// The middle value; the lower of two; NaN of none.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let values = sorted(values);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// How far the values lie apart, as a share of their median: (largest − smallest) ÷ median.
pub(super) fn spread(values: impl IntoIterator<Item = f64>) -> f64 {
    let values = sorted(values);
    match (values.first(), values.last()) {
        (Some(first), Some(last)) => (last - first) / median(values.iter().copied()),
        _ => f64::NAN,
    }
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_measured_value() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.0);
        assert!(median([]).is_nan() && spread([]).is_nan());
        assert_eq!(spread([9.0, 10.0, 12.0]), 0.3);
    }

    #[test]
    fn quantiles_come_from_all_counts() {
        let rtt = Rtt::of(&[(1_000, 98), (50_000, 1), (2_000_000, 1)]).unwrap();
        assert!((rtt.p50 - 1.0).abs() < 0.01 && (rtt.p99 - 50.0).abs() < 0.1, "{rtt:?}");
        assert!((rtt.p999 - 2_000.0).abs() < 2.0 && (rtt.max - 2_000.0).abs() < 2.0, "{rtt:?}");
        assert!(Rtt::of(&[]).is_none());
    }
}
