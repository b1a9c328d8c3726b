//! Two nodes with keys; an attacker between them drops, repeats, changes and forges frames while keys change.

use utipc_core::crypto::{EncryptionConfig, Key, KeyUse};
use utipc_core::wire::Encrypted;
use utipc_core::{
    BearerConfig, Destination, Event, MediaAddr, NodeId, RecvOptions, Scope, ServiceRange, SocketKind, Stack,
    StackConfig, Target, Time,
};

use crate::source::Source;
use crate::{Seen, magnitude};

/// Frames remembered for repetition.
const HISTORY: usize = 128;
/// Largest packet of the bearers, bytes.
const MTU: u32 = 1400;
/// The service of the receiver.
const SERVICE: u32 = 18888;
/// Time after which undisturbed nodes must have contact again, milliseconds.
const RECOVERY: u64 = 60_000;

struct World {
    now: Time,
    nodes: [Stack; 2],
    strict: bool,
    /// Treatment of the next frames to the first node.
    interference: Vec<Interference>,
    history: Vec<Vec<u8>>,
    ports: [u32; 2],
    sent: u32,
    received: u32,
}

#[derive(Clone, Copy)]
enum Interference {
    Drop,
    Twice,
    Flip { at: u8, bits: u8 },
    Cut(u8),
}

fn id(node: usize) -> NodeId {
    NodeId([node as u8 + 1; 16])
}

fn media(node: usize) -> MediaAddr {
    MediaAddr::Udp(([10, 0, 0, node as u8 + 1], 6118).into())
}

fn key(byte: u8, len: usize) -> Option<Key> {
    Key::new(&vec![byte; len]).ok()
}

impl World {
    fn new(strict: bool, mode: u8) -> Self {
        let now = Time::from_millis(1000);
        let mut world = Self {
            now,
            nodes: [start(now, 0, strict), start(now, 1, strict)],
            strict,
            interference: Vec::new(),
            history: Vec::new(),
            ports: [0; 2],
            sent: 0,
            received: 0,
        };
        for node in 0..2 {
            world.set_keys(node, mode);
            world.plug(node);
        }
        world
    }

    fn set_keys(&mut self, node: usize, mode: u8) {
        let uses = match mode % 3 {
            0 => vec![(KeyUse::Cluster, 1)],
            1 => vec![(KeyUse::Master, 1)],
            _ => vec![(KeyUse::Node(id(0)), 1), (KeyUse::Node(id(1)), 2)],
        };
        for (key_use, byte) in uses {
            let key = key(byte, [20, 28, 36][usize::from(mode / 3 % 3)]);
            assert!(key.is_some_and(|key| self.nodes[node].set_key(self.now, key_use, key).is_ok()));
        }
    }

    fn plug(&mut self, node: usize) {
        let bearer = BearerConfig::new("udp:U", media(node), MTU);
        assert!(self.nodes[node].enable_bearer(self.now, bearer).is_ok());
        if let Ok(port) = self.nodes[node].open(self.now, SocketKind::Rdm) {
            self.ports[node] = port;
        }
        if node == 0 {
            let range = ServiceRange::new(SERVICE, 1, 1);
            assert!(self.nodes[0].bind(self.now, self.ports[0], range, Scope::Cluster).is_ok());
        }
    }

    fn run(&mut self, millis: u64, seen: &mut Seen) {
        let end = self.now.plus_millis(millis);
        loop {
            self.exchange(seen);
            let next = self.nodes.iter().filter_map(Stack::deadline).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            self.nodes.iter_mut().for_each(|node| node.handle_timeout(self.now));
        }
        self.now = end;
        self.read();
    }

    fn exchange(&mut self, seen: &mut Seen) {
        for round in 0.. {
            assert!(round < 20_000, "never idle at {:?}", self.now);
            let mut moved = false;
            for from in 0..2 {
                let batch = core::mem::take(self.nodes[from].frames());
                for frame in batch.frames() {
                    let bytes = &*batch.frame(frame);
                    assert!(Encrypted::is_encrypted(bytes), "a frame in clear text");
                    assert!(bytes.len() <= MTU as usize, "a frame of {} bytes", bytes.len());
                    if frame.to == Target::Broadcast || frame.to == Target::Unicast(media(1 - from)) {
                        moved = true;
                        if from == 1 {
                            self.interfere(bytes)
                        } else {
                            self.nodes[1].receive(self.now, 0, bytes)
                        }
                    }
                }
            }
            self.note(seen);
            if !moved {
                return;
            }
        }
    }

