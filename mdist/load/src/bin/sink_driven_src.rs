//! `sink_driven_src`: a publisher for load tests. It answers item requests as an interactive provider, or publishes to
//! a distributor, and sends updates of 74 bytes at a rate.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use mdist::dictionaries;
use mdist_load::control::{self, Command, Control};
use mdist_load::provider::{Counts, Provider, ProviderOptions, ServiceEvent};
use mdist_load::{items, msgdata, names};
use utipc_cli::{output, say};

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
    /// Item list, a file of the vendor's tools; without it a listening publisher accepts every name
    #[arg(long, value_name = "FILE")]
    item_file: Option<PathBuf>,
    /// Number of items to publish (RDT0, RDT1 …) without an item list
    #[arg(long, default_value_t = 100_000)]
    item_count: usize,
    /// Message file of the vendor's tools; without it one image of 70 fields and updates of 13 fields, 74 bytes
    #[arg(long, value_name = "FILE")]
    msg_file: Option<PathBuf>,
    /// Field dictionary to serve (RDMFieldDictionary); without it the built-in one
    #[arg(long, value_name = "FILE")]
    field_dictionary: Option<PathBuf>,
    /// Enumerated types to serve (enumtype.def); without it the built-in ones
    #[arg(long, value_name = "FILE")]
    enum_dictionary: Option<PathBuf>,
    /// Updates per second and session
    #[arg(long, default_value_t = 100_000)]
    update_rate: u64,
    /// Ticks per second that the updates are divided into
    #[arg(long, default_value_t = 1_000)]
    tick_rate: u64,
    /// Updates per second with a time stamp (field 3902)
    #[arg(long, default_value_t = 10)]
    latency_update_rate: u64,
    /// Time stamps in nanoseconds instead of microseconds
    #[arg(long)]
    nano_time: bool,
    /// Time in the stamps: when the update was due, or when it was sent
    #[arg(long, value_enum, default_value = "scheduled")]
    stamp: Stamp,
    /// Values: the same in every update, or changing, so that a consumer can compare every field
    #[arg(long, value_enum, default_value = "fixed")]
    values: Values,
    /// Spin instead of sleeping: takes a core
    #[arg(long)]
    busy: bool,
    /// Do not set TCP_NODELAY
    #[arg(long)]
    tcp_delay: bool,
    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Print the counts as one line of JSON at the end
    #[arg(long)]
    json: bool,
    /// Print nothing while running
    #[arg(short, long)]
    quiet: bool,
    /// Version of the field dictionary to serve, instead of its own
    #[arg(long, value_name = "VERSION")]
    dictionary_version: Option<String>,
    /// Read commands from standard input: rate N, counts, items FILE, service up|down, group good|suspect, stop
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
        Err(error) => output::failed("sink_driven_src", &error),
    }
}

/// Starts the publisher; also returns the address of the distributor that it publishes to.
fn start(options: &Options) -> Result<(Provider, Option<SocketAddr>)> {
    let mut sets = match &options.msg_file {
        Some(path) => msgdata::read(path)?,
        None => msgdata::built_in()?,
    };
    sets.iter_mut().for_each(|set| set.running = options.values == Values::Running);
    let publish = options.publish.as_deref().map(|to| mdist::net::resolve_local(to, 14_003)).transpose()?;
    let list = match (&options.item_file, publish) {
        (Some(path), _) => items::read(path)?,
        (None, Some(_)) => items::generated(options.item_count),
        (None, None) => Vec::new(),
    };
    let mut dictionary =
        dictionaries::load(options.field_dictionary.as_deref(), options.enum_dictionary.as_deref())?;
    if let Some(version) = &options.dictionary_version {
        version.clone_into(&mut dictionary.fields.edition.version);
    }
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
    Ok((provider, publish))
}

fn run(options: &Options) -> Result<()> {
    let (provider, publish) = start(options)?;
    if options.control {
        let at = provider.address().map(|at| at.to_string());
        say!("{}", serde_json::json!({ "listening": at }))?;
    } else if !options.quiet {
        match (provider.address(), publish) {
            (Some(at), _) => say!("listening on {at}, service {}", options.service)?,
            (None, to) => say!("publishing to {}", to.map(|to| to.to_string()).unwrap_or_default())?,
        }
    }
    let commands = Control::new(options.control, options.seconds)?;
    let mut before = (Instant::now(), provider.counts());
    loop {
        match commands.next(Duration::from_secs(1)) {
            Command::Stop => break,
            Command::Line(word, rest) => control::answer(execute(&provider, &word, &rest))?,
            Command::None if options.quiet || options.control => {}
            Command::None => progress(&provider, &mut before)?,
        }
    }
    let counts = provider.stop()?;
    if options.json {
        say!("{}", serde_json::json!({ "test": "sink_driven_src", "counts": counts }))?;
    } else if !options.quiet && !options.control {
        say!("{} updates, {} images, {} missed", counts.updates, counts.refreshes, counts.missed)?;
    }
    Ok(())
}

fn execute(provider: &Provider, word: &str, rest: &str) -> Result<serde_json::Value> {
    match word {
        "rate" => {
            provider.set_rate(rest.parse().with_context(|| format!("'{rest}' is not a rate"))?);
            Ok(serde_json::json!({ "rate": rest }))
        }
        "counts" => {
            Ok(serde_json::json!({ "counts": provider.counts(), "cut": provider.disconnect_reasons() }))
        }
        "items" => {
            let items = provider.items();
            names::write(Path::new(rest), &items)?;
            Ok(serde_json::json!({ "items": items.len() }))
        }
        "service" | "group" => {
            let event = match (word, rest) {
                ("service", "up") => ServiceEvent::Service { up: true },
                ("service", "down") => ServiceEvent::Service { up: false },
                ("group", "good") => ServiceEvent::Group { good: true },
                ("group", "suspect") => ServiceEvent::Group { good: false },
                _ => anyhow::bail!("unknown state '{rest}' (use service up|down, group good|suspect)"),
            };
            provider.announce(event);
            Ok(serde_json::json!({ word: rest }))
        }
        other => anyhow::bail!(
            "unknown command '{other}' (use rate N, counts, items FILE, service up|down, group good|suspect or stop)"
        ),
    }
}

fn progress(provider: &Provider, before: &mut (Instant, Counts)) -> Result<()> {
    let (at, counts) = (Instant::now(), provider.counts());
    let seconds = at.duration_since(before.0).as_secs_f64();
    let rate = (counts.updates - before.1.updates) as f64 / seconds;
    say!(
        "{rate:>12.0} updates/s  {:>9} items  {:>4} sessions  {:>9} images  {} missed  {} disconnects",
        counts.items,
        counts.sessions,
        counts.refreshes,
        counts.missed,
        counts.cut
    )?;
    for reason in provider.disconnect_reasons() {
        say!("disconnected: {reason}")?;
    }
    *before = (at, counts);
    Ok(())
}
