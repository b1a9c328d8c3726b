//! `rmdstestclient`: clients for load tests. They ask for items, count what comes, measure how long it took, and can
//! prove that every field is what the publisher sent.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use mdist_load::consumer::{Consumer, ConsumerOptions, Snapshot};
use mdist_load::control::{Control, Order};
use mdist_load::items::{self, Shares};
use mdist_load::{msgdata, names, plot};

/// Clients for load tests: many mounts in one process, counted and measured.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The server's host
    #[arg(long, default_value = "localhost")]
    host: String,
    /// Its port
    #[arg(short, long, default_value_t = 14002)]
    port: u16,
    /// Name of the service
    #[arg(long, default_value = "DIRECT_FEED")]
    service: String,
    /// Mounts: connections with a login of their own
    #[arg(long, default_value_t = 1)]
    mounts: usize,
    /// Threads that the mounts are spread over
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Item streams of all mounts together
    #[arg(long, default_value_t = 100_000)]
    item_count: usize,
    /// Of each mount's items, how many all mounts share
    #[arg(long, default_value_t = 0)]
    common_item_count: usize,
    /// "Producer 50/50": each mount has N items of its own, and all share as many as those are together; instead of the
    /// two counts
    #[arg(long, value_name = "N")]
    half: Option<usize>,
    /// Items, as a list file of the vendor's tools; else RDT0, RDT1 …
    #[arg(long, value_name = "FILE")]
    item_file: Option<PathBuf>,
    /// Messages, as a file of the vendor's tools: what to contribute, and what to check by
    #[arg(long, value_name = "FILE")]
    msg_file: Option<PathBuf>,
    /// Item requests a second
    #[arg(long, default_value_t = 500_000)]
    request_rate: u64,
    /// Ticks a second that requests and contributions are cut into
    #[arg(long, default_value_t = 1_000)]
    tick_rate: u64,
    /// Seconds to count after all items are loaded
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    steady_state_time: u64,
    /// Give up when the items are not loaded after so many seconds
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    startup_time: u64,
    /// Ask for images only
    #[arg(long)]
    snapshot: bool,
    /// Load the dictionaries from the server first
    #[arg(long)]
    download_dictionary: bool,
    /// Contributions a second for each mount, for the items of the list that have post="true"
    #[arg(long, default_value_t = 0)]
    posting_rate: u64,
    /// Of these, how many have the time in them
    #[arg(long, default_value_t = 10)]
    posting_latency_rate: u64,
    /// Generic messages a second for each mount, for the items of the list that have generic="true"
    #[arg(long, default_value_t = 0)]
    generic_msg_rate: u64,
    /// Of these, how many have the time in them
    #[arg(long, default_value_t = 10)]
    generic_msg_latency_rate: u64,
    /// Look for gaps in each item's updates; the publisher is sink_driven_src
    #[arg(long)]
    check: bool,
    /// Look at every field of every update
    #[arg(long)]
    decode: bool,
    /// Keep every field, and compare them with the publisher's at the end; it runs with --values running
    #[arg(long)]
    compare: bool,
    /// The publisher's last counts (its order: items FILE), to compare with
    #[arg(long, value_name = "FILE")]
    published: Option<PathBuf>,
    /// Times are in nanoseconds
    #[arg(long)]
    nano_time: bool,
    /// A mount that was cut stays away
    #[arg(long)]
    no_reconnect: bool,
    /// Take at most so many bytes a second: a slow consumer
    #[arg(long, value_name = "BYTES")]
    slow: Option<u64>,
    /// Look for work without a pause
    #[arg(long)]
    busy: bool,
    /// User name
    #[arg(long, default_value = "client")]
    uname: String,
    /// Say what was measured as one line of JSON at the end
    #[arg(long)]
    json: bool,
    /// Draw the latencies into an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Say nothing while running
    #[arg(short, long)]
    quiet: bool,
    /// Take orders as lines on standard input: counts, mark, compare, compare FILE, stop; the time does not end it then
    #[arg(long)]
    control: bool,
}

/// What was counted is not what should have been: losses, gaps, cuts or differences.
const UNCLEAN: u8 = 3;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(UNCLEAN),
        Err(why) => {
            eprintln!("rmdstestclient: {why:#}");
            ExitCode::FAILURE
        }
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
        reconnect: (!options.no_reconnect).then_some((second / 10, second * 5)),
        busy: options.busy,
        user: options.uname.clone(),
        slow: options.slow,
        ..ConsumerOptions::new(to, 0, Arc::new(sets))
    })
}