    fn interfere(&mut self, frame: &[u8]) {
        if self.history.len() >= HISTORY {
            self.history.remove(0);
        }
        self.history.push(frame.to_vec());
        let mut frame = frame.to_vec();
        match self.interference.pop() {
            Some(Interference::Drop) => return,
            Some(Interference::Twice) => self.nodes[0].receive(self.now, 0, &frame),
            Some(Interference::Flip { at, bits }) => {
                let at = usize::from(at) % frame.len();
                frame[at] ^= bits;
            }
            Some(Interference::Cut(len)) => frame.truncate(usize::from(len)),
            None => {}
        }
        self.nodes[0].receive(self.now, 0, &frame);
    }

    /// Every message arrives as it was sent, in order.
    fn read(&mut self) {
        let mut buffer = [0; 4000];
        while let Ok(got) = self.nodes[0].recv(self.now, self.ports[0], &mut buffer, RecvOptions::default()) {
            let number = buffer.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            assert!(number >= self.received && number < self.sent, "a message that was not sent");
            assert!(buffer[4..got.len].iter().all(|byte| *byte == number as u8), "an altered message");
            self.received = number + 1;
        }
    }

    fn send(&mut self, size: usize) {
        let mut data = vec![self.sent as u8; size.max(4)];
        data[..4].copy_from_slice(&self.sent.to_be_bytes());
        let to = Some(Destination::service(SERVICE, 1));
        if self.nodes[1].send(self.now, self.ports[1], &data, to).is_ok() {
            self.sent += 1;
        }
    }

    fn note(&mut self, seen: &mut Seen) {
        for (i, node) in self.nodes.iter_mut().enumerate() {
            while let Some(event) = node.poll_event() {
                match event {
                    Event::Dropped { reason, .. } => seen.note((i, "dropped", reason.name())),
                    Event::LinkDown { reason, .. } => seen.note((i, "down", reason)),
                    _ => {}
                }
            }
            while node.poll_ready().is_some() {}
            let info = node.encryption();
            for key in &info.keys {
                seen.note((i, key.slot, format!("{:?}", key.role), key.users > 0));
            }
            for peer in &info.peers {
                seen.note((i, peer.receives_with, peer.keys.len()));
            }
            seen.note((i, magnitude(info.stats.received as usize), magnitude(info.stats.replayed as usize)));
        }
    }
}

fn start(now: Time, node: usize, strict: bool) -> Stack {
    let secret = Some([node as u8; 36].into());
    let encryption = EncryptionConfig { strict, clock_at_zero: 1 << 60, secret };
    let (identity, seed) = (Some(id(node)), now.as_nanos() + node as u64);
    Stack::new(now, StackConfig { identity, seed, encryption, ..StackConfig::default() })
}

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    let mut source = Source::new(data);
    let (strict, mode) = (source.flag(), source.u8());
    let mut world = World::new(strict, mode);
    world.run(u64::from(source.u8()) * 20, seen);
    for _ in 0..200 {
        if source.is_empty() {
            break;
        }
        step(&mut world, mode, &mut source, seen);
    }
    world.interference.clear();
    world.run(RECOVERY, seen);
    let up = world.nodes.each_ref().map(|node| node.nodes().iter().filter(|peer| peer.up).count());
    assert_eq!(up, [1, 1], "no contact after the attack ended");
}

fn step(world: &mut World, mode: u8, source: &mut Source<'_>, seen: &mut Seen) {
    match source.u8() % 14 {
        0..3 => world.run(u64::from(source.u8()) * 20, seen),
        3 | 4 => world.send(source.pick(&[4, 100, 1300, 1400, 3000])),
        5 => world.interference.push(Interference::Drop),
        6 => world.interference.push(Interference::Twice),
        7 => {
            let (at, bits) = (source.u8(), source.u8().max(1));
            world.interference.push(Interference::Flip { at, bits });
        }
        8 => world.interference.push(Interference::Cut(source.u8())),
        9 | 10 if !world.history.is_empty() => {
            let mut frame = world.history[source.below(world.history.len())].clone();
            if source.flag() {
                let at = source.below(frame.len());
                frame[at] ^= source.u8();
            }
            world.nodes[0].receive(world.now, 0, &frame);
        }
        11 => world.nodes[0].receive(world.now, 0, source.bytes(120)),
        // Without a master key a node that restarts cannot be handed a session key.
        12 if mode % 3 == 1 => {
            let result = world.nodes[usize::from(source.flag())].rekey(world.now);
            seen.note(("rekey", result.err().map(|e| e.to_string())));
        }
        // The second node restarts without notice.
        13 => {
            world.nodes[1] = start(world.now, 1, world.strict);
            world.set_keys(1, mode);
            world.plug(1);
        }
        _ => world.exchange(seen),
    }
}
