//! Bounds of the steps in which changes are announced and connections are freed.

use super::*;
use crate::addr::{Binding, NodeAddr, PortId, Scope, ServiceRange};
use crate::names::{Change, NameTable};
use crate::quota::UserId;
use crate::time::Time;

const STEP: usize = 1024;
const ONE: Party = Party { user: Some(UserId(1)), node: NodeAddr::NONE };
const TWO: Party = Party { user: Some(UserId(2)), node: NodeAddr::NONE };

fn subscribe(server: &mut TopologyServer, connection: u32, range: ServiceRange) {
    subscribe_until(server, connection, range, FOREVER);
}

fn subscribe_until(server: &mut TopologyServer, connection: u32, range: ServiceRange, timeout_ms: u32) {
    let wish = Subscription { range, timeout_ms, filter: Filter::PORTS, handle: [0; 8] };
    let table = NameTable::new(NodeAddr(1), false);
    let bytes = wish.to_bytes(ByteOrder::NATIVE);
    server.request(Time::ZERO, connection, &bytes, &table, &mut usize::MAX.clone()).unwrap();
}

fn change(service: u32, instance: u32) -> Change {
    let range = ServiceRange::new(service, instance, instance);
    let port = PortId { port: 1, node: NodeAddr(1) };
    let binding = Binding { range, scope: Scope::Cluster, port, key: 1 };
    Change { binding, up: true, edge: true, age: 0, is_oldest: true }
}

fn events(server: &mut TopologyServer, connection: u32) -> Vec<TopologyEvent> {
    let mut events = Vec::new();
    while let Some(event) = server.next_event(connection).copied() {
        server.event_sent(connection);
        events.push(TopologyEvent::from_bytes(&event, ByteOrder::NATIVE).unwrap());
    }
    events
}

/// One user with as many subscriptions as a node may have: {100, 0} to {100, 16,383} on each connection.
fn full() -> TopologyServer {
    let mut server = TopologyServer::new();
    for n in 0..MAX_SUBSCRIPTIONS as u32 {
        let (connection, instance) = (n / MAX_CONNECTION_SUBSCRIPTIONS as u32, n % (1 << 14));
        server.connect(connection, ONE).unwrap();
        subscribe(&mut server, connection, ServiceRange::new(100, instance, u32::MAX));
    }
    assert_eq!(server.stats().subscriptions, MAX_SUBSCRIPTIONS);
    server
}

#[test]
fn no_step_for_all_subscriptions_visits_more_than_its_budget() {
    let mut server = full();
    let mut budget = STEP;
    server.announce(&change(100, u32::MAX), &mut budget);
    server.announce(&change(99, 1), &mut budget);
    assert_eq!((budget, server.stats().waiting_events), (0, STEP));
    let mut made = STEP;
    while server.catch_up(ONE, &mut STEP.clone()) {
        assert_eq!(server.stats().waiting_events - made, STEP);
        made += STEP;
    }
    assert_eq!(server.stats().waiting_events, MAX_SUBSCRIPTIONS);
    for connection in 0..4 {
        let instances = events(&mut server, connection).into_iter().map(|e| e.subscription.range.lower);
        let count = MAX_SUBSCRIPTIONS as u32 - 3 * (1 << 14);
        let newest = if connection == 3 { count } else { 1 << 14 };
        assert!(instances.eq((0..newest).rev()), "the newest subscription comes first");
    }
}

#[test]
fn subscriptions_to_other_instances_count_as_visits() {
    let mut server = TopologyServer::new();
    server.connect(1, ONE).unwrap();
    (0..5000).for_each(|n| subscribe(&mut server, 1, ServiceRange::new(100, 7, 7 + n)));
    server.announce(&change(100, 1), &mut 0);
    let mut steps = 1;
    while server.catch_up(ONE, &mut STEP.clone()) {
        steps += 1;
    }
    assert_eq!((steps, server.stats().waiting_events), (5000 / STEP + 1, 0));
}

#[test]
fn connection_with_many_subscriptions_is_freed_in_steps() {
    let mut server = full();
    server.take_charges();
    let mut left = MAX_SUBSCRIPTIONS;
    server.disconnect(1, &mut STEP.clone());
    loop {
        let freed = left - server.stats().subscriptions;
        assert!((1..=STEP / FREE_VISITS).contains(&freed), "{freed}");
        assert_eq!(server.take_charges()[&UserId(1)], -(freed as i64));
        left -= freed;
        assert!(server.is_preparing(0), "requests wait until there is room");
        if !server.catch_up(ONE, &mut STEP.clone()) {
            break;
        }
    }
    left = server.stats().subscriptions;
    assert_eq!(left, MAX_SUBSCRIPTIONS - MAX_CONNECTION_SUBSCRIPTIONS);
    assert!(!server.is_preparing(0));
}

