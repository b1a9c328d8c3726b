//! Changes and first events of subscriptions in parts, between which bindings and connections come and go.

use super::*;
use crate::addr::{NodeAddr, Scope, ServiceRange};
use crate::names::{Change, MAX_USER_BINDINGS, NameTable};
use crate::quota::UserId;
use crate::rng::Rng;
use crate::time::Time;

const OWN: NodeAddr = NodeAddr(0x0100_1001);
const CONNECTIONS: u32 = 4;
const ALL: usize = usize::MAX;

/// A server that works in parts beside one that does everything at once. Two connections each have one party.
struct Pair {
    table: NameTable,
    parts: TopologyServer,
    whole: TopologyServer,
    /// Events that were read from both, by connection.
    seen: [[Vec<[u8; EVENT_LEN]>; CONNECTIONS as usize]; 2],
    now: Time,
    rng: Rng,
    spread: u64,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut pair = Self {
            table: NameTable::new(OWN, false),
            parts: TopologyServer::new(),
            whole: TopologyServer::new(),
            seen: Default::default(),
            now: Time::ZERO,
            rng: Rng::new(seed),
            spread: [3, 30, 300][seed as usize % 3],
        };
        for connection in 0..CONNECTIONS {
            pair.connect(connection);
        }
        pair
    }

    fn party(connection: u32) -> Party {
        Party { user: Some(UserId(connection / 2)), node: NodeAddr::NONE }
    }

    fn connect(&mut self, connection: u32) {
        self.parts.connect(connection, Self::party(connection)).unwrap();
        self.whole.connect(connection, Self::party(connection)).unwrap();
    }

    /// Ends a connection, whose number is used again at once. The server that works in parts has sent no other events.
    fn replace(&mut self, connection: u32) {
        self.read(ALL);
        let of_it = connection as usize;
        let [parts, whole] = &mut self.seen;
        assert!(whole[of_it].starts_with(&parts[of_it]));
        parts[of_it].clear();
        whole[of_it].clear();
        let mut budget = self.rng.below(20) as usize;
        self.parts.disconnect(connection, &mut budget);
        self.whole.disconnect(connection, &mut ALL.clone());
        self.connect(connection);
    }

    fn catch_up(&mut self, connection: u32) -> bool {
        let mut budget = self.rng.below(10) as usize;
        self.parts.catch_up(Self::party(connection), &mut budget)
    }

    fn range(&mut self) -> ServiceRange {
        let lower = self.rng.below(self.spread) as u32;
        let width = if self.rng.below(4) == 0 { self.spread } else { 2 };
        ServiceRange::new(100 + self.rng.below(2) as u32, lower, lower + self.rng.below(width) as u32)
    }

    fn announce(&mut self, change: &Change) {
        let mut budget = self.rng.below(12).saturating_sub(4) as usize;
        self.parts.announce(change, &mut budget);
        self.whole.announce(change, &mut ALL.clone());
    }

    fn bind(&mut self) {
        let (port, range) = (self.rng.below(60) as u32 + 1, self.range());
        let scope = if self.rng.below(3) == 0 { Scope::Node } else { Scope::Cluster };
        let change = self.table.bind(port, range, scope).unwrap();
        self.announce(&change);
    }

    /// Withdraws the newest binding of a port, or all: the table is ahead of the changes then.
    fn unbind(&mut self) {
        let port = self.rng.below(60) as u32 + 1;
        let newest = self.table.port_bindings(port).next();
        let which = newest.filter(|_| self.rng.below(4) > 0).map(|b| (b.range, b.scope));
        for change in self.table.unbind(port, which).unwrap() {
            self.announce(&change);
        }
    }

    fn request(&mut self) {
        let filters = [Filter::PORTS, Filter::SERVICE];
        let mut filter = filters[self.rng.below(2) as usize];
        for more in [Filter::CLUSTER_SCOPE, Filter::NODE_SCOPE, Filter::NO_INITIAL_STATE, Filter::CANCEL] {
            filter = if self.rng.below(5) == 0 { filter.with(more) } else { filter };
        }
        let timeout_ms = if self.rng.below(3) == 0 { self.rng.below(50) as u32 } else { FOREVER };
        let wish = Subscription { range: self.range(), timeout_ms, filter, handle: [0; 8] };
        let (bytes, connection) = (wish.to_bytes(ByteOrder::NATIVE), self.connection());
        let Self { table, parts, whole, now, rng, .. } = self;
        let mut budget = rng.below(20) as usize;
        let result = parts.request(*now, connection, &bytes, table, &mut budget);
        assert_eq!(whole.request(*now, connection, &bytes, table, &mut usize::MAX.clone()), result);
        assert!(!whole.is_preparing(connection));
        assert_eq!(result, Ok(()));
    }

    fn connection(&mut self) -> u32 {
        self.rng.below(u64::from(CONNECTIONS)) as u32
    }

    fn prepare(&mut self, connection: u32) -> bool {
        let mut budget = self.rng.below(20) as usize;
        self.parts.prepare(connection, &self.table, &mut budget)
    }

    /// Reads some events of both servers.
    fn read(&mut self, most: usize) {
        for (server, seen) in [&mut self.parts, &mut self.whole].into_iter().zip(&mut self.seen) {
            for (connection, seen) in (0..).zip(seen) {
                for _ in 0..most {
                    let Some(event) = server.next_event(connection).copied() else { break };
                    server.event_sent(connection);
                    seen.push(event);
                }
            }
        }
    }

    fn time_out(&mut self) {
        self.now = self.now.plus_millis(self.rng.below(20));
        self.parts.handle_timeout(self.now);
        self.whole.handle_timeout(self.now);
    }

    /// Both servers have sent the same.
    fn finish(mut self, context: &str) {
        for connection in 0..CONNECTIONS {
            while self.prepare(connection) {}
        }
        self.read(ALL);
        let [parts, whole] = &self.seen;
        assert!(parts == whole, "{context}: {parts:02x?}\n{whole:02x?}");
        assert_eq!(self.parts.stats(), self.whole.stats(), "{context}");
        assert_eq!(self.parts.stats().waiting_events, 0, "{context}");
        assert_eq!(self.parts.deadline(), self.whole.deadline(), "{context}");
        let kept = |server: &mut TopologyServer| {
            let mut charges = server.take_charges();
            charges.retain(|_, charge| *charge != 0);
            charges
        };
        assert_eq!(kept(&mut self.parts), kept(&mut self.whole), "{context}");
    }
}