/// Whether all was clean.
fn run(options: &Options) -> Result<bool> {
    let consumer = start(options)?;
    let mut control = Control::new(options.control, None)?;
    let began = Instant::now();
    let mut before = (began, consumer.snapshot());
    let mut steady: Option<(Instant, Snapshot)> = None;
    let mut out = std::io::stdout();
    loop {
        let order = control.next(Duration::from_millis(if steady.is_none() { 100 } else { 1_000 }));
        let seen = consumer.snapshot();
        if steady.is_none() && seen.startup.is_some() && seen.wanted > 0 {
            consumer.mark();
            if !options.control {
                control.end_after(Duration::from_secs(if options.snapshot {
                    0
                } else {
                    options.steady_state_time
                }));
            }
            if !options.quiet && !options.control {
                println!(
                    "{} item streams loaded after {:.2?}",
                    seen.wanted,
                    seen.startup.unwrap_or_default()
                );
            }
            before = (Instant::now(), consumer.snapshot());
            steady = Some(before.clone());
        }
        match order {
            Order::Stop => break,
            Order::Line(word, rest) => {
                let answer = obey(&consumer, &word, &rest)
                    .unwrap_or_else(|why| serde_json::json!({ "error": format!("{why:#}") }));
                writeln!(out, "{answer}")?;
                out.flush()?;
            }
            Order::Nothing => {
                let late = began.elapsed() > Duration::from_secs(options.startup_time);
                ensure!(
                    steady.is_some() || !late || options.control,
                    "{} of {} item streams were loaded after {} s: {:?} {:?}",
                    seen.loaded,
                    seen.wanted,
                    options.startup_time,
                    seen.counts,
                    consumer.why_cut()
                );
                if !options.quiet && !options.control && before.0.elapsed() > Duration::from_millis(900) {
                    progress(&consumer, &mut before);
                }
            }
        }
    }
    let Some((began, first)) = steady else { bail!("ended before all items were loaded") };
    report(options, consumer, began, &first)
}

fn obey(consumer: &Consumer, word: &str, rest: &str) -> Result<serde_json::Value> {
    let seen = consumer.snapshot();
    match word {
        "counts" => Ok(serde_json::json!({
            "wanted": seen.wanted, "loaded": seen.loaded, "startup_s": seen.startup.map(|time| time.as_secs_f64()),
            "counts": seen.counts, "latency_us": seen.latency.summary(), "cut": consumer.why_cut(),
        })),
        "mark" => {
            consumer.mark();
            Ok(serde_json::json!({ "marked": true }))
        }
        "compare" => {
            let published = if rest.is_empty() { None } else { Some(names::read(Path::new(rest))?) };
            Ok(serde_json::json!({ "compared": consumer.compare(published.as_ref()) }))
        }
        other => bail!("'{other}' is no order (use counts, mark, compare [FILE] or stop)"),
    }
}

fn progress(consumer: &Consumer, before: &mut (Instant, Snapshot)) {
    let (at, seen) = (Instant::now(), consumer.snapshot());
    let seconds = at.duration_since(before.0).as_secs_f64();
    let new = seen.counts.since(&before.1.counts);
    let latency = seen.latency.summary();
    println!(
        "{:>12.0} updates/s  {:>9}/{} loaded  {:>9} images  latency {:.0} µs (p99 {:.0})  {} gaps  {} lost  {} suspect  {} cut",
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
    );
    for why in consumer.why_cut() {
        println!("cut: {why}");
    }
    *before = (at, seen);
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
        plot::histogram(path, "latency of updates", &seen.latency.classes())?;
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
        println!("{line}");
    } else if !options.quiet {
        println!(
            "{per_s:.0} updates/s over {seconds:.1} s ({slowest:.0} to {fastest:.0} for each mount); {} lost, {} gaps, {} cut",
            counts.lost, counts.gaps, seen.counts.cuts
        );
        println!(
            "latency of {} updates [µs]: mean {:.1}, deviation {:.1}, min {:.1}, max {:.1}, p50 {:.1}, p99 {:.1}, p99.9 {:.1}",
            summary.points,
            summary.mean,
            summary.stddev,
            summary.min,
            summary.max,
            summary.p50,
            summary.p99,
            summary.p999
        );
        if let Some(compared) = &compared {
            println!(
                "{} of {} item streams are equal in {} fields",
                compared.equal, compared.items, compared.fields
            );
            compared.differences.iter().for_each(|why| println!("different: {why}"));
        }
    }
    Ok(clean)
}
