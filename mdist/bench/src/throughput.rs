//! T1 to T7, the whole chain, and publisher and client alone: CPU time of an update and highest rate.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use utipc_bench_kit::Named as _;
use utipc_bench_kit::stats::Spread;

use super::chain::{self, Chain, Plan, Window};
use super::options::Options;
use super::place::{Backbone, Place, Side};
use super::report::{self, Published};
use super::runner::Runner;
use super::search;

/// A line of the throughput table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) test: &'static str,
    pub(super) component: &'static str,
    pub(super) backbone: Backbone,
    pub(super) cache: bool,
    /// Whether it has caches although the test of the report has none.
    pub(super) is_extra: bool,
    pub(super) mounts: usize,
    pub(super) published: Option<Published>,
    /// The measurements, or why there are none.
    pub(super) measured: Result<Measurements, String>,
}

/// The measurements of a row; none of them lost an update.
#[derive(Clone, Debug)]
pub(super) struct Measurements {
    /// At the stated rate; at least one.
    pub(super) stated: Vec<Window>,
    /// At the highest rate, if that was searched.
    pub(super) highest: Option<Window>,
    /// Processes whose CPU time counts: (name, share of its time).
    pub(super) charged: Vec<(String, f64)>,
    pub(super) startup_s: f64,
}

impl Measurements {
    /// Nanoseconds of CPU time for an output update.
    pub(super) fn ns(&self, window: &Window) -> f64 {
        let used: f64 = self.charged.iter().map(|(name, share)| window.cpu.of(name) * share).sum();
        used * 1e9 / (window.output * window.cpu.elapsed.as_secs_f64())
    }

    /// [`Self::ns`] at the stated rate.
    pub(super) fn cost(&self) -> Spread {
        self.stated.iter().map(|window| self.ns(window)).collect()
    }

    /// The measurement whose cost is nearest to the median.
    pub(super) fn typical(&self) -> Option<&Window> {
        let cost = self.cost().median;
        let distance = |window: &Window| (self.ns(window) - cost).abs();
        self.stated.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))
    }

    /// The measurement at the highest rate, or at the stated one if none was searched.
    pub(super) fn top(&self) -> Option<&Window> {
        self.highest.as_ref().or_else(|| self.typical())
    }
}

/// Duration of each measurement in the search for the highest rate, and of the warm-up before it.
const TRY: (Duration, Duration) = (Duration::from_millis(1_200), Duration::from_millis(500));
/// The search ends when the highest clean and the lowest unclean rate are within this factor.
const NEAR: f64 = 1.08;
const TRIES: usize = 8;
/// Costs are measured at this share of the highest rate if the rate of the report is above it.
const BELOW: f64 = 0.9;

/// The programs of a test, and the one that it measures.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) plan: Plan,
    /// The measured component.
    pub(super) component: &'static str,
    /// The end of the backbone at which the component is, if it uses the backbone.
    pub(super) side: Option<Side>,
    /// Whether there are caches although the test of the report has none.
    is_extra: bool,
}

/// The programs of `test` over `backbone`; `caches`: they have caches also where the report has none.
pub(super) fn setup(options: &Options, backbone: Backbone, test: &str, caches: bool) -> Setup {
    let base = Plan {
        distributor: (backbone != Backbone::None).then_some(caches),
        server: Some(caches),
        pop: None,
        mounts: 1,
        items: options.items,
        own: options.own_items(),
        prompt: false,
        busy: false,
        stamps: 100,
        service: options.service.clone(),
        source: Some("127.0.0.1:0".into()),
        settings: options.settings.clone(),
        foreign: options.target.clone(),
        loading_rate: 0,
        load_time: chain::LOAD_TIME,
    };
    let many = options.mounts.max(2);
    if base.foreign.is_some() {
        let mounts = if test == "T5" { many } else { 1 };
        let source = options.source.clone();
        let plan = Plan { distributor: None, server: None, prompt: test == "T8", mounts, source, ..base };
        return Setup { plan, component: "foreign server", side: None, is_extra: false };
    }
    let (plan, component, side) = match test {
        "direct" => (Plan { distributor: None, server: None, ..base }, "sink_driven_src", None),
        "T1" => (base, "src_dist", Some(Side::Source)),
        "T2" => (Plan { distributor: Some(true), ..base }, "src_dist", Some(Side::Source)),
        "T3" => (base, "p2ps", Some(Side::Sink)),
        "T4" => (Plan { server: Some(true), ..base }, "p2ps", Some(Side::Sink)),
        "T5" => (Plan { mounts: many, ..base }, "p2ps", Some(Side::Sink)),
        // A POP does not use the backbone.
        "T6" => (Plan { pop: Some(true), ..base }, "pop", None),
        "T7" => (Plan { pop: Some(true), mounts: many, ..base }, "pop", None),
        _ => (base, "chain", None),
    };
    Setup { plan, component, side, is_extra: caches }
}