#[test]
fn events_are_the_same_as_without_parts() {
    let (mut prepared, mut behind) = (0, 0);
    for seed in 0..1000 {
        let mut pair = Pair::new(seed);
        (0..200).for_each(|_| pair.bind());
        for _ in 0..150 {
            let connection = pair.connection();
            match pair.rng.below(20) {
                0..3 => pair.request(),
                3..7 => pair.bind(),
                7..11 => pair.unbind(),
                11 => pair.time_out(),
                12 if pair.rng.below(3) == 0 => pair.replace(connection),
                13..17 => behind += u32::from(pair.catch_up(connection)),
                17 => {
                    let most = pair.rng.below(30) as usize;
                    pair.read(most);
                }
                _ => prepared += u32::from(pair.prepare(connection)),
            }
        }
        pair.finish(&format!("seed {seed}"));
    }
    assert!(prepared > 5000 && behind > 5000, "{prepared} {behind}");
}

#[test]
fn timeout_comes_behind_all_first_events() {
    let mut pair = Pair::new(1);
    (0..100).for_each(|_| pair.bind());
    let range = ServiceRange::new(100, 0, u32::MAX);
    let wish = Subscription { range, timeout_ms: 0, filter: Filter::PORTS, handle: [0; 8] };
    let Pair { table, parts, .. } = &mut pair;
    parts.request(Time::ZERO, 0, &wish.to_bytes(ByteOrder::NATIVE), table, &mut 10).unwrap();
    parts.handle_timeout(Time::ZERO);
    assert_eq!((parts.stats().subscriptions, parts.next_event(0)), (0, None));
    while parts.prepare(0, table, &mut 10) {}
    pair.read(usize::MAX);
    let kinds = pair.seen[0][0].iter().map(|e| TopologyEvent::from_bytes(e, ByteOrder::NATIVE).unwrap().kind);
    let kinds: Vec<_> = kinds.collect();
    let all = pair.table.snapshot(range, true).len();
    assert_eq!(kinds.iter().position(|kind| *kind == EventKind::Timeout), Some(all));
    assert_eq!(kinds.len(), all + 1);
}

