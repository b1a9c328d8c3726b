//! A whole run: which tests, in which order, and what is said about them.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::foreign::Foreign;
use super::latency::Latency;
use super::options::Options;
use super::place::{self, Backbone};
use super::stock::{self, Pair};
use super::throughput::{self, Row};
use super::{child, goals, interrupt, table};
use mdist_load::plot;

/// Everything that was measured so far.
#[derive(Default)]
struct Results {
    machine: String,
    rows: Vec<Row>,
    latencies: Vec<Latency>,
    pair: Option<Pair>,
    foreign: Vec<Foreign>,
    /// Tests that were not run, and why; and those that could not begin.
    skipped: Vec<(String, String)>,
    failed: Vec<(String, String)>,
    /// (test, seconds it took)
    took: Vec<(String, f64)>,
}

/// Runs what the options say, and prints it.
///
/// # Errors
/// A test failed, was not known, or a signal came; what was measured until then is printed nevertheless.
pub fn run(options: &Options) -> Result<()> {
    let names = options.names()?;
    child::build()?;
    interrupt::listen()?;
    place::sweep();
    let mut results = Results { machine: machine(), ..Results::default() };
    eprintln!("{}", results.machine);
    match &options.target {
        Some(target) => against(options, target, &mut results)?,
        None => tests(options, &names, &mut results)?,
    }
    println!("{}", results.text(options));
    save(options, &results)?;
    interrupt::check()?;
    let failed = results.failures();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn tests(options: &Options, names: &[&'static str], results: &mut Results) -> Result<()> {
    let backbones = options.backbones();
    let no_spaces =
        if backbones.iter().any(|backbone| backbone.is_apart()) { place::no_namespaces() } else { None };
    for (round, backbone) in backbones.into_iter().enumerate() {
        for name in names {
            if interrupt::came() {
                return Ok(());
            }
            let alone = matches!(*name, "direct" | "sdk");
            // What has no backbone in it is run once.
            if alone && round > 0 {
                continue;
            }
            let label = if alone { (*name).to_owned() } else { format!("{name} {}", backbone.name()) };
            if !alone
                && backbone.is_apart()
                && let Some(why) = &no_spaces
            {
                results.skipped.push((label, why.clone()));
                continue;
            }
            let began = Instant::now();
            match *name {
                "sdk" => match stock::folder() {
                    Some(folder) => results.pair = Some(Pair::run(options, &folder)),
                    None => {
                        let why = format!("no folder with ConsPerf and ProvPerf in {}", stock::FOLDER);
                        results.skipped.push((label, why));
                        continue;
                    }
                },
                "T8" => {
                    for busy in [false, true] {
                        results.add_latency(options, backbone, busy);
                    }
                }
                test => {
                    let row = throughput::run(options, backbone, test);
                    table::say(&match row.line() {
                        Ok(line) => format!("{label}: {line}"),
                        Err(why) => format!("{label}: failed: {why}"),
                    });
                    results.rows.push(row);
                }
            }
            results.took.push((label, began.elapsed().as_secs_f64()));
            save(options, results)?;
        }
    }
    plots(options, results)
}

/// A foreign server: driven with our publisher, where it can dial that; otherwise only looked at.
fn against(options: &Options, target: &str, results: &mut Results) -> Result<()> {
    if options.source.is_none() {
        results.foreign = Foreign::run(options, target);
        return Ok(());
    }
    for test in ["T3", "T5"] {
        results.rows.push(throughput::run(options, Backbone::None, test));
        interrupt::check()?;
    }
    results.add_latency(options, Backbone::None, false);
    plots(options, results)
}

/// Latency against rate, all backbones and the vendor's pair in one picture.
fn plots(options: &Options, results: &Results) -> Result<()> {
    if results.latencies.is_empty() {
        return Ok(());
    }
    let published = |label: &str, value: fn(&(u64, f64, f64)) -> f64| plot::Curve {
        label: label.into(),
        points: super::report::LATENCY.iter().map(|point| (point.0 as f64, value(point))).collect(),
    };
    let mut curves: Vec<plot::Curve> = results.latencies.iter().flat_map(Latency::curves).collect();
    curves.extend(results.pair.iter().map(Pair::curve));
    curves.push(published("report, RRCP, mean", |point| point.1));
    curves.push(published("report, Rendezvous, mean", |point| point.2));
    let path = options.plots.join("latency.svg");
    plot::latency_against_rate(&path, "Latency of the whole chain against rate", &curves)?;
    table::say(&format!("plot: {}", path.display()));
    Ok(())
}

fn save(options: &Options, results: &Results) -> Result<()> {
    let Some(path) = &options.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&results.json(options)).context("write JSON")?;
    std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))
}

/// What the figures were measured on.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model =
        cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|pair| pair.1));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let release = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    format!(
        "{cores} cores, {}, Linux {}, load before {}",
        model.unwrap_or("model unknown"),
        release.trim(),
        load.split_whitespace().next().unwrap_or("unknown")
    )
}

