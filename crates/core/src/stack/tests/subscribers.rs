//! Subscribers of a node that limits its turns: their work is done in steps.

use super::*;
use crate::limits::TOPOLOGY_SERVER;
use crate::quota::{Resource, UserId};
use crate::stack::SubscriberWork;
use crate::stack::serve::{STEP_EVENTS, STEP_ITEMS, STEP_VISITS};
use crate::topology::{ByteOrder, EventKind, FOREVER, Filter, Subscription, TopologyEvent};

const BINDINGS: u32 = 5000;
const USER: UserId = UserId(7);
const ALL: Subscription = Subscription {
    range: ServiceRange::new(500, 0, u32::MAX),
    timeout_ms: FOREVER,
    filter: Filter::PORTS,
    handle: [0; 8],
};

/// A node with many bindings of one socket, and subscribers.
struct Node {
    now: Time,
    stack: Stack,
    server: u32,
}

impl Node {
    fn new(bindings: u32) -> Self {
        let now = Time::from_millis(1000);
        let mut stack = Stack::new(now, StackConfig::default());
        let server = stack.open(now, SocketKind::Rdm).unwrap();
        let mut node = Self { now, stack, server };
        (0..bindings).for_each(|instance| node.bind(instance));
        node.stack.begin_turn(now, 1_000_000);
        node
    }

    fn bind(&mut self, instance: u32) {
        let range = ServiceRange::new(500, instance, instance);
        self.stack.bind(self.now, self.server, range, Scope::Cluster).unwrap();
    }

    fn unbind(&mut self, instance: u32) {
        let range = ServiceRange::new(500, instance, instance);
        self.stack.unbind(self.now, self.server, Some((range, Scope::Cluster))).unwrap();
    }

    fn subscriber(&mut self) -> u32 {
        let port = self.stack.open(self.now, SocketKind::SeqPacket).unwrap();
        self.stack.set_user(port, USER);
        let to = Destination::service(TOPOLOGY_SERVER, TOPOLOGY_SERVER);
        self.stack.connect(self.now, port, Some(to)).unwrap();
        port
    }

    fn request(&mut self, port: u32, wish: Subscription) {
        self.stack.send(self.now, port, &wish.to_bytes(ByteOrder::NATIVE), None).unwrap();
    }

    /// Reads the events that have arrived.
    fn events(&mut self, port: u32) -> Vec<(EventKind, u32)> {
        let (mut buffer, mut events) = ([0; 100], Vec::new());
        while let Ok(got) = self.stack.recv(self.now, port, &mut buffer, RecvOptions::default()) {
            let event = TopologyEvent::from_bytes(&buffer[..got.len], ByteOrder::NATIVE).unwrap();
            events.push((event.kind, event.found.lower));
        }
        events
    }

    /// Does all steps that are due, and lets the subscriber read; the events, and the number of steps.
    fn finish(&mut self, port: u32) -> (Vec<(EventKind, u32)>, usize) {
        let (mut events, mut steps, mut due) = (Vec::new(), 0, Vec::new());
        loop {
            let before = events.len();
            events.extend(self.events(port));
            while let Some((user, work)) = self.stack.take_subscriber() {
                assert_eq!(user, USER);
                due.push(work);
            }
            if due.is_empty() && events.len() == before {
                return (events, steps);
            }
            let (now, stack) = (self.now, &mut self.stack);
            steps += due.len();
            due.retain(|work| stack.continue_subscriber(now, *work));
        }
    }
}

