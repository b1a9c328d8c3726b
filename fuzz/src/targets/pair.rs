//! Two nodes, and an attacker on the path of frames to the first one.

use utipc_core::{BearerConfig, BearerId, Event, MediaAddr, NodeAddr, Stack, StackConfig, Target, Time};

use crate::Seen;

/// Addresses of nodes from [`addressed`].
pub(super) const NODES: [NodeAddr; 2] = [NodeAddr::legacy(1, 1, 1), NodeAddr::legacy(1, 1, 2)];
/// Maximum number of calls of a node at one moment; more means that it never becomes idle.
pub(super) const MAX_CALLS: usize = 200_000;
/// Maximum number of rounds of frames at one moment.
const MAX_ROUNDS: usize = 20_000;

pub(super) struct Pair {
    pub(super) now: Time,
    pub(super) nodes: [Stack; 2],
}

/// The place of a node on a network.
pub(super) fn media(net: BearerId, node: usize) -> MediaAddr {
    MediaAddr::Udp(([10, 0, net, node as u8 + 1], 6118).into())
}

/// Two nodes with explicit addresses on network 0.
pub(super) fn addressed() -> Pair {
    let now = Time::from_millis(1000);
    let node = |i: usize| {
        let config = StackConfig { address: Some(NODES[i]), seed: i as u64 + 1, ..StackConfig::default() };
        let mut node = Stack::new(now, config);
        assert!(node.enable_bearer(now, BearerConfig::new("udp:U", media(0, i), 1472)).is_ok());
        node
    };
    Pair { now, nodes: [node(0), node(1)] }
}

impl Pair {
    /// Records dropped packets and lost links, and discards all other events.
    pub(super) fn note_events(&mut self, seen: &mut Seen) {
        for (i, node) in self.nodes.iter_mut().enumerate() {
            while let Some(event) = node.poll_event() {
                match event {
                    Event::Dropped { reason, .. } => seen.note((i, "dropped", reason.name())),
                    Event::LinkDown { reason, .. } => seen.note((i, "down", reason)),
                    _ => {}
                }
            }
            while node.poll_ready().is_some() {}
        }
    }

    /// Nodes in contact, as each node sees it.
    pub(super) fn contacts(&self) -> [usize; 2] {
        self.nodes.each_ref().map(|node| node.nodes().iter().filter(|peer| peer.up).count())
    }
}

/// What happens between the two nodes.
pub(super) trait Attack {
    fn pair(&mut self) -> &mut Pair;

    /// Handles a frame from the second node to the first one.
    fn intercept(&mut self, net: BearerId, frame: &[u8]);

    /// Whether a network carries nothing.
    fn is_cut(&self, _net: BearerId) -> bool {
        false
    }

    /// Checks a frame of either node.
    fn check(&self, _frame: &[u8]) {}

    /// Called after each round of frames.
    fn after_round(&mut self) {}

    /// Runs both nodes for a time.
    fn run(&mut self, millis: u64) {
        let end = self.pair().now.plus_millis(millis);
        let mut calls = 0;
        loop {
            calls += self.exchange();
            let Pair { now, nodes } = self.pair();
            let next = nodes.iter().filter_map(Stack::deadline).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            if next > *now {
                (*now, calls) = (next, 0);
            }
            for node in nodes {
                if node.deadline().is_some_and(|due| due <= *now) {
                    node.handle_timeout(*now);
                    calls += 1;
                }
            }
            assert!(calls < MAX_CALLS, "never idle at {now:?}");
        }
        self.pair().now = end;
    }

    /// Carries frames until both nodes are idle; returns their number.
    fn exchange(&mut self) -> usize {
        let mut calls = 0;
        for round in 0.. {
            let before = calls;
            for from in 0..2 {
                let to = 1 - from;
                let batch = core::mem::take(self.pair().nodes[from].frames());
                for frame in batch.frames() {
                    let (net, bytes) = (frame.bearer, &*batch.frame(frame));
                    self.check(bytes);
                    let reaches =
                        frame.to == Target::Broadcast || frame.to == Target::Unicast(media(net, to));
                    if !reaches || self.is_cut(net) {
                        continue;
                    }
                    calls += 1;
                    if to == 0 {
                        self.intercept(net, bytes);
                    } else {
                        let Pair { now, nodes } = self.pair();
                        nodes[1].receive(*now, net, bytes);
                    }
                }
            }
            self.after_round();
            if calls == before {
                break;
            }
            assert!(calls < MAX_CALLS && round < MAX_ROUNDS, "never idle at {:?}", self.pair().now);
        }
        calls
    }
}
