//! T1 to T7, the whole chain, and publisher and client alone: CPU time of an update and highest rate.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use utipc_bench_kit::progress;
use utipc_bench_kit::stats::{median, spread};

use super::chain::{Chain, Plan, Window};
use super::options::Options;
use super::place::{Backbone, Place, Side};
use super::report::{self, Published};
use super::search;

/// A line of the throughput table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) test: &'static str,
    pub(super) component: &'static str,
    pub(super) backbone: &'static str,
    pub(super) cache: bool,
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

/// The median of some values, and (largest − smallest) ÷ median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) spread: f64,
}

impl Spread {
    pub(super) fn of(values: impl IntoIterator<Item = f64> + Clone) -> Self {
        Self { median: median(values.clone()), spread: spread(values) }
    }
}

impl Measurements {
    /// Nanoseconds of CPU time for an output update.
    pub(super) fn ns(&self, window: &Window) -> f64 {
        let used: f64 = self.charged.iter().map(|(name, share)| window.cpu.of(name) * share).sum();
        used * 1e9 / (window.output * window.cpu.elapsed.as_secs_f64())
    }

    /// [`Self::ns`] at the stated rate.
    pub(super) fn cost(&self) -> Spread {
        Spread::of(self.stated.iter().map(|window| self.ns(window)))
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

const WARM_UP: Duration = Duration::from_millis(1_000);
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
}

/// The programs of `test` over `backbone`.
pub(super) fn setup(options: &Options, backbone: Backbone, test: &str) -> Setup {
    let base = Plan {
        distributor: (backbone != Backbone::None).then_some(false),
        server: Some(false),
        pop: None,
        mounts: 1,
        items: options.items,
        own: options.own_items(),
        prompt: false,
        busy: false,
        stamps: 100,
        service: options.service.clone(),
        source: options.source.clone().unwrap_or_else(|| "127.0.0.1:0".into()),
        settings: options.settings.clone(),
        foreign: options.target.clone(),
    };
    let many = options.mounts.max(2);
    if base.foreign.is_some() {
        let mounts = if test == "T5" { many } else { 1 };
        let plan = Plan { distributor: None, server: None, prompt: test == "T8", mounts, ..base };
        return Setup { plan, component: "foreign server", side: None };
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
    Setup { plan, component, side }
}

/// Runs a test over a backbone. An error is part of the row.
pub(super) fn run(options: &Options, backbone: Backbone, test: &'static str) -> Row {
    let setup = setup(options, backbone, test);
    let published = report::THROUGHPUT.iter().find(|row| row.test == test).copied();
    let is_direct = test == "direct" || setup.plan.foreign.is_some();
    let backbone = if is_direct { Backbone::None } else { backbone };
    let measured = Runner::start(options, backbone, test, &setup)
        .and_then(|runner| runner.measure(&setup, published.as_ref()));
    let Setup { plan, component, .. } = setup;
    Row {
        test,
        component,
        backbone: backbone.name(),
        cache: match component {
            "src_dist" => plan.distributor == Some(true),
            "pop" => plan.pop == Some(true),
            _ => plan.server == Some(true),
        },
        mounts: plan.mounts,
        published,
        measured: measured.map_err(|why| format!("{why:#}")),
    }
}

/// A running test.
struct Runner<'a> {
    options: &'a Options,
    test: &'static str,
    label: String,
    chain: Chain,
    place: Place,
}

impl<'a> Runner<'a> {
    fn start(options: &'a Options, backbone: Backbone, test: &'static str, setup: &Setup) -> Result<Self> {
        if backbone == Backbone::None && matches!(test, "T1" | "T2") {
            bail!("it measures the distributor, which runs only with a backbone (add --backbone lanes)");
        }
        let place = Place::new(backbone)?;
        let chain = Chain::start(&place, &setup.plan)?;
        let label = format!("{test} {}", backbone.name());
        let (streams, seconds) = (setup.plan.shares().streams(), chain.startup_s());
        progress(&format!("{label}: {streams} item streams loaded in {seconds:.1} s"));
        Ok(Self { options, test, label, chain, place })
    }

