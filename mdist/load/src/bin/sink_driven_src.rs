//! `sink_driven_src`: a publisher for load tests. It answers item requests like an interactive provider, or publishes to
//! a distributor, and sends updates of 74 bytes at a rate.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use mdist::dictionaries;
use mdist_load::control::{Control, Order};
use mdist_load::provider::{Counts, Provider, ProviderOptions};
use mdist_load::{items, msgdata, names};

/// A publisher for load tests: listens for distributors and consumers, or publishes to a distributor.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Port to listen on
    #[arg(short, long, default_value_t = 14002)]
    port: u16,
    /// Address to listen on
    #[arg(long, default_value = "0.0.0.0")]
    address: std::net::IpAddr,
    /// Publish to a distributor at HOST:PORT (non-interactive) instead of listening
    #[arg(long, value_name = "HOST:PORT")]
    publish: Option<String>,
    /// Name of the service
    #[arg(long, default_value = "DIRECT_FEED")]
    service: String,
    /// Id of the service
    #[arg(long, default_value_t = 1)]
    service_id: u16,
    /// Items that exist, as a list file of the vendor's tools; a listening publisher without it takes every name
    #[arg(long, value_name = "FILE")]
    item_file: Option<PathBuf>,
    /// How many items to publish (RDT0, RDT1 …) where no file names them
    #[arg(long, default_value_t = 100_000)]
    item_count: usize,
    /// Messages, as a file of the vendor's tools; else one image of 70 fields and updates of 13 fields, 74 bytes
    #[arg(long, value_name = "FILE")]
    msg_file: Option<PathBuf>,
    /// Field dictionary that it gives out (RDMFieldDictionary); else a small one of its own
    #[arg(long, value_name = "FILE")]
    field_dictionary: Option<PathBuf>,
    /// Enumerated types that it gives out (enumtype.def); else a few of its own
    #[arg(long, value_name = "FILE")]
    enum_dictionary: Option<PathBuf>,
    /// Updates a second for each session
    #[arg(long, default_value_t = 100_000)]
    update_rate: u64,
    /// Ticks a second that they are cut into
    #[arg(long, default_value_t = 1_000)]
    tick_rate: u64,
    /// Updates a second with the time in them (field 3902)
    #[arg(long, default_value_t = 10)]
    latency_update_rate: u64,
    /// Times in nanoseconds instead of microseconds
    #[arg(long)]
    nano_time: bool,
    /// Which time: when an update was due, or when it was made
    #[arg(long, value_enum, default_value = "scheduled")]
    stamp: Stamp,
    /// Values: the same in every update, or changing so that a client can compare every field
    #[arg(long, value_enum, default_value = "fixed")]
    values: Values,
    /// Look for work without a pause: a core of its own
    #[arg(long)]
    busy: bool,
    /// Let the kernel wait for more before it sends (no TCP_NODELAY)
    #[arg(long)]
    tcp_delay: bool,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Say what happened as one line of JSON at the end
    #[arg(long)]
    json: bool,
    /// Say nothing while running
    #[arg(short, long)]
    quiet: bool,
    /// Take orders as lines on standard input: rate N, counts, items FILE, stop
    #[arg(long)]
    control: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Stamp {
    Scheduled,
    Sent,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Values {
    Fixed,
    Running,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("sink_driven_src: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let mut sets = match &options.msg_file {
        Some(path) => msgdata::read(path)?,
        None => msgdata::built_in()?,
    };
    sets.iter_mut().for_each(|set| set.running = options.values == Values::Running);
    let publish = options.publish.as_deref().map(|to| mdist::net::resolve(to, 14_003)).transpose()?;
    let list = match (&options.item_file, publish) {
        (Some(path), _) => items::read(path)?,
        (None, Some(_)) => items::generated(options.item_count),
        (None, None) => Vec::new(),
    };
    let dictionary =
        dictionaries::load(options.field_dictionary.as_deref(), options.enum_dictionary.as_deref())?;
    let provider = Provider::start(ProviderOptions {
        listen: publish.is_none().then(|| SocketAddr::new(options.address, options.port)),
        publish,
        service: options.service.clone(),
        service_id: options.service_id,
        items: list,
        rate: options.update_rate,
        ticks: options.tick_rate,
        stamps: options.latency_update_rate,
        nanoseconds: options.nano_time,
        stamp_when_sent: matches!(options.stamp, Stamp::Sent),
        busy: options.busy,
        no_delay: !options.tcp_delay,
        dictionary: Arc::new(dictionary),
        ..ProviderOptions::new(sets)
    })?;
    let mut out = std::io::stdout();
    if options.control {
        let at = provider.address().map(|at| at.to_string());
        writeln!(out, "{}", serde_json::json!({ "listening": at }))?;
        out.flush()?;
    } else if !options.quiet {
        match (provider.address(), publish) {
            (Some(at), _) => println!("listening on {at}, service {}", options.service),
            (None, to) => println!("publishing to {}", to.map(|to| to.to_string()).unwrap_or_default()),
        }
    }
    let control = Control::new(options.control, options.seconds)?;
    let mut before = (Instant::now(), provider.counts());
    loop {
        match control.next(Duration::from_secs(1)) {
            Order::Stop => break,
            Order::Line(word, rest) => {
                let answer = obey(&provider, &word, &rest)
                    .unwrap_or_else(|why| serde_json::json!({ "error": format!("{why:#}") }));
                writeln!(out, "{answer}")?;
                out.flush()?;
            }
            Order::Nothing if options.quiet || options.control => {}
            Order::Nothing => progress(&provider, &mut before),
        }
    }
    let counts = provider.stop()?;
    if options.json {
        println!("{}", serde_json::json!({ "test": "sink_driven_src", "counts": counts }));
    } else if !options.quiet && !options.control {
        println!("{} updates, {} images, {} missed", counts.updates, counts.refreshes, counts.missed);
    }
    Ok(())
}

fn obey(provider: &Provider, word: &str, rest: &str) -> Result<serde_json::Value> {
    match word {
        "rate" => {
            provider.set_rate(rest.parse().with_context(|| format!("'{rest}' is no rate"))?);
            Ok(serde_json::json!({ "rate": rest }))
        }
        "counts" => Ok(serde_json::json!({ "counts": provider.counts(), "cut": provider.why_cut() })),
        "items" => {
            let items = provider.items();
            names::write(Path::new(rest), &items)?;
            Ok(serde_json::json!({ "items": items.len() }))
        }
        other => anyhow::bail!("'{other}' is no order (use rate N, counts, items FILE or stop)"),
    }
}

fn progress(provider: &Provider, before: &mut (Instant, Counts)) {
    let (at, counts) = (Instant::now(), provider.counts());
    let seconds = at.duration_since(before.0).as_secs_f64();
    let rate = (counts.updates - before.1.updates) as f64 / seconds;
    println!(
        "{rate:>12.0} updates/s  {:>9} items  {:>4} sessions  {:>9} images  {} missed  {} cut",
        counts.items, counts.sessions, counts.refreshes, counts.missed, counts.cut
    );
    for why in provider.why_cut() {
        println!("cut: {why}");
    }
    *before = (at, counts);
}
