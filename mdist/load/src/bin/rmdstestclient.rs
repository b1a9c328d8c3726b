//! `rmdstestclient`: consumers for load tests. They request items, count messages, measure latency, and can check that
//! every field is what the publisher sent.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use mdist_load::consumer::{Consumer, ConsumerOptions, Snapshot};
use mdist_load::control::{self, Command, Control};
use mdist_load::items::{self, Shares};
use mdist_load::{msgdata, names};
use utipc_bench_kit::machine;
use utipc_bench_kit::plot::Histogram;
use utipc_cli::{output, say};

/// Consumers for load tests: many mounts in one process.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Host of the server
    #[arg(long, default_value = "localhost")]
    host: String,
    /// Port of the server
    #[arg(short, long, default_value_t = 14002)]
    port: u16,
    /// Name of the service
    #[arg(long, default_value = "DIRECT_FEED")]
    service: String,
    /// Mounts: connections with a login of their own
    #[arg(long, default_value_t = 1)]
    mounts: usize,
    /// Threads that serve the mounts
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Item streams of all mounts together
    #[arg(long, default_value_t = 100_000)]
    item_count: usize,
    /// Items of each mount that all mounts share
    #[arg(long, default_value_t = 0)]
    common_item_count: usize,
    /// "Producer 50/50", instead of the two counts: each mount has N items of its own, and all mounts share as many
    /// items as those are together
    #[arg(long, value_name = "N")]
    half: Option<usize>,
    /// Item list, a file of the vendor's tools; without it RDT0, RDT1 …
    #[arg(long, value_name = "FILE")]
    item_file: Option<PathBuf>,
    /// Message file of the vendor's tools: the messages to post, and to check and compare with
    #[arg(long, value_name = "FILE")]
    msg_file: Option<PathBuf>,
    /// Item requests per second
    #[arg(long, default_value_t = 500_000)]
    request_rate: u64,
    /// Ticks per second that requests and posts are divided into
    #[arg(long, default_value_t = 1_000)]
    tick_rate: u64,
    /// Seconds to measure after all items are loaded
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    steady_state_time: u64,
    /// Fail if the items are not loaded after this many seconds
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    startup_time: u64,
    /// Request snapshots instead of streams
    #[arg(long)]
    snapshot: bool,
    /// Load the dictionaries from the server first
    #[arg(long)]
    download_dictionary: bool,
    /// Posts per second and mount, for the items of the list that have post="true"
    #[arg(long, default_value_t = 0)]
    posting_rate: u64,
    /// Posts per second and mount with a time stamp
    #[arg(long, default_value_t = 10)]
    posting_latency_rate: u64,
    /// Generic messages per second and mount, for the items of the list that have generic="true"
    #[arg(long, default_value_t = 0)]
    generic_msg_rate: u64,
    /// Generic messages per second and mount with a time stamp
    #[arg(long, default_value_t = 10)]
    generic_msg_latency_rate: u64,
    /// Check each item's updates for gaps; the publisher must be sink_driven_src
    #[arg(long)]
    check: bool,
    /// Decode every field of every update
    #[arg(long)]
    decode: bool,
    /// Keep every field, and compare with the publisher's values at the end; the publisher must run with --values
    /// running
    #[arg(long)]
    compare: bool,
    /// The publisher's last numbers of updates (its command items FILE), to compare with
    #[arg(long, value_name = "FILE")]
    published: Option<PathBuf>,
    /// Time stamps are in nanoseconds
    #[arg(long)]
    nano_time: bool,
    /// Do not reconnect
    #[arg(long)]
    no_reconnect: bool,
    /// Read at most this many bytes per second: a slow consumer
    #[arg(long, value_name = "BYTES")]
    slow: Option<u64>,
    /// Spin instead of sleeping
    #[arg(long)]
    busy: bool,
    /// User name
    #[arg(long, default_value = "client")]
    uname: String,
    /// Print the results as one line of JSON at the end
    #[arg(long)]
    json: bool,
    /// Write a histogram of latency to an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print nothing while running
    #[arg(short, long)]
    quiet: bool,
    /// Read commands from standard input: counts, mark, compare, compare FILE, stop; --steady-state-time is ignored
    #[arg(long)]
    control: bool,
}

/// Exit code for losses, gaps, disconnects or differences.
const UNCLEAN: u8 = 3;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(UNCLEAN),
        Err(error) => output::failed("rmdstestclient", &error),
    }
}

