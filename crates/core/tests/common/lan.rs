//! Two nodes on a perfect network, in virtual time, with a way to inject frames.

use utipc_core::{
    BearerConfig, ClusterId, Drop, Event, MediaAddr, Message, NodeAddr, Stack, StackConfig, Target, Time,
};

/// Address of the node under attack.
pub(crate) const VICTIM: NodeAddr = NodeAddr::legacy(1, 1, 1);
/// Address of its peer, which most hostile frames claim as their sender.
pub(crate) const PEER: NodeAddr = NodeAddr::legacy(1, 1, 2);

/// The network.
pub(crate) struct Lan {
    /// Current time.
    pub(crate) now: Time,
    /// The node under attack, then its peer.
    pub(crate) nodes: [Stack; 2],
    /// Events of the node under attack.
    pub(crate) events: Vec<Event>,
    /// Every frame sent: {sender, destination, bytes}.
    pub(crate) sent: Vec<(usize, Target, Vec<u8>)>,
}

pub(crate) fn media(node: usize) -> MediaAddr {
    MediaAddr::Udp(format!("10.0.0.{}:6118", node + 1).parse().unwrap())
}

impl Lan {
    /// Two nodes that have found each other.
    pub(crate) fn linked() -> Self {
        let mut lan = Self::apart();
        lan.run(3000);
        assert!(lan.is_linked(), "{:?}", lan.events);
        lan.events.clear();
        lan
    }

    /// Two nodes that have just started.
    pub(crate) fn apart() -> Self {
        let now = Time::from_millis(1000);
        let node = |i: usize| {
            let address = Some([VICTIM, PEER][i]);
            let config = StackConfig { address, seed: 7 + i as u64, ..StackConfig::default() };
            let mut node = Stack::new(now, config);
            node.enable_bearer(now, BearerConfig::new("udp:U", media(i), 1472)).unwrap();
            node
        };
        Self { now, nodes: [node(0), node(1)], events: Vec::new(), sent: Vec::new() }
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.nodes.iter().all(|node| node.nodes().iter().any(|peer| peer.up))
    }

    /// Advances the time by `millis`.
    pub(crate) fn run(&mut self, millis: u64) {
        let end = self.now.plus_millis(millis);
        loop {
            self.exchange();
            let next = self.nodes.iter().filter_map(Stack::deadline).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            for node in &mut self.nodes {
                if node.deadline().is_some_and(|due| due <= self.now) {
                    node.handle_timeout(self.now);
                }
            }
        }
        self.now = end;
    }

    /// Carries frames until none is left.
    pub(crate) fn exchange(&mut self) {
        for round in 0.. {
            assert!(round < 10_000, "the nodes never stop sending");
            let before = self.sent.len();
            for from in 0..2 {
                let batch = std::mem::take(self.nodes[from].frames());
                for frame in batch.frames() {
                    self.sent.push((from, frame.to, batch.frame(frame).to_vec()));
                    if frame.to == Target::Broadcast || frame.to == Target::Unicast(media(1 - from)) {
                        self.nodes[1 - from].receive(self.now, frame.bearer, &batch.frame(frame));
                    }
                }
            }
            let victim = &mut self.nodes[0];
            self.events.extend(std::iter::from_fn(|| victim.poll_event()));
            if self.sent.len() == before {
                return;
            }
        }
    }

    /// Passes a frame to the node under attack; returns the events that it causes.
    pub(crate) fn attack(&mut self, frame: &[u8]) -> Vec<Event> {
        let start = self.events.len();
        self.nodes[0].receive(self.now, 0, frame);
        self.exchange();
        self.events.split_off(start)
    }

    /// Passes a frame that must be counted, dropped and reported, and must change nothing else.
    pub(crate) fn refused(&mut self, frame: &[u8]) -> Drop {
        let before = self.nodes[0].stats();
        let events = self.attack(frame);
        let after = self.nodes[0].stats();
        assert_eq!(after.frames_dropped, before.frames_dropped + 1, "not counted: {frame:02x?}");
        let [Event::Dropped { reason, .. }] = events[..] else { panic!("{events:?} after {frame:02x?}") };
        assert!(!reason.to_string().is_empty());
        assert!(self.is_linked());
        reason
    }
}

/// A message as if from the peer, with correct common fields.
pub(crate) fn forged(mut m: Message) -> Message {
    m.set_prev_node(PEER);
    m.set_origin_node(PEER);
    m.set_dest_node(VICTIM);
    m
}

/// A broadcast as if from the peer, with correct common fields.
pub(crate) fn forged_broadcast(mut m: Message) -> Message {
    m.set_prev_node(PEER);
    m.set_origin_node(PEER);
    m.set_non_sequenced(true);
    m.set_cluster_id(ClusterId::default());
    m
}
