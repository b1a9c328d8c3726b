//! Multicasts to many sockets of one node, in steps.

use super::*;
use crate::limits::MESSAGE_OVERHEAD;
use crate::quota::{Amounts, Quotas, Resource, UserId};
use crate::socket::{OptionValue, SocketOption};
use crate::switch::{Origin, SPREAD_STEP};

const RECEIVERS: usize = 1000;
const USER: UserId = UserId(7);

/// A network whose node 0 has many receivers and limits its turns.
fn crowded(nodes: usize) -> (Lan, Vec<u32>) {
    let mut lan = Lan::new(nodes);
    lan.run(3000);
    let now = lan.now;
    let receivers = (0..RECEIVERS).map(|_| {
        let port = lan.nodes[0].open(now, SocketKind::Rdm).unwrap();
        lan.nodes[0].bind(now, port, RANGE, Scope::Cluster).unwrap();
        port
    });
    let receivers = receivers.collect();
    lan.run(1000);
    lan.nodes[0].begin_turn(lan.now, 1_000_000);
    (lan, receivers)
}

fn multicast(lan: &mut Lan, node: usize, sender: u32, data: &[u8]) -> Result<usize, SendError> {
    let now = lan.now;
    lan.nodes[node].send(now, sender, data, Some(Destination::Range(RANGE)))
}

fn to_one(lan: &mut Lan, node: usize, sender: u32, data: &[u8]) -> Result<usize, SendError> {
    let now = lan.now;
    lan.nodes[node].send(now, sender, data, Some(Destination::service(RANGE.service, RANGE.lower)))
}

/// Receivers that have a message.
fn reached(lan: &Lan, receivers: &[u32]) -> usize {
    let has = |port: &&u32| lan.nodes[0].endpoint(**port).unwrap().readiness().readable;
    receivers.iter().filter(has).count()
}

/// Goes on with the only sender until all copies are made; the number of steps.
fn finish(lan: &mut Lan, receivers: &[u32]) -> (Origin, usize) {
    let origin = lan.nodes[0].take_spread().unwrap().0;
    let (mut steps, mut before) = (1, reached(lan, receivers));
    while lan.nodes[0].continue_spread(lan.now, origin) {
        let now = reached(lan, receivers);
        assert!(now - before <= SPREAD_STEP);
        (steps, before) = (steps + 1, now);
    }
    assert_eq!(lan.nodes[0].take_spread(), None);
    (origin, steps)
}

#[test]
fn step_makes_fewer_copies_of_a_long_message() {
    let (mut lan, receivers) = crowded(1);
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    assert_eq!(multicast(&mut lan, 0, sender, &[0; 60_000]), Ok(60_000));
    let (_, steps) = finish(&mut lan, &receivers);
    assert!(steps >= RECEIVERS / 5, "{steps}");
    assert_eq!(reached(&lan, &receivers), RECEIVERS);
}

#[test]
fn sender_of_a_multicast_to_many_waits_until_all_copies_are_made() {
    let (mut lan, receivers) = crowded(1);
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    assert_eq!(multicast(&mut lan, 0, sender, b"all"), Ok(3));
    assert_eq!(reached(&lan, &receivers), 0, "before the sender's turn");
    assert_eq!(to_one(&mut lan, 0, sender, b"one"), Err(SendError::WouldBlock));
    let other = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    assert_eq!(to_one(&mut lan, 0, other, b"other"), Ok(5), "another sender does not wait");
    assert_eq!(reached(&lan, &receivers), 1);
    let (origin, steps) = finish(&mut lan, &receivers);
    assert_eq!(origin, Origin::Socket(sender));
    assert!(steps >= RECEIVERS / SPREAD_STEP, "{steps}");
    assert_eq!(reached(&lan, &receivers), RECEIVERS);
    assert_eq!(to_one(&mut lan, 0, sender, b"one"), Ok(3));
    for port in receivers {
        let first = lan.recv(0, port);
        assert!(first == b"all" || first == b"other" && lan.recv(0, port) == b"all");
    }
}

#[test]
fn messages_of_another_node_wait_behind_its_multicast() {
    let (mut lan, receivers) = crowded(2);
    let sender = lan.nodes[1].open(lan.now, SocketKind::Rdm).unwrap();
    assert_eq!(multicast(&mut lan, 1, sender, b"1"), Ok(1));
    for number in [b"2", b"3"] {
        assert_eq!(to_one(&mut lan, 1, sender, number), Ok(1));
        assert_eq!(multicast(&mut lan, 1, sender, number), Ok(1));
    }
    lan.exchange();
    let mut seen = vec![Vec::new(); RECEIVERS];
    for _ in 0..100 {
        while let Some((origin, _)) = lan.nodes[0].take_spread() {
            while lan.nodes[0].continue_spread(lan.now, origin) {}
        }
        lan.nodes[0].begin_turn(lan.now, 1_000_000);
        for (port, seen) in receivers.iter().zip(&mut seen) {
            while lan.nodes[0].endpoint(*port).unwrap().readiness().readable {
                seen.extend(lan.recv(0, *port));
            }
        }
        lan.run(10);
    }
    let mut all: Vec<u8> = Vec::new();
    for seen in &seen {
        assert!(seen.is_sorted(), "{seen:?}");
        let mut once = seen.clone();
        once.dedup();
        assert_eq!(once, b"123", "{seen:?}");
        all.extend(seen);
    }
    assert_eq!(all.len(), 3 * RECEIVERS + 2, "every multicast once, and two messages to one socket");
}

#[test]
fn receivers_of_a_multicast_are_charged_to_its_sender_until_it_is_complete() {
    let (mut lan, receivers) = crowded(1);
    let memory = |lan: &Lan| lan.nodes[0].ledger().used_by(USER, Resource::Memory);
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    lan.nodes[0].set_user(sender, USER);
    multicast(&mut lan, 0, sender, b"all").unwrap();
    let charged = memory(&lan);
    assert!(charged as usize >= RECEIVERS * 4, "{charged}");
    finish(&mut lan, &receivers);
    assert_eq!(memory(&lan), 0);
    let user = {
        let mut user = Amounts::all(u64::MAX);
        user.set(Resource::Memory, (RECEIVERS * 4 - 1) as u64);
        user
    };
    lan.nodes[0].ledger_mut().set_quotas(Quotas { user, ..Quotas::unlimited() });
    let off = OptionValue::Number(0);
    lan.nodes[0].set_option(lan.now, sender, SocketOption::DestDroppable, off).unwrap();
    multicast(&mut lan, 0, sender, b"all").unwrap();
    assert_eq!(lan.nodes[0].take_spread(), None);
    let mut buffer = [0; MESSAGE_OVERHEAD];
    let got = lan.nodes[0].recv(lan.now, sender, &mut buffer, RecvOptions::default()).unwrap();
    assert!(got.returned.is_some() && memory(&lan) == 0);
}
