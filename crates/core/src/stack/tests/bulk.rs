//! The bindings that a new peer gets, in portions.

use super::*;
use crate::addr::Binding;
use crate::names::BULK_PORTION;

const SERVICE: u32 = 1000;
const BINDINGS: u32 = 5000;

/// Two nodes that do not see each other; node 0 limits its turns and has a socket with many bindings.
fn apart() -> (Lan, u32) {
    let mut lan = Lan::new(2);
    lan.cut.push((1, 0));
    lan.run(3000);
    begin_turn(&mut lan);
    let now = lan.now;
    let port = lan.nodes[0].open(now, SocketKind::Rdm).unwrap();
    for lower in 0..BINDINGS {
        let range = ServiceRange::new(SERVICE, lower, lower + lower % 7);
        lan.nodes[0].bind(now, port, range, Scope::Cluster).unwrap();
    }
    (lan, port)
}

fn begin_turn(lan: &mut Lan) {
    let now = lan.now;
    lan.nodes[0].begin_turn(now, 1_000_000);
}

fn is_sending(lan: &Lan) -> bool {
    lan.nodes[0].deadline() == Some(Time::ZERO)
}

/// Lets the nodes see each other until node 0 has sent the first portion.
fn meet(lan: &mut Lan) {
    lan.cut.clear();
    for _ in 0..100_000 {
        lan.exchange();
        if is_sending(lan) {
            return;
        }
        let next = lan.nodes.iter().filter_map(Stack::deadline).min().unwrap();
        lan.now = lan.now.max(next);
        for node in &mut lan.nodes {
            if node.deadline().is_some_and(|deadline| deadline <= lan.now) {
                node.handle_timeout(lan.now);
            }
        }
    }
    panic!("no contact");
}

fn go_on(lan: &mut Lan) {
    for _ in 0..100 {
        begin_turn(lan);
        lan.run(100);
    }
}

/// The bindings of node 0 that a node knows.
fn known(lan: &Lan, node: usize) -> Vec<Binding> {
    let owner = lan.nodes[0].own_node();
    let mut all = lan.nodes[node].bindings();
    all.retain(|binding| binding.port.node == owner && binding.scope == Scope::Cluster);
    all.sort();
    all
}

#[test]
fn bindings_reach_a_new_peer_in_portions_whatever_changes_meanwhile() {
    let (mut lan, port) = apart();
    meet(&mut lan);
    let mut barrier = lan.nodes[0].begin_barrier(lan.now);
    let mut portions = 1;
    while is_sending(&lan) {
        assert_eq!(lan.nodes[0].informed_peers(), 0, "messages of the peer are held");
        let now = lan.now;
        assert_eq!(lan.nodes[0].awaited(now, &mut barrier), [lan.nodes[1].own_node()]);
        for at in [portions, BINDINGS / 2, BINDINGS - portions] {
            let range = ServiceRange::new(SERVICE, at, at + at % 7);
            lan.nodes[0].unbind(now, port, Some((range, Scope::Cluster))).ok();
        }
        lan.nodes[0].bind(now, port, ServiceRange::new(SERVICE, portions, 9999), Scope::Cluster).unwrap();
        lan.nodes[0].handle_timeout(now);
        begin_turn(&mut lan);
        lan.exchange();
        portions += 1;
    }
    assert!(portions as usize > BINDINGS as usize / BULK_PORTION, "{portions}");
    go_on(&mut lan);
    assert_eq!(known(&lan, 1), known(&lan, 0));
    assert_eq!((lan.nodes[0].informed_peers(), lan.nodes[1].informed_peers()), (1, 1));
    let now = lan.now;
    assert_eq!(lan.nodes[0].awaited(now, &mut barrier), []);
    assert_eq!((lan.up(0), lan.up(1)), (1, 1));
}

#[test]
fn barrier_that_begins_before_the_last_portion_waits_for_it() {
    let (mut lan, _) = apart();
    meet(&mut lan);
    let mut barrier = lan.nodes[0].begin_barrier(lan.now);
    while is_sending(&lan) {
        lan.exchange();
        lan.nodes[0].handle_timeout(lan.now);
    }
    // The last portion is under way.
    let now = lan.now;
    assert_eq!(lan.nodes[0].awaited(now, &mut barrier), [lan.nodes[1].own_node()]);
    go_on(&mut lan);
    let now = lan.now;
    assert_eq!(lan.nodes[0].awaited(now, &mut barrier), []);
    assert_eq!(known(&lan, 1), known(&lan, 0));
}

#[test]
fn peer_that_is_lost_between_two_portions_gets_all_bindings_again() {
    let (mut lan, port) = apart();
    meet(&mut lan);
    lan.cut.push((1, 0));
    go_on(&mut lan);
    assert_eq!((lan.up(0), known(&lan, 1)), (0, Vec::new()));
    lan.nodes[0].bind(lan.now, port, RANGE, Scope::Cluster).unwrap();
    lan.cut.clear();
    go_on(&mut lan);
    assert_eq!((lan.up(0), lan.up(1)), (1, 1));
    assert_eq!(known(&lan, 1), known(&lan, 0));
    // Messages of the peer are not held any more.
    let sender = lan.nodes[1].open(lan.now, SocketKind::Rdm).unwrap();
    let to = Destination::service(RANGE.service, RANGE.lower);
    lan.nodes[1].send(lan.now, sender, b"hello", Some(to)).unwrap();
    go_on(&mut lan);
    assert_eq!(lan.recv(0, port), b"hello");
}

#[test]
fn few_bindings_are_sent_at_once() {
    let mut lan = Lan::new(2);
    begin_turn(&mut lan);
    let port = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    lan.nodes[0].bind(lan.now, port, RANGE, Scope::Cluster).unwrap();
    lan.run(3000);
    assert!(!is_sending(&lan));
    assert_eq!(lan.nodes[0].informed_peers(), 1);
    assert_eq!(known(&lan, 1), known(&lan, 0));
}