#[test]
fn first_events_of_a_subscription_are_sent_in_steps_and_changes_come_behind() {
    let mut node = Node::new(BINDINGS);
    let (large, small) = (node.subscriber(), node.subscriber());
    node.request(large, ALL);
    let (user, connection) = node.stack.take_subscriber().unwrap();
    assert_eq!((user, node.events(large)), (USER, vec![]));
    // Changes on both sides of what has been found, and another subscriber.
    for _ in 0..5 {
        assert!(node.stack.continue_subscriber(node.now, connection));
    }
    (0..10).for_each(|n| node.unbind(n * 500));
    node.bind(BINDINGS);
    node.unbind(BINDINGS - 1);
    node.request(small, Subscription { range: ServiceRange::new(500, 7, 7), ..ALL });
    assert_eq!(node.events(small), [(EventKind::Published, 7)], "another connection does not wait");
    assert_eq!(node.events(large), []);
    let mut steps = 5;
    while node.stack.continue_subscriber(node.now, connection) {
        steps += 1;
    }
    assert_eq!(node.stack.take_subscriber(), None);
    assert!(steps >= 2 * BINDINGS as usize / STEP_ITEMS, "{steps}");
    let (events, _) = node.finish(large);
    let first = (0..BINDINGS).map(|n| (EventKind::Published, n));
    let mut expected: Vec<_> = first.collect();
    expected.extend((0..10).map(|n| (EventKind::Withdrawn, n * 500)));
    expected.extend([(EventKind::Published, BINDINGS), (EventKind::Withdrawn, BINDINGS - 1)]);
    assert!(events == expected, "{} events", events.len());
    assert!(!node.stack.continue_subscriber(node.now, connection));
}

#[test]
fn cancellation_and_timeout_come_behind_the_first_events() {
    let mut node = Node::new(BINDINGS);
    let port = node.subscriber();
    let limited = Subscription { timeout_ms: 10, ..ALL };
    node.request(port, limited);
    node.request(port, ALL);
    node.request(port, Subscription { filter: ALL.filter.with(Filter::CANCEL), ..ALL });
    assert_eq!(node.stack.topology_stats().subscriptions, 1, "requests wait");
    node.now = node.now.plus_millis(20);
    node.stack.handle_timeout(node.now);
    assert_eq!(node.stack.topology_stats().subscriptions, 0);
    let (events, _) = node.finish(port);
    let all = || (0..BINDINGS).map(|n| (EventKind::Published, n));
    let expected: Vec<_> = all().chain([(EventKind::Timeout, 0)]).chain(all()).collect();
    assert!(events == expected, "{} events", events.len());
    assert_eq!(node.stack.topology_stats().subscriptions, 0);
    assert_eq!(node.stack.ledger().used_by(USER, Resource::Subscriptions), 0);
    node.unbind(1);
    assert_eq!(node.events(port), []);
}

#[test]
fn connection_that_ends_in_the_middle_leaves_nothing() {
    let mut node = Node::new(BINDINGS);
    let port = node.subscriber();
    node.request(port, ALL);
    let (_, connection) = node.stack.take_subscriber().unwrap();
    assert!(node.stack.continue_subscriber(node.now, connection));
    node.stack.close(node.now, port);
    assert!(!node.stack.continue_subscriber(node.now, connection));
    let stats = node.stack.topology_stats();
    assert_eq!((stats.connections, stats.subscriptions, stats.waiting_events), (0, 0, 0));
    assert_eq!(node.stack.ledger().used_by(USER, Resource::Subscriptions), 0);
    assert!(node.stack.is_balanced());
}

#[test]
fn each_step_sends_and_reads_a_bounded_number() {
    let mut node = Node::new(300);
    let port = node.subscriber();
    node.request(port, ALL);
    let (_, connection) = node.stack.take_subscriber().unwrap();
    let mut sent = node.events(port).len();
    assert_eq!(sent, 0);
    loop {
        let has_more = node.stack.continue_subscriber(node.now, connection);
        let events = node.events(port).len();
        assert!(events <= STEP_EVENTS, "{events} events in a step");
        sent += events;
        if !has_more {
            break;
        }
    }
    assert_eq!(sent, 300);
}

#[test]
fn node_without_limited_turns_sends_all_at_once() {
    let mut node = Node::new(0);
    node.stack = Stack::new(node.now, StackConfig::default());
    node.server = node.stack.open(node.now, SocketKind::Rdm).unwrap();
    (0..300).for_each(|n| node.bind(n));
    let port = node.subscriber();
    node.request(port, ALL);
    assert_eq!(node.events(port).len(), 300);
    assert_eq!(node.stack.take_subscriber(), None);
}

