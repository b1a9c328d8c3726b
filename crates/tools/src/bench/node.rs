//! `utipc bench node`: time to a link, idle memory and lookup time of a node.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::json;
use utipc::{Node, NodeAddr, Scope, ServiceAddress};
use utipc_bench_kit::stats::median;

use super::job::{Job, LIMIT, Role, Test};
use super::place::Place;
use super::run as running;
use super::variant::{self, Engine};

/// Options of `bench node`.
#[derive(Clone, Debug, Args)]
pub(super) struct Options {
    /// Where the two nodes of the link-up time are, as for `latency`
    #[arg(long, value_enum)]
    scope: Option<variant::Scope>,
    /// Repetitions of each measurement; the median is shown
    #[arg(long, alias = "runs", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
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
const LOOKUPS: u32 = 1_000_000;
/// Service type of the bindings that are looked up.
const MANY: u32 = 19_618;

/// Bindings and lookups on the kernel, whose table takes 65,535 bindings per node and is read as a whole for each
/// lookup.
const KERNEL: (u32, u32) = (10_000, 20);

impl Options {
    fn show(&self, test: &str, unit: &str, value: f64, text: &str) {
        if self.json {
            let value = (value * 1000.0).round() / 1000.0;
            println!("{}", json!({ "test": test, unit: value, "runs": self.rounds }));
        } else {
            println!("{text:<60} {value:>10.3} {unit}");
        }
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
    let place = super::place_for(options.scope, Engine::Embedded)?;
    let show = |test: &str, unit: &str, value: f64, text: &str| options.show(test, unit, value, text);
    let links = repeat(options.rounds, || measure_link_up(&place)).context("measure the time to a link")?;
    show("link-up", "ms", links, "from the start of a node to its link (explicit addresses)");
    let memory = repeat(options.rounds, || measure_memory(&place)).context("measure the memory of a node")?;
    show("idle-memory", "kib", memory, "resident memory that an idle node adds to its process");
    let lookup = repeat(options.rounds, || lookup(options.bindings)).context("measure the lookup time")?;
    let text = format!("one lookup among {} bindings of one service type", options.bindings);
    show("lookup", "ns", lookup, &text);
    Ok(())
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
    let lookup = repeat(options.rounds, || look_up(&node, bindings, KERNEL.1));
    let text = format!("one lookup among {bindings} bindings, by reading the kernel's table");
    options.show("lookup", "ns", lookup.context("measure the lookup time")?, &text);
    Ok(())
}

fn repeat(runs: u32, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    Ok(median((0..runs).map(|_| measure()).collect::<Result<Vec<f64>>>()?))
}

fn measure_link_up(place: &Place) -> Result<f64> {
    let job = running::job(Test::LinkUp, variant::Variant::TCP, 1);
    let mut server = place.start(&Job { role: Role::Serve, ..job.clone() })?;
    server.wait_ready()?;
    let mut client = place.start(&job)?;
    client.wait_ready()?;
    client.go()?;
    client.finish()?.single_value()
}

fn measure_memory(place: &Place) -> Result<f64> {
    place.start(&running::job(Test::IdleMemory, variant::Variant::TCP, 1))?.finish()?.single_value()
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
    look_up(&here, bindings, LOOKUPS)
}

/// Nanoseconds of one of `lookups` lookups among `bindings`.
fn look_up(node: &Node, bindings: u32, lookups: u32) -> Result<f64> {
    let mut instance = 1_u32;
    let start = Instant::now();
    for _ in 0..lookups {
        // A full-period sequence: consecutive lookups are not neighbours in the table.
        instance = instance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let found = node.lookup(ServiceAddress::new(MANY, instance % bindings));
        ensure!(found.is_some(), "a binding is missing");
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(lookups))
}
