//! Whole nodes on a faulty network.

use std::collections::BTreeMap;

use utipc_core::socket::{SendError, State};
use utipc_core::{
    BearerConfig, BearerId, Destination, Event, MediaAddr, NodeId, PortId, RecvOptions, Rng, Scope,
    ServiceRange, SocketKind, Stack, StackConfig, Target, Time,
};

/// Faults of the network.
#[derive(Clone, Copy)]
pub(crate) struct Faults {
    /// Lost, per thousand.
    pub(crate) loss: u64,
    /// Delivered twice, per thousand.
    pub(crate) duplicate: u64,
    /// Delay, microseconds: minimum, and largest addition. Frames are reordered if it exceeds the interval between
    /// them.
    pub(crate) delay: (u64, u64),
}

pub(crate) const PERFECT: Faults = Faults { loss: 0, duplicate: 0, delay: (10, 0) };
pub(crate) const LOSSY: Faults = Faults { loss: 50, duplicate: 20, delay: (200, 1000) };

/// A socket of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sock {
    pub(crate) node: usize,
    pub(crate) port: u32,
}

pub(crate) struct Lan {
    pub(crate) now: Time,
    pub(crate) nodes: Vec<Stack>,
    pub(crate) events: Vec<(usize, Event)>,
    pub(crate) faults: Faults,
    /// Nodes whose frames are lost in both directions.
    pub(crate) cut: Vec<usize>,
    in_flight: BTreeMap<(Time, u64), (usize, BearerId, Vec<u8>)>,
    frames: u64,
    /// A sum over all frames and their times; equal for equal runs.
    pub(crate) trace: u64,
    rng: Rng,
}

const MTU: usize = 1500;

fn media(node: usize) -> MediaAddr {
    MediaAddr::Ethernet([2, 0, 0, 0, 0, node as u8 + 1])
}

impl Lan {
    /// `count` nodes that have established contact over a perfect network; the faults start after that.
    pub(crate) fn new(count: usize, faults: Faults, seed: u64) -> Self {
        let now = Time::from_millis(1000);
        let mut lan = Self {
            now,
            nodes: Vec::new(),
            events: Vec::new(),
            faults: PERFECT,
            cut: Vec::new(),
            in_flight: BTreeMap::new(),
            frames: 0,
            trace: 0,
            rng: Rng::new(seed),
        };
        for i in 0..count {
            let identity = Some(NodeId::from_text(&format!("node{i}")));
            let config =
                StackConfig { identity, seed: seed.wrapping_mul(31) + i as u64, ..StackConfig::default() };
            let mut node = Stack::new(now, config);
            node.enable_bearer(now, BearerConfig::new("eth:w", media(i), MTU as u32)).unwrap();
            lan.nodes.push(node);
        }
        lan.run(3000);
        assert!((0..count).all(|n| lan.peers_up(n) == count - 1), "{:?}", lan.events);
        lan.events.clear();
        lan.faults = faults;
        lan
    }

    pub(crate) fn peers_up(&self, node: usize) -> usize {
        self.nodes[node].nodes().iter().filter(|n| n.up).count()
    }

    fn chance(&mut self, per_mille: u64) -> bool {
        self.rng.below(1000) < per_mille
    }

    /// Collects the frames that the nodes send.
    fn collect(&mut self) {
        for from in 0..self.nodes.len() {
            let batch = std::mem::take(self.nodes[from].frames());
            for frame in batch.frames() {
                for to in 0..self.nodes.len() {
                    let wanted = match frame.to {
                        Target::Broadcast => to != from,
                        Target::Unicast(at) => at == media(to),
                    };
                    if wanted {
                        self.transmit(from, to, frame.bearer, &batch.frame(frame));
                    }
                }
            }
            while let Some(event) = self.nodes[from].poll_event() {
                self.events.push((from, event));
            }
            while self.nodes[from].poll_ready().is_some() {}
        }
    }