#[test]
fn connection_that_ends_while_events_are_prepared_leaves_nothing() {
    for seed in 0..50 {
        let mut pair = Pair::new(seed);
        (0..200).for_each(|_| pair.bind());
        (0..20).for_each(|_| pair.request());
        (0..20).for_each(|_| pair.unbind());
        for connection in 0..CONNECTIONS {
            pair.prepare(connection);
            pair.parts.disconnect(connection, &mut 0);
            while pair.catch_up(connection) {}
        }
        assert_eq!(pair.parts.stats(), TopologyStats::default());
        (0..20).for_each(|_| pair.unbind());
        assert_eq!((pair.parts.stats(), pair.parts.deadline()), (TopologyStats::default(), None));
    }
}

/// A server with one subscription to all of a type with many bindings.
fn large(bindings: u32) -> (NameTable, TopologyServer, usize) {
    let (mut table, mut server) = (NameTable::new(OWN, false), TopologyServer::new());
    table.set_limit(MAX_USER_BINDINGS);
    for n in 0..bindings {
        table.bind(1 + n, ServiceRange::new(100, n, n), Scope::Cluster).unwrap();
    }
    server.connect(7, Party::default()).unwrap();
    let range = ServiceRange::new(100, 0, u32::MAX);
    let wish = Subscription { range, timeout_ms: FOREVER, filter: Filter::PORTS, handle: [0; 8] };
    server.request(Time::ZERO, 7, &wish.to_bytes(ByteOrder::NATIVE), &table, &mut 256).unwrap();
    let mut steps = 1;
    while server.prepare(7, &table, &mut 256) {
        steps += 1;
    }
    (table, server, steps)
}

#[test]
fn limit_of_waiting_events_holds_for_first_events() {
    let limit = MAX_WAITING_EVENTS;
    let (_, mut server, steps) = large(limit as u32);
    assert_eq!((server.stats().waiting_events, server.poll_closed()), (limit, None));
    assert!(steps >= 3 * limit / 256, "{steps}");
    let (_, mut server, _) = large(limit as u32 + 1);
    assert_eq!((server.stats().waiting_events, server.poll_closed()), (0, Some((7, Close::Overflow))));
    assert_eq!((server.stats().connections, server.stats().closed_overflow), (0, 1));
}

#[test]
fn limit_of_waiting_events_holds_for_those_behind_first_events() {
    let (mut table, mut server) = (NameTable::new(OWN, false), TopologyServer::new());
    table.bind(1, ServiceRange::new(100, 1, 1), Scope::Cluster).unwrap();
    server.connect(7, Party::default()).unwrap();
    let range = ServiceRange::new(100, 0, 9);
    let wish = Subscription { range, timeout_ms: FOREVER, filter: Filter::PORTS, handle: [0; 8] };
    server.request(Time::ZERO, 7, &wish.to_bytes(ByteOrder::NATIVE), &table, &mut 0).unwrap();
    let mut changes = 0;
    while server.poll_closed().is_none() {
        for change in table.bind(2, range, Scope::Cluster).into_iter().chain(table.unbind(2, None).unwrap()) {
            server.announce(&change, &mut ALL.clone());
            changes += 1;
        }
    }
    assert!((MAX_WAITING_EVENTS..MAX_WAITING_EVENTS + 3).contains(&changes), "{changes}");
    assert_eq!(server.stats().waiting_events, 0);
}
