//! T8: latency of the whole chain against rate, from the time an update was due to the client that looks at its fields.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use super::chain::{Chain, Plan, Window};
use super::options::Options;
use super::place::{Backbone, Place};
use super::throughput::{middle, plan};
use super::{report, search, table};
use mdist_load::plot::Curve;
use mdist_load::stats::Summary;

/// T8 over one backbone.
#[derive(Clone, Debug)]
pub(super) struct Latency {
    pub(super) backbone: &'static str,
    /// p2ps looked for its feed without a pause; only the rates with targets then.
    pub(super) busy: bool,
    /// By rising rate.
    pub(super) points: Vec<Point>,
    /// At the highest rate that was searched and has a mean of at most a millisecond.
    pub(super) fastest: Result<Option<Window>, String>,
}

/// What was measured at a rate, several times; or why that is worth nothing.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) rate: u64,
    pub(super) seen: Result<Vec<Window>, String>,
}

/// Rates that are run unless all are asked for, and those for which there are targets.
const SOME_RATES: [u64; 5] = [1_000, 10_000, 100_000, 500_000, 850_000];
pub(super) const GOAL_RATES: [u64; 2] = [1_000, 100_000];
/// Updates a second with the time in them: enough for the thousandth part of a short measurement.
const STAMPS: u64 = 1_000;
const WARM_UP: Duration = Duration::from_millis(1_000);
/// How long a rate is tried while the highest is searched.
const TRY: Duration = Duration::from_secs(2);
const NEAR: f64 = 1.08;
const TRIES: usize = 7;
/// The mean that the report's fastest rate is about, microseconds.
const LIMIT_US: f64 = 1_000.0;

impl Point {
    /// Medians of each figure.
    pub(super) fn summary(&self) -> Option<Summary> {
        let seen = self.seen.as_ref().ok().filter(|seen| !seen.is_empty())?;
        let of = |value: fn(&Summary) -> f64| {
            middle(&seen.iter().map(|window| value(&window.latency)).collect::<Vec<_>>()).median
        };
        Some(Summary {
            points: seen.iter().map(|window| window.latency.points).sum(),
            mean: of(|s| s.mean),
            stddev: of(|s| s.stddev),
            min: of(|s| s.min),
            max: of(|s| s.max),
            p50: of(|s| s.p50),
            p90: of(|s| s.p90),
            p99: of(|s| s.p99),
            p999: of(|s| s.p999),
            impossible: 0,
        })
    }

    /// By how much the means differ.
    pub(super) fn spread(&self) -> Option<f64> {
        let seen = self.seen.as_ref().ok().filter(|seen| !seen.is_empty())?;
        Some(middle(&seen.iter().map(|window| window.latency.mean).collect::<Vec<_>>()).spread)
    }
}

impl Latency {
    /// Runs all rates. Only what keeps everything from running is an error.
    pub(super) fn run(options: &Options, backbone: Backbone, busy: bool) -> Result<Self> {
        let (base, ..) = plan(options, backbone, "T8");
        let plan = Plan { prompt: true, busy, stamps: STAMPS, ..base };
        let mut runner = Runner { options, backbone, plan, running: None };
        runner.chain()?;
        let points = runner.rates().into_iter().map(|rate| runner.point(rate)).collect();
        let fastest = if options.rates.is_empty() && !busy { runner.fastest().map(Some) } else { Ok(None) };
        Ok(Self {
            backbone: backbone.name(),
            busy,
            points,
            fastest: fastest.map_err(|why| format!("{why:#}")),
        })
    }

    /// Where it ran, and how.
    pub(super) fn label(&self) -> String {
        label(self.backbone, self.busy)
    }

    /// Mean and tail against rate.
    pub(super) fn curves(&self) -> Vec<Curve> {
        let of = |label: &str, value: fn(&Summary) -> f64| Curve {
            label: format!("{label}, {}", self.label()),
            points: self
                .points
                .iter()
                .filter_map(|point| Some((point.rate as f64, value(&point.summary()?))))
                .collect(),
        };
        vec![of("mean", |s| s.mean), of("p99", |s| s.p99), of("p99.9", |s| s.p999)]
    }

    /// The highest clean rate of all with a mean of at most a millisecond.
    pub(super) fn highest(&self) -> Option<u64> {
        let good = |point: &&Point| point.summary().is_some_and(|seen| seen.mean <= LIMIT_US);
        let listed = self.points.iter().filter(good).map(|point| point.rate);
        listed.chain(self.fastest.iter().flatten().map(|window| window.rate)).max()
    }

    pub(super) fn json(&self) -> Value {
        let points: Vec<Value> = self
            .points
            .iter()
            .map(|point| match &point.seen {
                Ok(seen) => json!({ "rate": point.rate, "latency_us": point.summary(), "each": seen.iter().map(window_json).collect::<Value>() }),
                Err(why) => json!({ "rate": point.rate, "failed": why }),
            })
            .collect();
        let fastest = match &self.fastest {
            Ok(window) => window.as_ref().map(window_json).into(),
            Err(why) => json!({ "failed": why }),
        };
        json!({ "test": "T8", "backbone": self.backbone, "busy": self.busy, "points": points, "fastest_within_1_ms": fastest })
    }
}

