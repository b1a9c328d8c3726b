//! Groups with many sockets on one node, which learn of members step by step. Decision 42.

use std::collections::BTreeMap;

use super::*;
use crate::quota::{Resource, UserId};
use crate::rng::Rng;
use crate::stack::spread::STEP_MEMBERS;
use crate::switch::Origin;

const USER: UserId = UserId(1000);
const SERVICE: ServiceRange = ServiceRange::new(GROUP, 5, 9);

impl Lan {
    fn begin_turn(&mut self) {
        self.nodes[0].begin_turn(self.now, 1_000_000);
    }

    /// A socket of the user on node 0.
    fn socket(&mut self) -> u32 {
        let port = self.nodes[0].open(self.now, SocketKind::Rdm).unwrap();
        self.nodes[0].set_user(port, USER);
        port
    }

    fn sockets_in_group(&mut self, count: u32) -> Vec<u32> {
        let ports: Vec<u32> = (0..count).map(|_| self.socket()).collect();
        for (number, port) in ports.iter().enumerate() {
            self.nodes[0].join(self.now, *port, GroupRequest::new(GROUP, number as u32)).unwrap();
        }
        self.run(20);
        ports
    }

    /// Sockets that have another one as a member, and for which it is complete.
    fn known_by(&self, port: u32, ports: &[u32]) -> (usize, usize) {
        let (mut known, mut complete) = (0, 0);
        for other in ports.iter().filter(|other| **other != port) {
            let group = self.nodes[0].endpoint(*other).unwrap().group().unwrap();
            known += usize::from(group.members().any(|member| member.port.port == port));
            complete += usize::from(group.knows(port));
        }
        (known, complete)
    }

    /// Goes on until nothing is left; the number of steps.
    fn finish_announcements(&mut self) -> usize {
        let mut steps = 0;
        while let Some((origin, _)) = self.nodes[0].take_spread() {
            loop {
                steps += 1;
                if !self.nodes[0].continue_spread(self.now, origin) {
                    break;
                }
            }
        }
        steps
    }
}

#[test]
fn members_on_a_node_learn_step_by_step_that_another_one_joins_and_leaves() {
    const MEMBERS: usize = 500;
    let mut lan = Lan::new(1);
    lan.run(3000);
    let ports = lan.sockets_in_group(MEMBERS as u32);
    lan.begin_turn();
    let last = lan.socket();
    lan.nodes[0].join(lan.now, last, GroupRequest::new(GROUP, 77)).unwrap();
    let (mut before, _) = lan.known_by(last, &ports);
    assert!(before <= 2 * STEP_MEMBERS, "{before}");
    let broadcast = lan.nodes[0].send(lan.now, last, b"all", None);
    assert_eq!(broadcast, Err(SendError::WouldBlock), "until all members know the sender");
    let (origin, user) = lan.nodes[0].take_spread().unwrap();
    assert_eq!((origin, user), (Origin::Socket(last), USER));
    while lan.nodes[0].continue_spread(lan.now, origin) {
        let (known, _) = lan.known_by(last, &ports);
        assert!(known - before <= STEP_MEMBERS, "{known} after {before}");
        before = known;
    }
    assert_eq!(lan.known_by(last, &ports), (MEMBERS, MEMBERS));
    assert_eq!(lan.nodes[0].send(lan.now, last, b"all", None), Ok(3));
    lan.finish_announcements();
    for port in &ports {
        assert_eq!(lan.recv(0, *port), b"all");
    }
    let used = |lan: &Lan| lan.nodes[0].ledger().used_by(USER, Resource::Memory);
    lan.nodes[0].close(lan.now, last);
    let (known, _) = lan.known_by(last, &ports);
    assert!(known >= MEMBERS - 2 * STEP_MEMBERS, "{known}");
    let charged = used(&lan);
    let (origin, user) = lan.nodes[0].take_spread().unwrap();
    assert_eq!((origin, user), (Origin::Socket(last), USER), "also when the socket is gone");
    while lan.nodes[0].continue_spread(lan.now, origin) {}
    assert_eq!(lan.known_by(last, &ports), (0, 0));
    assert!(used(&lan) < charged, "{} of {charged}", used(&lan));
}

#[test]
fn socket_that_joins_learns_nothing_of_a_member_that_has_left_before() {
    let mut lan = Lan::new(1);
    lan.run(3000);
    let ports = lan.sockets_in_group(200);
    lan.begin_turn();
    let short = lan.socket();
    lan.nodes[0].join(lan.now, short, GroupRequest::new(GROUP, 77)).unwrap();
    lan.nodes[0].close(lan.now, short);
    let last = lan.socket();
    lan.nodes[0].join(lan.now, last, GroupRequest::new(GROUP, 78).with_events()).unwrap();
    lan.finish_announcements();
    assert_eq!(lan.known_by(short, &ports), (0, 0));
    assert_eq!(lan.all(0, last), vec!["+"; ports.len()]);
}

