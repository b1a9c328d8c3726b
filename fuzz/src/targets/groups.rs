//! Members of a communication group on two nodes; an attacker drops, repeats, swaps and changes frames between them
//! while members join, send, read and leave.

use std::collections::BTreeMap;

use utipc_core::group::{GroupPolicy, GroupRequest, SlowMember};
use utipc_core::wire::User;
use utipc_core::{BearerId, Destination, PortId, RecvOptions, ServiceRange, SocketKind, View};

use super::pair::{Attack, NODES, Pair, addressed};
use crate::source::Source;
use crate::{Seen, magnitude};

/// The group under attack, and one that is joined after the attack.
const GROUPS: [u32; 2] = [4300, 4400];
/// Maximum number of members on one node.
const MEMBERS: usize = 12;
/// Largest message, bytes.
const LARGEST: usize = 66_000;
/// Policies of the members of one node, in turn.
const POLICIES: [GroupPolicy; 5] = [
    GroupPolicy::LINUX,
    GroupPolicy::new(SlowMember::Evict { after_ms: 300 }),
    GroupPolicy::new(SlowMember::Drop),
    GroupPolicy::new(SlowMember::Conflate { keys: 2, bytes: 70_000 }),
    GroupPolicy::LINUX,
];
/// Time after which undisturbed nodes must have contact again, milliseconds.
const RECOVERY: u64 = 200_000;

/// The attacker's treatment of the next frames to the first node.
#[derive(Clone, Copy)]
enum Interference {
    Drop,
    Twice,
    /// Changes a word of the next frame of a group.
    Change {
        word: u8,
        xor: u32,
    },
}

struct World {
    pair: Pair,
    ports: [Vec<u32>; 2],
    interference: Vec<Interference>,
    /// No frame was changed so far, so members must receive what others send as they send it.
    honest: bool,
    sent: u32,
    /// Number of the last message from each sender, for each receiver.
    last: BTreeMap<(PortId, PortId), u32>,
}

fn is_of_group(frame: &[u8]) -> bool {
    let user = View::parse(frame).map(|view| view.user());
    user.is_ok_and(|user| user == User::GroupProtocol || u8::from(user) <= u8::from(User::Critical))
}

impl Attack for World {
    fn pair(&mut self) -> &mut Pair {
        &mut self.pair
    }

    fn intercept(&mut self, net: BearerId, frame: &[u8]) {
        let mut frame = frame.to_vec();
        match self.interference.last() {
            Some(Interference::Drop) => {
                self.interference.pop();
                return;
            }
            Some(Interference::Twice) => {
                self.interference.pop();
                self.pair.nodes[0].receive(self.pair.now, net, &frame);
            }
            Some(Interference::Change { word, xor }) if is_of_group(&frame) => {
                // Not the words of the link: it would drop the frame.
                let at = [1, 4, 5, 7, 8, 9, 10][usize::from(*word) % 7] * 4;
                if let Some(word) = frame.get_mut(at..at + 4) {
                    word.iter_mut().zip(xor.to_be_bytes()).for_each(|(byte, x)| *byte ^= x);
                    self.honest = false;
                }
                self.interference.pop();
            }
            Some(Interference::Change { .. }) | None => {}
        }
        self.pair.nodes[0].receive(self.pair.now, net, &frame);
    }
}

impl World {
    fn new() -> Self {
        Self {
            pair: addressed(),
            ports: Default::default(),
            interference: Vec::new(),
            honest: true,
            sent: 0,
            last: BTreeMap::new(),
        }
    }

    fn join(&mut self, node: usize, request: GroupRequest) -> Option<u32> {
        let port = self.pair.nodes[node].open(self.pair.now, SocketKind::Rdm).ok()?;
        let policy = POLICIES[self.ports[node].len() % POLICIES.len()];
        self.pair.nodes[node].join_with(self.pair.now, port, request, policy).ok()?;
        self.ports[node].push(port);
        Some(port)
    }

    /// Sends the number of the message, and bytes that follow from it.
    fn send(
        &mut self,
        node: usize,
        port: u32,
        size: usize,
        to: Option<Destination>,
        seen: &mut Seen,
    ) -> bool {
        let mut data = vec![self.sent as u8; size.max(4)];
        data[..4].copy_from_slice(&self.sent.to_be_bytes());
        let result = self.pair.nodes[node].send(self.pair.now, port, &data, to);
        self.sent += u32::from(result.is_ok());
        seen.note(("send", result.as_ref().err().map(core::mem::discriminant)));
        result.is_ok()
    }

    /// Receives up to `most` messages and events of a member; returns how many messages there were.
    fn read(&mut self, node: usize, port: u32, most: usize, seen: &mut Seen) -> usize {
        let mut buffer = vec![0; LARGEST];
        let receiver = PortId { port, node: NODES[node] };
        let mut messages = 0;
        for _ in 0..most {
            let got = self.pair.nodes[node].recv(self.pair.now, port, &mut buffer, RecvOptions::default());
            let Ok(got) = got else { break };
            let Some(group) = got.group else { continue };
            seen.note(("read", group.kind));
            if group.kind.is_event() || got.len == 0 {
                continue;
            }
            messages += 1;
            let number = buffer.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            if self.honest {
                assert!(number < self.sent, "a message that was not sent");
                assert!(buffer[4..got.len].iter().all(|byte| *byte == number as u8), "an altered message");
                let last = self.last.insert((receiver, got.source), number);
                assert!(
                    last.is_none_or(|last| last < number),
                    "repeated, or out of order: {last:?}, {number}"
                );
            }
        }
        messages
    }

