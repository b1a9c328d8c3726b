//! The published figures that these tests repeat: Sun Microsystems, "Reuters Market Data System 6" performance report,
//! May 2009, on one core of an Intel X5570 (2.93 GHz) per component.

/// A throughput test of the report.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// T1 to T7.
    pub test: &'static str,
    /// The measured component.
    pub component: &'static str,
    /// Whether its last-value cache was on.
    pub cache: bool,
    /// Mounts that receive the output.
    pub mounts: usize,
    /// Input updates a second over RRCP, the report's own backbone.
    pub input: f64,
    /// Output updates a second over it.
    pub output: f64,
    /// Output updates a second over Rendezvous; `None` where the test has no backbone.
    pub rendezvous: Option<f64>,
    /// Description.
    pub what: &'static str,
    /// Our target: nanoseconds of CPU for an update, or for an output update in tests with fan-out.
    pub goal_ns: f64,
}

impl Published {
    /// Nanoseconds for an output update on the one core of the report.
    #[must_use]
    pub fn ns(&self) -> f64 {
        1e9 / self.output
    }
}

#[allow(clippy::too_many_arguments, reason = "a line of a table")]
const fn row(
    test: &'static str,
    component: &'static str,
    cache: bool,
    mounts: usize,
    input: f64,
    output: f64,
    rendezvous: Option<f64>,
    what: &'static str,
    goal_ns: f64,
) -> Published {
    Published { test, component, cache, mounts, input, output, rendezvous, what, goal_ns }
}

/// The throughput tests. T6 is 705,000 in the report's detail table and 715,000 in its summary.
pub const THROUGHPUT: [Published; 7] = [
    row("T1", "src_dist", false, 1, 1_560_000.0, 1_560_000.0, Some(1_360_000.0), "source distributor", 150.0),
    row("T2", "src_dist", true, 1, 675_000.0, 675_000.0, Some(635_000.0), "the same with cache", 250.0),
    row("T3", "p2ps", false, 1, 1_330_000.0, 1_330_000.0, Some(1_135_000.0), "server, no fan-out", 185.0),
    row("T4", "p2ps", true, 1, 622_000.0, 622_000.0, Some(570_000.0), "the same with cache", 350.0),
    row("T5", "p2ps", false, 100, 70_000.0, 3_535_000.0, Some(3_383_500.0), "server, 100 mounts", 45.0),
    row("T6", "pop", true, 1, 705_000.0, 705_000.0, None, "POP with cache", 350.0),
    row("T7", "pop", true, 100, 69_500.0, 3_509_750.0, None, "POP with cache, 100 mounts", 50.0),
];

/// Mean latency over RRCP and over Rendezvous at some rates of T8, microseconds.
pub const LATENCY: [(u64, f64, f64); 4] =
    [(1_000, 200.0, 227.0), (100_000, 430.0, f64::NAN), (500_000, 721.0, 764.0), (850_000, 1_297.0, 937.0)];

/// The highest rate in the report with a mean latency of at most a millisecond (over Rendezvous; 700,000 over RRCP).
pub const FASTEST_WITHIN_A_MILLISECOND: u64 = 850_000;

/// All rates of T8.
#[must_use]
pub fn latency_rates() -> Vec<u64> {
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
