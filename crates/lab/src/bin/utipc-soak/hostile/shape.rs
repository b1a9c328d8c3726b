//! The shape of an attack by one user: what a process sets up, which requests it repeats, and how it ends. A shape
//! can be mutated, so that a search finds those that cost the daemon most.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::net::{RecvFlags, SendFlags};
use serde::{Deserialize, Serialize};
use utipc_bench_kit::numbered::Random;

use super::attacker::connect;
use super::grammar::{self, Known};

/// The service that all sockets of the process may be bound to.
const SERVICE: u64 = 9600;

/// A request outside the protocol's numbers: a multicast to all sockets of [`SERVICE`].
const MULTICAST: u64 = 1000;

/// Sockets that a process remembers: enough for every request to meet many.
const KNOWN_MAX: usize = 70_000;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    /// It exits with everything open.
    Exit,
    /// It closes its attachments one by one.
    Detach,
    /// It closes its sockets by requests first.
    Close,
    /// It is killed by the run.
    Killed,
}

/// A shape.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(super) attachments: u64,
    pub(super) sockets: u64,
    /// Requests that are made once for each socket, by their numbers in the grammar.
    pub(super) setup: Vec<u64>,
    /// Requests that are repeated in turn.
    pub(super) repeated: Vec<u64>,
    /// Requests of each attachment that may wait for their reply.
    pub(super) depth: u64,
    /// Bytes of messages.
    pub(super) payload: u64,
    /// Whether replies are read.
    pub(super) reads: bool,
    pub(super) end: End,
}

/// A random number from 1 to `most`, each order of magnitude as likely as the others.
fn spread(random: &mut Random, most: u64) -> u64 {
    let bits = u64::from(u64::BITS - most.leading_zeros());
    (random.draw() % (1 << (1 + random.below(bits)))).clamp(1, most)
}

/// A request for each socket: usually one that makes something.
fn setup(random: &mut Random) -> u64 {
    const MAKING: [u64; 8] = [
        grammar::BIND,
        grammar::BIND,
        grammar::KEEP,
        grammar::WANT_LANE,
        grammar::LISTEN,
        grammar::CONNECT,
        grammar::JOIN,
        MULTICAST,
    ];
    if random.below(4) == 0 { repeated(random) } else { MAKING[random.below(MAKING.len() as u64) as usize] }
}

fn repeated(random: &mut Random) -> u64 {
    if random.below(8) == 0 { MULTICAST } else { random.below(grammar::KINDS) }
}

impl Shape {
    /// Any shape within the default limits of a user.
    pub(super) fn any(random: &mut Random) -> Self {
        Self {
            attachments: spread(random, 2000),
            sockets: spread(random, 60_000),
            setup: (0..random.below(3)).map(|_| setup(random)).collect(),
            repeated: (0..1 + random.below(2)).map(|_| repeated(random)).collect(),
            depth: spread(random, 64),
            payload: spread(random, 60_000),
            reads: random.below(4) > 0,
            end: [End::Exit, End::Detach, End::Close, End::Killed][random.below(4) as usize],
        }
    }

    /// The shape of one of several processes that attack together.
    pub(super) fn part(&self, processes: u64) -> Self {
        let [attachments, sockets] = [self.attachments, self.sockets].map(|all| all.div_ceil(processes));
        Self { attachments, sockets, ..self.clone() }
    }

    /// A shape that differs in one or two respects.
    pub(super) fn mutated(&self, random: &mut Random) -> Self {
        let (mut shape, other) = (self.clone(), Self::any(random));
        for _ in 0..1 + random.below(2) {
            match random.below(8) {
                0 => shape.attachments = other.attachments,
                1 => shape.sockets = other.sockets,
                2 => shape.setup.clone_from(&other.setup),
                3 => shape.repeated.clone_from(&other.repeated),
                4 => shape.depth = other.depth,
                5 => shape.payload = other.payload,
                6 => shape.reads = other.reads,
                _ => shape.end = other.end,
            }
        }
        shape
    }
}

/// The task of a process with a shape.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Shaped {
    /// The daemon's socket.
    pub(super) socket: PathBuf,
    pub(super) seed: u64,
    pub(super) seconds: f64,
    pub(super) shape: Shape,
}

/// An attachment, and the requests that wait for their reply.
struct Attached {
    channel: OwnedFd,
    known: Known,
    waiting: u64,
}