    fn close(&mut self, node: usize, port: u32) {
        self.pair.nodes[node].close(self.pair.now, port);
        self.ports[node].retain(|known| *known != port);
    }

    /// Records what the members are, and how much waits.
    fn note(&mut self, seen: &mut Seen) {
        self.pair.note_events(seen);
        for (i, node) in self.pair.nodes.iter().enumerate() {
            for (_, _, endpoint) in node.sockets_in_groups_from(0, 0) {
                let Some(group) = endpoint.group() else { continue };
                seen.note((i, "members", magnitude(group.member_count())));
                for member in group.members() {
                    seen.note((i, member.state as u8, magnitude(usize::from(member.window))));
                }
            }
        }
    }
}

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    let mut world = World::new();
    let mut source = Source::new(data);
    world.run(2000);
    for _ in 0..300 {
        if source.is_empty() {
            break;
        }
        step(&mut world, &mut source, seen);
    }
    if !world.honest {
        seen.note("changed");
    }
    world.interference.clear();
    for node in 0..2 {
        world.ports[node].clone().into_iter().for_each(|port| world.close(node, port));
    }
    world.run(20_000);
    for node in &world.pair.nodes {
        assert_eq!(node.sockets().count(), 0, "sockets outlive their close");
    }
    // Recovery takes much longer than everything else, so only some inputs include it, and all that were honest.
    if world.honest || data.len().is_multiple_of(16) {
        recover(&mut world, seen);
    }
}

/// Members of a new group hear each other.
fn recover(world: &mut World, seen: &mut Seen) {
    world.run(if world.honest { 1000 } else { RECOVERY });
    let members = [0, 1].map(|node| world.join(node, GroupRequest::new(GROUPS[1], 1)));
    let [Some(near), Some(far)] = members else { panic!("a new group cannot be joined") };
    world.run(5000);
    for (node, port, other) in [(0, near, far), (1, far, near)] {
        assert!(world.send(node, port, 100, None, seen), "a member of a new group cannot send");
        world.run(1000);
        assert_eq!(world.read(1 - node, other, 10, seen), 1, "a message of a new group is lost");
    }
}

fn step(world: &mut World, source: &mut Source<'_>, seen: &mut Seen) {
    let op = source.u8();
    let node = usize::from(op >> 7);
    let ports = &world.ports[node];
    let port = if ports.is_empty() { 0 } else { ports[source.below(ports.len())] };
    match op & 0xf {
        0 | 1 => {
            world.run(u64::from(source.u8()) * 10);
            world.note(seen);
        }
        2 | 3 if ports.len() < MEMBERS => {
            let request = GroupRequest::new(GROUPS[0], u32::from(source.u8() & 3));
            let request = if source.flag() { request.with_events() } else { request };
            world.join(node, if source.flag() { request.with_loopback() } else { request });
        }
        4 => world.close(node, port),
        5 => {
            let left = world.pair.nodes[node].leave(world.pair.now, port).is_ok();
            let again = left && source.flag();
            seen.note(("leave", left, again));
            if again {
                let request = GroupRequest::new(GROUPS[0], 1);
                seen.note(("again", world.pair.nodes[node].join(world.pair.now, port, request).is_ok()));
            }
        }
        6..10 => {
            let to = destination(world, source);
            let size = source.pick(&[4, 100, 1400, 3000, 20_000, LARGEST]);
            for _ in 0..1 + source.below(16) {
                world.send(node, port, size, to, seen);
            }
        }
        10 | 11 => {
            world.read(node, port, 1 + source.below(64), seen);
        }
        12 => {
            let interference = if source.flag() { Interference::Drop } else { Interference::Twice };
            world.interference.extend(std::iter::repeat_n(interference, 1 + source.below(8)));
        }
        13 => {
            let (word, xor) = (source.u8(), source.u32());
            world.interference.push(Interference::Change { word, xor });
        }
        // A neighbour of the group: a binding of its type.
        14 => {
            let range = ServiceRange::new(GROUPS[0], 0, u32::from(source.u8() & 3));
            if let Ok(port) = world.pair.nodes[node].open(world.pair.now, SocketKind::Rdm) {
                seen.note((
                    "bind",
                    world.pair.nodes[node]
                        .bind(world.pair.now, port, range, utipc_core::Scope::Cluster)
                        .is_ok(),
                ));
                world.pair.nodes[node].close(world.pair.now, port);
            }
        }
        _ => {
            world.exchange();
        }
    }
    world.interference.truncate(64);
}

fn destination(world: &World, source: &mut Source<'_>) -> Option<Destination> {
    let instance = u32::from(source.u8() & 3);
    match source.below(4) {
        0 => None,
        1 => Some(Destination::Range(ServiceRange::new(GROUPS[0], instance, instance))),
        2 => Some(Destination::service(GROUPS[0], instance)),
        _ => {
            let node = source.below(2);
            let ports = &world.ports[node];
            let port = if ports.is_empty() { source.u32() } else { ports[source.below(ports.len())] };
            Some(Destination::Port(PortId { port, node: NODES[node] }))
        }
    }
}