/// Subscriptions of one connection: more than a turn visits.
const SUBSCRIPTIONS: u32 = 5000;

/// A node with these subscriptions to a range each, and their connection.
fn subscribed(range: impl Fn(u32) -> ServiceRange) -> (Node, u32) {
    let mut node = Node::new(0);
    let port = node.subscriber();
    for n in 0..SUBSCRIPTIONS {
        node.request(port, Subscription { range: range(n), ..ALL });
        node.finish(port);
    }
    (node, port)
}

/// A change that concerns more subscriptions than a turn visits is announced in steps of their user.
#[test]
fn change_is_announced_to_many_subscriptions_in_steps_and_requests_wait() {
    let (mut node, port) = subscribed(|n| ServiceRange::new(500, n, u32::MAX));
    let mut expected = Vec::new();
    for instance in [SUBSCRIPTIONS, 2] {
        node.bind(instance);
        node.unbind(instance);
        for kind in [EventKind::Published, EventKind::Withdrawn] {
            (0..=instance.min(SUBSCRIPTIONS - 1)).for_each(|_| expected.push((kind, instance)));
        }
    }
    let late = Subscription { range: ServiceRange::new(600, 0, 0), ..ALL };
    node.request(port, late);
    let mut due: Vec<_> = std::iter::from_fn(|| node.stack.take_subscriber()).collect();
    let server = |node: &Node| node.stack.topology_stats();
    assert_eq!(server(&node).subscriptions, SUBSCRIPTIONS as usize, "the request waits");
    due.sort_unstable();
    let party = due.pop().unwrap();
    assert!(matches!(party, (USER, SubscriberWork::Party(_))), "{party:?}");
    let (mut made, mut steps) = (server(&node).waiting_events, 0);
    assert!(made <= STEP_VISITS, "{made}");
    while node.stack.continue_subscriber(node.now, party.1) {
        let now_made = server(&node).waiting_events;
        assert!(now_made - made <= STEP_VISITS, "{made} {now_made}");
        made = now_made;
        steps += 1;
    }
    assert!(steps >= 2 * SUBSCRIPTIONS as usize / STEP_VISITS, "{steps}");
    let mut events = Vec::new();
    while !due.is_empty() {
        due.retain(|(_, work)| node.stack.continue_subscriber(node.now, *work));
        due.extend(std::iter::from_fn(|| node.stack.take_subscriber()));
        events.extend(node.events(port));
    }
    events.extend(node.finish(port).0);
    assert!(events == expected, "{} events of {}", events.len(), expected.len());
    assert_eq!(server(&node).subscriptions, SUBSCRIPTIONS as usize + 1);
}

/// What is charged for the subscriptions of a connection that ends is released as they are freed.
#[test]
fn connection_with_many_subscriptions_is_freed_in_steps_of_its_user() {
    let (mut node, port) = subscribed(|n| ServiceRange::new(500, n, n));
    let used = |node: &Node| node.stack.ledger().used_by(USER, Resource::Subscriptions);
    assert_eq!(used(&node), u64::from(SUBSCRIPTIONS));
    node.stack.close(node.now, port);
    let (user, work) = node.stack.take_subscriber().unwrap();
    let (mut left, mut steps) = (used(&node), 0);
    assert_eq!((user, node.stack.topology_stats().connections), (USER, 0));
    while node.stack.continue_subscriber(node.now, work) {
        assert!(left - used(&node) <= STEP_VISITS as u64 / 4, "{left} {}", used(&node));
        left = used(&node);
        steps += 1;
    }
    assert!(steps >= 4 * SUBSCRIPTIONS as usize / STEP_VISITS - 2, "{steps}");
    assert_eq!((used(&node), node.stack.topology_stats().subscriptions), (0, 0));
    assert_eq!((node.stack.take_subscriber(), node.stack.is_balanced()), (None, true));
}
