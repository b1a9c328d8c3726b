//! Crashes, and when the other nodes learn of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utipc_core::NodeAddr;
use utipc_core::limits::DEFAULT_TOLERANCE_MS;

use super::settle::monitor_of;
use super::{Run, What};

/// Interval of a link's ticks with the default tolerance, milliseconds. Spec: tipc.md §5.6.
pub(super) const TICK_MS: u64 = DEFAULT_TOLERANCE_MS as u64 / 4;
/// Time in which nodes that do not supervise a crashed node must not report anything else, milliseconds.
const AFTERMATH_MS: u64 = 3_000;

/// Longest times until a crash is detected, milliseconds, with the default tolerance.
pub mod bounds {
    use super::TICK_MS;

    /// A few times the latency and the turns of the virtual network.
    const LATENCY_MS: u64 = 5;
    /// By a node that supervises the crashed one: five silent ticks, and the rest of the tick of the crash.
    pub const DIRECT_MS: u64 = 6 * TICK_MS + LATENCY_MS;
    /// By the others, if four nodes supervise the crashed one: their reports leave at one tick, and count at the next.
    pub const REPORTED_MS: u64 = DIRECT_MS + 2 * TICK_MS;
    /// By the others, if fewer report it: they detect it themselves, after the first report.
    pub const PROBED_MS: u64 = DIRECT_MS + 2 * TICK_MS + DIRECT_MS;
}

/// When the survivors have detected a crash, milliseconds after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    /// Crashed nodes.
    pub crashed: usize,
    /// The first survivor, for the first crashed node.
    pub first_ms: f64,
    /// The median over all pairs of a survivor and a crashed node.
    pub median_ms: f64,
    /// The last survivor, for the last crashed node.
    pub last_ms: f64,
    /// Pairs in which the survivor supervised the crashed node itself, and the last of these.
    pub direct: usize,
    /// See [`Self::direct`].
    pub last_direct_ms: f64,
}

/// The reports of the survivors of a crash.
pub(super) struct Crash {
    crashed: BTreeSet<NodeAddr>,
    /// Pairs of a survivor and a crashed node that it supervised.
    direct: BTreeSet<(usize, NodeAddr)>,
    /// When a survivor has noticed the crash of a node, milliseconds after it.
    times: BTreeMap<(usize, NodeAddr), f64>,
    bound_ms: u64,
}

impl Crash {
    pub(super) fn summary(&self) -> Detection {
        let mut sorted: Vec<f64> = self.times.values().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let last_direct = self.times.iter().filter(|(pair, _)| self.direct.contains(pair)).map(|(_, ms)| *ms);
        Detection {
            crashed: self.crashed.len(),
            first_ms: sorted.first().copied().unwrap_or(0.0),
            median_ms: sorted.get(sorted.len() / 2).copied().unwrap_or(0.0),
            last_ms: sorted.last().copied().unwrap_or(0.0),
            direct: self.direct.len(),
            last_direct_ms: last_direct.fold(0.0, f64::max),
        }
    }

    /// Checks that this node has noticed all crashes in time.
    fn judge(&self, survivor: usize) -> Result<(), String> {
        for addr in &self.crashed {
            let pair = (survivor, *addr);
            let bound = if self.direct.contains(&pair) { bounds::DIRECT_MS } else { self.bound_ms };
            match self.times.get(&pair) {
                None => return Err(format!("node {survivor} has not noticed that {addr} crashed")),
                Some(ms) if *ms > bound as f64 => {
                    let late = format!("node {survivor} has noticed after {ms:.0} ms that {addr} crashed");
                    return Err(format!("{late}, the bound is {bound} ms"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Crashes consecutive nodes of the ring at the same time, and waits until all others should have noticed.
    ///
    /// # Errors
    /// A node loses contact with a node that runs.
    pub(super) fn crash(&mut self, count: usize) -> Result<Crash, String> {
        let ring = self.segment.ring();
        let first = ring.len() / 2;
        let victims: Vec<usize> = ring.into_iter().skip(first).take(count).collect();
        let crashed: BTreeSet<NodeAddr> = victims.iter().map(|index| self.segment.addr(*index)).collect();
        let direct = self.supervisors(&crashed);
        victims.iter().for_each(|index| self.segment.crash(*index));
        let at = self.segment.now;
        let bound_ms = match (count, self.report.is_monitored) {
            (_, false) => bounds::DIRECT_MS,
            (1, true) => bounds::REPORTED_MS,
            _ => bounds::PROBED_MS,
        };
        self.segment.run_until(at.plus_millis(bound_ms + AFTERMATH_MS));
        let mut times = BTreeMap::new();
        for change in core::mem::take(&mut self.segment.changes) {
            if !crashed.contains(&change.peer) || change.what == What::ContactUp {
                let (node, what, peer) = (change.node, change.what, change.peer);
                return Err(format!("node {node} reports {what:?} of {peer} after the crash of others"));
            }
            if change.what == What::ContactLost {
                times.insert((change.node, change.peer), change.at.since(at).as_secs_f64() * 1000.0);
            }
        }
        Ok(Crash { crashed, direct, times, bound_ms })
    }

    /// Checks that all survivors have noticed in time, and are in contact with each other.
    pub(super) fn judge(&self, crash: &Crash) -> Result<(), String> {
        self.segment.running().try_for_each(|(index, _)| crash.judge(index))?;
        self.check_contacts()
    }

    /// The pairs of a running node and one of these nodes that it supervises.
    fn supervisors(&self, of: &BTreeSet<NodeAddr>) -> BTreeSet<(usize, NodeAddr)> {
        let mut pairs = BTreeSet::new();
        for (index, stack) in self.segment.running().filter(|(_, stack)| !of.contains(&stack.own_node())) {
            let supervised = monitor_of(stack).filter(|node| of.contains(&node.addr));
            let supervised = supervised.filter(|node| !self.report.is_monitored || node.local || node.head);
            pairs.extend(supervised.map(|node| (index, node.addr)));
        }
        pairs
    }
}
