//! `utipc bench`: measurements beside TCP, in turn, in one run, so that ratios hold on a noisy machine.

mod node;
pub(crate) mod peer;
mod place;
mod report;
mod tcp;
mod transport;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};

use peer::{Job, Outcome, Role, Test};
use place::Place;
use report::{Line, Measured};

/// Options of `bench`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Round-trip time of one message at a time.
    Latency(Traffic),
    /// Messages and bits per second in one direction.
    Throughput(Traffic),
    /// A node by itself: time to a link, memory when idle, lookup among 100,000 bindings.
    Node(node::Options),
}

#[derive(Clone, Debug, Args)]
struct Traffic {
    /// inter: between two network namespaces (needs root); intra: over the loopback interface. Default: inter for root.
    #[arg(long, value_enum)]
    scope: Option<Scope>,
    /// What to compare.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["utipc", "tcp"])]
    transport: Vec<Transport>,
    /// Bytes in a message. Default: 64 for latency, 64,1000,66000 for throughput.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=66000))]
    size: Vec<u32>,
    /// Messages per run. Default: 20000 round trips, or as many as make 200 MB but at most a million.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// Runs of each transport and size, in turn; the table shows the median.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// parked: wait in the kernel; busy: poll without waiting.
    #[arg(long, value_enum, default_value_t = Mode::Parked)]
    mode: Mode,
    /// One JSON object a line, for each run.
    #[arg(long)]
    json: bool,
}

/// Where the two ends are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// One network namespace.
    Intra,
    /// Two, joined by a pair of virtual Ethernet interfaces.
    Inter,
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// A SEQPACKET connection between two nodes over the UDP bearer.
    Utipc,
    /// A TCP connection, without Nagle for round trips.
    Tcp,
}

/// How an end waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// In the kernel.
    Parked,
    /// It does not: it asks again and again.
    Busy,
}

impl Transport {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Utipc => "utipc",
            Self::Tcp => "tcp",
        }
    }
}

impl Mode {
    /// The word of the report: what utipc calls parked is ordinary blocking for others.
    fn name(self, transport: Transport) -> &'static str {
        match (self, transport) {
            (Self::Busy, _) => "busy",
            (Self::Parked, Transport::Utipc) => "parked",
            (Self::Parked, Transport::Tcp) => "blocking",
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.what {
        What::Latency(traffic) => compare(Test::Latency, traffic),
        What::Throughput(traffic) => compare(Test::Throughput, traffic),
        What::Node(options) => node::run(options),
    }
}

/// Bytes of one throughput run by default.
const DEFAULT_VOLUME: u64 = 200_000_000;

fn messages(test: Test, size: u32) -> u64 {
    match test {
        Test::Latency => 20_000,
        _ => (DEFAULT_VOLUME / u64::from(size)).clamp(1_000, 1_000_000),
    }
}

fn compare(test: Test, options: &Traffic) -> Result<()> {
    let place = Place::new(options.scope)?;
    let sizes = match (test, options.size.as_slice()) {
        (Test::Latency, []) => vec![64],
        (_, []) => vec![64, 1000, 66_000],
        (_, given) => given.to_vec(),
    };
    let mut lines = Vec::new();
    for size in sizes {
        for run in 0..options.runs {
            // In turn, and the other way round in every second run: no transport always has the warm machine.
            let mut order = options.transport.clone();
            if run % 2 == 1 {
                order.reverse();
            }
            for transport in order {
                let messages = options.messages.unwrap_or_else(|| messages(test, size));
                let job = Job::new(test, transport, options.mode, size, messages);
                let measured = measure(&place, &job)
                    .with_context(|| format!("measure {} with messages of {size} bytes", transport.name()))?;
                let line = Line::new(&job, place.scope(), measured);
                if options.json {
                    println!("{}", line.to_json());
                }
                lines.push(line);
            }
        }
    }
    if !options.json {
        println!("{}", place.describe());
        report::table(test, &lines);
    }
    Ok(())
}

/// Runs both ends of `job` and puts their results together.
fn measure(place: &Place, job: &Job) -> Result<Measured> {
    let mut server = place.start(&job.clone().with_role(Role::Serve))?;
    server.wait_ready()?;
    let client = place.start(&job.clone().with_role(Role::Drive))?.finish()?;
    let served = server.finish()?;
    match client {
        Outcome::Ok { elapsed_s, rtt_us, cpu_s } => {
            let served = match served {
                Outcome::Ok { cpu_s, .. } => cpu_s,
                Outcome::Failed { error } => bail!("server: {error}"),
            };
            Ok(Measured { elapsed_s, rtt_us, cpu_tx: cpu_s, cpu_rx: served })
        }
        Outcome::Failed { error } => bail!("client: {error}"),
    }
}
