//! Barriers through both engines: an embedded node, and processes of a daemon.

use std::thread;
use std::time::Duration;

use crate::common::{Engine, LIMIT, alone, interrupted, on_each_engine, pair};
use utipc::{Error, Scope, ServiceAddress, ServiceRange};

on_each_engine!(
    bindings_are_known_everywhere_after_a_barrier,
    message_finds_the_bindings_that_precede_it,
    barrier_without_neighbours_returns_at_once,
    node_that_does_not_answer_is_named,
    threads_wait_for_barriers_of_their_own,
);

const TYPE: u32 = 4400;

fn bindings_are_known_everywhere_after_a_barrier(engine: Engine) {
    let [red, blue] = pair(engine);
    let socket = red.rdm().unwrap();
    for instance in 0..50 {
        let service = ServiceAddress::new(TYPE, instance);
        socket.bind(service, Scope::Cluster).unwrap();
        red.barrier(LIMIT).unwrap();
        assert_eq!(blue.lookup(service).map(|port| port.node), Some(red.address()), "{instance}");
    }
    socket.unbind(ServiceRange::new(TYPE, 0, 0), Scope::Cluster).unwrap();
    red.again().barrier(LIMIT).unwrap();
    assert_eq!(blue.lookup(ServiceAddress::new(TYPE, 0)), None);
}

fn message_finds_the_bindings_that_precede_it(engine: Engine) {
    let [red, blue] = pair(engine);
    let (sender, receiver) = (red.rdm().unwrap(), blue.rdm().unwrap());
    let at = receiver.port();
    for instance in 0..50 {
        let service = ServiceAddress::new(TYPE, instance);
        sender.bind(service, Scope::Cluster).unwrap();
        sender.send_to(b"it is there", at).unwrap();
        receiver.within(LIMIT).receive().unwrap();
        assert!(blue.lookup(service).is_some(), "{instance}");
    }
}

fn barrier_without_neighbours_returns_at_once(engine: Engine) {
    let node = alone(engine);
    node.rdm().unwrap().bind(ServiceAddress::new(TYPE, 1), Scope::Cluster).unwrap();
    node.barrier(Duration::ZERO).unwrap();
}

fn node_that_does_not_answer_is_named(engine: Engine) {
    let (nodes, wire) = interrupted(engine);
    let [red, blue] = &nodes;
    let service = ServiceAddress::new(TYPE, 1);
    let socket = red.rdm().unwrap();
    wire.interrupt(true);
    socket.bind(service, Scope::Cluster).unwrap();
    for limit in [Duration::ZERO, Duration::from_millis(50)] {
        let error = red.barrier(limit).unwrap_err();
        assert!(error.is_timeout() && error.is_temporary(), "{error}");
        assert!(matches!(&error, Error::Awaited { nodes } if *nodes == [blue.address()]), "{error}");
    }
    wire.interrupt(false);
    red.barrier(LIMIT).unwrap();
    assert!(blue.lookup(service).is_some());
}

fn threads_wait_for_barriers_of_their_own(engine: Engine) {
    let (nodes, wire) = interrupted(engine);
    let [red, blue] = &nodes;
    let socket = red.rdm().unwrap();
    wire.interrupt(true);
    socket.bind(ServiceAddress::new(TYPE, 1), Scope::Cluster).unwrap();
    thread::scope(|scope| {
        let early = scope.spawn(|| red.barrier(Duration::from_millis(20)));
        let waiting: Vec<_> = (0..8).map(|_| scope.spawn(|| red.barrier(LIMIT))).collect();
        assert!(early.join().unwrap().unwrap_err().is_timeout());
        wire.interrupt(false);
        for thread in waiting {
            thread.join().unwrap().unwrap();
        }
    });
    assert!(blue.lookup(ServiceAddress::new(TYPE, 1)).is_some());
}