impl Attached {
    /// Reads replies that have come; false if the daemon has hung up.
    fn read(&mut self, buffer: &mut [u8]) -> bool {
        while let Ok((_, len)) = rustix::net::recv(&self.channel, &mut *buffer, RecvFlags::DONTWAIT) {
            if len == 0 {
                return false;
            }
            self.waiting = self.waiting.saturating_sub(1);
            grammar::learn_all(&mut self.known, buffer.get(..len).unwrap_or_default(), KNOWN_MAX);
        }
        true
    }

    fn send(&mut self, packet: &[u8]) -> bool {
        let sent =
            rustix::net::send(&self.channel, packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok();
        self.waiting += u64::from(sent);
        sent
    }

    /// Sends a request as soon as fewer than `depth` wait for their reply.
    fn ask(&mut self, packet: &[u8], (depth, end): (u64, Instant), buffer: &mut [u8]) -> bool {
        while Instant::now() < end {
            if !self.read(buffer) {
                return false;
            }
            if self.waiting < depth && self.send(packet) {
                return true;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        false
    }
}

/// A request of this number for a socket.
fn request(random: &mut Random, known: &Known, kind: u64, payload: u64) -> Vec<u8> {
    let mut packet = match kind {
        grammar::BIND => return grammar::bind(random, known, SERVICE),
        MULTICAST => grammar::multicast(random, known, SERVICE),
        kind => grammar::request(random, known, kind),
    };
    if grammar::has_payload(kind) || kind == MULTICAST {
        packet.resize(packet.len().min(64) + payload as usize, 7);
    }
    packet
}

/// Attacks with a shape until the time is over.
pub(crate) fn attack(shaped: &Shaped) -> Result<()> {
    let shape = &shaped.shape;
    let end = Instant::now() + Duration::from_secs_f64(shaped.seconds);
    let (mut random, mut buffer) = (Random(shaped.seed << 20), vec![0; 80_000]);
    let mut attached: Vec<Attached> = Vec::new();
    for _ in 0..shape.attachments {
        let Some(channel) = connect(&shaped.socket) else { continue };
        let known = Known { services: vec![SERVICE], ..Known::default() };
        let mut one = Attached { channel, known, waiting: 0 };
        one.send(&grammar::greeting(&mut random, true));
        attached.push(one);
    }
    let setup_end = Instant::now() + Duration::from_secs_f64(shaped.seconds / 2.0);
    let each = shape.sockets.div_ceil(attached.len().max(1) as u64);
    for one in &mut attached {
        for _ in 0..each {
            let packet = grammar::request(&mut random, &one.known, grammar::OPEN);
            if !one.ask(&packet, (16, setup_end), &mut buffer) {
                break;
            }
        }
        for kind in &shape.setup {
            for _ in 0..one.known.ports.len() {
                let packet = request(&mut random, &one.known, *kind, shape.payload);
                if !one.ask(&packet, (16, setup_end), &mut buffer) {
                    break;
                }
            }
        }
    }
    let mut round = 0;
    while Instant::now() < end && !attached.is_empty() {
        attached.retain_mut(|one| {
            let kind =
                shape.repeated.get(round % shape.repeated.len().max(1)).copied().unwrap_or(grammar::OPEN);
            let is_alive = !shape.reads || one.read(&mut buffer);
            if one.waiting < shape.depth || !shape.reads {
                let packet = request(&mut random, &one.known, kind, shape.payload);
                one.send(&packet);
            }
            is_alive
        });
        round += 1;
    }
    match shape.end {
        End::Exit | End::Killed => {}
        End::Detach => attached.drain(..).for_each(|one| drop(one.channel)),
        End::Close => {
            for one in &mut attached {
                for port in one.known.ports.clone() {
                    one.send(&grammar::close(port));
                    one.read(&mut buffer);
                }
            }
        }
    }
    // Closing what lingers could wait for ever, exiting does not.
    std::process::exit(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_stay_within_the_limits_and_survive_json() {
        let mut random = Random(7);
        let mut shape = Shape::any(&mut random);
        for _ in 0..1000 {
            shape = shape.mutated(&mut random);
            assert!((1..=2000).contains(&shape.attachments) && (1..=60_000).contains(&shape.sockets));
            assert!(!shape.repeated.is_empty());
            let text = serde_json::to_string(&shape).unwrap();
            let read: Shape = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
    }
}
