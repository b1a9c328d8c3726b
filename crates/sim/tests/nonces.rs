//! Nodes with similar names under one key: no two frames share a nonce, even if nodes start at the same instant, and
//! after restarts.

use std::collections::{BTreeMap, HashSet};

use utipc_core::crypto::{EncryptionConfig, Key, KeyUse, Mode, variation};
use utipc_core::wire::Encrypted;
use utipc_core::{BearerConfig, MediaAddr, NodeAddr, NodeId, Stack, StackConfig, Target, Time};

const NODES: usize = 1000;
/// Nodes on each side that hear a node.
const REACH: usize = 2;
const CLOCK: u64 = 1_790_000_000_000_000_000;
const RUN_MS: u64 = 6000;

fn media(node: usize) -> MediaAddr {
    let [_, _, high, low] = (node as u32).to_be_bytes();
    MediaAddr::Ethernet([2, 0, 0, 0, high, low])
}

fn start(now: Time, node: usize, life: u64) -> Stack {
    let encryption = EncryptionConfig { strict: true, clock_at_zero: CLOCK, secret: None };
    let identity = Some(NodeId::from_text(&format!("market-{node:03}")));
    let seed = life << 32 | node as u64;
    let mut stack = Stack::new(now, StackConfig { identity, seed, encryption, ..StackConfig::default() });
    stack.set_key(now, KeyUse::Cluster, Key::new(&[7; 20]).unwrap()).unwrap();
    stack.enable_bearer(now, BearerConfig::new("eth:E", media(node), 1500)).unwrap();
    stack
}

/// All nodes in a ring: each hears its neighbours.
struct Ring {
    now: Time,
    nodes: Vec<Stack>,
    nonces: HashSet<(u32, u64)>,
    discovery: usize,
}

impl Ring {
    fn exchange(&mut self) {
        let mut active: Vec<usize> = (0..NODES).collect();
        while !active.is_empty() {
            let mut reached = Vec::new();
            for from in active {
                let batch = std::mem::take(self.nodes[from].frames());
                while self.nodes[from].poll_event().is_some() || self.nodes[from].poll_ready().is_some() {}
                for frame in batch.frames() {
                    let bytes = batch.frame(frame).to_vec();
                    let header = Encrypted::parse(&bytes).expect("everything is encrypted");
                    let nonce = (variation(Mode::Cluster, &header, NodeAddr::NONE), header.seqno);
                    assert!(self.nonces.insert(nonce), "node {from} repeats the nonce {nonce:x?}");
                    self.discovery += usize::from(u8::from(header.user) == 13);
                    let near = (NODES - REACH..=NODES + REACH).map(|by| (from + by) % NODES);
                    for to in near.filter(|to| *to != from) {
                        if frame.to == Target::Broadcast || frame.to == Target::Unicast(media(to)) {
                            self.nodes[to].receive(self.now, 0, &bytes);
                            reached.push(to);
                        }
                    }
                }
            }
            reached.sort_unstable();
            reached.dedup();
            active = reached;
        }
    }

    fn run(&mut self, millis: u64) {
        let end = self.now.plus_millis(millis);
        loop {
            self.exchange();
            let mut due: BTreeMap<Time, Vec<usize>> = BTreeMap::new();
            for (node, stack) in self.nodes.iter().enumerate() {
                due.entry(stack.deadline().unwrap_or(end)).or_default().push(node);
            }
            let Some((at, nodes)) = due.pop_first().filter(|(at, _)| *at < end) else { break };
            self.now = self.now.max(at);
            for node in nodes {
                self.nodes[node].handle_timeout(self.now);
            }
        }
        self.now = end;
    }
}

#[test]
fn thousand_nodes_with_similar_names_never_repeat_a_nonce() {
    let now = Time::from_millis(1000);
    let nodes = (0..NODES).map(|node| start(now, node, 0)).collect();
    let mut ring = Ring { now, nodes, nonces: HashSet::new(), discovery: 0 };
    ring.run(RUN_MS);
    assert!(ring.nodes.iter().all(|node| node.nodes().iter().filter(|peer| peer.up).count() == 2 * REACH));
    // Every third node restarts in the same instant.
    for node in (0..NODES).step_by(3) {
        ring.nodes[node] = start(ring.now, node, 1);
    }
    ring.run(RUN_MS);
    assert!(ring.nodes.iter().all(|node| node.nodes().iter().filter(|peer| peer.up).count() == 2 * REACH));
    assert!(ring.discovery > 10 * NODES && ring.nonces.len() > 100 * NODES, "{}", ring.nonces.len());
}