fn label(backbone: &str, busy: bool) -> String {
    if busy { format!("{backbone}, busy") } else { backbone.to_owned() }
}

fn window_json(window: &Window) -> Value {
    json!({
        "rate": window.rate, "in_per_s": window.input, "out_per_s": window.output, "lost": window.lost,
        "latency_us": window.latency, "cpu": table::cpu_json(&window.cpu),
    })
}

/// The chain of the test, started anew when it has failed.
struct Runner<'a> {
    options: &'a Options,
    backbone: Backbone,
    plan: Plan,
    running: Option<(Chain, Place)>,
}

impl Runner<'_> {
    fn rates(&self) -> Vec<u64> {
        match self.options.rates.as_slice() {
            [] if self.options.quick || self.plan.busy => GOAL_RATES.to_vec(),
            [] if self.options.full => report::latency_rates(),
            [] => SOME_RATES.to_vec(),
            some => some.to_vec(),
        }
    }

    fn chain(&mut self) -> Result<&mut (Chain, Place)> {
        if self.running.is_none() {
            let place = Place::new(self.backbone)?;
            let chain = Chain::start(&place, &self.plan)?;
            self.running = Some((chain, place));
        }
        match &mut self.running {
            Some(running) => Ok(running),
            None => bail!("nothing runs"),
        }
    }

    fn measure(&mut self, rate: u64, time: Duration) -> Result<Window> {
        let label = label(self.backbone.name(), self.plan.busy);
        let (chain, place) = self.chain()?;
        let seen = chain.measure(place, rate, WARM_UP, time);
        if seen.is_err() {
            self.running = None;
        }
        let window = seen?;
        ensure!(
            window.latency.impossible == 0,
            "some updates came before they were sent: the clocks are not one"
        );
        ensure!(window.latency.points > 0, "no update had the time in it");
        let seen = &window.latency;
        table::say(&format!(
            "T8 {label}: {rate}/s for {:.1} s: mean {:.0} µs, p99 {:.0}, p99.9 {:.0}{}{}",
            time.as_secs_f64(),
            seen.mean,
            seen.p99,
            seen.p999,
            if window.is_clean() { "" } else { "; " },
            window.why()
        ));
        Ok(window)
    }

    fn point(&mut self, rate: u64) -> Point {
        let is_goal = GOAL_RATES.contains(&rate) || !self.options.rates.is_empty();
        let whole = self.options.window();
        let (count, time) =
            if is_goal || self.options.full { (self.options.repeat(), whole) } else { (1, whole / 2) };
        let mut again = 1;
        let mut run = || -> Result<Vec<Window>> {
            let mut seen = Vec::new();
            while seen.len() < count {
                let window = self.measure(rate, time)?;
                if window.is_clean() {
                    seen.push(window);
                } else {
                    ensure!(window.is_whole() && again > 0, "{}", window.why());
                    again -= 1;
                }
            }
            Ok(seen)
        };
        Point { rate, seen: run().map_err(|why| format!("{why:#}")) }
    }

    /// The highest rate with a mean of at most a millisecond, kept for as long as the others.
    fn fastest(&mut self) -> Result<Window> {
        let good = |window: &Window| window.is_clean() && window.latency.mean <= LIMIT_US;
        let found = search::highest(report::FASTEST_WITHIN_A_MILLISECOND, NEAR, TRIES, |rate| {
            Ok(good(&self.measure(rate, TRY)?))
        })?;
        ensure!(found > 0, "no rate has a mean of at most a millisecond");
        let mut rate = found;
        for _ in 0..5 {
            let window = self.measure(rate, self.options.window())?;
            if good(&window) {
                return Ok(window);
            }
            rate = rate * 9 / 10;
        }
        bail!("{found}/s has a mean of at most a millisecond for a moment only, and {rate}/s too")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Table;

    fn window(rate: u64, mean: f64) -> Window {
        Window {
            rate,
            input: rate as f64,
            output: rate as f64,
            fan_out: 1.0,
            lost: 0,
            missed: 0,
            faults: Vec::new(),
            cpu: Table { elapsed: Duration::from_secs(1), rows: Vec::new(), total: 0.0 },
            latency: Summary { mean, p99: 2.0 * mean, points: 10, ..Summary::default() },
        }
    }

    #[test]
    fn failed_rates_are_not_read() {
        let at = |rate, means: &[f64]| Point {
            rate,
            seen: Ok(means.iter().map(|mean| window(rate, *mean)).collect()),
        };
        let failed = Point { rate: 900_000, seen: Err("7 of the updates are lost".into()) };
        let points = vec![at(1_000, &[90.0, 80.0, 200.0]), at(100_000, &[1_500.0]), failed];
        let mut latency =
            Latency { backbone: "lanes", busy: false, points, fastest: Ok(Some(window(80_000, 950.0))) };
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
