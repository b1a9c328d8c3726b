//! A whole run: the tests in their order, and the report on them.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use utipc_bench_kit::place::remove_old_folders;
use utipc_bench_kit::plot::{self, Curve, Panel};
use utipc_bench_kit::{Named as _, interrupt, machine, progress};

use super::events::EventsTest;
use super::foreign::ForeignServer;
use super::images::ImagesTest;
use super::latency::{LatencyTest, Variant};
use super::options::Options;
use super::place::{self, Backbone};
use super::stall::StallTest;
use super::throughput::{self, Row};
use super::vendor::{self, VendorPair};
use super::{table, targets};

/// All results so far.
#[derive(Default)]
struct Results {
    machine: String,
    rows: Vec<Row>,
    latencies: Vec<LatencyTest>,
    stalls: Vec<StallTest>,
    events: Option<EventsTest>,
    pair: Option<VendorPair>,
    images: Option<ImagesTest>,
    foreign: Vec<ForeignServer>,
    /// (test, reason) of tests that were not run, and of tests that could not start.
    skipped: Vec<(String, String)>,
    failed: Vec<(String, String)>,
    /// (test, its duration in seconds).
    took: Vec<(String, f64)>,
}

/// Runs the tests that the options name and prints the report.
///
/// # Errors
/// A test failed or is unknown, or a signal came; results until then are printed all the same.
pub(crate) fn run(options: &Options) -> Result<()> {
    let names = options.names()?;
    place::build_programs()?;
    interrupt::listen()?;
    remove_old_folders(place::FOLDER);
    let mut results = Results { machine: machine::description(), ..Results::default() };
    eprintln!("{}", results.machine);
    match &options.target {
        Some(_) => measure_foreign(options, &mut results)?,
        None => tests(options, &names, &mut results)?,
    }
    save(options, &results)?;
    utipc_cli::say!("{}", results.text(options))?;
    if let Some(events) = &results.events {
        let (passed, faults) = (events.passed(), events.faults());
        faults.iter().try_for_each(|fault| utipc_cli::say!("FAILED {fault}"))?;
        utipc_cli::say!("events: {passed} passed, {} failed", faults.len())?;
    }
    interrupt::check()?;
    let failed = results.failures();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Runs the tests over each backbone.
fn tests(options: &Options, names: &[&'static str], results: &mut Results) -> Result<()> {
    let backbones = options.backbones();
    let is_apart = backbones.iter().any(|backbone| backbone.is_apart());
    let no_namespaces = if is_apart { place::no_namespaces() } else { None };
    for (round, backbone) in backbones.into_iter().enumerate() {
        for name in names {
            if interrupt::came() {
                return Ok(());
            }
            let has_backbone = !matches!(*name, "direct" | "sdk" | "images" | "events");
            // Tests without a backbone run once.
            if !has_backbone && round > 0 {
                continue;
            }
            let label = if has_backbone { format!("{name} {}", backbone.name()) } else { (*name).to_owned() };
            let began = Instant::now();
            let obstacle = if has_backbone && backbone.is_apart() { no_namespaces.clone() } else { None };
            match obstacle.map_or_else(|| results.run(options, name, backbone, &label), Err) {
                Ok(()) => results.took.push((label, began.elapsed().as_secs_f64())),
                Err(why) => {
                    results.skipped.push((label, why));
                    continue;
                }
            }
            save(options, results)?;
        }
    }
    plots(options, results)
}

/// Measures a foreign server: with our publisher if it connects to that, otherwise with its own data.
fn measure_foreign(options: &Options, results: &mut Results) -> Result<()> {
    if options.source.is_none() {
        results.foreign = ForeignServer::run(options);
        return Ok(());
    }
    for test in ["T3", "T5"] {
        results.rows.push(throughput::run(options, Backbone::None, test, false));
        interrupt::check()?;
    }
    results.add_latency(options, Backbone::None, Variant::Plain);
    plots(options, results)
}

/// Plots latency against rate, all backbones and the vendor's pair in one picture.
fn plots(options: &Options, results: &Results) -> Result<()> {
    if results.latencies.is_empty() {
        return Ok(());
    }
    let published = |label: &str, value: fn(&(u64, f64, f64)) -> f64| Curve {
        label: label.into(),
        is_reference: true,
        points: super::report::LATENCY.iter().map(|point| (point.0 as f64, value(point))).collect(),
        ..Curve::default()
    };
    let mut curves: Vec<Curve> = results.latencies.iter().flat_map(LatencyTest::curves).collect();
    curves.extend(results.pair.iter().map(VendorPair::curve));
    curves.push(published("report, RRCP, mean", |point| point.1));
    curves.push(published("report, Rendezvous, mean", |point| point.2));
    let path = options.plots.join("latency.svg");
    let caption = format!(
        "{}\nmedians of {} measurements of {} s; dots: each measurement; load before: see the report",
        machine::caption(),
        options.repeat(),
        options.window().as_secs()
    );
    let panel = Panel {
        title: "Latency of the whole chain against rate".into(),
        caption,
        x: ("updates per second", 10.0),
        y: "latency [µs]",
        curves,
    };
    plot::write(&path, &[panel])?;
    progress(&format!("plot: {}", path.display()));
    Ok(())
}

fn save(options: &Options, results: &Results) -> Result<()> {
    let Some(path) = &options.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&results.json(options)).context("write JSON")?;
    std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))
}