fn start(options: &Options) -> Result<Consumer> {
    let to = mdist::net::resolve(&options.host, options.port)?;
    let mut sets = match &options.msg_file {
        Some(path) => msgdata::read(path)?,
        None => msgdata::built_in()?,
    };
    sets.iter_mut().for_each(|set| set.running = options.compare);
    let shares = match options.half {
        Some(own) => Shares::half(options.mounts, own),
        None => Shares::split(options.mounts, options.item_count, options.common_item_count)?,
    };
    let list = match &options.item_file {
        Some(path) => items::read(path)?,
        None => items::generated(shares.distinct()),
    };
    let second = Duration::from_secs(1);
    Consumer::start(ConsumerOptions {
        items: Arc::new(list),
        shares,
        mounts: options.mounts,
        threads: options.threads,
        service: options.service.clone(),
        request_rate: options.request_rate,
        ticks: options.tick_rate,
        snapshot: options.snapshot,
        download: options.download_dictionary,
        posts: (options.posting_rate, options.posting_latency_rate),
        generics: (options.generic_msg_rate, options.generic_msg_latency_rate),
        check: options.check,
        decode: options.decode,
        compare: options.compare,
        nanoseconds: options.nano_time,
        reconnect: (!options.no_reconnect).then_some((second / 10, second / 2)),
        busy: options.busy,
        user: options.uname.clone(),
        slow: options.slow,
        ..ConsumerOptions::new(to, 0, Arc::new(sets))
    })
}

/// Runs until it is stopped. Returns false if there were losses, gaps, disconnects or differences.
fn run(options: &Options) -> Result<bool> {
    let consumer = start(options)?;
    let mut commands = Control::new(options.control, None)?;
    let began = Instant::now();
    let mut before = (began, consumer.snapshot());
    let mut steady: Option<(Instant, Snapshot)> = None;
    let mut missing: Option<String> = None;
    let mut ended: Vec<String> = Vec::new();
    loop {
        let command = commands.next(Duration::from_millis(if steady.is_none() { 100 } else { 1_000 }));
        let seen = consumer.snapshot();
        if steady.is_none() && seen.startup.is_some() && seen.wanted > 0 {
            consumer.mark();
            if !options.control {
                commands.end_after(Duration::from_secs(if options.snapshot {
                    0
                } else {
                    options.steady_state_time
                }));
            }
            if !options.quiet && !options.control {
                say!("{} item streams loaded after {:.2?}", seen.wanted, seen.startup.unwrap_or_default())?;
            }
            before = (Instant::now(), consumer.snapshot());
            steady = Some(before.clone());
        }
        match command {
            Command::Stop => break,
            Command::Line(word, rest) => control::answer(execute(&consumer, &word, &rest))?,
            Command::None => {
                let told = missing.clone();
                missing = missing_service(options, &consumer);
                if let Some(text) = missing.as_ref().filter(|text| told.as_ref() != Some(text)) {
                    eprintln!("rmdstestclient: {text}; waiting for it");
                }
                let late = began.elapsed() > Duration::from_secs(options.startup_time);
                let fails = late && steady.is_none() && !options.control;
                if fails {
                    ended.extend(consumer.disconnect_reasons());
                }
                ensure!(
                    !fails,
                    "{}{} of {} item streams were loaded after {} s: {:?}; disconnects: {:?}",
                    missing.as_ref().map(|text| format!("{text}; ")).unwrap_or_default(),
                    seen.loaded,
                    seen.wanted,
                    options.startup_time,
                    seen.counts,
                    ended
                );
                if !options.quiet && !options.control && before.0.elapsed() > Duration::from_millis(900) {
                    progress(&consumer, &mut before, &mut ended)?;
                }
            }
        }
    }
    let Some((began, first)) = steady else { bail!("ended before all items were loaded") };
    report(options, consumer, began, &first)
}

/// The wanted service, if the server does not have it, and the services that it has.
fn missing_service(options: &Options, consumer: &Consumer) -> Option<String> {
    let services = consumer.services_instead()?;
    let has = if services.is_empty() { "no services".into() } else { services.join(", ") };
    let Options { host, port, service, .. } = options;
    Some(format!("{host}:{port} has no service '{service}' (it has {has}; choose one with --service)"))
}

fn execute(consumer: &Consumer, word: &str, rest: &str) -> Result<serde_json::Value> {
    let seen = consumer.snapshot();
    match word {
        "counts" => Ok(serde_json::json!({
            "wanted": seen.wanted, "loaded": seen.loaded, "startup_s": seen.startup.map(|time| time.as_secs_f64()),
            "counts": seen.counts, "latency_us": seen.latency.summary(), "cut": consumer.disconnect_reasons(),
        })),
        "mark" => {
            consumer.mark();
            Ok(serde_json::json!({ "marked": true }))
        }
        "compare" => {
            let published = if rest.is_empty() { None } else { Some(names::read(Path::new(rest))?) };
            Ok(serde_json::json!({ "compared": consumer.compare(published.as_ref()) }))
        }
        other => bail!("unknown command '{other}' (use counts, mark, compare [FILE] or stop)"),
    }
}

