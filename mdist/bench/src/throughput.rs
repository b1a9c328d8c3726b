//! T1 to T7, the whole chain, and publisher and client alone: cost of an update and highest rate.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::chain::{Chain, Plan, Window};
use super::options::Options;
use super::place::{Backbone, Place, Side};
use super::report::{self, Published};
use super::{search, table};
use mdist_load::stats::median;

/// A line of the throughput table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) test: &'static str,
    pub(super) component: &'static str,
    pub(super) backbone: &'static str,
    pub(super) cache: bool,
    pub(super) mounts: usize,
    pub(super) published: Option<Published>,
    /// What was measured; or why that is worth nothing.
    pub(super) measured: Result<Measured, String>,
}

/// The measurements of a row; nothing in them was lost.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// All at one rate, at least one.
    pub(super) stated: Vec<Window>,
    /// At the highest rate, if that was searched.
    pub(super) highest: Option<Window>,
    /// Whose CPU time counts, by name, and which share of it.
    pub(super) charged: Vec<(String, f64)>,
    pub(super) startup_s: f64,
}

/// A value in the middle, and (largest − smallest) ÷ it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Middle {
    pub(super) median: f64,
    pub(super) spread: f64,
}

/// The middle of some values.
pub(super) fn middle(values: &[f64]) -> Middle {
    let median = median(values);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    Middle { median, spread: (most - least) / median }
}

impl Measured {
    /// Nanoseconds of CPU for an output update.
    pub(super) fn ns(&self, window: &Window) -> f64 {
        let used: f64 = self.charged.iter().map(|(name, share)| window.cpu.of(name) * share).sum();
        used * 1e9 / (window.output * window.cpu.elapsed.as_secs_f64())
    }

    /// The same at the stated rate.
    pub(super) fn cost(&self) -> Middle {
        middle(&self.stated.iter().map(|window| self.ns(window)).collect::<Vec<_>>())
    }

    /// The measurement in the middle.
    pub(super) fn typical(&self) -> Option<&Window> {
        let cost = self.cost().median;
        let off = |window: &Window| (self.ns(window) - cost).abs();
        self.stated.iter().min_by(|a, b| off(a).total_cmp(&off(b)))
    }

    /// Where the highest rate was measured; the stated one, where none was searched.
    pub(super) fn top(&self) -> Option<&Window> {
        self.highest.as_ref().or_else(|| self.typical())
    }
}

const WARM_UP: Duration = Duration::from_millis(1_000);
/// How long a rate is tried while the highest is searched, and what goes ahead of it.
const TRY: (Duration, Duration) = (Duration::from_millis(1_200), Duration::from_millis(500));
/// The search ends when the highest clean and the lowest unclean rate are so near.
const NEAR: f64 = 1.08;
const TRIES: usize = 8;
/// What part of the highest rate costs are measured at, where the report's rate is above it.
const BELOW: f64 = 0.9;

/// Which programs a test has, which of them it is about, and where that is.
pub(super) fn plan(options: &Options, backbone: Backbone, test: &str) -> (Plan, &'static str, Option<Side>) {
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
        let base = Plan { distributor: None, server: None, prompt: test == "T8", ..base };
        return (Plan { mounts: if test == "T5" { many } else { 1 }, ..base }, "foreign server", None);
    }
    match test {
        "direct" => (Plan { distributor: None, server: None, ..base }, "sink_driven_src", None),
        "T1" => (base, "src_dist", Some(Side::Source)),
        "T2" => (Plan { distributor: Some(true), ..base }, "src_dist", Some(Side::Source)),
        "T3" => (base, "p2ps", Some(Side::Sink)),
        "T4" => (Plan { server: Some(true), ..base }, "p2ps", Some(Side::Sink)),
        "T5" => (Plan { mounts: many, ..base }, "p2ps", Some(Side::Sink)),
        // A POP is no part of the backbone.
        "T6" => (Plan { pop: Some(true), ..base }, "pop", None),
        "T7" => (Plan { pop: Some(true), mounts: many, ..base }, "pop", None),
        _ => (base, "chain", None),
    }
}

