//! Multicasts in whose range there are more bindings than one step visits.

use super::*;
use crate::limits::MESSAGE_OVERHEAD;
use crate::quota::{Amounts, Quotas, Resource, UserId};
use crate::socket::{OptionValue, SocketOption};
use crate::switch::Origin;

const USER: UserId = UserId(7);
const SERVICE: u32 = 1000;
const ALL: ServiceRange = ServiceRange::new(SERVICE, 0, u32::MAX);
/// Bindings of each socket.
const BINDINGS: u32 = 400;

/// Opens sockets of a node, each of which binds many ranges that overlap.
fn open_many(lan: &mut Lan, node: usize, sockets: usize) -> Vec<u32> {
    let now = lan.now;
    let ports = (0..sockets).map(|number| {
        let port = lan.nodes[node].open(now, SocketKind::Rdm).unwrap();
        for lower in 0..BINDINGS {
            let range = match number % 3 {
                0 => ServiceRange::new(SERVICE, lower, u32::MAX),
                1 => ServiceRange::new(SERVICE, 7, 7),
                _ => ServiceRange::new(SERVICE, lower, lower + 9),
            };
            lan.nodes[node].bind(now, port, range, Scope::Cluster).unwrap();
        }
        port
    });
    ports.collect()
}

/// Nodes with many bindings each, all of which limit their turns.
fn crowded(nodes: usize, sockets: usize) -> (Lan, Vec<Vec<u32>>) {
    let mut lan = Lan::new(nodes);
    lan.run(3000);
    let ports = (0..nodes).map(|node| open_many(&mut lan, node, sockets)).collect();
    for _ in 0..100 {
        lan.run(100);
    }
    begin_turns(&mut lan);
    (lan, ports)
}

fn begin_turns(lan: &mut Lan) {
    let now = lan.now;
    lan.nodes.iter_mut().for_each(|node| node.begin_turn(now, 1_000_000));
}

fn multicast(lan: &mut Lan, sender: u32, data: &[u8]) -> Result<usize, SendError> {
    let now = lan.now;
    lan.nodes[0].send(now, sender, data, Some(Destination::Range(ALL)))
}

/// Turns of all nodes until nothing is left to do.
fn finish(lan: &mut Lan) {
    for _ in 0..50 {
        for node in 0..lan.nodes.len() {
            while let Some((origin, _)) = lan.nodes[node].take_spread() {
                while lan.nodes[node].continue_spread(lan.now, origin) {}
            }
        }
        begin_turns(lan);
        lan.run(10);
    }
}

/// What each of these sockets has received.
fn received(lan: &mut Lan, node: usize, ports: &[u32]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for port in ports {
        let mut got = Vec::new();
        while lan.nodes[node].endpoint(*port).unwrap().readiness().readable {
            got.extend(lan.recv(node, *port));
        }
        all.push(got);
    }
    all
}

#[test]
fn every_receiver_on_every_node_gets_one_copy() {
    let (mut lan, ports) = crowded(2, 9);
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    assert_eq!(multicast(&mut lan, sender, b"1"), Ok(1));
    assert!(lan.nodes[0].is_collecting(sender));
    let to = PortId { port: ports[1][0], node: lan.nodes[1].own_node() };
    let now = lan.now;
    let refused = lan.nodes[0].send(now, sender, b"2", Some(to.into()));
    assert_eq!(refused, Err(SendError::WouldBlock), "a message to another node stays behind the multicast");
    assert_eq!(multicast(&mut lan, sender, b"2"), Err(SendError::WouldBlock));
    assert!(!lan.nodes[0].endpoint(sender).unwrap().readiness().writable);
    finish(&mut lan);
    assert!(!lan.nodes[0].is_collecting(sender));
    assert!(lan.nodes[0].endpoint(sender).unwrap().readiness().writable);
    assert_eq!(multicast(&mut lan, sender, b"2"), Ok(1));
    finish(&mut lan);
    for (node, ports) in ports.iter().enumerate() {
        for got in received(&mut lan, node, ports) {
            assert_eq!(got, b"12", "node {node}");
        }
    }
}

#[test]
fn receivers_are_collected_in_bounded_steps() {
    let (mut lan, _) = crowded(1, 30);
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    multicast(&mut lan, sender, b"1").unwrap();
    let origin = lan.nodes[0].take_spread().unwrap().0;
    assert_eq!(origin, Origin::Socket(sender));
    let mut steps = 0;
    while lan.nodes[0].is_collecting(sender) {
        assert!(lan.nodes[0].continue_spread(lan.now, origin));
        steps += 1;
    }
    assert!(steps >= 30 * BINDINGS as usize / 1200, "{steps}");
}

