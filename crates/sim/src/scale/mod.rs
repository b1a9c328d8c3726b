//! Clusters of many nodes on one segment: the cost of supervision, the memory of a node, and the time until the others
//! learn of crashes.
//!
//! A run waits until all nodes are in contact and the monitor of each knows the domains of all others, counts in a
//! quiet time, crashes one node, and then a domain: √n consecutive nodes of the ring. The nodes that would report most
//! of the crashes have crashed too. Every stage checks its invariants.

mod crash;
mod segment;
mod settle;

pub use crash::{Detection, bounds};
pub use segment::Traffic;

use std::time::Duration;

use segment::{Segment, What};
use serde::{Deserialize, Serialize};
use utipc_core::monitor::DEFAULT_THRESHOLD;

use crate::peers::Probe;

/// Time within which all nodes start, milliseconds.
const START_MS: u64 = 5_000;
/// Ticks of a link in a second.
const TICKS_PER_SECOND: f64 = 1000.0 / crash::TICK_MS as f64;

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Nodes, 4 to 4000.
    pub nodes: usize,
    /// Whether nodes may leave the supervision of others to the monitor, as they do above 32 nodes. Otherwise all nodes
    /// supervise each other.
    pub monitoring: bool,
    /// Length of the quiet time, virtual milliseconds.
    pub quiet_ms: u64,
    /// Seed of all randomness.
    pub seed: u64,
}

/// Results of a run; results per node are the mean over all nodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Whether the monitor is active: there are more nodes than its threshold.
    pub is_monitored: bool,
    /// Time from the first start of a node until all are in contact with each other, virtual milliseconds.
    pub contact_ms: u64,
    /// Messages of all nodes until the quiet time.
    pub setup_frames: u64,
    /// Peers that a node supervises itself.
    pub supervised: f64,
    /// Messages of all nodes in the quiet time.
    #[serde(skip)]
    pub quiet: Traffic,
    /// Length of the quiet time, virtual seconds.
    pub quiet_seconds: f64,
    /// Processor time for the quiet time, with the simulator's own.
    #[serde(skip)]
    pub quiet_cpu: Duration,
    /// Memory of all nodes after that, bytes.
    #[serde(skip)]
    pub memory: usize,
    /// How one crashed node was detected.
    pub one: Detection,
    /// How a crashed domain was detected.
    pub domain: Detection,
}

impl Report {
    /// A number of the quiet time for each node and second.
    #[must_use]
    pub fn rate(&self, plan: &Plan, count: u64) -> f64 {
        count as f64 / plan.nodes as f64 / self.quiet_seconds.max(0.001)
    }
}

/// Makes a run.
///
/// # Errors
/// The first invariant that is broken, and the results until then.
pub fn run(plan: &Plan, probe: Probe) -> Result<Report, Box<(String, Report)>> {
    let mut run = Run {
        plan,
        probe,
        base: (probe.memory)(),
        segment: Segment::new(plan.nodes, plan.monitoring, plan.seed, START_MS),
        report: Report::default(),
    };
    let outcome = run.whole();
    match outcome {
        Ok(()) => Ok(run.report),
        Err(reason) => Err(Box::new((reason, run.report))),
    }
}

struct Run<'a> {
    plan: &'a Plan,
    probe: Probe,
    base: usize,
    segment: Segment,
    report: Report,
}

impl Run<'_> {
    fn whole(&mut self) -> Result<(), String> {
        self.report.is_monitored = self.plan.monitoring && self.plan.nodes > DEFAULT_THRESHOLD;
        self.connect()?;
        self.settle()?;
        self.report.setup_frames = self.segment.traffic.frames;
        self.report.supervised = self.count_supervised() as f64 / self.plan.nodes as f64;
        self.measure_quiet_time()?;
        let crash = self.crash(1)?;
        self.report.one = crash.summary();
        self.judge(&crash)?;
        self.settle()?;
        let crash = self.crash(self.domain_size())?;
        self.report.domain = crash.summary();
        self.judge(&crash)
    }

    fn measure_quiet_time(&mut self) -> Result<(), String> {
        let (before, cpu) = (self.segment.traffic, (self.probe.cpu)());
        self.pass(self.plan.quiet_ms)?;
        self.report.quiet_cpu = (self.probe.cpu)().saturating_sub(cpu);
        self.report.quiet = self.segment.traffic.since(&before);
        self.report.quiet_seconds = self.plan.quiet_ms as f64 / 1000.0;
        self.report.memory = (self.probe.memory)().saturating_sub(self.base);
        self.check_probes()
    }

    /// Checks that a node probes the peers that it supervises at each tick, and no others.
    fn check_probes(&self) -> Result<(), String> {
        let probes = self.report.rate(self.plan, self.report.quiet.probes);
        let wanted = self.report.supervised * TICKS_PER_SECOND;
        if (probes / wanted - 1.0).abs() > 0.05 {
            return Err(format!(
                "a node sends {probes:.1} probes a second, {wanted:.1} are due for {:.1} supervised peers",
                self.report.supervised
            ));
        }
        Ok(())
    }

    /// Lets time pass in which no contact and no link may change.
    fn pass(&mut self, ms: u64) -> Result<(), String> {
        self.segment.run_until(self.segment.now.plus_millis(ms));
        match self.segment.changes.drain(..).next() {
            None => Ok(()),
            Some(change) => Err(format!(
                "node {} reports {:?} of {} at {} ms, without a cause",
                change.node,
                change.what,
                change.peer,
                change.at.as_millis()
            )),
        }
    }
}