/// Runs a test over a backbone. An error is part of the row.
pub(super) fn run(options: &Options, backbone: Backbone, test: &'static str, caches: bool) -> Row {
    let setup = setup(options, backbone, test, caches);
    let published = report::THROUGHPUT.iter().find(|row| row.test == test).copied();
    let is_direct = test == "direct" || setup.plan.foreign.is_some();
    let backbone = if is_direct { Backbone::None } else { backbone };
    let measured = measure(options, backbone, test, &setup, published.as_ref());
    let Setup { plan, component, is_extra, .. } = setup;
    Row {
        test,
        component,
        backbone,
        cache: match component {
            "src_dist" => plan.distributor == Some(true),
            "pop" => plan.pop == Some(true),
            _ => plan.server == Some(true),
        },
        is_extra,
        mounts: plan.mounts,
        published,
        measured: measured.map_err(|why| format!("{why:#}")),
    }
}

/// Measures the highest rate unless the options name one, then costs at the stated rate.
fn measure(
    options: &Options,
    backbone: Backbone,
    test: &str,
    setup: &Setup,
    published: Option<&Published>,
) -> Result<Measurements> {
    if backbone == Backbone::None && matches!(test, "T1" | "T2") {
        bail!("it measures the distributor, which runs only with a backbone (add --backbone lanes)");
    }
    let caches = if setup.is_extra { ", caches on" } else { "" };
    let label = format!("{test} {}{caches}", backbone.name());
    let mut runner = Runner::start(options, backbone, label, setup.plan.clone())?;
    let (chain, place) = runner.running()?;
    let (charged, startup_s) = (charged(setup, chain, place), chain.startup_s());
    let highest = match options.rate {
        None => Some(find_highest(&mut runner, test, published)?),
        Some(_) => None,
    };
    let stated = match (&highest, published) {
        // Without a published cost to compare with, one measurement is enough.
        (Some(top), None) => vec![top.clone()],
        (top, row) => {
            let most = top.as_ref().map(|top| top.rate).zip(row.map(|row| row.input as u64));
            let fits = |(top, row)| if top >= row { row } else { (top as f64 * BELOW) as u64 };
            let rate = options.rate.or(most.map(fits)).unwrap_or_default();
            runner.clean(rate, options.window(), options.repeat(), 2)?
        }
    };
    Ok(Measurements { stated, highest, charged, startup_s })
}

/// The processes whose CPU time counts, and their shares.
fn charged(setup: &Setup, chain: &mut Chain, place: &Place) -> Vec<(String, f64)> {
    match setup.component {
        "foreign server" => Vec::new(),
        "chain" => chain.processes(place).into_iter().map(|(name, _)| (name, 1.0)).collect(),
        own => {
            let daemon = setup.side.and_then(|side| place.daemon_share(side));
            [(own.to_owned(), 1.0)].into_iter().chain(daemon).collect()
        }
    }
}

/// Searches the highest clean rate and measures it for as long as the test demands.
fn find_highest(runner: &mut Runner<'_>, test: &str, published: Option<&Published>) -> Result<Window> {
    let guess = match published {
        Some(row) => row.input as u64,
        None if test == "direct" => 2_000_000,
        None => 1_200_000,
    };
    let (time, warm_up) = TRY;
    let found = search::highest(guess, NEAR, TRIES, |rate| {
        Ok(runner.measure_after(warm_up, rate, time)?.is_clean())
    })?;
    ensure!(found > 0, "no rate is without loss");
    let options = runner.options;
    let time = match test {
        "chain" => options.long(),
        // Its rate has a target.
        "T5" => options.window(),
        _ => options.window() / 2,
    };
    // A rate that is clean for a second rarely stays so for a minute, and many tries of a minute would take too long.
    let (first, step) = if test == "chain" { (found * 9 / 10, 0.85) } else { (found, 0.95) };
    sustained(first, step, |rate| runner.measure(rate, time))
}

