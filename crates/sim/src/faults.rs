//! Schedule of faults in the busy period of a round.

use utipc_core::{Rng, Time};

use crate::config::{FaultKind, SimConfig};
use crate::network::Quality;

/// A change of the network or a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Sets the quality of the network: loss, duplicates, reordering.
    Quality([u64; 3]),
    /// Cuts these directions.
    Cut(Vec<(usize, usize)>),
    /// Restores these directions.
    Restore(Vec<(usize, usize)>),
    /// Fails one network between two nodes.
    Fail(u8, usize, usize),
    /// Restores it.
    Repair(u8, usize, usize),
    /// Delays frames between two nodes by a number of milliseconds.
    Hold(usize, usize, u64),
    /// Crashes a node.
    Crash(usize),
    /// Restarts it.
    Start(usize),
}

pub(crate) fn quality(parts: [u64; 3]) -> Quality {
    let [loss, duplicate, reorder] = parts;
    Quality { loss, duplicate, reorder }
}

/// Plans the faults between `from` and `to`.
pub(crate) fn plan(rng: &mut Rng, config: &SimConfig, from: Time, to: Time) -> Vec<(Time, Fault)> {
    let mut plan = vec![(from, Fault::Quality(draw_quality(rng, config)))];
    let span_ms = to.as_millis() - from.as_millis();
    let at = |rng: &mut Rng| from.plus_millis(rng.below(span_ms));
    if config.has(FaultKind::Partition) {
        for _ in 0..1 + rng.below(3) {
            let start = at(rng);
            let end = start.plus_millis(100 + rng.below(6000));
            let cut = draw_cut(rng, config.nodes);
            plan.push((start, Fault::Cut(cut.clone())));
            plan.push((end, Fault::Restore(cut)));
        }
    }
    if config.has(FaultKind::Link) && config.bearers > 1 {
        let plane = rng.below(2) as u8;
        for _ in 0..1 + rng.below(4) {
            let start = at(rng);
            let end = start.plus_millis(100 + rng.below(6000));
            let a = rng.below(config.nodes as u64) as usize;
            let b = (a + 1 + rng.below(config.nodes as u64 - 1) as usize) % config.nodes;
            plan.push((start, Fault::Fail(plane, a, b)));
            plan.push((end, Fault::Repair(plane, a, b)));
        }
    }
    if config.has(FaultKind::Crash) && rng.below(2) == 0 {
        let (node, start) = (rng.below(config.nodes as u64) as usize, at(rng));
        plan.push((start, Fault::Crash(node)));
        plan.push((start.plus_millis(300 + rng.below(6000)), Fault::Start(node)));
    }
    if config.has(FaultKind::Delay) {
        for _ in 0..rng.below(8) {
            let (a, b) = (rng.below(config.nodes as u64) as usize, rng.below(config.nodes as u64) as usize);
            plan.push((at(rng), Fault::Hold(a, b, 5 + rng.below(400))));
        }
    }
    plan
}

/// The worst network quality of a run.
pub(crate) fn worst(config: &SimConfig) -> [u64; 3] {
    let all = [(FaultKind::Loss, 50_000), (FaultKind::Duplicate, 50_000), (FaultKind::Reorder, 100_000)];
    all.map(|(kind, most)| if config.has(kind) { most } else { 0 })
}

fn draw_quality(rng: &mut Rng, config: &SimConfig) -> [u64; 3] {
    // Most rounds have few faults: many faults hide problems that need a single loss under much traffic.
    worst(config).map(|most| [most / 100, most / 10, most / 10, most][rng.below(4) as usize])
}

fn draw_cut(rng: &mut Rng, nodes: usize) -> Vec<(usize, usize)> {
    let all = || (0..nodes).flat_map(move |a| (0..nodes).map(move |b| (a, b))).filter(|(a, b)| a != b);
    match rng.below(3) {
        0 => {
            let side: Vec<bool> = (0..nodes).map(|_| rng.below(2) == 0).collect();
            all().filter(|(a, b)| side[*a] != side[*b]).collect()
        }
        kind => {
            let a = rng.below(nodes as u64) as usize;
            let b = (a + 1 + rng.below(nodes as u64 - 1) as usize) % nodes;
            if kind == 1 { vec![(a, b), (b, a)] } else { vec![(a, b)] }
        }
    }
}
