//! Contacts between nodes as they report them, and whether the loss of a contact is excused.

use utipc_core::Time;
use utipc_core::monitor::DEFAULT_THRESHOLD;

use crate::check::Broken;

/// Time after a disturbance for which the loss of a contact is still excused, in milliseconds: ten tolerances
/// of 1500 ms, after which a sender stops retransmitting, plus a margin.
const EXCUSED_MS: u64 = 20_000;

#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    up: bool,
    /// Number of times that contact was lost.
    epoch: u64,
    excused_until: Time,
}

/// The contacts of all nodes, each as seen from both ends.
#[derive(Debug)]
pub(crate) struct Contacts {
    nodes: usize,
    pairs: Vec<Pair>,
    /// Number of lost contacts and crashes anywhere.
    pub(crate) losses: u64,
}

impl Contacts {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes, pairs: vec![Pair::default(); nodes * nodes], losses: 0 }
    }

    fn pair(&self, a: usize, b: usize) -> &Pair {
        &self.pairs[a * self.nodes + b]
    }

    fn pair_mut(&mut self, a: usize, b: usize) -> &mut Pair {
        &mut self.pairs[a * self.nodes + b]
    }

    pub(crate) fn is_up(&self, a: usize, b: usize) -> bool {
        a == b || self.pair(a, b).up
    }

    /// Number of times that `a` has lost contact with `b`.
    pub(crate) fn epoch(&self, a: usize, b: usize) -> u64 {
        self.pair(a, b).epoch
    }

    /// Number of times that either end has lost the contact.
    pub(crate) fn both_epochs(&self, a: usize, b: usize) -> u64 {
        if a == b { self.pair(a, b).epoch } else { self.pair(a, b).epoch + self.pair(b, a).epoch }
    }

    pub(crate) fn went_up(&mut self, a: usize, b: usize) {
        self.pair_mut(a, b).up = true;
    }

    pub(crate) fn went_down(&mut self, now: Time, a: usize, b: usize) -> Result<(), Broken> {
        self.losses += 1;
        let pair = self.pair_mut(a, b);
        pair.up = false;
        pair.epoch += 1;
        let mut excused = now <= pair.excused_until;
        // A monitored link goes down when four other nodes report the peer lost, before it can reply to a probe.
        if self.nodes > DEFAULT_THRESHOLD {
            excused = self.pairs.iter().any(|p| now <= p.excused_until);
        }
        if excused { Ok(()) } else { Err(Broken::FalseDown(format!("node {a} lost node {b}"))) }
    }

    /// Records that a disturbance between two nodes starts.
    pub(crate) fn disturb(&mut self, a: usize, b: usize) {
        self.pair_mut(a, b).excused_until = Time::NEVER;
        self.pair_mut(b, a).excused_until = Time::NEVER;
    }

    /// Records that the disturbance ends.
    pub(crate) fn heal(&mut self, now: Time, a: usize, b: usize) {
        let until = now.plus_millis(EXCUSED_MS);
        self.pair_mut(a, b).excused_until = until;
        self.pair_mut(b, a).excused_until = until;
    }

    /// Records that a node has crashed. It reports nothing more, and all its contacts are lost.
    pub(crate) fn crashed(&mut self, node: usize) {
        self.losses += 1;
        for other in 0..self.nodes {
            let pair = self.pair_mut(node, other);
            pair.up = false;
            pair.epoch += 1;
            self.disturb(node, other);
        }
    }

    /// The first pair of running nodes without contact.
    pub(crate) fn missing(&self) -> Option<(usize, usize)> {
        let all = (0..self.nodes).flat_map(|a| (0..self.nodes).map(move |b| (a, b)));
        all.into_iter().find(|(a, b)| !self.is_up(*a, *b))
    }
}