#[test]
fn members_learn_step_by_step_that_a_node_is_lost() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let ports = lan.sockets_in_group(300);
    let far: Vec<u32> = (0..3).map(|number| lan.member(1, GroupRequest::new(GROUP, number))).collect();
    lan.run(1000);
    let with_far = |lan: &Lan| {
        let has = |port: &&u32| {
            let group = lan.nodes[0].endpoint(**port).unwrap().group().unwrap();
            group.members().any(|member| !member.port.node.is_none())
        };
        ports.iter().filter(has).count()
    };
    assert_eq!((far.len(), with_far(&lan)), (3, 300));
    lan.begin_turn();
    lan.cut.push((1, 0));
    while lan.up(0) > 0 {
        lan.begin_turn();
        lan.run(50);
    }
    assert!(with_far(&lan) > 0);
    let steps = lan.finish_announcements();
    assert!(steps >= 200 / STEP_MEMBERS, "{steps}");
    assert_eq!(with_far(&lan), 0);
    lan.cut.clear();
    for _ in 0..100 {
        lan.begin_turn();
        lan.run(50);
        lan.finish_announcements();
    }
    assert_eq!(with_far(&lan), 300, "the node is back, and was held until its loss was known");
    let ports = ports.clone();
    assert_eq!(lan.known_by(ports[0], &ports).1, 299);
}

/// A socket of a test: its number, instance, and whether it is a complete member.
type Known = (u32, u32, bool);

/// Sockets join, leave, bind and close at random, on a node with or without limited turns.
fn random(seed: u64, is_limited: bool) -> Vec<Vec<Known>> {
    const SOCKETS: usize = 150;
    const MEMBERS: u32 = 120;
    let mut rng = Rng::new(seed);
    let mut steps = Rng::new(seed + 1);
    let mut lan = Lan::new(1);
    lan.run(3000);
    let mut ports: Vec<u32> = (0..SOCKETS).map(|_| lan.socket()).collect();
    let numbers: BTreeMap<u32, u32> = ports.iter().copied().zip(0..).collect();
    let mut waiting = Vec::new();
    for _ in 0..1500 {
        let port = ports[rng.below(ports.len() as u64) as usize];
        let (what, instance, scope) = (rng.below(40), rng.next_u32() % 1000, rng.below(4));
        // As the daemon does: a membership begins when everybody knows of the end of the one before.
        while lan.nodes[0].is_spreading(port) {
            step(&mut lan, &mut waiting, &mut steps);
        }
        let now = lan.now;
        let node = &mut lan.nodes[0];
        match what {
            0 if ports.len() > SOCKETS / 2 => {
                ports.retain(|other| *other != port);
                node.close(now, port);
            }
            // Some only have bindings like those of members. Calls that are refused are part of the test.
            1..15 if numbers[&port] >= MEMBERS => {
                assert!(node.bind(now, port, SERVICE, Scope::Cluster).is_ok())
            }
            15.. if numbers[&port] >= MEMBERS => assert!(node.unbind(now, port, None).is_ok() || what > 0),
            1..15 => {
                assert!(node.leave(now, port).is_ok() || what > 0);
                lan.all(0, port);
            }
            _ => {
                let mut request = GroupRequest::new(GROUP, instance).with_events();
                request.scope = if scope == 0 { Scope::Node } else { Scope::Cluster };
                assert!(node.join(now, port, request).is_ok() || what > 0);
            }
        }
        if is_limited && steps.below(8) == 0 {
            lan.begin_turn();
        }
        for _ in 0..steps.below(4) {
            step(&mut lan, &mut waiting, &mut steps);
        }
    }
    while step(&mut lan, &mut waiting, &mut steps) {}
    assert_eq!(lan.nodes[0].ledger().used_by(USER, Resource::Memory) > 0, !ports.is_empty());
    ports.iter().map(|port| known_to(&mut lan, *port, &numbers)).collect()
}

/// The members of a socket, of which the application knows by events.
fn known_to(lan: &mut Lan, port: u32, numbers: &BTreeMap<u32, u32>) -> Vec<Known> {
    let mut events: BTreeMap<u32, String> = BTreeMap::new();
    let mut buffer = [0; 100];
    while let Ok(got) = lan.nodes[0].recv(lan.now, port, &mut buffer, RecvOptions::default()) {
        events.entry(numbers[&got.source.port]).or_default().push(letter(got.group.unwrap().kind));
    }
    let Some(group) = lan.nodes[0].endpoint(port).unwrap().group() else { return Vec::new() };
    let known = |port: u32| group.knows(port);
    let mut members: Vec<Known> = group
        .members()
        .map(|member| (numbers[&member.port.port], member.instance, known(member.port.port)))
        .collect();
    members.sort_unstable();
    for (of, events) in &events {
        let is_alternating = events.bytes().zip("+-".bytes().cycle()).all(|(seen, right)| seen == right);
        assert!(is_alternating, "{of} at {}: {events}", numbers[&port]);
    }
    let joined = events.iter().filter(|(_, events)| events.ends_with('+')).map(|(of, _)| *of);
    let complete = members.iter().filter(|(_, _, is_complete)| *is_complete).map(|(number, ..)| *number);
    assert_eq!(joined.collect::<Vec<_>>(), complete.collect::<Vec<_>>());
    members
}

/// One step of one of those that have something left; false if none has.
fn step(lan: &mut Lan, waiting: &mut Vec<Origin>, rng: &mut Rng) -> bool {
    while let Some((origin, _)) = lan.nodes[0].take_spread() {
        waiting.push(origin);
    }
    if waiting.is_empty() {
        return false;
    }
    let chosen = rng.below(waiting.len() as u64) as usize;
    if !lan.nodes[0].continue_spread(lan.now, waiting[chosen]) {
        waiting.swap_remove(chosen);
    }
    true
}

#[test]
fn members_of_a_divided_group_are_those_of_an_undivided_one() {
    for seed in 0..6 {
        let (members, expected) = (random(seed, true), random(seed, false));
        for (number, (members, expected)) in members.iter().zip(&expected).enumerate() {
            assert_eq!(members, expected, "seed {seed}, socket {number}");
        }
    }
}
