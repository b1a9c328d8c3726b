//! Peers that measure a node by itself, or the processor: link, idle memory, computing.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use utipc::{Change, Node};
use utipc_bench_kit::machine::resident_kib;

use super::super::job::{EndResult, Job, LIMIT, Role, ServerAddress};
use super::super::parent::Parent;
use super::super::traffic::now_ns;
use super::super::variant::Transport;
use super::node;

/// Iterations of [`spin`] between two checks of the clock.
const ITERATIONS: u64 = 10_000;

/// The client's value is the MTU of its link, bytes; its time is that from the start of its node to the link.
pub(in super::super) fn link(job: &Job, parent: &Parent) -> Result<EndResult> {
    if job.role == Role::Serve {
        let node = node(job).context("start a node")?;
        parent.ready(ServerAddress::default())?;
        // The kernel keeps its node.
        if job.variant.transport != Transport::KernelTipc {
            wait_for_link(&node)?;
            // Until the other end, which needs our side of the link, has left.
            let deadline = Instant::now() + LIMIT;
            while node.links().iter().any(|link| link.up) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        return Ok(EndResult::default());
    }
    parent.ready_to_go()?;
    let began = now_ns();
    let node = node(job).context("start a node")?;
    wait_for_link(&node)?;
    let ended = now_ns();
    let mtu = node.links().iter().find(|link| link.up).map(|link| link.mtu);
    let value = Some(f64::from(mtu.context("read the packet size of the link")?));
    Ok(EndResult { began, ended, value, ..EndResult::default() })
}

fn wait_for_link(node: &Node) -> Result<()> {
    let mut topology = node.topology()?;
    topology.links()?;
    for event in topology.events(LIMIT) {
        if matches!(event?.change, Change::LinkUp(_)) {
            return Ok(());
        }
    }
    bail!("no link within {LIMIT:?}")
}

/// Resident memory that an idle node adds to its process, KiB.
pub(in super::super) fn idle_memory() -> Result<EndResult> {
    let before = resident_kib(std::process::id())?;
    let node = Node::builder().cluster(9619).start().context("start a node")?;
    std::thread::sleep(Duration::from_millis(300));
    let after = resident_kib(std::process::id())?;
    drop(node);
    Ok(EndResult { value: Some(after.saturating_sub(before) as f64), ..EndResult::default() })
}

/// A program that computes: iterations of a loop per second, measured for `messages` milliseconds.
pub(in super::super) fn spin(job: &Job, parent: &Parent) -> Result<EndResult> {
    parent.ready_to_go()?;
    let began = now_ns();
    let end = began + job.messages * 1_000_000;
    let (mut iterations, mut ended) = (0_u64, began);
    while ended < end {
        for iteration in 0..ITERATIONS {
            std::hint::black_box(iteration);
        }
        iterations += ITERATIONS;
        ended = now_ns();
    }
    let value = Some(iterations as f64 / ((ended - began) as f64 / 1e9));
    Ok(EndResult { began, ended, value, ..EndResult::default() })
}