impl Results {
    /// Runs one test. The error is the reason why it was not run.
    fn run(
        &mut self,
        options: &Options,
        name: &'static str,
        backbone: Backbone,
        label: &str,
    ) -> Result<(), String> {
        match name {
            "sdk" => {
                let folder = vendor::folder();
                let folder = folder
                    .ok_or_else(|| format!("no folder with ConsPerf and ProvPerf in {}", vendor::FOLDER))?;
                self.pair = Some(VendorPair::run(options, &folder));
            }
            "images" => self.images = Some(ImagesTest::run(options)),
            "events" => match EventsTest::run(options) {
                Ok(events) => {
                    let faults = events.faults().len();
                    if faults > 0 {
                        self.failed.push((label.to_owned(), format!("{faults} runs with differences")));
                    }
                    self.events = Some(events);
                }
                Err(why) => self.failed.push((label.to_owned(), format!("{why:#}"))),
            },
            "T8" => {
                for variant in Variant::ALL {
                    self.add_latency(options, backbone, variant);
                }
            }
            "stall" => match StallTest::run(options, backbone) {
                Ok(stall) => self.stalls.push(stall),
                Err(why) => self.failed.push((label.to_owned(), format!("{why:#}"))),
            },
            // The report has no figures with caches for these; caches are our default.
            "T5" | "chain" => {
                self.add_row(options, backbone, name, false);
                self.add_row(options, backbone, name, true);
            }
            test => self.add_row(options, backbone, test, false),
        }
        Ok(())
    }

    fn add_row(&mut self, options: &Options, backbone: Backbone, test: &'static str, caches: bool) {
        let row = throughput::run(options, backbone, test, caches);
        let label = row.name();
        progress(&match row.line() {
            Ok(line) => format!("{label}: {line}"),
            Err(why) => format!("{label}: failed: {why}"),
        });
        self.rows.push(row);
    }

    fn add_latency(&mut self, options: &Options, backbone: Backbone, variant: Variant) {
        match LatencyTest::run(options, backbone, variant) {
            Ok(latency) => self.latencies.push(latency),
            Err(why) => self.failed.push((format!("T8 {}", backbone.name()), format!("{why:#}"))),
        }
    }

    fn targets(&self) -> Vec<targets::Target> {
        let mut all: Vec<_> = self.rows.iter().flat_map(targets::of_row).collect();
        all.extend(
            self.latencies.iter().flat_map(|latency| targets::of_latency(latency, self.pair.as_ref())),
        );
        all.extend(self.stalls.iter().flat_map(targets::of_stall));
        all.extend(self.pair.iter().flat_map(targets::of_pair));
        all.extend(self.images.iter().flat_map(targets::of_images));
        all
    }

    /// Names of the tests that have no figures.
    fn failures(&self) -> Vec<String> {
        let rows = self.rows.iter().filter(|row| row.measured.is_err());
        let mut all: Vec<String> = rows.map(|row| row.name()).collect();
        for latency in &self.latencies {
            let points = latency.points.iter().filter(|point| point.windows.is_err());
            all.extend(points.map(|point| format!("T8 {} at {}/s", latency.label(), point.rate)));
            if latency.fastest.is_err() {
                all.push(format!("T8 {} within 1 ms", latency.label()));
            }
        }
        let foreign = self.foreign.iter().filter(|row| row.counted.is_err());
        all.extend(foreign.map(|row| format!("target with {} mounts", row.mounts)));
        all.extend(self.pair.iter().filter(|pair| pair.failed.is_some()).map(|_| "sdk".to_owned()));
        all.extend(self.images.iter().filter(|test| test.failed.is_some()).map(|_| "images".to_owned()));
        all.extend(self.failed.iter().map(|(name, _)| name.clone()));
        all
    }