    fn transmit(&mut self, from: usize, to: usize, bearer: BearerId, frame: &[u8]) {
        assert!(frame.len() <= MTU, "frame of {} bytes", frame.len());
        for byte in frame.iter().chain(&self.now.as_nanos().to_be_bytes()) {
            self.trace = (self.trace ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
        let lost = self.chance(self.faults.loss) || self.cut.contains(&from) || self.cut.contains(&to);
        let copies = if lost { 0 } else { 1 + u64::from(self.chance(self.faults.duplicate)) };
        for _ in 0..copies {
            let (least, more) = self.faults.delay;
            let delay = least + self.rng.below(more + 1);
            let at = Time::from_nanos(self.now.as_nanos() + delay * 1000);
            self.frames += 1;
            self.in_flight.insert((at, self.frames), (to, bearer, frame.to_vec()));
        }
    }

    /// Advances the time.
    pub(crate) fn run(&mut self, millis: u64) {
        let end = self.now.plus_millis(millis);
        loop {
            self.collect();
            let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
            let timeout = self.nodes.iter().filter_map(Stack::deadline).min();
            let Some(next) = [arrival, timeout].into_iter().flatten().min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.in_flight.first_entry().filter(|e| e.key().0 <= self.now) {
                let (to, bearer, frame) = entry.remove();
                if !self.cut.contains(&to) {
                    self.nodes[to].receive(self.now, bearer, &frame);
                }
            }
            for node in &mut self.nodes {
                if node.deadline().is_some_and(|at| at <= self.now) {
                    node.handle_timeout(self.now);
                }
            }
        }
        self.now = end;
    }

    /// Advances the time until `done`, at most by `millis`.
    pub(crate) fn until(&mut self, millis: u64, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..millis {
            if done(self) {
                return;
            }
            self.run(1);
        }
        panic!("not done after {millis} ms: {:?}", self.events);
    }

    /// Checks that no link or node went down.
    pub(crate) fn assert_stable(&self) {
        let downs: Vec<_> = self
            .events
            .iter()
            .filter(|(_, e)| matches!(e, Event::LinkDown { .. } | Event::NodeDown(_)))
            .collect();
        assert!(downs.is_empty(), "{downs:?}");
    }

    pub(crate) fn open(&mut self, node: usize, kind: SocketKind) -> Sock {
        Sock { node, port: self.nodes[node].open(self.now, kind).unwrap() }
    }

    pub(crate) fn bound(&mut self, node: usize, kind: SocketKind, range: ServiceRange) -> Sock {
        let sock = self.open(node, kind);
        self.nodes[node].bind(self.now, sock.port, range, Scope::Cluster).unwrap();
        sock
    }

    pub(crate) fn listener(&mut self, node: usize, kind: SocketKind, service: u32) -> Sock {
        let sock = self.bound(node, kind, ServiceRange::new(service, 1, 1));
        self.nodes[node].listen(self.now, sock.port).unwrap();
        let visible = |lan: &mut Self| {
            lan.nodes.iter().all(|n| n.bindings().iter().any(|b| b.range.service == service))
        };
        self.until(20_000, visible);
        sock
    }

    pub(crate) fn accept(&mut self, listener: Sock) -> Option<Sock> {
        let (port, _) = self.nodes[listener.node].accept(self.now, listener.port).ok()?;
        Some(Sock { port, ..listener })
    }

    /// A connection from node 1 to node 0: client and server.
    pub(crate) fn pair(&mut self, kind: SocketKind) -> (Sock, Sock) {
        let listener = self.listener(0, kind, 4000);
        let client = self.open(1, kind);
        self.nodes[1].connect(self.now, client.port, Some(Destination::service(4000, 1))).unwrap();
        let mut server = None;
        self.until(8000, |lan| {
            server = server.or_else(|| lan.accept(listener));
            lan.state(client) == State::Established
        });
        (client, server.unwrap())
    }

    pub(crate) fn state(&self, at: Sock) -> State {
        self.nodes[at.node].endpoint(at.port).unwrap().state()
    }

    pub(crate) fn id(&self, at: Sock) -> PortId {
        PortId { port: at.port, node: self.nodes[at.node].own_node() }
    }

    pub(crate) fn send(&mut self, at: Sock, data: &[u8]) -> Result<usize, SendError> {
        self.nodes[at.node].send(self.now, at.port, data, None)
    }

    pub(crate) fn send_to(&mut self, at: Sock, data: &[u8], to: Destination) -> Result<usize, SendError> {
        self.nodes[at.node].send(self.now, at.port, data, Some(to))
    }

    /// The data received; `None` if the call would block.
    pub(crate) fn recv(&mut self, at: Sock, len: usize) -> Option<Vec<u8>> {
        let mut buffer = vec![0; len];
        let got = self.nodes[at.node].recv(self.now, at.port, &mut buffer, RecvOptions::default()).ok()?;
        buffer.truncate(got.len);
        Some(buffer)
    }

    pub(crate) fn close(&mut self, at: Sock) {
        self.nodes[at.node].close(self.now, at.port);
    }
}

/// Byte `i` of the test stream.
pub(crate) fn byte(i: usize) -> u8 {
    (i.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// Bytes `from..from + len` of that stream.
pub(crate) fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(byte).collect()
}