    /// Measures the highest rate unless the options name one, then costs at the stated rate.
    fn measure(mut self, setup: &Setup, published: Option<&Published>) -> Result<Measurements> {
        let charged = self.charged(setup);
        let (mut stated, mut highest) = (Vec::new(), None);
        let rate = match self.options.rate {
            Some(rate) => rate,
            None => {
                let top = highest.insert(self.highest(published)?);
                match published {
                    Some(row) if top.rate as f64 >= row.input => row.input as u64,
                    Some(_) => (top.rate as f64 * BELOW) as u64,
                    // Without a published cost to compare with, one measurement is enough.
                    None => {
                        stated.push(top.clone());
                        top.rate
                    }
                }
            }
        };
        let is_compared = published.is_some() || self.options.rate.is_some();
        self.add_clean(&mut stated, rate, if is_compared { self.options.repeat() } else { 1 })?;
        Ok(Measurements { stated, highest, charged, startup_s: self.chain.startup_s() })
    }

    /// The processes whose CPU time counts, and their shares.
    fn charged(&self, setup: &Setup) -> Vec<(String, f64)> {
        match setup.component {
            "foreign server" => Vec::new(),
            "chain" => self.chain.processes(&self.place).into_iter().map(|(name, _)| (name, 1.0)).collect(),
            own => {
                let daemon = setup.side.and_then(|side| self.place.daemon_share(side));
                [(own.to_owned(), 1.0)].into_iter().chain(daemon).collect()
            }
        }
    }

    /// Measures at a rate.
    fn window(&mut self, rate: u64, warm_up: Duration, time: Duration) -> Result<Window> {
        let window = self.chain.measure(&self.place, rate, warm_up, time)?;
        let result =
            if window.is_clean() { format!("{:.0} out/s", window.output) } else { window.problems() };
        progress(&format!("{}: {rate}/s for {:.1} s: {result}", self.label, time.as_secs_f64()));
        Ok(window)
    }

    /// Searches the highest clean rate and measures it for as long as the test demands.
    fn highest(&mut self, published: Option<&Published>) -> Result<Window> {
        let guess = match published {
            Some(row) => row.input as u64,
            None if self.test == "direct" => 2_000_000,
            None => 1_200_000,
        };
        let (time, warm_up) = TRY;
        let found =
            search::highest(guess, NEAR, TRIES, |rate| Ok(self.window(rate, warm_up, time)?.is_clean()))?;
        ensure!(found > 0, "no rate is without loss");
        let time = match self.test {
            "chain" => self.options.long(),
            // Its rate has a target.
            "T5" => self.options.window(),
            _ => self.options.window() / 2,
        };
        // A rate that is clean for a second rarely stays so for a minute, and many tries of a minute would take too
        // long.
        let (first, step) = if self.test == "chain" { (found * 9 / 10, 0.85) } else { (found, 0.95) };
        sustained(first, step, |rate| self.window(rate, WARM_UP, time))
    }

    /// Measures at `rate` until `windows` has `count` clean ones. Two may be unclean, but must not lose an update.
    fn add_clean(&mut self, windows: &mut Vec<Window>, rate: u64, count: usize) -> Result<()> {
        let mut retries = 2;
        while windows.len() < count {
            let window = self.window(rate, WARM_UP, self.options.window())?;
            if window.is_clean() {
                windows.push(window);
            } else {
                // The machine may have been busy elsewhere.
                ensure!(window.is_whole() && retries > 0, "at {rate}/s: {}", window.problems());
                retries -= 1;
            }
        }
        Ok(())
    }
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
    json!({
        "rate": window.rate, "in_per_s": window.input, "out_per_s": window.output, "lost": window.lost,
        "cpu_ns_per_output": measured.ns(window), "latency_us": window.latency,
        "busiest": { "process": process, "share_of_a_core": share }, "cpu": window.cpu.json(),
    })
}

impl Row {
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
                let cost = measured.cost();
                value["cpu_ns_per_output"] = json!({ "median": cost.median, "spread": cost.spread });
                value["charged"] = json!(measured.charged);
                value["startup_s"] = json!(measured.startup_s);
                let each = measured.stated.iter().map(|window| window_json(measured, window));
                value["stated"] = each.collect();
                value["highest"] =
                    measured.highest.iter().map(|window| window_json(measured, window)).next().into();
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
    use utipc_bench_kit::stats::Summary;

    fn window(rate: u64, rows: &[(&str, f64)]) -> Window {
        let rows: Vec<(String, f64)> = rows.iter().map(|row| (row.0.into(), row.1)).collect();
        let total = rows.iter().map(|row| row.1).sum();
        let cpu = Usage { elapsed: Duration::from_secs(10), rows, total };
        let (input, output) = (rate as f64, rate as f64);
        Window {
            rate,
            input,
            output,
            fan_out: 1.0,
            lost: 0,
            missed: 0,
            faults: Vec::new(),
            cpu,
            latency: Summary::default(),
        }
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