impl Results {
    fn add_latency(&mut self, options: &Options, backbone: Backbone, busy: bool) {
        match Latency::run(options, backbone, busy) {
            Ok(latency) => self.latencies.push(latency),
            Err(why) => self.failed.push((format!("T8 {}", backbone.name()), format!("{why:#}"))),
        }
    }

    fn goals(&self) -> Vec<goals::Goal> {
        let mut all: Vec<_> = self.rows.iter().flat_map(goals::of_row).collect();
        all.extend(self.latencies.iter().flat_map(|latency| goals::of_latency(latency, self.pair.as_ref())));
        all.extend(self.pair.as_ref().map(goals::of_pair));
        all
    }

    /// Tests that gave no figures, by name.
    fn failures(&self) -> Vec<String> {
        let rows = self.rows.iter().filter(|row| row.measured.is_err());
        let mut all: Vec<String> = rows.map(|row| format!("{} {}", row.test, row.backbone)).collect();
        for latency in &self.latencies {
            let points = latency.points.iter().filter(|point| point.seen.is_err());
            all.extend(points.map(|point| format!("T8 {} at {}/s", latency.label(), point.rate)));
            if latency.fastest.is_err() {
                all.push(format!("T8 {} within 1 ms", latency.label()));
            }
        }
        let foreign = self.foreign.iter().filter(|row| row.seen.is_err());
        all.extend(foreign.map(|row| format!("target with {} mounts", row.mounts)));
        all.extend(self.pair.iter().filter(|pair| pair.failed.is_some()).map(|_| "sdk".to_owned()));
        all.extend(self.failed.iter().map(|(name, _)| name.clone()));
        all
    }

    fn json(&self, options: &Options) -> Value {
        json!({
            "machine": self.machine, "seconds": options.window().as_secs(), "repeat": options.repeat(),
            "throughput": self.rows.iter().map(Row::json).collect::<Value>(),
            "latency": self.latencies.iter().map(Latency::json).collect::<Value>(),
            "sdk": self.pair.as_ref().map(Pair::json),
            "target": self.foreign.iter().map(Foreign::json).collect::<Value>(),
            "targets": self.goals().iter().map(goals::Goal::json).collect::<Value>(),
            "skipped": self.skipped, "failed": self.failed, "took_s": self.took,
        })
    }

    fn text(&self, options: &Options) -> String {
        let mut text = format!(
            "Measured on {}; {} s each, medians of {}.\n",
            self.machine,
            options.window().as_secs(),
            options.repeat()
        );
        let mut part = |title: &str, more: &str, body: String| {
            text += &format!("\n### {title}\n\n{more}{}{body}", if more.is_empty() { "" } else { "\n\n" });
        };
        if !self.foreign.is_empty() {
            let about = "What came to our client; latencies in µs from the time in the updates. Losses cannot be seen: nobody \
                         knows what was sent.";
            part("A foreign server", about, table::foreign(&self.foreign));
        }
        if !self.rows.is_empty() {
            let about = "Cost: run time of all threads of the component and its share of utipcd, for an output update, at the \
                         report's rate or at 0.9 of the highest where that is lower. Highest: without loss for as long as one \
                         measurement. Output is gathered for up to 20 ms, as in the report. Report: one core of 2009 for each \
                         component, over RRCP.";
            part("Throughput", about, table::throughput(&self.rows));
            let about = "Cores busy while costs were measured. The parts sum to the machine's time without idle time; `no process` is \
                         interrupts, processes that ended, the hypervisor's part, and what the kernel's two ways of counting differ by.";
            part("Where the machine's time went", about, table::cpu(&self.rows));
        }
        for latency in &self.latencies {
            let title = format!("T8: latency over {}", latency.label());
            let about = "µs from the scheduled send time until the client has looked at all fields. The last line over a backbone is \
                         the highest rate with a mean of at most 1 ms; busy: p2ps looks for its feed without a pause ([threads.feed] \
                         busy-poll), rates with targets only. The vendor's pair counts from when it made an update.";
            part(&title, about, table::latency(latency, self.pair.as_ref()));
        }
        if let Some(pair) = &self.pair {
            let about = "ProvPerf, p2ps or nothing, ConsPerf; latencies in µs from when an update was made.";
            part("The vendor's own pair", about, table::pair(pair));
        }
        let goals = self.goals();
        if !goals.is_empty() {
            part("Targets", "", table::goals(&goals));
        }
        for (title, list) in [("Not run", &self.skipped), ("Failed", &self.failed)] {
            if !list.is_empty() {
                let lines = list.iter().map(|(name, why)| format!("- {name}: {why}\n")).collect();
                part(title, "", lines);
            }
        }
        if !self.took.is_empty() {
            let all: f64 = self.took.iter().map(|(_, seconds)| seconds).sum();
            let each = self.took.iter().map(|(name, seconds)| format!("{name} {seconds:.0}"));
            text += &format!(
                "\nThe run took {:.1} minutes; seconds of each test: {}.",
                all / 60.0,
                each.collect::<Vec<_>>().join(", ")
            );
        }
        text
    }
}
