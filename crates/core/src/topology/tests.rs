//! Tests of the rules of tipc.md §10, and a comparison with a kernel's server.

use super::*;
use crate::addr::{Binding, NodeAddr, PortId, Scope, ServiceRange};
use crate::names::{Change, NameItem, NameTable};
use crate::rng::Rng;
use crate::time::Time;
use crate::vectors::messages;
use crate::wire::User;

const OWN: NodeAddr = NodeAddr(0x0100_1001);
const PEER: NodeAddr = NodeAddr(0x0100_1002);
const NATIVE: ByteOrder = ByteOrder::NATIVE;

/// A server and a binding table, as in a node.
struct Node {
    table: NameTable,
    server: TopologyServer,
    now: Time,
}

impl Node {
    fn new() -> Self {
        let mut node =
            Self { table: NameTable::new(OWN, false), server: TopologyServer::new(), now: Time::ZERO };
        node.server.connect(1, Party::default()).unwrap();
        node
    }

    fn request(&mut self, connection: u32, bytes: &[u8]) -> Result<(), Close> {
        let Self { table, server, now } = self;
        server.request(*now, connection, bytes, table, &mut usize::MAX.clone())
    }

    fn subscribe(&mut self, wish: Subscription) {
        self.request(1, &wish.to_bytes(NATIVE)).unwrap();
    }

    fn change(&mut self, change: Change) {
        self.server.announce(&change, &mut usize::MAX.clone());
    }

    fn bind(&mut self, port: u32, lower: u32, upper: u32, scope: Scope) {
        let change = self.table.bind(port, ServiceRange::new(100, lower, upper), scope).unwrap();
        self.change(change);
    }

    fn unbind(&mut self, port: u32) {
        for change in self.table.unbind(port, None).unwrap() {
            self.change(change);
        }
    }

    fn raw_events(&mut self, connection: u32) -> Vec<[u8; EVENT_LEN]> {
        let mut events = Vec::new();
        while let Some(event) = self.server.next_event(connection).copied() {
            self.server.event_sent(connection);
            events.push(event);
        }
        events
    }

    fn events(&mut self) -> Vec<TopologyEvent> {
        self.raw_events(1).iter().map(|e| TopologyEvent::from_bytes(e, NATIVE).unwrap()).collect()
    }

    /// Events as (kind, lower, upper, port).
    fn brief(&mut self) -> Vec<(char, u32, u32, u32)> {
        let letter = |k| match k {
            EventKind::Published => '+',
            EventKind::Withdrawn => '-',
            EventKind::Timeout => 't',
        };
        self.events().iter().map(|e| (letter(e.kind), e.found.lower, e.found.upper, e.port.port)).collect()
    }
}

fn wish(lower: u32, upper: u32, filter: Filter) -> Subscription {
    let range = ServiceRange::new(100, lower, upper);
    Subscription { range, timeout_ms: FOREVER, filter, handle: *b"8 bytes!" }
}

#[test]
fn ports_filter_reports_every_binding_with_its_own_range() {
    let mut node = Node::new();
    node.bind(3, 5, 20, Scope::Cluster);
    node.bind(4, 5, 20, Scope::Cluster);
    node.bind(5, 50, 60, Scope::Cluster);
    node.subscribe(wish(10, 40, Filter::PORTS));
    assert_eq!(node.brief(), [('+', 5, 20, 3), ('+', 5, 20, 4)]);
    node.bind(6, 5, 20, Scope::Cluster);
    node.bind(7, 41, 41, Scope::Cluster);
    node.unbind(3);
    assert_eq!(node.brief(), [('+', 5, 20, 6), ('-', 5, 20, 3)]);
}

#[test]
fn service_filter_reports_first_and_last_binding_of_each_range() {
    let mut node = Node::new();
    node.bind(3, 5, 20, Scope::Cluster);
    node.bind(5, 0, u32::MAX, Scope::Cluster);
    node.bind(4, 5, 20, Scope::Cluster);
    node.subscribe(wish(10, 40, Filter::SERVICE));
    assert_eq!(node.brief(), [('+', 5, 20, 3), ('+', 0, u32::MAX, 5)]);
    node.unbind(3);
    node.bind(6, 6, 20, Scope::Cluster);
    node.unbind(4);
    assert_eq!(node.brief(), [('+', 6, 20, 6), ('-', 5, 20, 4)]);
}