    fn json(&self, options: &Options) -> Value {
        json!({
            "machine": self.machine, "seconds": options.window().as_secs(), "repeat": options.repeat(),
            "throughput": self.rows.iter().map(Row::json).collect::<Value>(),
            "latency": self.latencies.iter().map(LatencyTest::json).collect::<Value>(),
            "stall": self.stalls.iter().map(StallTest::json).collect::<Value>(),
            "events": self.events,
            "sdk": self.pair.as_ref().map(VendorPair::json),
            "images": self.images.as_ref().map(ImagesTest::json),
            "target": self.foreign.iter().map(ForeignServer::json).collect::<Value>(),
            "targets": self.targets(),
            "skipped": self.skipped, "failed": self.failed, "took_s": self.took,
        })
    }

    /// The report.
    fn text(&self, options: &Options) -> String {
        let (seconds, repeat) = (options.window().as_secs(), options.repeat());
        let mut text = format!("Measured on {}; {seconds} s each, medians of {repeat}.\n", self.machine);
        for (title, about, body) in self.sections() {
            let about = if about.is_empty() { String::new() } else { format!("{about}\n\n") };
            text += &format!("\n### {title}\n\n{about}{body}");
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

    /// The parts of the report that have content: (title, explanation, body).
    fn sections(&self) -> Vec<(String, &'static str, String)> {
        let mut sections = Vec::new();
        let mut add = |title: &str, about, body| sections.push((title.to_owned(), about, body));
        if !self.foreign.is_empty() {
            add("A foreign server", ABOUT_FOREIGN, table::foreign(&self.foreign));
        }
        if !self.rows.is_empty() {
            add("Throughput", ABOUT_THROUGHPUT, table::throughput(&self.rows));
            add("Where the machine's time went", ABOUT_CPU, table::cpu(&self.rows));
        }
        for latency in &self.latencies {
            let title = format!("T8: latency over {}", latency.label());
            add(&title, ABOUT_LATENCY, table::latency(latency, self.pair.as_ref()));
        }
        if !self.stalls.is_empty() {
            add("A stopped server", ABOUT_STALL, table::stalls(&self.stalls));
        }
        if let Some(events) = &self.events {
            add("Events", ABOUT_EVENTS, events.table());
        }
        if let Some(pair) = &self.pair {
            add("The vendor's own pair", ABOUT_PAIR, table::pair(pair));
        }
        if let Some(images) = &self.images {
            add("Images under full load", ABOUT_IMAGES, table::images(images));
        }
        let targets = self.targets();
        if !targets.is_empty() {
            add("Targets", "", table::targets(&targets));
        }
        for (title, list) in [("Not run", &self.skipped), ("Failed", &self.failed)] {
            if !list.is_empty() {
                add(title, "", list.iter().map(|(name, why)| format!("- {name}: {why}\n")).collect());
            }
        }
        sections
    }
}

const ABOUT_FOREIGN: &str = "Counts of our client; latencies in µs by the send time in the updates. Losses cannot be \
    detected, because the number of updates sent is unknown.";
const ABOUT_THROUGHPUT: &str = "Cost: CPU time of the component and its share of utipcd for an output update, at the \
    report's rate, or at 0.9 of the highest if that is lower. Highest: without loss for the time of one measurement. Output \
    is gathered for up to 20 ms, as in the report. Report: one core of 2009 for each component, over RRCP.";
const ABOUT_CPU: &str = "Cores busy while costs were measured. The parts sum to the time of the machine without idle time; \
    `no process` is interrupts, processes that ended, time of the hypervisor, and the difference between the kernel's two \
    ways of counting.";
const ABOUT_LATENCY: &str = "µs from the scheduled send time until the client has decoded all fields. The last line is the \
    highest rate with a mean of at most 1 ms; with caches on, and busy (p2ps polls its feed without a pause, \
    [threads.feed] busy-poll), only rates with targets. The vendor's pair counts from when it made an update.";
const ABOUT_STALL: &str = "One of two servers does not run for a second. Slowest update: that of the other server, in ms \
    from its scheduled send time until the client has decoded it, in two seconds without a stop and in those of the stop and \
    the second after it.";
const ABOUT_EVENTS: &str = "Each event alone, then in the middle of the recovery from another. Afterwards every field and \
    state of every item must be the publisher's. Recovery: from when everything is up again until the last item is good.";
const ABOUT_PAIR: &str =
    "ProvPerf, our programs or nothing, ConsPerf; latencies in µs from when an update was made.";
const ABOUT_IMAGES: &str = "A consumer loads all its items while the publisher sends updates, with caches and writes \
    as by default. Highest rate: all images within 5 s, then all updates for 3 s.";
