//! Which tests are run, and how each is set up.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::chain::{Chain, Plan, Window};
use super::place::{Backbone, Place, Side};
use super::report::{self, Published};
use super::table::{self, Latency, Row};
use super::{child, search, stock};
use crate::load::plot;
use crate::load::stats::median;

/// Re-runs tables of the RMDS 6 performance report on this machine.
///
/// T1 to T7 search the highest rate at which nothing is lost, and measure what an update costs there; T8 measures latency
/// against rate. `chain` is the highest rate of publisher, distributor, backbone, server and client together, `direct`
/// that of publisher and client alone. `sdk-direct` and `sdk-p2ps` are the vendor's own pair, alone and with p2ps between,
/// where UTIPC_RTSDK_BIN names the folder of its ConsPerf and ProvPerf.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "mdist-bench", version)]
pub struct Options {
    /// T1 … T8, chain, direct; none: all
    #[arg(value_name = "TEST")]
    pub tests: Vec<String>,
    /// One JSON object a line instead of tables
    #[arg(long)]
    pub json: bool,
    /// What joins distributor and server; several: one after the other. Without it lanes, and udp for root
    #[arg(long, value_enum, value_delimiter = ',')]
    pub backbone: Vec<Backbone>,
    /// Every rate of the report for five minutes, and as many items for each of 100 mounts as it may have had
    #[arg(long)]
    pub full: bool,
    /// Drive a foreign RSSL server at HOST or HOST:PORT that dials our publisher (see --source)
    #[arg(long, value_name = "HOST[:PORT]")]
    pub target: Option<String>,
    /// Where the publisher listens; a foreign server has to dial it there
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub source: String,
    /// Run every test so often, and say the median
    #[arg(long, default_value_t = 1)]
    pub repeat: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// Items of a single mount
    #[arg(long, default_value_t = 100_000)]
    pub items: usize,
    /// Items of its own for each of 100 mounts
    #[arg(long)]
    pub own_items: Option<usize>,
    /// Rates of T8; without it some of the report's
    #[arg(long, value_delimiter = ',')]
    pub rates: Vec<u64>,
    /// Measure at this rate instead of searching the highest
    #[arg(long)]
    pub rate: Option<u64>,
    /// Settings for p2ps and src_dist, which go before those of the test
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Where plots are written
    #[arg(long, value_name = "FOLDER", default_value = "target/mdist-bench")]
    pub plots: PathBuf,
}