#[test]
fn round_robin_does_not_change_the_order_of_events() {
    let mut node = Node::new();
    for port in 1..6 {
        node.bind(port, 7, 7, Scope::Cluster);
    }
    for _ in 0..3 {
        node.table.lookup(crate::addr::ServiceAddr { service: 100, instance: 7 }, NodeAddr::NONE);
    }
    node.subscribe(wish(0, 9, Filter::PORTS));
    assert_eq!(node.brief().iter().map(|e| e.3).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    node.subscribe(wish(0, 9, Filter::SERVICE));
    assert_eq!(node.brief(), [('+', 7, 7, 1)]);
}

#[test]
fn scope_filters_and_no_initial_state() {
    let mut node = Node::new();
    node.bind(3, 1, 1, Scope::Cluster);
    node.bind(4, 2, 2, Scope::Node);
    node.subscribe(wish(0, 9, Filter::PORTS.with(Filter::CLUSTER_SCOPE)));
    assert_eq!(node.brief(), [('+', 1, 1, 3)]);
    node.subscribe(wish(0, 9, Filter::PORTS.with(Filter::NODE_SCOPE)));
    assert_eq!(node.brief(), [('+', 2, 2, 4)]);
    node.subscribe(wish(3, 9, Filter::PORTS.with(Filter::NO_INITIAL_STATE)));
    node.bind(5, 9, 9, Scope::Cluster);
    let handles = node.events();
    assert_eq!(handles.len(), 2);
    assert_eq!(
        handles[0].subscription.filter,
        Filter::PORTS.with(Filter::NO_INITIAL_STATE),
        "the newest subscription comes first"
    );
    node.subscribe(wish(0, 9, Filter::PORTS.with(Filter::NO_INITIAL_STATE)));
    assert_eq!(node.brief(), []);
}

#[test]
fn timeout_is_the_last_event() {
    let mut node = Node::new();
    node.bind(3, 5, 5, Scope::Cluster);
    node.now = Time::from_millis(1000);
    node.subscribe(Subscription { timeout_ms: 500, ..wish(5, 9, Filter::PORTS) });
    assert_eq!(node.server.deadline(), Some(Time::from_millis(1500)));
    node.server.handle_timeout(Time::from_millis(1499));
    assert_eq!(node.brief(), [('+', 5, 5, 3)]);
    node.server.handle_timeout(Time::from_millis(1500));
    node.unbind(3);
    assert_eq!(node.brief(), [('t', 5, 9, 0)]);
    assert_eq!((node.server.stats().subscriptions, node.server.deadline()), (0, None));
}

#[test]
fn many_subscriptions_time_out_in_parts() {
    let mut node = Node::new();
    let count = 2 * TIMEOUTS_PER_CALL as u32 + 1;
    for n in 0..count {
        node.subscribe(Subscription { timeout_ms: 500, ..wish(n, n, Filter::PORTS) });
    }
    node.now = Time::from_millis(500);
    let mut timed_out = 0;
    for calls in 1.. {
        node.server.handle_timeout(node.now);
        let events = node.brief();
        assert!(events.len() <= TIMEOUTS_PER_CALL && events.iter().all(|event| event.0 == 't'));
        timed_out += events.len() as u32;
        if node.server.deadline().is_none() {
            assert_eq!((timed_out, calls), (count, 3));
            return;
        }
    }
}

#[test]
fn cancel_ends_the_newest_subscription_with_the_same_bytes() {
    let mut node = Node::new();
    let limited = Subscription { timeout_ms: 9000, ..wish(0, 9, Filter::PORTS) };
    for wanted in [limited, wish(0, 9, Filter::PORTS), limited] {
        node.subscribe(wanted);
    }
    let cancel = |s: Subscription| Subscription { filter: s.filter.with(Filter::CANCEL), ..s };
    node.subscribe(cancel(Subscription { handle: *b"another.", ..limited }));
    assert_eq!(node.server.stats().subscriptions, 3);
    node.subscribe(cancel(limited));
    assert_eq!(node.server.stats().subscriptions, 2);
    assert!(node.server.deadline().is_some());
    node.subscribe(cancel(limited));
    node.subscribe(cancel(limited));
    assert_eq!((node.server.stats().subscriptions, node.server.deadline()), (1, None));
    node.bind(1, 1, 1, Scope::Cluster);
    assert_eq!(node.brief().len(), 1);
}

#[test]
fn events_use_the_byte_order_of_the_request() {
    let other = NATIVE.swapped();
    let mut node = Node::new();
    node.bind(0x0102_0304, 5, 6, Scope::Cluster);
    let wanted = wish(1, 0x0001_0000, Filter::PORTS);
    node.request(1, &wanted.to_bytes(other)).unwrap();
    let raw = node.raw_events(1);
    let event = TopologyEvent::from_bytes(&raw[0], other).unwrap();
    assert_eq!(event.subscription, wanted);
    assert_eq!(event.port, PortId { port: 0x0102_0304, node: OWN });
    assert_eq!(event.to_bytes(other), raw[0]);
    assert_eq!(raw[0][20..], wanted.to_bytes(other), "the subscription is returned byte for byte");
    let cancel = Subscription { filter: wanted.filter.with(Filter::CANCEL), ..wanted };
    node.request(1, &cancel.to_bytes(other)).unwrap();
    assert_eq!(node.server.stats().subscriptions, 0);
    // No mark in either order: treated as foreign byte order, and like SERVICE.
    node.request(1, &wish(5, 5, Filter(0)).to_bytes(other)).unwrap();
    assert_eq!(TopologyEvent::from_bytes(&node.raw_events(1)[0], other).unwrap().found.upper, 6);
}

#[test]
fn bad_requests_end_the_connection() {
    let both = Filter::PORTS.with(Filter::SERVICE);
    let cases: [(Vec<u8>, Close); 4] = [
        (Vec::new(), Close::Size(0)),
        (vec![1; 27], Close::Size(27)),
        (wish(0, 1, both).to_bytes(NATIVE).to_vec(), Close::Contradiction),
        (wish(2, 1, Filter::PORTS).to_bytes(NATIVE).to_vec(), Close::Contradiction),
    ];
    for (bytes, why) in cases {
        let mut node = Node::new();
        node.subscribe(wish(0, 9, Filter::PORTS));
        assert_eq!(node.request(1, &bytes), Err(why));
        node.bind(1, 1, 1, Scope::Cluster);
        assert_eq!(node.server.next_event(1), None);
        let stats = node.server.stats();
        assert_eq!((stats.connections, stats.subscriptions, stats.closed_bad_request), (0, 0, 1));
    }
}

#[test]
fn limits_are_enforced() {
    let mut node = Node::new();
    let mut done = Ok(());
    for connection in 2..100 {
        node.server.connect(connection, Party::default()).unwrap();
        for i in 0..MAX_CONNECTION_SUBSCRIPTIONS as u32 + 1 {
            done = node.request(connection, &wish(i, i, Filter::PORTS).to_bytes(NATIVE));
            if done.is_err() {
                break;
            }
        }
        // Every connection uses up its quota and is closed at the next request, which frees the node's.
        assert_eq!(done, Err(Close::ConnectionFull));
        if connection == 3 {
            break;
        }
    }
    assert_eq!(node.server.stats().subscriptions, 0);
    for connection in 10..14 {
        node.server.connect(connection, Party::default()).unwrap();
        for i in 0..MAX_CONNECTION_SUBSCRIPTIONS as u32 {
            done = node.request(connection, &wish(i, i, Filter::PORTS).to_bytes(NATIVE));
        }
    }
    assert_eq!(done, Err(Close::NodeFull), "4 x 16384 is one more than the node may have");
    for connection in 1000..1000 + MAX_CONNECTIONS as u32 {
        let _ = node.server.connect(connection, Party::default());
    }
    assert_eq!(node.server.connect(9, Party::default()), Err(Close::TooManyConnections));
    assert_eq!(node.server.connect(1, Party::default()), Ok(()));
    assert_eq!(node.server.stats().connections, MAX_CONNECTIONS);
}

#[test]
fn subscriber_that_does_not_read_is_closed() {
    let mut node = Node::new();
    node.server.connect(2, Party::default()).unwrap();
    node.request(2, &wish(0, 9, Filter::PORTS).to_bytes(NATIVE)).unwrap();
    node.subscribe(wish(5, 5, Filter::PORTS));
    for i in 0..=MAX_WAITING_EVENTS as u32 / 2 {
        assert_eq!(node.server.poll_closed(), None, "{i}");
        node.bind(1, 1, 1, Scope::Cluster);
        node.unbind(1);
    }
    assert_eq!(node.server.poll_closed(), Some((2, Close::Overflow)));
    assert_eq!(node.server.stats().closed_overflow, 1);
    assert_eq!(node.server.stats().waiting_events, 0);
    node.bind(1, 5, 5, Scope::Cluster);
    assert_eq!(node.brief(), [('+', 5, 5, 1)], "the other one is untouched");
}

#[test]
fn ready_connection_is_reported_once_until_it_is_empty() {
    let mut node = Node::new();
    node.subscribe(wish(0, 9, Filter::PORTS));
    assert_eq!(node.server.poll_ready(), None);
    node.bind(1, 1, 1, Scope::Cluster);
    node.bind(2, 1, 1, Scope::Cluster);
    assert_eq!(node.server.poll_ready(), Some(1));
    assert_eq!(node.server.poll_ready(), None);
    assert_eq!(node.brief().len(), 2);
    node.unbind(1);
    assert_eq!(node.server.poll_ready(), Some(1));
    node.server.disconnect(1, &mut usize::MAX.clone());
    assert_eq!(node.server.stats(), TopologyStats::default());
}

#[test]
fn arbitrary_requests_do_not_panic() {
    let mut rng = Rng::new(9);
    let mut node = Node::new();
    node.bind(1, 0, 0x0100, Scope::Cluster);
    for _ in 0..50_000 {
        let connection = rng.below(4) as u32;
        let _ = node.server.connect(connection, Party::default());
        let mut bytes: Vec<u8> =
            (0..28).map(|_| if rng.below(4) == 0 { rng.below(256) as u8 } else { 0 }).collect();
        bytes[0] = 100;
        if rng.below(50) == 0 {
            bytes.truncate(rng.below(28) as usize);
        }
        let _ = node.request(connection, &bytes);
        node.now = node.now.plus_millis(rng.below(100));
        node.server.handle_timeout(node.now);
        node.raw_events(connection);
    }
    for connection in 0..4 {
        node.server.disconnect(connection, &mut usize::MAX.clone());
    }
    let stats = node.server.stats();
    assert_eq!((stats.subscriptions, stats.waiting_events), (0, 0));
    assert_eq!(node.server.deadline(), None);
}

/// Replays the kernel's capture: our server must answer the same requests with the same bytes.
#[test]
fn server_answers_like_the_kernels() {
    let mut node = Node::new();
    for own in [OWN, PEER] {
        let port = PortId { port: 0, node: own };
        let range = ServiceRange::new(0, own.0, own.0);
        node.table.publish(Binding { range, scope: Scope::Cluster, port, key: own.0 }).unwrap();
    }
    let mut checked = 0;
    for message in messages("topology-remote") {
        if message.user() == User::NameDistributor {
            let item = NameItem::all(message.view()).next().unwrap();
            let port = PortId { port: item.port, node: message.origin_node() };
            let change = if message.kind() == 0 {
                let binding = Binding { range: item.range, scope: Scope::Cluster, port, key: item.key };
                node.table.publish(binding).unwrap()
            } else {
                node.table.withdraw(item.range, port, item.key).unwrap()
            };
            node.change(change);
        } else if message.is_data() && message.kind() == 0 && !message.data().is_empty() {
            if message.origin_node() == PEER {
                let result = node.request(1, message.data());
                assert_eq!(result.is_err(), message.data() == b"short");
            } else {
                if message.data()[..4] == ByteOrder::Little.write(3) {
                    node.now = node.server.deadline().unwrap();
                    node.server.handle_timeout(node.now);
                }
                let ours = node.server.next_event(1).expect("the kernel sent an event");
                assert_eq!(ours, message.data());
                node.server.event_sent(1);
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 7);
    assert_eq!(node.server.stats().connections, 0);
}

/// A subscriber that does not read must not cost others their subscriptions.
#[test]
fn slowest_subscriber_is_closed_when_total_events_exceed_the_limit() {
    let mut node = Node::new();
    let range = ServiceRange::new(100, 0, u32::MAX);
    let wish = Subscription { range, timeout_ms: FOREVER, filter: Filter::PORTS, handle: [0; 8] };
    for connection in 2..=17 {
        node.server.connect(connection, Party::default()).unwrap();
        node.request(connection, &wish.to_bytes(NATIVE)).unwrap();
    }
    node.subscribe(wish);
    let binding = Binding {
        range: ServiceRange::new(100, 1, 1),
        scope: Scope::Cluster,
        port: PortId { port: 1, node: PEER },
        key: 1,
    };
    let changes = MAX_ALL_WAITING_EVENTS / 16 + 10;
    for _ in 0..changes {
        node.change(Change { binding, up: true, edge: true, age: 0, is_oldest: true });
        assert_eq!(node.raw_events(1).len(), 1);
    }
    let (closed, why) = node.server.poll_closed().unwrap();
    assert!((2..=17).contains(&closed) && why == Close::Overflow);
    assert_eq!(node.server.poll_closed(), None, "the room that it left is enough for now");
}