#[test]
fn few_receivers_get_their_copies_at_once() {
    let mut lan = Lan::new(1);
    lan.run(3000);
    begin_turns(&mut lan);
    let ports = open_many(&mut lan, 0, 2);
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    assert_eq!(multicast(&mut lan, sender, b"1"), Ok(1));
    assert!(!lan.nodes[0].is_collecting(sender) && lan.nodes[0].take_spread().is_none());
    assert_eq!(received(&mut lan, 0, &ports), [b"1", b"1"]);
}

#[test]
fn receivers_with_a_lane_are_reported_when_all_are_known() {
    let (mut lan, ports) = crowded(1, 9);
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    let mut by_lane = vec![ports[0][2], ports[0][7]];
    by_lane.sort_unstable();
    by_lane.iter().for_each(|to| lan.nodes[0].add_lane(sender, *to));
    multicast(&mut lan, sender, b"1").unwrap();
    assert!(lan.nodes[0].take_diverted().is_empty() && lan.nodes[0].take_collected().is_none());
    let origin = lan.nodes[0].take_spread().unwrap().0;
    while lan.nodes[0].is_collecting(sender) {
        assert_eq!(lan.nodes[0].take_collected(), None);
        lan.nodes[0].continue_spread(lan.now, origin);
    }
    assert_eq!(lan.nodes[0].take_collected(), Some((sender, by_lane.clone())));
    while lan.nodes[0].continue_spread(lan.now, origin) {}
    for (port, got) in ports[0].iter().zip(received(&mut lan, 0, &ports[0])) {
        let expected: &[u8] = if by_lane.contains(port) { b"" } else { b"1" };
        assert_eq!(got, expected);
    }
}

#[test]
fn sockets_that_bind_and_close_meanwhile_do_not_disturb_the_others() {
    let (mut lan, ports) = crowded(1, 12);
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    multicast(&mut lan, sender, b"1").unwrap();
    let (origin, now) = (lan.nodes[0].take_spread().unwrap().0, lan.now);
    let (gone, stay) = ports[0].split_at(6);
    let mut closing = gone.iter();
    while lan.nodes[0].continue_spread(now, origin) {
        if let Some(port) = closing.next() {
            lan.nodes[0].close(now, *port);
            open_many(&mut lan, 0, 1);
        }
    }
    for got in received(&mut lan, 0, stay) {
        assert_eq!(got, b"1");
    }
    assert_eq!(multicast(&mut lan, sender, b"2"), Ok(1));
}

#[test]
fn multicast_of_a_sender_that_closes_meanwhile_reaches_all() {
    let (mut lan, ports) = crowded(2, 9);
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    lan.nodes[0].set_user(sender, USER);
    multicast(&mut lan, sender, b"1").unwrap();
    let (origin, now) = (lan.nodes[0].take_spread().unwrap().0, lan.now);
    assert!(lan.nodes[0].continue_spread(now, origin));
    lan.nodes[0].close(now, sender);
    while lan.nodes[0].continue_spread(now, origin) {}
    finish(&mut lan);
    for (node, ports) in ports.iter().enumerate() {
        for got in received(&mut lan, node, ports) {
            assert_eq!(got, b"1", "node {node}");
        }
    }
    assert_eq!(lan.nodes[0].ledger().used_by(USER, Resource::Memory), 0);
}

#[test]
fn multicast_is_returned_if_its_receivers_exceed_the_memory_of_its_user() {
    let (mut lan, ports) = crowded(1, 30);
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    lan.nodes[0].set_user(sender, USER);
    let off = OptionValue::Number(0);
    lan.nodes[0].set_option(lan.now, sender, SocketOption::DestDroppable, off).unwrap();
    multicast(&mut lan, sender, b"1").unwrap();
    let mut user = Amounts::all(u64::MAX);
    user.set(Resource::Memory, lan.nodes[0].ledger().used_by(USER, Resource::Memory) + 8 * 10);
    lan.nodes[0].ledger_mut().set_quotas(Quotas { user, ..Quotas::unlimited() });
    finish(&mut lan);
    assert!(received(&mut lan, 0, &ports[0]).iter().all(Vec::is_empty), "all or none");
    let mut buffer = [0; MESSAGE_OVERHEAD];
    let got = lan.nodes[0].recv(lan.now, sender, &mut buffer, RecvOptions::default()).unwrap();
    assert!(got.returned.is_some());
    assert_eq!(lan.nodes[0].ledger().used_by(USER, Resource::Memory), 0);
    assert_eq!(lan.nodes[0].send(lan.now, sender, b"2", Some(Destination::service(SERVICE, 7))), Ok(1));
}