fn progress(consumer: &Consumer, before: &mut (Instant, Snapshot), ended: &mut Vec<String>) -> Result<()> {
    let (at, seen) = (Instant::now(), consumer.snapshot());
    let seconds = at.duration_since(before.0).as_secs_f64();
    let new = seen.counts.since(&before.1.counts);
    let latency = seen.latency.summary();
    say!(
        "{:>12.0} updates/s  {:>9}/{} loaded  {:>9} images  latency {:.0} µs (p99 {:.0})  {} gaps  {} lost  {} suspect  {} disconnects",
        new.updates as f64 / seconds,
        seen.loaded,
        seen.wanted,
        seen.counts.refreshes,
        latency.mean,
        latency.p99,
        seen.counts.gaps,
        seen.counts.lost,
        seen.counts.suspect,
        seen.counts.cuts,
    )?;
    let reasons = consumer.disconnect_reasons();
    for reason in &reasons {
        say!("disconnected: {reason}")?;
    }
    if !reasons.is_empty() {
        *ended = reasons;
    }
    *before = (at, seen);
    Ok(())
}

/// Writes the histogram of latency.
fn plot(path: &Path, options: &Options, per_s: f64, seen: &Snapshot) -> Result<()> {
    let summary = seen.latency.summary();
    let Options { host, port, mounts, .. } = options;
    let caption = format!(
        "{}\nmounts: {mounts}; item streams: {}, of {host}:{port}; {per_s:.0} updates/s; with a stamp: {}",
        machine::caption(),
        seen.wanted,
        summary.points
    );
    let classes = seen.latency.classes();
    if classes.is_empty() {
        eprintln!(
            "rmdstestclient: no plot in {}: no update had a time stamp (sink_driven_src --latency-update-rate sends them)",
            path.display()
        );
    }
    let title = "Latency of updates, from publisher to consumer";
    Histogram { title, caption: &caption, counted: "updates", classes: &classes, summary }.write(path)
}

fn report(options: &Options, consumer: Consumer, began: Instant, first: &Snapshot) -> Result<bool> {
    let seconds = began.elapsed().as_secs_f64();
    let published = options.published.as_deref().map(names::read).transpose()?;
    let compared = options.compare.then(|| consumer.compare(published.as_ref()));
    let seen = consumer.stop().context("end the clients")?;
    let counts = seen.counts.since(&first.counts);
    let per_s = counts.updates as f64 / seconds;
    let per_mount: Vec<f64> = seen
        .mounts
        .iter()
        .zip(&first.mounts)
        .map(|(after, before)| (after - before) as f64 / seconds)
        .collect();
    let slowest = per_mount.iter().copied().fold(f64::INFINITY, f64::min);
    let fastest = per_mount.iter().copied().fold(0.0, f64::max);
    let summary = seen.latency.summary();
    let clean = seen.counts.is_clean() && compared.as_ref().is_none_or(|compared| compared.is_equal());
    if let Some(path) = &options.plot {
        plot(path, options, per_s, &seen)?;
    }
    if options.json {
        let line = serde_json::json!({
            "test": "rmdstestclient", "mounts": options.mounts, "item_streams": seen.wanted,
            "startup_s": seen.startup.or(first.startup).map(|time| time.as_secs_f64()),
            "steady_s": seconds, "updates_per_s": per_s,
            "updates_per_s_and_mount": { "slowest": slowest, "fastest": fastest },
            "counts": seen.counts, "steady_counts": counts, "latency_us": summary,
            "histogram_us": seen.latency.classes(), "post_latency_us": seen.post_latency.summary(),
            "generic_latency_us": seen.generic_latency.summary(), "compared": compared, "clean": clean,
        });
        say!("{line}")?;
    } else if !options.quiet {
        say!(
            "{per_s:.0} updates/s over {seconds:.1} s ({slowest:.0} to {fastest:.0} for each mount); {} lost, {} gaps, {} disconnects",
            counts.lost,
            counts.gaps,
            seen.counts.cuts
        )?;
        say!(
            "latency of {} updates [µs]: mean {:.1}, deviation {:.1}, min {:.1}, max {:.1}, p50 {:.1}, p99 {:.1}, p99.9 {:.1}",
            summary.points,
            summary.mean,
            summary.stddev,
            summary.min,
            summary.max,
            summary.p50,
            summary.p99,
            summary.p999
        )?;
        if let Some(compared) = &compared {
            say!(
                "{} of {} item streams are equal in {} fields",
                compared.equal,
                compared.items,
                compared.fields
            )?;
            compared.differences.iter().try_for_each(|difference| say!("different: {difference}"))?;
        }
    }
    Ok(clean)
}