#[test]
fn later_connection_with_the_same_number_gets_nothing_of_an_earlier_one() {
    let mut server = TopologyServer::new();
    server.connect(1, ONE).unwrap();
    let range = ServiceRange::new(100, 0, 9);
    (0..50).for_each(|_| subscribe_until(&mut server, 1, range, 10));
    server.disconnect(1, &mut 0);
    server.connect(1, TWO).unwrap();
    subscribe(&mut server, 1, range);
    server.announce(&change(100, 1), &mut 30);
    server.handle_timeout(Time::from_millis(10));
    while server.catch_up(ONE, &mut 3) || server.catch_up(TWO, &mut 3) {}
    assert_eq!(events(&mut server, 1).len(), 1);
    assert_eq!((server.stats().subscriptions, server.deadline()), (1, None));
    let charges = server.take_charges();
    assert_eq!((charges[&UserId(1)], charges[&UserId(2)]), (0, 1));
}

#[test]
fn party_that_is_behind_is_reported_once_and_delays_no_other() {
    let mut server = TopologyServer::new();
    for (connection, party) in [(1, ONE), (2, ONE), (3, TWO)] {
        server.connect(connection, party).unwrap();
        subscribe(&mut server, connection, ServiceRange::new(100 * connection, 0, 9));
    }
    server.announce(&change(100, 1), &mut 0);
    server.announce(&change(100, 2), &mut 10);
    server.announce(&change(300, 1), &mut 10);
    assert_eq!((server.poll_behind(), server.poll_behind()), (Some(ONE), None));
    assert!(server.is_preparing(1) && server.is_preparing(2) && !server.is_preparing(3));
    assert_eq!(events(&mut server, 3).len(), 1);
    let table = NameTable::new(NodeAddr(1), false);
    assert!(server.prepare(2, &table, &mut 1) && !server.prepare(2, &table, &mut 2));
    let found: Vec<_> = events(&mut server, 1).iter().map(|e| e.found.lower).collect();
    assert_eq!(found, [1, 2]);
    server.announce(&change(100, 3), &mut 0);
    assert_eq!(server.poll_behind(), Some(ONE));
}

#[test]
fn connections_that_lack_too_many_changes_are_closed_in_steps() {
    let mut server = TopologyServer::new();
    for (connection, service) in [(1, 100), (2, 100), (3, 200), (4, 300)] {
        server.connect(connection, ONE).unwrap();
        subscribe_until(&mut server, connection, ServiceRange::new(service, 0, 9), 10);
    }
    for n in 0..MAX_WAITING_CHANGES as u32 {
        server.announce(&change(100 + n % 2 * 50, 1), &mut 0);
        server.announce(&change(100, 1), &mut 0);
    }
    server.handle_timeout(Time::from_millis(10));
    server.announce(&change(300, 2), &mut 0);
    let mut steps = 0;
    while server.catch_up(ONE, &mut STEP.clone()) {
        steps += 1;
    }
    assert!(steps >= MAX_WAITING_CHANGES / STEP, "{steps}");
    let mut closed: Vec<_> = std::iter::from_fn(|| server.poll_closed()).collect();
    closed.sort_unstable();
    assert_eq!(closed, [1, 2, 4].map(|connection| (connection, Close::Overflow)));
    let kinds = |events: Vec<TopologyEvent>| events.iter().map(|e| e.kind).collect::<Vec<_>>();
    assert_eq!(kinds(events(&mut server, 3)), [EventKind::Timeout]);
    assert_eq!(server.stats(), TopologyStats { connections: 1, closed_overflow: 3, ..Default::default() });
    assert!(!server.is_preparing(3));
}

/// Parties that do not catch up leave room for one that does.
#[test]
fn changes_of_all_parties_together_are_limited() {
    let mut server = TopologyServer::new();
    let parties = 20;
    for number in 0..=parties {
        let party = Party { user: None, node: NodeAddr(1 + number) };
        server.connect(number, party).unwrap();
        subscribe(&mut server, number, ServiceRange::new(100, 0, 9));
    }
    let honest = Party { user: None, node: NodeAddr(1 + parties) };
    for n in 0..MAX_WAITING_CHANGES {
        server.announce(&change(100, 1), &mut 0);
        if n % 100 == 99 {
            while server.catch_up(honest, &mut STEP.clone()) {}
            assert_eq!(events(&mut server, parties).len(), 100, "{n}");
        }
    }
    while let Some(party) = server.poll_behind() {
        while server.catch_up(party, &mut STEP.clone()) {}
    }
    let closed: Vec<_> =
        std::iter::from_fn(|| server.poll_closed()).map(|(connection, _)| connection).collect();
    assert!(!closed.is_empty() && !closed.contains(&parties), "{closed:?}");
}
