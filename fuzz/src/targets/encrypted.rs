//! Two nodes with keys; an attacker between them drops, repeats, changes and forges frames while keys change.

use utipc_core::crypto::{EncryptionConfig, Key, KeyUse};
use utipc_core::wire::Encrypted;
use utipc_core::{
    BearerConfig, BearerId, Destination, NodeId, RecvOptions, Scope, ServiceRange, SocketKind, Stack,
    StackConfig, Time,
};

use super::pair::{Attack, Pair, media};
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
    pair: Pair,
    seen: Seen,
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

fn key(byte: u8, len: usize) -> Option<Key> {
    Key::new(&vec![byte; len]).ok()
}

impl Attack for World {
    fn pair(&mut self) -> &mut Pair {
        &mut self.pair
    }

    fn check(&self, frame: &[u8]) {
        assert!(Encrypted::is_encrypted(frame), "a frame in clear text");
        assert!(frame.len() <= MTU as usize, "a frame of {} bytes", frame.len());
    }

    fn after_round(&mut self) {
        self.note();
    }

    fn intercept(&mut self, net: BearerId, frame: &[u8]) {
        if self.history.len() >= HISTORY {
            self.history.remove(0);
        }
        self.history.push(frame.to_vec());
        let mut frame = frame.to_vec();
        match self.interference.pop() {
            Some(Interference::Drop) => return,
            Some(Interference::Twice) => self.pair.nodes[0].receive(self.pair.now, net, &frame),
            Some(Interference::Flip { at, bits }) => {
                let at = usize::from(at) % frame.len();
                frame[at] ^= bits;
            }
            Some(Interference::Cut(len)) => frame.truncate(usize::from(len)),
            None => {}
        }
        self.pair.nodes[0].receive(self.pair.now, net, &frame);
    }
}

impl World {
    fn new(strict: bool, mode: u8) -> Self {
        let now = Time::from_millis(1000);
        let mut world = Self {
            pair: Pair { now, nodes: [start(now, 0, strict), start(now, 1, strict)] },
            seen: Seen::default(),
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
            assert!(
                key.is_some_and(|key| self.pair.nodes[node].set_key(self.pair.now, key_use, key).is_ok())
            );
        }
    }

    fn plug(&mut self, node: usize) {
        let bearer = BearerConfig::new("udp:U", media(0, node), MTU);
        assert!(self.pair.nodes[node].enable_bearer(self.pair.now, bearer).is_ok());
        if let Ok(port) = self.pair.nodes[node].open(self.pair.now, SocketKind::Rdm) {
            self.ports[node] = port;
        }
        if node == 0 {
            let range = ServiceRange::new(SERVICE, 1, 1);
            assert!(self.pair.nodes[0].bind(self.pair.now, self.ports[0], range, Scope::Cluster).is_ok());
        }
    }

    /// Runs both nodes, then reads.
    fn pass(&mut self, millis: u64) {
        self.run(millis);
        self.read();
    }

    /// Every message arrives as it was sent, in order.
    fn read(&mut self) {
        let mut buffer = [0; 4000];
        while let Ok(got) =
            self.pair.nodes[0].recv(self.pair.now, self.ports[0], &mut buffer, RecvOptions::default())
        {
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
        if self.pair.nodes[1].send(self.pair.now, self.ports[1], &data, to).is_ok() {
            self.sent += 1;
        }
    }

    fn note(&mut self) {
        let Self { pair, seen, .. } = self;
        pair.note_events(seen);
        for (i, node) in pair.nodes.iter().enumerate() {
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
    world.pass(u64::from(source.u8()) * 20);
    for _ in 0..200 {
        if source.is_empty() {
            break;
        }
        step(&mut world, mode, &mut source);
    }
    world.interference.clear();
    world.pass(RECOVERY);
    assert_eq!(world.pair.contacts(), [1, 1], "no contact after the attack ended");
    seen.merge(world.seen);
}

fn step(world: &mut World, mode: u8, source: &mut Source<'_>) {
    match source.u8() % 14 {
        0..3 => world.pass(u64::from(source.u8()) * 20),
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
            world.pair.nodes[0].receive(world.pair.now, 0, &frame);
        }
        11 => world.pair.nodes[0].receive(world.pair.now, 0, source.bytes(120)),
        // Without a master key a node that restarts cannot be handed a session key.
        12 if mode % 3 == 1 => {
            let result = world.pair.nodes[usize::from(source.flag())].rekey(world.pair.now);
            world.seen.note(("rekey", result.err().map(|e| e.to_string())));
        }
        // The second node restarts without notice.
        13 => {
            world.pair.nodes[1] = start(world.pair.now, 1, world.strict);
            world.set_keys(1, mode);
            world.plug(1);
        }
        _ => {
            world.exchange();
        }
    }
}