/// Tests by name, in the order in which they are run.
const TESTS: [&str; 12] =
    ["direct", "T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "chain", "sdk-direct", "sdk-p2ps"];
/// Rates of T8 that are run unless all are asked for.
const SOME_RATES: [u64; 7] = [1_000, 10_000, 50_000, 100_000, 300_000, 600_000, 850_000];
const WARM_UP: Duration = Duration::from_secs(1);

/// Runs what the options say.
///
/// # Errors
/// A program cannot be started, or does not answer; a test that is not known.
pub fn run(options: &Options) -> Result<()> {
    child::build()?;
    let names: Vec<&str> = match options.tests.as_slice() {
        [] => TESTS.to_vec(),
        some => some.iter().map(|name| known(name)).collect::<Result<_>>()?,
    };
    let mut rows = Vec::new();
    let mut latencies = Vec::new();
    let mut stocks = Vec::new();
    for (round, backbone) in backbones(options).into_iter().enumerate() {
        for name in &names {
            // What has no backbone in it is run once.
            if matches!(*name, "direct" | "sdk-direct" | "sdk-p2ps") && round > 0 {
                continue;
            }
            if name.starts_with("sdk") {
                if let Some(folder) = stock::folder() {
                    stock_rows(options, &folder, name, &mut stocks)?;
                } else if !options.tests.is_empty() {
                    bail!(
                        "{name} needs the vendor's ConsPerf and ProvPerf (name their folder in {})",
                        stock::FOLDER
                    );
                }
                continue;
            }
            if *name == "T8" {
                latencies.push(latency(options, backbone)?);
            } else if let Some(row) = throughput(options, backbone, name)? {
                if !options.json {
                    table::progress(&row);
                }
                rows.push(row);
            }
        }
    }
    if !options.json {
        table::print(&rows, &latencies, &stocks);
    }
    Ok(())
}

/// The vendor's pair: its highest rate, and directly also its latency at some rates.
fn stock_rows(
    options: &Options,
    folder: &std::path::Path,
    name: &'static str,
    rows: &mut Vec<(&'static str, stock::Run)>,
) -> Result<()> {
    let place = Place::new(Backbone::None)?;
    let time = Duration::from_secs(options.seconds);
    let through = (name == "sdk-p2ps").then_some(false);
    let mut add = |run: stock::Run| {
        if options.json {
            println!("{}", table::stock_json(name, &run));
        }
        rows.push((name, run));
    };
    let rates: &[u64] = match options.rates.as_slice() {
        [] if through.is_none() => &[1_000, 100_000, 1_000_000],
        some => some,
    };
    for rate in rates {
        add(stock::run(folder, &place, through, options.items, *rate, time)?);
    }
    for _ in 0..options.repeat.max(1) {
        add(match options.rate {
            Some(rate) => stock::run(folder, &place, through, options.items, rate, time)?,
            None => stock::highest(folder, &place, through, options.items, 1_800_000, time)?,
        });
    }
    Ok(())
}

fn known(name: &str) -> Result<&'static str> {
    let found = TESTS.iter().copied().find(|test| test.eq_ignore_ascii_case(name));
    found.with_context(|| format!("'{name}' is no test (use {})", TESTS.join(", ")))
}

fn backbones(options: &Options) -> Vec<Backbone> {
    match options.backbone.as_slice() {
        [] if options.target.is_some() => vec![Backbone::None],
        [] if rustix::process::geteuid().is_root() => vec![Backbone::Lanes, Backbone::Udp],
        [] => vec![Backbone::Lanes],
        some => some.to_vec(),
    }
}

/// Which programs a test has, and which of them it is about.
fn plan(options: &Options, backbone: Backbone, test: &str) -> Result<(Plan, &'static str, Side)> {
    let foreign = options.target.clone();
    let own = options.own_items.unwrap_or(if options.full { 100 } else { 10 });
    let base = Plan {
        distributor: (backbone != Backbone::None).then_some(false),
        server: foreign.is_none().then_some(false),
        pop: None,
        mounts: 1,
        items: options.items,
        own,
        decode: false,
        source: options.source.clone(),
        settings: options.settings.clone(),
        foreign,
    };
    let alone = base.foreign.is_some();
    Ok(match test {
        "direct" => (Plan { distributor: None, server: None, ..base }, "sink_driven_src", Side::Source),
        _ if alone => match test {
            "T5" => (Plan { mounts: 100, ..base }, "foreign server", Side::Sink),
            _ => (base, "foreign server", Side::Sink),
        },
        "T1" => (base, "src_dist", Side::Source),
        "T2" => (Plan { distributor: base.distributor.map(|_| true), ..base }, "src_dist", Side::Source),
        "T3" => (base, "p2ps", Side::Sink),
        "T4" => (Plan { server: Some(true), ..base }, "p2ps", Side::Sink),
        "T5" => (Plan { mounts: 100, ..base }, "p2ps", Side::Sink),
        "T6" => (Plan { pop: Some(true), ..base }, "pop", Side::Sink),
        "T7" => (Plan { pop: Some(true), mounts: 100, ..base }, "pop", Side::Sink),
        "T8" => (Plan { decode: true, ..base }, "chain", Side::Sink),
        "chain" => (base, "chain", Side::Sink),
        other => bail!("'{other}' is no test"),
    })
}

fn throughput(options: &Options, backbone: Backbone, test: &'static str) -> Result<Option<Row>> {
    let (plan, component, side) = plan(options, backbone, test)?;
    if backbone == Backbone::None && matches!(test, "T1" | "T2") {
        eprintln!("{test} is about the distributor, which is there with a backbone only (--backbone lanes)");
        return Ok(None);
    }
    let published = report::THROUGHPUT.iter().find(|row| row.test == test);
    let time = Duration::from_secs(if options.full { 300 } else { options.seconds });
    let mut rows = Vec::new();
    for _ in 0..options.repeat.max(1) {
        let place = Place::new(if component == "sink_driven_src" { Backbone::None } else { backbone })?;
        let mut chain =
            Chain::start(&place, &plan).with_context(|| format!("{test}, {}", backbone.name()))?;
        let window = match options.rate {
            Some(rate) => chain.measure(&place, rate, WARM_UP, time)?,
            None => search::highest(&mut chain, &place, guess(published, test), time)?,
        };
        let sharers = [plan.distributor, plan.server, plan.pop].iter().flatten().count();
        let row = row(
            test,
            component,
            backbone,
            &plan,
            published,
            &chain,
            &window,
            place.daemon_share(side, sharers),
        );
        if options.json {
            println!("{}", row.json());
        }
        rows.push(row);
    }
    let of_medians = median(&rows.iter().map(|row| row.output).collect::<Vec<_>>());
    Ok(rows
        .into_iter()
        .min_by(|a, b| (a.output - of_medians).abs().total_cmp(&(b.output - of_medians).abs())))
}

/// Where the search begins, input updates a second.
fn guess(published: Option<&Published>, test: &str) -> u64 {
    match (published, test) {
        (Some(row), _) => row.input as u64,
        (None, "direct") => 2_000_000,
        (None, _) => 800_000,
    }
}

#[allow(clippy::too_many_arguments, reason = "the columns of a row")]
fn row(
    test: &'static str,
    component: &'static str,
    backbone: Backbone,
    plan: &Plan,
    published: Option<&Published>,
    chain: &Chain,
    window: &Window,
    shares: Vec<(String, f64)>,
) -> Row {
    let components = window.cpu.rows.len().saturating_sub(2);
    let daemon: f64 = shares.iter().map(|(name, share)| window.cpu.of(name) * share).sum();
    let used = match component {
        "chain" => window.cpu.rows.iter().take(components).map(|row| row.1).sum(),
        "foreign server" => f64::NAN,
        own => window.cpu.of(own) + daemon,
    };
    let (limit, limit_share) = window.cpu.busiest(components);
    Row {
        test,
        component,
        backbone: if plan.distributor.is_some() { backbone.name() } else { Backbone::None.name() },
        cache: match component {
            "src_dist" => plan.distributor == Some(true),
            "pop" => plan.pop == Some(true),
            _ => plan.server == Some(true),
        },
        mounts: plan.mounts,
        rate: window.rate,
        input: window.input,
        output: window.output,
        lost: window.lost,
        clean: window.is_clean(chain.fan_out()),
        faults: window.faults.clone(),
        ns: used * 1e9 / (window.output * window.cpu.elapsed.as_secs_f64()),
        limit,
        limit_share,
        startup_s: chain.startup_s(),
        latency: window.latency,
        cpu: window.cpu.clone(),
        published: published.copied(),
    }
}

fn latency(options: &Options, backbone: Backbone) -> Result<Latency> {
    let (plan, ..) = plan(options, backbone, "T8")?;
    let place = Place::new(backbone)?;
    let mut chain = Chain::start(&place, &plan).context("T8")?;
    let rates = match options.rates.as_slice() {
        [] if options.full => report::latency_rates(),
        [] => SOME_RATES.to_vec(),
        some => some.to_vec(),
    };
    let time = Duration::from_secs(if options.full { 300 } else { options.seconds });
    let mut all = Latency { backbone: backbone.name(), windows: Vec::new() };
    for rate in rates {
        for _ in 0..options.repeat.max(1) {
            let window = chain.measure(&place, rate, WARM_UP, time)?;
            let clean = window.is_clean(chain.fan_out());
            if options.json {
                println!("{}", table::latency_json(backbone.name(), &window, clean));
            } else {
                table::latency_progress(&window);
            }
            all.windows.push((window, clean));
        }
    }
    let path = options.plots.join(format!("latency-{}.svg", backbone.name()));
    let title = format!("Latency of the whole chain against rate ({})", backbone.name());
    plot::latency_against_rate(&path, &title, &all.curves())?;
    eprintln!("plot: {}", path.display());
    Ok(all)
}
