//! `utipc bench node`: time to a link, idle memory and lookup time of a node.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::json;
use utipc::{Node, NodeAddr, Scope, ServiceAddress};
use utipc_bench_kit::stats::median;

use super::job::{Job, LIMIT, Test};
use super::library::look_up;
use super::place::Place;
use super::variant::{self, Engine};

/// Options of `bench node`.
#[derive(Clone, Debug, Args)]
pub(super) struct Options {
    /// Where the two nodes of the link-up time are, as for `latency`
    #[arg(long, value_enum, default_value_t = variant::Scope::Intra)]
    scope: variant::Scope,
    /// Repetitions of each measurement; the median is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Bindings in the table for the lookup time, half of them on another node
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(2..=131_068))]
    bindings: u32,
    /// Engine of the node [default: $UTIPC_ENGINE or embedded]
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// Print JSON objects, one per line
    #[arg(long)]
    json: bool,
}

/// Lookups of a measurement.
const LOOKUPS: u64 = 1_000_000;
/// Service type of the bindings that are looked up.
const MANY: u32 = 19_618;

/// Bindings and lookups on the kernel, whose table takes 65,535 bindings per node and is read as a whole for each
/// lookup.
const KERNEL: (u32, u64) = (10_000, 20);

impl Options {
    /// Measures in every round and shows the median.
    fn measure(&self, test: &str, unit: &str, text: &str, each: impl Fn() -> Result<f64>) -> Result<()> {
        let values = (0..self.rounds).map(|_| each()).collect::<Result<Vec<f64>>>();
        let value = median(values.with_context(|| format!("measure {test}"))?);
        if self.json {
            let value = (value * 1000.0).round() / 1000.0;
            println!("{}", json!({ "test": test, unit: value, "runs": self.rounds }));
        } else {
            println!("{text:<60} {value:>10.3} {unit}");
        }
        Ok(())
    }

    fn show_missing(&self, test: &str, why: &str) {
        if self.json {
            println!("{}", json!({ "test": test, "not_measured": why }));
        } else {
            println!("{test}: not measured: {why}");
        }
    }
}

pub(super) fn run(options: &Options) -> Result<()> {
    match Engine::chosen(options.engine)? {
        Engine::Embedded => {}
        Engine::Kernel => return run_on_kernel(options),
        Engine::Daemon => {
            bail!("`utipc bench targets` measures the node of a daemon (use --engine embedded or kernel)")
        }
    }
    let place = Place::new(options.scope, Engine::Embedded)?;
    let job = |test| Job::new(test, variant::Variant::TCP, 1);
    let link = || Ok(1e3 * place.run(&job(Test::Link))?.elapsed_s());
    options.measure("link-up", "ms", "from the start of a node to its link (explicit addresses)", link)?;
    let memory = || place.start(&job(Test::IdleMemory))?.finish()?.single_value();
    let text = "resident memory that an idle node adds to its process";
    options.measure("idle-memory", "kib", text, memory)?;
    let text = format!("one lookup among {} bindings of one service type", options.bindings);
    options.measure("lookup", "ns", &text, || lookup(options.bindings))
}

/// Measures the kernel's node, as far as that applies.
fn run_on_kernel(options: &Options) -> Result<()> {
    options.show_missing(
        "link-up",
        "the kernel's node exists before the program, and the system has its bearers",
    );
    options.show_missing("idle-memory", "the kernel's node is not part of a process");
    let bindings = options.bindings.min(KERNEL.0);
    let node = Node::builder().engine(utipc::Engine::Kernel).start().context("use the kernel's node")?;
    let socket = node.rdm()?;
    for instance in 0..bindings {
        socket.bind(ServiceAddress::new(MANY, instance), Scope::Node)?;
    }
    let text = format!("one lookup among {bindings} bindings, by reading the kernel's table");
    options.measure("lookup", "ns", &text, || look_up(&node, MANY, bindings, KERNEL.1))
}

/// Nanoseconds of a lookup in a table with bindings of two nodes.
fn lookup(bindings: u32) -> Result<f64> {
    let cluster = 5000 + std::process::id() % 4000;
    let begin = |number| {
        Node::builder()
            .engine(utipc::Engine::Embedded)
            .cluster(cluster)
            .address(NodeAddr::legacy(1, 1, number))
            .start()
            .context("start a node")
    };
    let (here, there) = (begin(1)?, begin(2)?);
    let sockets = [here.rdm()?, there.rdm()?];
    for instance in 0..bindings {
        sockets[(instance % 2) as usize].bind(ServiceAddress::new(MANY, instance), Scope::Cluster)?;
    }
    let deadline = Instant::now() + LIMIT;
    let known = || here.bindings().iter().filter(|b| b.range.service == MANY).count();
    while known() < bindings as usize {
        ensure!(Instant::now() < deadline, "the other node's bindings have not arrived within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    look_up(&here, MANY, bindings, LOOKUPS)
}
