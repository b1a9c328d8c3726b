//! What a node costs by itself.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use utipc::{Change, Node, NodeAddr, Scope, ServiceAddress};

use super::peer::{Job, LIMIT, Role, Test, say_ready};
use super::place::Place;
use super::report::median;
use super::{Mode, Transport, transport};

/// Options of `bench node`.
#[derive(Clone, Debug, Args)]
pub(super) struct Options {
    /// Where the two nodes of the link-up time are; as for `latency`.
    #[arg(long, value_enum)]
    scope: Option<super::Scope>,
    /// How often each is measured; the median is shown.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Bindings in the table of the lookup time, half of them another node's; 131068 at most.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(2..=131_068))]
    bindings: u32,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Lookups in one measurement.
const LOOKUPS: u32 = 1_000_000;
/// Service type of the bindings that are looked up.
const MANY: u32 = 19_618;

pub(super) fn run(options: &Options) -> Result<()> {
    let place = Place::new(options.scope)?;
    let show = |test: &str, unit: &str, value: f64, text: &str| {
        if options.json {
            println!(
                "{}",
                json!({ "test": test, unit: (value * 1000.0).round() / 1000.0, "runs": options.runs })
            );
        } else {
            println!("{text:<60} {value:>10.3} {unit}");
        }
    };
    let links = repeat(options.runs, || link_up(&place)).context("measure the time to a link")?;
    show("link-up", "ms", links, "from the start of a node to its link (explicit addresses)");
    let memory = repeat(options.runs, || idle_memory(&place)).context("measure the memory of a node")?;
    show("idle-memory", "kib", memory, "resident memory that an idle node adds to its process");
    let lookup = repeat(options.runs, || lookup(options.bindings)).context("measure the lookup time")?;
    let text = format!("one lookup among {} bindings of one service type", options.bindings);
    show("lookup", "ns", lookup, &text);
    Ok(())
}

fn repeat(runs: u32, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    Ok(median((0..runs).map(|_| measure()).collect::<Result<Vec<f64>>>()?.into_iter()))
}

fn link_up(place: &Place) -> Result<f64> {
    let job = Job::new(Test::Link, Transport::Utipc, Mode::Parked, 1, 1);
    let mut server = place.start(&job.clone().with_role(Role::Serve))?;
    server.wait_ready()?;
    let answer = place.start(&job.with_role(Role::Drive))?.answer()?;
    server.answer()?;
    answer["ms"].as_f64().context("read the link-up time")
}

/// One end of [`link_up`], in its process.
pub(super) fn link(job: &Job) -> Result<Value> {
    if job.role == Role::Serve {
        let node = transport::node(job).context("start a node")?;
        say_ready()?;
        wait_for_link(&node)?;
        // The other end hears of the link by our answer; it leaves first.
        let deadline = Instant::now() + LIMIT;
        while node.links().iter().any(|link| link.up) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        return Ok(json!({}));
    }
    let start = Instant::now();
    let node = transport::node(job).context("start a node")?;
    wait_for_link(&node)?;
    Ok(json!({ "ms": start.elapsed().as_secs_f64() * 1e3 }))
}

fn wait_for_link(node: &Node) -> Result<()> {
    let mut topology = node.topology()?;
    topology.links()?;
    for event in topology.events(LIMIT) {
        if matches!(event?.change, Change::LinkUp(_)) {
            return Ok(());
        }
    }
    anyhow::bail!("no link within {LIMIT:?}")
}

fn idle_memory(place: &Place) -> Result<f64> {
    let job = Job::new(Test::Idle, Transport::Utipc, Mode::Parked, 1, 1);
    let answer = place.start(&job)?.answer()?;
    answer["kib"].as_f64().context("read the memory")
}

/// The process of [`idle_memory`].
pub(super) fn idle(_: &Job) -> Result<Value> {
    let before = resident_kib()?;
    let node = Node::builder().cluster(9619).start().context("start a node")?;
    std::thread::sleep(Duration::from_millis(300));
    let after = resident_kib()?;
    drop(node);
    Ok(json!({ "kib": after.saturating_sub(before) }))
}

fn resident_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("read the own memory use")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("find VmRSS")?;
    line.trim().trim_end_matches("kB").trim().parse().context("read VmRSS")
}

/// Nanoseconds of one lookup, in a table that two nodes have filled.
fn lookup(bindings: u32) -> Result<f64> {
    let cluster = 5000 + std::process::id() % 4000;
    let begin = |number| {
        Node::builder()
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
    let mut instance = 1_u32;
    let start = Instant::now();
    for _ in 0..LOOKUPS {
        // A full-period sequence: neighbours in time are no neighbours in the table.
        instance = instance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let found = here.lookup(ServiceAddress::new(MANY, instance % bindings));
        ensure!(found.is_some(), "a binding is missing");
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(LOOKUPS))
}
