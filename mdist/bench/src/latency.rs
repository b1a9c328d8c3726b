//! T8: latency of the whole chain against rate, from the scheduled send time of an update until the client has decoded
//! it.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use utipc_bench_kit::Named as _;
use utipc_bench_kit::plot::Curve;
use utipc_bench_kit::stats::{Spread, Summary};

use super::chain::{Plan, Window};
use super::options::Options;
use super::place::Backbone;
use super::runner::Runner;
use super::throughput::setup;
use super::{report, search};

/// Results of T8 over one backbone.
#[derive(Clone, Debug)]
pub(super) struct LatencyTest {
    pub(super) backbone: Backbone,
    pub(super) variant: Variant,
    /// By rising rate.
    pub(super) points: Vec<Point>,
    /// The measurement at the highest rate with a mean of at most a millisecond, if that was searched.
    pub(super) fastest: Result<Option<Window>, String>,
}

/// Settings of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// Caches off, as in the report.
    Plain,
    /// Caches on, as by default. As with `Busy`, only rates with targets are measured.
    Caches,
    /// Caches off, and p2ps polls its feed without a pause.
    Busy,
}

impl Variant {
    pub(super) const ALL: [Self; 3] = [Self::Plain, Self::Caches, Self::Busy];

    fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Caches => ", caches on",
            Self::Busy => ", busy",
        }
    }
}

/// The measurements at a rate, or why there are none.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) rate: u64,
    pub(super) windows: Result<Vec<Window>, String>,
}

/// Rates that are measured without --full, and rates that have targets.
const SOME_RATES: [u64; 5] = [1_000, 10_000, 100_000, 500_000, 850_000];
pub(super) const TARGET_RATES: [u64; 2] = [1_000, 100_000];
/// Updates per second that carry their send time: enough for the 99.9th percentile of a short measurement.
const STAMPS: u64 = 1_000;
/// Duration of each measurement in the search for the highest rate.
const TRY: Duration = Duration::from_secs(2);
const NEAR: f64 = 1.08;
const TRIES: usize = 7;
/// Limit of the mean latency for [`LatencyTest::fastest`], microseconds.
const LIMIT_US: f64 = 1_000.0;

impl Point {
    fn latencies(&self) -> Option<Vec<Summary>> {
        let windows = self.windows.as_ref().ok().filter(|windows| !windows.is_empty())?;
        Some(windows.iter().map(|window| window.latency).collect())
    }

    /// The median of each figure over the measurements.
    pub(super) fn summary(&self) -> Option<Summary> {
        Some(Summary::medians(&self.latencies()?))
    }

    /// The spread of the means.
    pub(super) fn spread(&self) -> Option<f64> {
        let means = self.latencies()?.into_iter().map(|latency| latency.mean);
        Some(means.collect::<Spread>().spread)
    }
}

impl LatencyTest {
    /// Measures all rates. Fails only if the programs do not start.
    pub(super) fn run(options: &Options, backbone: Backbone, variant: Variant) -> Result<Self> {
        let base = setup(options, backbone, "T8", variant == Variant::Caches).plan;
        let plan = Plan { prompt: true, busy: variant == Variant::Busy, stamps: STAMPS, ..base };
        let label = format!("T8 {}", label(backbone, variant));
        let mut runner = Runner::start(options, backbone, label, plan)?;
        let points = rates(options, variant).into_iter().map(|rate| point(&mut runner, rate)).collect();
        let is_searched = options.rates.is_empty() && variant == Variant::Plain;
        let fastest = if is_searched { fastest(&mut runner).map(Some) } else { Ok(None) };
        Ok(Self { backbone, variant, points, fastest: fastest.map_err(|why| format!("{why:#}")) })
    }

    /// Name of the test: the backbone and the variant.
    pub(super) fn label(&self) -> String {
        label(self.backbone, self.variant)
    }

    /// The mean with a band up to p99 and all measurements, and p99.9, against rate.
    pub(super) fn curves(&self) -> Vec<Curve> {
        let at =
            |point: &Point, value: fn(&Summary) -> f64| Some((point.rate as f64, value(&point.summary()?)));
        let of =
            |value: fn(&Summary) -> f64| self.points.iter().filter_map(|point| at(point, value)).collect();
        let each = |point: &Point| {
            let all = point.latencies().unwrap_or_default();
            all.into_iter().map(|latency| (point.rate as f64, latency.mean)).collect::<Vec<_>>()
        };
        let band = |point: &Point| {
            let summary = point.summary()?;
            Some((point.rate as f64, summary.mean, summary.p99))
        };
        let mean = Curve {
            label: format!("mean, band to p99, {}", self.label()),
            points: of(|summary| summary.mean),
            samples: self.points.iter().flat_map(each).collect(),
            band: self.points.iter().filter_map(band).collect(),
            is_reference: false,
        };
        let p999 = Curve {
            label: format!("p99.9, {}", self.label()),
            points: of(|summary| summary.p999),
            is_reference: true,
            ..Curve::default()
        };
        vec![mean, p999]
    }