/// Measures at `found`, then at lower rates until one is clean: the first by the factor `step`, each further one by the
/// square of the factor before.
fn sustained(found: u64, mut step: f64, mut measure: impl FnMut(u64) -> Result<Window>) -> Result<Window> {
    let mut rate = found;
    for _ in 0..6 {
        let window = measure(rate)?;
        if window.is_clean() {
            return Ok(window);
        }
        rate = (rate as f64 * step) as u64;
        step *= step;
    }
    bail!("it was clean only for a moment, at {found}/s and below")
}

fn window_json(measured: &Measurements, window: &Window) -> Value {
    let (process, share) = window.cpu.busiest();
    let mut value = window.json();
    value["cpu_ns_per_output"] = json!(measured.ns(window));
    value["busiest"] = json!({ "process": process, "share_of_a_core": share });
    value
}

impl Row {
    /// The row's test and backbone.
    pub(super) fn name(&self) -> String {
        let suffix = if self.is_extra { ", caches on" } else { "" };
        format!("{} {}{suffix}", self.test, self.backbone.name())
    }

    /// The row as JSON.
    pub(super) fn json(&self) -> Value {
        let mut value = json!({
            "test": self.test, "component": self.component, "backbone": self.backbone, "cache": self.cache,
            "mounts": self.mounts,
            "report": self.published.map(|row| json!({ "in_per_s": row.input, "out_per_s": row.output, "ns": row.ns() })),
            "goal_ns": self.published.map(|row| row.goal_ns),
        });
        match &self.measured {
            Ok(measured) => {
                let window = |window| window_json(measured, window);
                value["cpu_ns_per_output"] = json!(measured.cost());
                value["charged"] = json!(measured.charged);
                value["startup_s"] = json!(measured.startup_s);
                value["stated"] = measured.stated.iter().map(window).collect();
                value["highest"] = measured.highest.as_ref().map(window).into();
            }
            Err(why) => value["failed"] = json!(why),
        }
        value
    }

    /// The row as one line of progress.
    pub(super) fn line(&self) -> Result<String> {
        let measured = self.measured.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
        let (cost, top) = (measured.cost(), measured.top().context("no measurement")?);
        let rate = measured.typical().map_or(0, |window| window.rate);
        Ok(format!(
            "{:.0} ns an output update at {rate}/s in; highest {}/s in, {:.0}/s out",
            cost.median, top.rate, top.output
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use utipc_bench_kit::cpu::Usage;

    fn window(rate: u64, rows: &[(&str, f64)]) -> Window {
        let rows: Vec<(String, f64)> = rows.iter().map(|row| (row.0.into(), row.1)).collect();
        let total = rows.iter().map(|row| row.1).sum();
        let cpu = Usage { elapsed: Duration::from_secs(10), rows, total };
        Window { cpu, ..Window::lossless(rate) }
    }

    #[test]
    fn cost_counts_the_component_and_its_share_of_the_daemon() {
        let cpu =
            |own: f64| window(1_000_000, &[("p2ps", own), ("utipcd", 1.0), ("other", 9.0), ("rest", 0.1)]);
        let measured = Measurements {
            stated: vec![cpu(1.5), cpu(2.5), cpu(1.7)],
            highest: None,
            charged: vec![("p2ps".into(), 1.0), ("utipcd".into(), 0.5)],
            startup_s: 0.0,
        };
        // 1.7 s + 0.5 s in 10 million updates.
        let cost = measured.cost();
        assert!((cost.median - 220.0).abs() < 1e-6 && (cost.spread - 100.0 / 220.0).abs() < 1e-6);
        assert!((measured.typical().unwrap().cpu.of("p2ps") - 1.7).abs() < 1e-9);
    }

    #[test]
    fn window_with_loss_or_a_slow_rate_is_not_clean() {
        let good = window(1_000, &[]);
        assert!(good.is_clean() && good.problems().is_empty());
        let lost = Window { lost: 3, ..good.clone() };
        let cut = Window { faults: vec!["1 cuts".into()], ..good.clone() };
        let slow = Window { input: 980.0, ..good.clone() };
        let few = Window { fan_out: 2.0, ..good };
        assert!(!lost.is_clean() && !lost.is_whole() && lost.problems().contains("3 of the updates"));
        assert!(!cut.is_whole() && cut.problems().contains("1 cuts"));
        assert!(slow.is_whole() && !slow.is_clean() && slow.problems().contains("980/s in"));
        assert!(!few.is_clean());
        let mut tried = Vec::new();
        let found = sustained(1_000, 0.95, |rate| {
            tried.push(rate);
            Ok(Window { lost: i64::from(rate > 900), ..window(rate, &[]) })
        });
        assert_eq!((found.unwrap().rate, tried.as_slice()), (857, &[1_000, 950, 857][..]));
    }
}
