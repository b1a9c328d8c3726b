//! Programs with event loops, for the rows of `targets/loops.rs`: a server that echoes and a client that sends 64 bytes
//! and waits for them, by readiness. The two ends on tokio are hidden commands of `utipc`; those in C and Python are
//! programs in `bench/loops`, with the same arguments.
//!
//! * `serve FAMILY IDLE CORE` prints `ready PORT`, then echoes until its standard input closes.
//! * `drive FAMILY IDLE CORE PORT SECONDS MESSAGES` opens IDLE connections and one more, sends on that for SECONDS (or
//!   MESSAGES times, if that is not 0) and prints `median NANOSECONDS`.
//!
//! FAMILY is `tcp` or `tipc`; CORE is -1 for any.

mod programs;
mod tokio;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use utipc_bench_kit::stats::median;

pub(super) use programs::{Case, Ends, Program};

/// Bytes of a message.
const SIZE: usize = 64;
/// The service type; the instance is the server's process id.
const SERVICE: u32 = 19_618;
/// The share of the seconds that does not count.
const WARM_UP: f64 = 0.2;

/// The transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Family {
    Tcp,
    Tipc,
}

/// The arguments of an end on tokio.
#[derive(Clone, Debug, Args)]
pub(super) struct End {
    role: String,
    family: Family,
    idle: u32,
    #[arg(allow_hyphen_values = true)]
    core: i32,
    port: Option<u32>,
    #[arg(default_value_t = 0.0)]
    seconds: f64,
    #[arg(default_value_t = 0)]
    messages: u64,
}

/// Runs an end.
pub(super) fn run(end: &End) -> Result<()> {
    ensure!((end.role == "drive") == end.port.is_some(), "only the client gets a port");
    if let Ok(core) = usize::try_from(end.core) {
        let mut cores = CpuSet::new();
        cores.set(core);
        // If this is refused, the scheduler chooses the core.
        let _ = sched_setaffinity(None, &cores);
    }
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).context("raise the limit of open files")?;
    tokio::run(end)
}

/// Prints where the client finds the server.
fn announce(port: u32) {
    println!("ready {port}");
}

/// The round trips of a client.
struct Rounds {
    messages: u64,
    count: u64,
    /// Those from then on count.
    warm: Option<Instant>,
    end: Instant,
    times: Vec<f64>,
}

impl Rounds {
    fn new(end: &End) -> Self {
        let now = Instant::now();
        let after = |share: f64| now + Duration::from_secs_f64(end.seconds.max(0.0) * share);
        Self {
            messages: end.messages,
            count: 0,
            warm: Some(after(WARM_UP)),
            end: after(1.0),
            times: Vec::new(),
        }
    }

    fn goes_on(&mut self) -> bool {
        if self.messages > 0 {
            return self.count < self.messages;
        }
        let now = Instant::now();
        if self.warm.take_if(|warm| now >= *warm).is_some() {
            self.times.clear();
        }
        now < self.end
    }

    fn record(&mut self, time: Duration) {
        self.count += 1;
        self.times.push(time.as_nanos() as f64);
    }

    fn report(self) -> Result<()> {
        ensure!(!self.times.is_empty(), "no round trip was measured");
        println!("median {}", median(self.times));
        Ok(())
    }
}