    /// The highest of all clean rates with a mean of at most a millisecond.
    pub(super) fn highest(&self) -> Option<u64> {
        let good = |point: &&Point| point.summary().is_some_and(|seen| seen.mean <= LIMIT_US);
        let listed = self.points.iter().filter(good).map(|point| point.rate);
        listed.chain(self.fastest.iter().flatten().map(|window| window.rate)).max()
    }

    pub(super) fn json(&self) -> Value {
        let points: Vec<Value> = self
            .points
            .iter()
            .map(|point| match &point.windows {
                Ok(windows) => json!({ "rate": point.rate, "latency_us": point.summary(), "each": windows.iter().map(Window::json).collect::<Value>() }),
                Err(why) => json!({ "rate": point.rate, "failed": why }),
            })
            .collect();
        let fastest = match &self.fastest {
            Ok(window) => window.as_ref().map(Window::json).into(),
            Err(why) => json!({ "failed": why }),
        };
        json!({
            "test": "T8", "backbone": self.backbone, "busy": self.variant == Variant::Busy,
            "caches": self.variant == Variant::Caches, "points": points, "fastest_within_1_ms": fastest,
        })
    }
}

fn label(backbone: Backbone, variant: Variant) -> String {
    format!("{}{}", backbone.name(), variant.suffix())
}

fn rates(options: &Options, variant: Variant) -> Vec<u64> {
    match options.rates.as_slice() {
        [] if options.quick || variant != Variant::Plain => TARGET_RATES.to_vec(),
        [] if options.full => report::latency_rates(),
        [] => SOME_RATES.to_vec(),
        some => some.to_vec(),
    }
}

fn point(runner: &mut Runner<'_>, rate: u64) -> Point {
    let options = runner.options;
    let has_target = TARGET_RATES.contains(&rate) || !options.rates.is_empty();
    let whole = options.window();
    let (count, time) = if has_target || options.full { (options.repeat(), whole) } else { (1, whole / 2) };
    Point { rate, windows: runner.clean(rate, time, count, 1).map_err(|why| format!("{why:#}")) }
}

/// Searches the highest rate with a mean of at most a millisecond and measures it for as long as others.
fn fastest(runner: &mut Runner<'_>) -> Result<Window> {
    let good = |window: &Window| window.is_clean() && window.latency.mean <= LIMIT_US;
    let found = search::highest(report::FASTEST_WITHIN_A_MILLISECOND, NEAR, TRIES, |rate| {
        Ok(good(&runner.measure(rate, TRY)?))
    })?;
    ensure!(found > 0, "no rate has a mean of at most a millisecond");
    let mut rate = found;
    for _ in 0..5 {
        let window = runner.measure(rate, runner.options.window())?;
        if good(&window) {
            return Ok(window);
        }
        rate = rate * 9 / 10;
    }
    bail!("the mean is at most a millisecond only for a moment at {found}/s and down to {rate}/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(rate: u64, mean: f64) -> Window {
        let latency = Summary { mean, p99: 2.0 * mean, points: 10, ..Summary::default() };
        Window { latency, ..Window::lossless(rate) }
    }

    #[test]
    fn failed_rates_have_no_summary() {
        let at = |rate, means: &[f64]| Point {
            rate,
            windows: Ok(means.iter().map(|mean| window(rate, *mean)).collect()),
        };
        let failed = Point { rate: 900_000, windows: Err("7 of the updates are lost".into()) };
        let points = vec![at(1_000, &[90.0, 80.0, 200.0]), at(100_000, &[1_500.0]), failed];
        let mut latency = LatencyTest {
            backbone: Backbone::Lanes,
            variant: Variant::Plain,
            points,
            fastest: Ok(Some(window(80_000, 950.0))),
        };
        let summary = latency.points[0].summary().unwrap();
        assert!((summary.mean - 90.0).abs() < 1e-9 && (summary.p99 - 180.0).abs() < 1e-9);
        assert_eq!(summary.points, 30);
        assert!(latency.points[2].summary().is_none() && latency.points[2].spread().is_none());
        assert_eq!(latency.highest(), Some(80_000));
        latency.fastest = Err("died".into());
        assert_eq!(latency.highest(), Some(1_000));
        assert_eq!(latency.curves()[0].points.len(), 2);
        assert_eq!(latency.json()["points"][2]["failed"], "7 of the updates are lost");
    }
}
