//! Nodes with keys on a network in virtual time, with loss and restarts; every frame is recorded.

use utipc_core::crypto::{EncryptionConfig, Key, KeyRole, KeyUse};
use utipc_core::wire::{Encrypted, MediaAddr};
use utipc_core::{
    BearerConfig, Destination, Drop, Event, NodeId, RecvOptions, Rng, Scope, ServiceRange, SocketKind, Stack,
    StackConfig, Target, Time,
};

pub(crate) const KEY1: &str = "00112233445566778899aabbccddeeff01020304";
pub(crate) const KEY2: &str = "ffeeddccbbaa99887766554433221100a0b0c0d0";
pub(crate) const LONG: &str = "0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1fdeadbeef";
pub(crate) const MEDIUM: &str = "000102030405060708090a0b0c0d0e0f1011121314151617deadbeef";
/// 2026, nanoseconds since 1970.
pub(crate) const CLOCK: u64 = 1_790_000_000_000_000_000;

pub(crate) fn key(hex: &str) -> Key {
    Key::from_hex(hex).unwrap()
}

pub(crate) fn id(node: usize) -> NodeId {
    NodeId::from_text(&format!("node{node}"))
}

pub(crate) fn media(node: usize) -> MediaAddr {
    MediaAddr::Udp(format!("10.0.0.{}:6118", node + 1).parse().unwrap())
}

pub(crate) struct Lan {
    pub(crate) now: Time,
    pub(crate) nodes: Vec<Stack>,
    pub(crate) strict: bool,
    /// Clock of each node at time 0, nanoseconds; 0 makes it count as Linux does.
    pub(crate) clocks: Vec<u64>,
    /// Every so many frames one is lost; 0 for none.
    pub(crate) loss: u64,
    /// A node that receives nothing.
    pub(crate) deaf: Option<usize>,
    pub(crate) rng: Rng,
    pub(crate) dropped: Vec<Vec<Drop>>,
    /// Links that went down, by node.
    pub(crate) downs: Vec<usize>,
    /// Every frame: {sender, target, bytes}.
    pub(crate) sent: Vec<(usize, Target, Vec<u8>)>,
}

impl Lan {
    pub(crate) fn new(count: usize, strict: bool) -> Self {
        let mut lan = Self {
            now: Time::from_millis(1000),
            nodes: Vec::new(),
            strict,
            clocks: vec![CLOCK; count],
            loss: 0,
            deaf: None,
            rng: Rng::new(5),
            dropped: vec![Vec::new(); count],
            downs: vec![0; count],
            sent: Vec::new(),
        };
        for i in 0..count {
            let node = lan.made(i, i as u64 + 1);
            lan.nodes.push(node);
        }
        lan
    }

    pub(crate) fn made(&self, node: usize, seed: u64) -> Stack {
        // Each life has its own randomness, so its session keys are others.
        let mut secret = [node as u8 + 1; 36];
        secret[..8].copy_from_slice(&seed.to_be_bytes());
        let secret = Some(secret.into());
        let encryption = EncryptionConfig { strict: self.strict, clock_at_zero: self.clocks[node], secret };
        let config = StackConfig { identity: Some(id(node)), seed, encryption, ..StackConfig::default() };
        Stack::new(self.now, config)
    }

    pub(crate) fn set_all(&mut self, key_use: KeyUse, hex: &str) {
        for node in 0..self.nodes.len() {
            self.nodes[node].set_key(self.now, key_use, key(hex)).unwrap();
        }
    }

    pub(crate) fn plug(&mut self, node: usize) {
        self.nodes[node].enable_bearer(self.now, BearerConfig::new("udp:U", media(node), 1472)).unwrap();
    }

