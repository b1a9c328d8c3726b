//! Two whole nodes; an attacker between them drops, repeats, changes and forges frames while both are used.

use utipc_core::wire::User;
use utipc_core::{
    BearerConfig, BearerId, Destination, Event, Message, PortId, RecvOptions, Scope, ServiceRange,
    SocketKind, limits,
};

use super::pair::{Attack, MAX_CALLS, NODES, Pair, addressed, media};
use crate::source::Source;
use crate::{Seen, magnitude};

/// Frames remembered for repetition.
const HISTORY: usize = 64;
/// Sockets on one node.
const SOCKETS: usize = 24;

/// Time after which undisturbed nodes must have contact again, milliseconds: the longest tolerance that a peer can set,
/// until each end has noticed, and two rounds of slow discovery.
const RECOVERY: u64 = 200_000;

/// The attacker's treatment of the next frames from the peer.
#[derive(Clone, Copy)]
enum Interference {
    Drop,
    Twice,
    Swap,
    FlipBits { word: u8, xor: u32 },
}

struct World {
    pair: Pair,
    ports: [Vec<u32>; 2],
    /// For each network, whether it drops all frames.
    cut: [bool; 2],
    /// Whether both nodes are on the second network too.
    two_links: bool,
    interference: Vec<Interference>,
    held: Option<Intercepted>,
    history: Vec<Intercepted>,
}

/// A frame in flight, and its bearer.
type Intercepted = (BearerId, Vec<u8>);

impl Attack for World {
    fn pair(&mut self) -> &mut Pair {
        &mut self.pair
    }

    fn is_cut(&self, net: BearerId) -> bool {
        self.cut[usize::from(net)]
    }

    fn intercept(&mut self, net: BearerId, frame: &[u8]) {
        if self.history.len() >= HISTORY {
            self.history.remove(0);
        }
        self.history.push((net, frame.to_vec()));
        let mut frame = frame.to_vec();
        match self.interference.pop() {
            Some(Interference::Drop) => return,
            Some(Interference::Twice) => self.pair.nodes[0].receive(self.pair.now, net, &frame),
            Some(Interference::Swap) => {
                if let Some((net, held)) = self.held.replace((net, frame)) {
                    self.pair.nodes[0].receive(self.pair.now, net, &held);
                }
                return;
            }
            Some(Interference::FlipBits { word, xor }) => flip_bits(&mut frame, word, xor),
            None => {}
        }
        self.pair.nodes[0].receive(self.pair.now, net, &frame);
        if let Some((net, held)) = self.held.take() {
            self.pair.nodes[0].receive(self.pair.now, net, &held);
        }
    }
}

impl World {
    fn new() -> Self {
        Self {
            pair: addressed(),
            ports: Default::default(),
            cut: [false; 2],
            two_links: false,
            interference: Vec::new(),
            held: None,
            history: Vec::new(),
        }
    }

    fn add_link(&mut self) {
        if core::mem::replace(&mut self.two_links, true) {
            return;
        }
        for (i, node) in self.pair.nodes.iter_mut().enumerate() {
            let second = BearerConfig::new("udp:V", media(1, i), 1400);
            assert_eq!(node.enable_bearer(self.pair.now, second).ok(), Some(1));
        }
    }
}

fn flip_bits(frame: &mut [u8], word: u8, xor: u32) {
    let at = usize::from(word) % 20 * 4;
    if let Some(word) = frame.get_mut(at..at + 4) {
        for (byte, x) in word.iter_mut().zip(xor.to_be_bytes()) {
            *byte ^= x;
        }
    }
}

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    let mut world = World::new();
    let mut source = Source::new(data);
    world.run(u64::from(source.u8()) * 16);
    let mut steps = 0;
    while !source.is_empty() && steps < 400 {
        step(&mut world, &mut source, seen);
        steps += 1;
    }
    world.run(3000);
    record_behaviour(&mut world, seen);
    for (node, ports) in world.pair.nodes.iter_mut().zip(&world.ports) {
        ports.iter().for_each(|port| node.close(world.pair.now, *port));
    }
    world.run(20_000);
    record_behaviour(&mut world, seen);
    for node in &world.pair.nodes {
        assert_eq!(node.sockets().count(), 0, "sockets outlive their close");
    }
    // Recovery takes thirty times as long as everything else, so only some inputs include it.
    if data.len().is_multiple_of(16) {
        recover(&mut world);
    }
}

