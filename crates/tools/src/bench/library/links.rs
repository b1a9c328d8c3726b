//! Peers that measure a node by itself: time to a link, MTU, idle memory.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use utipc::{Change, Node};
use utipc_bench_kit::machine::resident_kib;

use super::super::job::{EndResult, Job, LIMIT, Role, ServerAddress};
use super::super::parent::Parent;
use super::super::variant::Transport;
use super::node;

/// Time from the start of a node to its first link, in milliseconds: the value of the client.
pub(in super::super) fn link_up(job: &Job, parent: &Parent) -> Result<EndResult> {
    if job.role == Role::Serve {
        let node = node(job).context("start a node")?;
        parent.ready(ServerAddress::default())?;
        wait_for_link(&node)?;
        wait_until_link_is_down(&node);
        return Ok(EndResult::default());
    }
    parent.ready_to_go()?;
    let start = Instant::now();
    let node = node(job).context("start a node")?;
    wait_for_link(&node)?;
    Ok(EndResult { value: Some(start.elapsed().as_secs_f64() * 1e3), ..EndResult::default() })
}

/// Keeps the node until the other end, which needs our side of the link, has left.
fn wait_until_link_is_down(node: &Node) {
    let deadline = Instant::now() + LIMIT;
    while node.links().iter().any(|link| link.up) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
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

/// The MTU of the link between the two ends, bytes, as the value of the client.
pub(in super::super) fn link_mtu(job: &Job, parent: &Parent) -> Result<EndResult> {
    let node = node(job).context("start a node")?;
    if job.role == Role::Serve {
        parent.ready(ServerAddress::default())?;
        // The kernel keeps its node.
        if job.variant.transport != Transport::KernelTipc {
            wait_for_link(&node)?;
            wait_until_link_is_down(&node);
        }
        return Ok(EndResult::default());
    }
    parent.ready_to_go()?;
    wait_for_link(&node)?;
    let mtu = mtu_of_first_link(&node).context("read the packet size of the link")?;
    Ok(EndResult { value: Some(f64::from(mtu)), ..EndResult::default() })
}

/// The MTU of the first link that is up, bytes with headers.
fn mtu_of_first_link(node: &Node) -> Option<u16> {
    node.links().iter().find(|link| link.up).map(|link| link.mtu)
}

/// Resident memory that an idle node adds to its process, KiB.
pub(in super::super) fn idle_memory() -> Result<EndResult> {
    let before = resident_kib("self")?;
    let node = Node::builder().cluster(9619).start().context("start a node")?;
    std::thread::sleep(Duration::from_millis(300));
    let after = resident_kib("self")?;
    drop(node);
    Ok(EndResult { value: Some(after.saturating_sub(before) as f64), ..EndResult::default() })
}
