//! The published figures that these tests repeat: Sun Microsystems, "Reuters Market Data System 6" performance report,
//! May 2009, on one core of an Intel X5570 (2.93 GHz) per component.

/// A throughput test of the report, over RRCP, the report's own backbone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published {
    /// T1 to T7.
    pub(crate) test: &'static str,
    /// Updates a second, in and out.
    pub(crate) input: f64,
    pub(crate) output: f64,
    /// Our target: nanoseconds of CPU for an output update.
    pub(crate) goal_ns: f64,
}

impl Published {
    /// Nanoseconds for an output update on the one core of the report.
    pub(crate) fn ns(&self) -> f64 {
        1e9 / self.output
    }
}

const fn row(test: &'static str, input: f64, output: f64, goal_ns: f64) -> Published {
    Published { test, input, output, goal_ns }
}

/// The throughput tests. T6 is 705,000 in the report's detail table and 715,000 in its summary.
pub(crate) const THROUGHPUT: [Published; 7] = [
    row("T1", 1_560_000.0, 1_560_000.0, 150.0),
    row("T2", 675_000.0, 675_000.0, 250.0),
    row("T3", 1_330_000.0, 1_330_000.0, 185.0),
    row("T4", 622_000.0, 622_000.0, 350.0),
    row("T5", 70_000.0, 3_535_000.0, 45.0),
    row("T6", 705_000.0, 705_000.0, 350.0),
    row("T7", 69_500.0, 3_509_750.0, 50.0),
];

/// Mean latency over RRCP and over Rendezvous at some rates of T8, microseconds.
pub(crate) const LATENCY: [(u64, f64, f64); 4] =
    [(1_000, 200.0, 227.0), (100_000, 430.0, f64::NAN), (500_000, 721.0, 764.0), (850_000, 1_297.0, 937.0)];

/// The highest rate in the report with a mean latency of at most a millisecond (over Rendezvous; 700,000 over RRCP).
pub(crate) const FASTEST_WITHIN_A_MILLISECOND: u64 = 850_000;

/// All rates of T8.
pub(crate) fn latency_rates() -> Vec<u64> {
    let low = [1_000, 5_000].into_iter().chain((10_000..=100_000).step_by(10_000));
    low.chain((150_000..=900_000).step_by(50_000)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_and_rates_are_those_of_the_report() {
        let ns: Vec<u32> = THROUGHPUT.iter().map(|row| row.ns().round() as u32).collect();
        assert_eq!(ns, [641, 1481, 752, 1608, 283, 1418, 285]);
        let rates = latency_rates();
        assert_eq!((rates.len(), rates[12], rates.last()), (28, 150_000, Some(&900_000)));
    }
}
