//! The way to a cluster at rest: all nodes are in contact, and all monitors know each other's domains.

use utipc_core::Stack;
use utipc_core::monitor::MonitorNode;

use super::{Run, What};

/// Interval at which the cluster is checked, milliseconds.
const STEP_MS: u64 = 1000;
/// Longest time until all nodes are in contact, milliseconds: the slowest interval of discovery, twice, and some more.
const LONGEST_CONTACT_MS: u64 = 150_000;
/// Longest time until all monitors agree, milliseconds: a few ticks of each link, and some more.
const LONGEST_SETTLE_MS: u64 = 20_000;

impl Run<'_> {
    /// Runs until every node is in contact with every other one. A link that goes down during this is an error.
    pub(super) fn connect(&mut self) -> Result<(), String> {
        let begin = self.segment.now;
        let all = self.plan.nodes * (self.plan.nodes - 1);
        let (mut up, mut last) = (0, begin);
        while up < all {
            if self.segment.now >= begin.plus_millis(LONGEST_CONTACT_MS) {
                return Err(format!("{up} of {all} contacts after {LONGEST_CONTACT_MS} ms"));
            }
            self.segment.run_until(self.segment.now.plus_millis(STEP_MS));
            for change in core::mem::take(&mut self.segment.changes) {
                if change.what != What::ContactUp {
                    return Err(format!(
                        "node {} reports {:?} of {} at {} ms, while nodes start",
                        change.node,
                        change.what,
                        change.peer,
                        change.at.as_millis()
                    ));
                }
                (up, last) = (up + 1, change.at);
            }
        }
        self.report.contact_ms = last.as_millis() - begin.as_millis();
        self.check_contacts()
    }

    /// Checks the tables of all running nodes: every other running node is up, with a link, and no other one.
    pub(super) fn check_contacts(&self) -> Result<(), String> {
        let wanted = self.segment.running().count() - 1;
        for (index, stack) in self.segment.running() {
            let up: Vec<_> = stack.nodes().into_iter().filter(|peer| peer.up).map(|peer| peer.addr).collect();
            if up.len() != wanted || up.iter().any(|addr| !self.segment.is_running(*addr)) {
                return Err(format!(
                    "node {index} is in contact with {} nodes instead of {wanted}",
                    up.len()
                ));
            }
        }
        Ok(())
    }

    /// Runs until the monitor of every node knows the domain of every other node, and that record is acknowledged.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        let begin = self.segment.now;
        while let Some(what) = self.unsettled() {
            if self.segment.now >= begin.plus_millis(LONGEST_SETTLE_MS) {
                return Err(format!("the monitors do not agree after {LONGEST_SETTLE_MS} ms: {what}"));
            }
            self.pass(STEP_MS)?;
        }
        // Acknowledgements of the last records, and the ticks after them.
        self.pass(2 * STEP_MS)
    }

    fn unsettled(&self) -> Option<String> {
        if !self.report.is_monitored {
            return None;
        }
        let members = self.domain_size() - 1;
        self.segment.running().find_map(|(index, stack)| {
            let lacks = |node: &MonitorNode| node.up && node.applied != members;
            let node = monitor_of(stack).find(lacks)?;
            let listed = node.record.as_ref().map_or(0, |record| record.members.len());
            let (addr, applied) = (node.addr, node.applied);
            Some(format!(
                "in the ring of node {index}, {applied} of {listed} members follow {addr}, not {members}"
            ))
        })
    }

    /// Nodes of a domain, with its owner.
    pub(super) fn domain_size(&self) -> usize {
        (1..).find(|size| size * size >= self.plan.nodes).unwrap_or(1)
    }

    /// Number of pairs in which one node supervises the other.
    pub(super) fn count_supervised(&self) -> usize {
        let count = |(_, stack): (usize, &Stack)| match self.report.is_monitored {
            true => monitor_of(stack).skip(1).filter(|node| node.local || node.head).count(),
            false => stack.nodes().len(),
        };
        self.segment.running().map(count).sum()
    }
}

/// The ring of a node, the node itself first.
pub(super) fn monitor_of(stack: &Stack) -> impl Iterator<Item = MonitorNode> {
    stack.monitor_nodes(0, 0).into_iter().flatten()
}