fn recover(world: &mut World) {
    world.interference.clear();
    world.cut = [false; 2];
    world.run(RECOVERY);
    let up = world.pair.contacts();
    assert!(up[0] >= 1 && up[1] == 1, "no contact after the attack ended: {up:?}");
}

fn record_behaviour(world: &mut World, seen: &mut Seen) {
    for (i, node) in world.pair.nodes.iter_mut().enumerate() {
        while let Some(event) = node.poll_event() {
            if i == 0 {
                match &event {
                    Event::Dropped { reason, .. } => {
                        let kind: String =
                            format!("{reason:?}").chars().filter(|c| !c.is_ascii_digit()).collect();
                        seen.note(("dropped", kind));
                    }
                    Event::LinkDown { reason, .. } => seen.note(("down", reason)),
                    other => seen.note(core::mem::discriminant(other)),
                }
            }
        }
        let mut ready = 0;
        while node.poll_ready().is_some() {
            ready += 1;
            assert!(ready < MAX_CALLS);
        }
        assert!(node.nodes().len() <= limits::MAX_PEERS);
        for link in node.links() {
            let s = link.stats;
            let counts =
                [s.retransmitted, s.rx_nacks, s.tx_nacks, s.rx_bundled, s.rx_fragmented, s.congestions];
            for (n, count) in counts.into_iter().chain([s.rx_duplicates, s.rx_deferred]).enumerate() {
                seen.note((i, "link", n, magnitude(count as usize)));
            }
            seen.note((link.up, magnitude(usize::from(link.window)), magnitude(link.tolerance_ms as usize)));
        }
        for (_, socket) in node.sockets() {
            let s = socket.stats();
            let counts = [s.returned_to_us, s.rejected, s.dropped, s.overloads, s.acks_sent, s.window_waits];
            for (n, count) in counts.into_iter().chain([s.link_waits, s.syn_retries]).enumerate() {
                seen.note(("socket", n, magnitude(count as usize)));
            }
            seen.note((socket.state() as u8, socket.readiness().hung_up, socket.readiness().writable));
        }
        seen.note((i, node.nodes().iter().filter(|n| n.up).count(), magnitude(node.bindings().len())));
    }
}

fn step(world: &mut World, source: &mut Source<'_>, seen: &mut Seen) {
    let op = source.u8();
    let node = usize::from(op >> 7);
    let ports = &world.ports[node];
    let port = if ports.is_empty() { 0 } else { ports[usize::from(source.u8()) % ports.len()] };
    match op & 0x1f {
        0..3 => {
            world.run(u64::from(source.u8()) * 20);
            record_behaviour(world, seen);
        }
        op @ 3..18 => call_socket(world, (node, port), op, source, seen),
        op @ 18..28 => attack(world, op, source),
        28 => world.pair.nodes[0].receive(world.pair.now, source.u8() % 4, source.bytes(100)),
        29 => {
            let net = usize::from(source.flag());
            world.cut[net] = !world.cut[net];
        }
        30 => world.add_link(),
        _ => {
            world.exchange();
        }
    }
}

