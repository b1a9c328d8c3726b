//! The vendor's own performance programs, ConsPerf and ProvPerf, if they are installed: alone and with p2ps in between.

mod run;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use utipc_bench_kit::plot::Curve;
use utipc_bench_kit::stats::{Spread, median};

pub(crate) use self::run::{FOLDER, Job, VendorRun, folder, run};
use super::between::Between;
use super::options::Options;
use super::place::{Backbone, Place};
use super::{latency, search};

/// Time in which ConsPerf loads all items; part of its steady-state time.
const LOADING: Duration = Duration::from_secs(3);

/// All measurements of the pair.
#[derive(Clone, Debug, Default)]
pub(super) struct VendorPair {
    /// Runs without our programs, by rate; the first rates several times.
    pub(super) latencies: Vec<VendorRun>,
    /// Runs through the whole chain at the rates with targets, in turn with those without.
    pub(super) chain: Vec<VendorRun>,
    /// At the highest rate, directly and through p2ps, in turn.
    pub(super) direct: Vec<VendorRun>,
    pub(super) through: Vec<VendorRun>,
    /// The error that ended the measurements, if one did.
    pub(super) failed: Option<String>,
}

/// More rates at which the latency of the direct pair is plotted.
const DRAWN: [u64; 3] = [10_000, 500_000, 1_000_000];
/// Duration of each measurement in the search for the highest rate.
const TRY: Duration = Duration::from_secs(3);
const NEAR: f64 = 1.08;
const TRIES: usize = 7;

impl VendorPair {
    /// Runs all measurements.
    pub(super) fn run(options: &Options, folder: &Path) -> Self {
        let mut pair = Self::default();
        pair.failed = pair.measure(options, folder).err().map(|why| format!("{why:#}"));
        pair
    }

    fn measure(&mut self, options: &Options, folder: &Path) -> Result<()> {
        let place = Place::new(Backbone::Lanes)?;
        let job = |between, rate, time| {
            let (items, loading, cache) = (options.items, LOADING, false);
            Job { between, cache, prompt: between == Between::Chain, items, rate, loading, time }
        };
        let run = |job: Job| run(folder, &place, &job);
        let short = options.window().min(Duration::from_secs(5));
        for rate in latency::TARGET_RATES {
            for _ in 0..options.repeat() {
                self.latencies.push(run(job(Between::Nothing, rate, options.window()))?);
                self.chain.push(run(job(Between::Chain, rate, options.window()))?);
            }
        }
        if !options.quick {
            for rate in DRAWN {
                self.latencies.push(run(job(Between::Nothing, rate, short))?);
            }
        }
        let highest = |between, guess| {
            search::highest(guess, NEAR, TRIES, |rate| Ok(run(job(between, rate, TRY))?.clean))
        };
        let paths = [Between::Nothing, Between::P2ps];
        let mut rates = [highest(paths[0], 2_000_000)?, highest(paths[1], 1_200_000)?];
        // In turn, so that both find the machine in the same state.
        for _ in 0..options.repeat() {
            for (between, rate) in paths.into_iter().zip(&mut rates) {
                let seen = if between == Between::Nothing { &mut self.direct } else { &mut self.through };
                seen.push(loop {
                    ensure!(*rate > 1_000, "no rate arrives in full");
                    let seen = run(job(between, *rate, options.window()))?;
                    if seen.clean {
                        break seen;
                    }
                    *rate = *rate * 24 / 25;
                });
            }
        }
        Ok(())
    }

    /// The mean latency of the direct pair at a rate, microseconds.
    pub(super) fn mean_us(&self, rate: u64) -> Option<f64> {
        at_rate(&self.latencies, rate, |run| run.latency[0])
    }

    /// The 99.9th percentile of the direct pair's latency at a rate, microseconds.
    pub(super) fn p999_us(&self, rate: u64) -> Option<f64> {
        at_rate(&self.latencies, rate, |run| run.p999)
    }

    /// Mean and 99.9th percentile through the whole chain at a rate, as ConsPerf measures them, microseconds.
    pub(super) fn through_chain_us(&self, rate: u64) -> Option<(f64, f64)> {
        let mean = at_rate(&self.chain, rate, |run| run.latency[0]);
        mean.zip(at_rate(&self.chain, rate, |run| run.p999))
    }

    /// The highest rates: directly, through p2ps.
    pub(super) fn rates(&self) -> Option<(Spread, Spread)> {
        let of = |runs: &[VendorRun]| -> Option<Spread> {
            let rates = runs.iter().map(|run| run.output);
            (!runs.is_empty()).then(|| rates.collect())
        };
        Some((of(&self.direct)?, of(&self.through)?))
    }

    /// The mean latency of the direct pair against rate.
    pub(super) fn curve(&self) -> Curve {
        let mut rates: Vec<u64> = self.latencies.iter().map(|run| run.rate).collect();
        rates.sort_unstable();
        rates.dedup();
        let points = rates.into_iter().filter_map(|rate| Some((rate as f64, self.mean_us(rate)?))).collect();
        Curve { label: "mean, the vendor's pair directly".into(), points, ..Curve::default() }
    }

    pub(super) fn json(&self) -> Value {
        let each = |runs: &[VendorRun]| runs.iter().map(VendorRun::json).collect::<Value>();
        json!({
            "test": "sdk", "latency_direct": each(&self.latencies), "latency_chain": each(&self.chain),
            "highest_direct": each(&self.direct),
            "highest_through_p2ps": each(&self.through), "failed": self.failed,
        })
    }
}

/// The median of a figure of the clean runs at a rate.
fn at_rate(runs: &[VendorRun], rate: u64, figure: impl Fn(&VendorRun) -> f64) -> Option<f64> {
    let at = runs.iter().filter(|run| run.rate == rate && run.clean);
    let all: Vec<f64> = at.map(figure).filter(|figure| figure.is_finite()).collect();
    (!all.is_empty()).then(|| median(all))
}

#[cfg(test)]
mod tests {
    use utipc_bench_kit::cpu::Usage;

    use super::*;

    #[test]
    fn medians_count_clean_runs_only() {
        let run = |rate, mean, clean| VendorRun {
            rate,
            output: rate as f64,
            loaded: 1,
            images_s: Some(0.1),
            latency: [mean, 0.0, 0.0, 0.0],
            p999: 2.0 * mean,
            cpu: Usage::default(),
            clean,
        };
        let pair = VendorPair {
            latencies: vec![
                run(1_000, 60.0, true),
                run(1_000, 20.0, true),
                run(1_000, 70.0, true),
                run(5_000, 1.0, false),
            ],
            direct: vec![run(3_000_000, 80.0, true)],
            ..VendorPair::default()
        };
        assert_eq!((pair.mean_us(1_000), pair.mean_us(5_000)), (Some(60.0), None));
        assert_eq!((pair.p999_us(1_000), pair.through_chain_us(1_000)), (Some(120.0), None));
        assert!(pair.rates().is_none() && pair.curve().points.len() == 1);
    }
}