    pub(crate) fn plug_all(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.plug(node));
    }

    /// A node vanishes without notice and starts again, with the keys that `set` gives it.
    pub(crate) fn restart(&mut self, node: usize, set: impl Fn(&mut Stack, Time)) {
        let mut fresh = self.made(node, self.now.as_nanos());
        set(&mut fresh, self.now);
        self.nodes[node] = fresh;
        self.plug(node);
    }

    /// Two strict nodes with messages on their way; node 1 has this clock at time 0.
    pub(crate) fn busy(clock: u64) -> Self {
        let mut lan = Self::new(2, true);
        lan.clocks[1] = clock;
        lan.nodes[1] = lan.made(1, 77);
        lan.set_all(KeyUse::Cluster, KEY1);
        lan.plug_all();
        lan.run(3000);
        let mut flow = Flow::new(&mut lan);
        (0..300).for_each(|_| flow.step(&mut lan));
        assert!(lan.is_linked());
        lan
    }

    pub(crate) fn exchange(&mut self) {
        loop {
            let mut moved = false;
            for from in 0..self.nodes.len() {
                let batch = std::mem::take(self.nodes[from].frames());
                for frame in batch.frames() {
                    moved = true;
                    let bytes = batch.frame(frame).to_vec();
                    self.deliver(from, frame.to, frame.bearer, &bytes);
                    self.sent.push((from, frame.to, bytes));
                }
                while let Some(event) = self.nodes[from].poll_event() {
                    match event {
                        Event::Dropped { reason, .. } => self.dropped[from].push(reason),
                        Event::LinkDown { .. } => self.downs[from] += 1,
                        _ => {}
                    }
                }
                while self.nodes[from].poll_ready().is_some() {}
            }
            if !moved {
                return;
            }
        }
    }

    pub(crate) fn deliver(&mut self, from: usize, target: Target, bearer: u8, bytes: &[u8]) {
        for to in (0..self.nodes.len()).filter(|to| *to != from) {
            let meant = target == Target::Broadcast || target == Target::Unicast(media(to));
            if meant && self.deaf != Some(to) && (self.loss == 0 || self.rng.below(self.loss) != 0) {
                self.nodes[to].receive(self.now, bearer, bytes);
            }
        }
    }

    pub(crate) fn run(&mut self, millis: u64) {
        let end = self.now.plus_millis(millis);
        loop {
            self.exchange();
            let next = self.nodes.iter().filter_map(Stack::deadline).min();
            let Some(next) = next.filter(|n| *n <= end) else { break };
            self.now = self.now.max(next);
            for node in &mut self.nodes {
                if node.deadline().is_some_and(|d| d <= self.now) {
                    node.handle_timeout(self.now);
                }
            }
        }
        self.now = end;
    }

    pub(crate) fn peers(&self, node: usize) -> usize {
        self.nodes[node].nodes().iter().filter(|peer| peer.up).count()
    }

    pub(crate) fn is_linked(&self) -> bool {
        (0..self.nodes.len()).all(|node| self.peers(node) == self.nodes.len() - 1)
    }

    pub(crate) fn all_encrypted(&self) -> bool {
        self.sent.iter().all(|(_, _, bytes)| Encrypted::is_encrypted(bytes))
    }

    /// The slots of a node's own keys by role.
    pub(crate) fn slot(&self, node: usize, role: KeyRole) -> u8 {
        self.nodes[node].encryption().keys.iter().find(|key| key.role == role).map_or(0, |key| key.slot)
    }
}

/// A connection from the last node to the first that carries numbered messages.
pub(crate) struct Flow {
    pub(crate) sender: u32,
    pub(crate) receiver: u32,
    pub(crate) sent: u32,
    pub(crate) received: u32,
}

impl Flow {
    pub(crate) fn new(lan: &mut Lan) -> Self {
        let last = lan.nodes.len() - 1;
        let receiver = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
        lan.nodes[0].bind(lan.now, receiver, ServiceRange::new(18888, 17, 17), Scope::Cluster).unwrap();
        let sender = lan.nodes[last].open(lan.now, SocketKind::Rdm).unwrap();
        lan.run(1000);
        Self { sender, receiver, sent: 0, received: 0 }
    }

    /// Sends a message, small or in fragments, and reads what has arrived: in order and without a gap.
    pub(crate) fn step(&mut self, lan: &mut Lan) {
        let last = lan.nodes.len() - 1;
        let size = if self.sent.is_multiple_of(5) { 20_000 } else { 40 };
        let mut data = vec![self.sent as u8; size];
        data[..4].copy_from_slice(&self.sent.to_be_bytes());
        let to = Some(Destination::service(18888, 17));
        if lan.nodes[last].send(lan.now, self.sender, &data, to).is_ok() {
            self.sent += 1;
        }
        lan.run(20);
        self.read(lan);
    }

    pub(crate) fn read(&mut self, lan: &mut Lan) {
        let mut buffer = vec![0; 66_000];
        while let Ok(got) = lan.nodes[0].recv(lan.now, self.receiver, &mut buffer, RecvOptions::default()) {
            let number = u32::from_be_bytes(*buffer.first_chunk().unwrap());
            assert_eq!(number, self.received, "a message was lost, repeated or reordered");
            assert!(buffer[4..got.len].iter().all(|byte| *byte == number as u8));
            self.received += 1;
        }
    }

    pub(crate) fn finish(mut self, lan: &mut Lan) {
        for _ in 0..50 {
            lan.run(100);
            self.read(lan);
        }
        assert_eq!(self.received, self.sent);
    }
}