/// Calls a socket of a node; an operation that is not possible now exchanges frames instead.
fn call_socket(
    world: &mut World,
    (node, port): (usize, u32),
    op: u8,
    source: &mut Source<'_>,
    seen: &mut Seen,
) {
    let now = world.pair.now;
    let (node, ports) = (&mut world.pair.nodes[node], &mut world.ports[node]);
    match op {
        3 | 4 if ports.len() < SOCKETS => {
            let kind =
                source.pick(&[SocketKind::Rdm, SocketKind::Dgram, SocketKind::SeqPacket, SocketKind::Stream]);
            ports.extend(node.open(now, kind));
        }
        5 | 6 => {
            let result = node.bind(now, port, range(source), scope(source));
            seen.note(("bind", result.is_ok()));
        }
        7 => seen.note(("listen", node.listen(now, port).is_ok())),
        8 => {
            let result = node.connect(now, port, Some(destination(source)));
            seen.note(("connect", result.err().map(|e| core::mem::discriminant(&e))));
        }
        9 if ports.len() < SOCKETS => {
            let accepted = node.accept(now, port);
            seen.note(("accept", accepted.as_ref().err().map(core::mem::discriminant)));
            ports.extend(accepted.ok().map(|(new, _)| new));
        }
        10..14 => {
            let size = source.pick(&[0, 1, 100, 1400, 1500, 3000, 20_000, 66_000]);
            let to = if source.flag() { Some(destination(source)) } else { None };
            let result = node.send(now, port, &vec![7; size], to);
            seen.note(("send", result.err().map(|e| core::mem::discriminant(&e))));
        }
        14 | 15 => {
            let mut buffer = vec![0; source.pick(&[1, 100, 66_000])];
            let flags = source.u8();
            let options = RecvOptions {
                peek: flags & 1 != 0,
                wait_all: flags & 2 != 0,
                keep_remainder: flags & 4 != 0,
                control: flags & 8 != 0,
            };
            let result = node.recv(now, port, &mut buffer, options);
            seen.note(("recv", result.as_ref().err().map(core::mem::discriminant)));
        }
        16 => seen.note(("shutdown", node.shutdown(now, port).is_ok())),
        17 if port != 0 => {
            node.close(now, port);
            ports.retain(|p| *p != port);
        }
        _ => {
            world.exchange();
        }
    }
}

/// Plans interference with the next frames, repeats a frame or forges one; exchanges frames if there is none to repeat.
fn attack(world: &mut World, op: u8, source: &mut Source<'_>) {
    match op {
        18..21 => {
            let interference = match source.below(6) {
                0 => Interference::Drop,
                1 => Interference::Twice,
                2 => Interference::Swap,
                _ => Interference::FlipBits { word: source.u8(), xor: source.u32() },
            };
            world.interference.extend(std::iter::repeat_n(interference, 1 + source.below(8)));
            world.interference.truncate(64);
        }
        21..25 if !world.history.is_empty() => {
            let at = usize::from(source.u8()) % world.history.len();
            let (net, mut frame) = world.history[at].clone();
            if source.flag() {
                flip_bits(&mut frame, source.u8(), source.u32());
            }
            world.pair.nodes[0].receive(world.pair.now, net, &frame);
        }
        25..28 => {
            let net = BearerId::from(world.two_links && source.flag());
            let frame = forged(source);
            world.pair.nodes[0].receive(world.pair.now, net, &frame);
        }
        _ => {
            world.exchange();
        }
    }
}

fn range(source: &mut Source<'_>) -> ServiceRange {
    let lower = source.pick(&[0, 1, 2, 5]);
    ServiceRange::new(100 + u32::from(source.u8() & 1), lower, lower + u32::from(source.u8() & 3))
}

fn scope(source: &mut Source<'_>) -> Scope {
    if source.flag() { Scope::Node } else { Scope::Cluster }
}

fn destination(source: &mut Source<'_>) -> Destination {
    match source.below(4) {
        0 => Destination::Range(range(source)),
        1 => Destination::Port(PortId { port: source.u32(), node: source.pick(&NODES) }),
        2 => Destination::service(1, 1),
        _ => Destination::service(100 + u32::from(source.u8() & 1), u32::from(source.u8() & 7)),
    }
}

/// A message with correct common fields and any contents.
fn forged(source: &mut Source<'_>) -> Vec<u8> {
    let (user, flags) = (User::from(source.u8()), source.u8());
    let header = source.pick(&[24, 32, 40, 44, 60]);
    let words = [source.u32(), source.u32(), source.u32()];
    let len = usize::from(source.u8());
    let mut m = Message::build(user, flags & 7, header, source.bytes(len));
    m.set_word(2, words[0]);
    m.set_word(4, words[1]);
    m.set_word(8, words[2]);
    m.set_prev_node(NODES[1]);
    m.set_origin_node(NODES[1]);
    m.set_dest_node(NODES[0]);
    if flags & 8 != 0 {
        m.set_non_sequenced(true);
        m.set_word(5, 4711);
    }
    m.into_bytes()
}