/// Runs a test over a backbone. Whatever goes wrong is in the row.
pub(super) fn run(options: &Options, backbone: Backbone, test: &'static str) -> Row {
    let (plan, component, side) = plan(options, backbone, test);
    let published = report::THROUGHPUT.iter().find(|row| row.test == test).copied();
    let backbone = if test == "direct" || plan.foreign.is_some() { Backbone::None } else { backbone };
    let measured = measure(options, backbone, test, &plan, component, side, published.as_ref());
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

fn measure(
    options: &Options,
    backbone: Backbone,
    test: &str,
    plan: &Plan,
    component: &str,
    side: Option<Side>,
    published: Option<&Published>,
) -> Result<Measured> {
    if backbone == Backbone::None && matches!(test, "T1" | "T2") {
        bail!("it is about the distributor, which is there with a backbone only (--backbone lanes)");
    }
    let mut place = Place::new(backbone)?;
    let mut chain = Chain::start(&place, plan)?;
    let label = format!("{test} {}", backbone.name());
    table::say(&format!(
        "{label}: {} item streams loaded in {:.1} s",
        plan.shares().streams(),
        chain.startup_s()
    ));
    let charged = match (component, side.and_then(|side| place.daemon_share(side))) {
        ("foreign server", _) => Vec::new(),
        ("chain", _) => chain.processes(&place).into_iter().map(|(name, _)| (name, 1.0)).collect(),
        (own, daemon) => [(own.to_owned(), 1.0)].into_iter().chain(daemon).collect(),
    };
    let mut at = |rate: u64, warm_up: Duration, time: Duration| {
        let window = chain.measure(&mut place, rate, warm_up, time)?;
        table::say(&format!(
            "{label}: {rate}/s for {:.1} s: {}",
            time.as_secs_f64(),
            if window.is_clean() { format!("{:.0} out/s", window.output) } else { window.why() }
        ));
        Ok(window)
    };

    let (mut stated, mut highest) = (Vec::new(), None);
    let guess =
        published.map_or(if test == "direct" { 2_000_000 } else { 1_200_000 }, |row| row.input as u64);
    let rate = match options.rate {
        Some(rate) => rate,
        None => {
            let (time, warm_up) = TRY;
            let found = search::highest(guess, NEAR, TRIES, |rate| Ok(at(rate, warm_up, time)?.is_clean()))?;
            ensure!(found > 0, "no rate is without loss");
            let time = match test {
                "chain" => options.long(),
                // There is a target for its rate.
                "T5" => options.window(),
                _ => options.window() / 2,
            };
            // What is clean for a second is hardly so for a minute: do not try for many of them.
            let (first, step) = if test == "chain" { (found * 9 / 10, 0.85) } else { (found, 0.95) };
            let top = sustained(first, step, |rate| at(rate, WARM_UP, time))?;
            let top = highest.insert(top);
            match published {
                Some(row) if top.rate as f64 >= row.input => row.input as u64,
                Some(_) => (top.rate as f64 * BELOW) as u64,
                // Nothing to compare a cost with.
                None => {
                    stated.push(top.clone());
                    top.rate
                }
            }
        }
    };
    let mut again = 2;
    while stated.is_empty()
        || (published.is_some() || options.rate.is_some()) && stated.len() < options.repeat()
    {
        let window = at(rate, WARM_UP, options.window())?;
        if window.is_clean() {
            stated.push(window);
        } else {
            // A machine that was busy elsewhere; never a loss.
            ensure!(window.is_whole() && again > 0, "at {rate}/s: {}", window.why());
            again -= 1;
        }
    }
    Ok(Measured { stated, highest, charged, startup_s: chain.startup_s() })
}

/// Measures the rate found; lower ones by `step`, and then by twice as much each time, should it not be clean for so long.
fn sustained(found: u64, mut step: f64, mut at: impl FnMut(u64) -> Result<Window>) -> Result<Window> {
    let mut rate = found;
    for _ in 0..6 {
        let window = at(rate)?;
        if window.is_clean() {
            return Ok(window);
        }
        rate = (rate as f64 * step) as u64;
        step *= step;
    }
    bail!("it was clean for a moment only, at {found}/s and below")
}

fn window_json(measured: &Measured, window: &Window) -> Value {
    let (limit, share) = window.cpu.busiest();
    json!({
        "rate": window.rate, "in_per_s": window.input, "out_per_s": window.output, "lost": window.lost,
        "cpu_ns_per_output": measured.ns(window), "latency_us": window.latency,
        "busiest": { "process": limit, "share_of_a_core": share }, "cpu": table::cpu_json(&window.cpu),
    })
}

impl Row {
    /// All of it.
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

    /// In one line.
    pub(super) fn line(&self) -> Result<String> {
        let measured = self.measured.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
        let (cost, top) = (measured.cost(), measured.top().context("nothing was measured")?);
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
    use crate::cpu::Table;
    use mdist_load::stats::Summary;

    fn window(rate: u64, rows: &[(&str, f64)]) -> Window {
        let rows: Vec<(String, f64)> = rows.iter().map(|row| (row.0.into(), row.1)).collect();
        let total = rows.iter().map(|row| row.1).sum();
        let cpu = Table { elapsed: Duration::from_secs(10), rows, total };
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
    fn a_cost_is_the_components_and_its_share_of_the_node() {
        let cpu =
            |own: f64| window(1_000_000, &[("p2ps", own), ("utipcd", 1.0), ("other", 9.0), ("rest", 0.1)]);
        let measured = Measured {
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
    fn losses_and_slow_rates_are_not_clean() {
        let good = window(1_000, &[]);
        assert!(good.is_clean() && good.why().is_empty());
        let lost = Window { lost: 3, ..good.clone() };
        let cut = Window { faults: vec!["1 cuts".into()], ..good.clone() };
        let slow = Window { input: 980.0, ..good.clone() };
        let few = Window { fan_out: 2.0, ..good };
        assert!(!lost.is_clean() && !lost.is_whole() && lost.why().contains("3 of the updates"));
        assert!(!cut.is_whole() && cut.why().contains("1 cuts"));
        assert!(slow.is_whole() && !slow.is_clean() && slow.why().contains("980/s in"));
        assert!(!few.is_clean());
        let mut tried = Vec::new();
        let found = sustained(1_000, 0.95, |rate| {
            tried.push(rate);
            Ok(Window { lost: i64::from(rate > 900), ..window(rate, &[]) })
        });
        assert_eq!((found.unwrap().rate, tried.as_slice()), (857, &[1_000, 950, 857][..]));
    }
}
