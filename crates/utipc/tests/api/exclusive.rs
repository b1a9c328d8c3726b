//! Exclusive bindings through both engines.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::common::{Engine, LIMIT, alone, interrupted, on_each_engine, pair};
use utipc::{Error, Node, Scope, ServiceAddress, ServiceRange, Socket};

on_each_engine!(
    second_program_is_told_who_is_bound,
    plain_binding_takes_the_range_too,
    parts_of_a_range_are_taken_with_it,
    one_of_many_programs_gets_an_address,
    range_is_free_after_its_holder,
    node_scope_asks_no_other_node,
    neighbour_that_does_not_answer_is_named,
    invalid_range_is_refused_as_by_a_plain_binding,
);

const TYPE: u32 = 4500;

fn address(instance: u32) -> ServiceAddress {
    ServiceAddress::new(TYPE, instance)
}

fn bind(socket: &Socket, to: impl Into<ServiceRange>) -> utipc::Result<()> {
    socket.bind_exclusive(to, Scope::Cluster, LIMIT)
}

fn second_program_is_told_who_is_bound(engine: Engine) {
    let [red, blue] = pair(engine);
    let (here, there) = (red.rdm().unwrap(), blue.rdm().unwrap());
    bind(&here, address(1)).unwrap();
    for socket in [&there, &red.again().rdm().unwrap()] {
        let error = bind(socket, address(1)).unwrap_err();
        assert!(matches!(error, Error::Taken { by, .. } if by == here.port()), "{error}");
        assert_eq!(error.errno(), 98);
    }
    assert_eq!(blue.lookup(address(1)), Some(here.port()));
}

fn plain_binding_takes_the_range_too(engine: Engine) {
    let [red, blue] = pair(engine);
    let (here, there) = (red.rdm().unwrap(), blue.rdm().unwrap());
    here.bind(address(1), Scope::Cluster).unwrap();
    red.barrier(LIMIT).unwrap();
    assert!(matches!(bind(&there, address(1)), Err(Error::Taken { by, .. }) if by == here.port()));
    bind(&there, address(2)).unwrap();
}

fn parts_of_a_range_are_taken_with_it(engine: Engine) {
    let node = alone(engine);
    let sockets = [node.rdm().unwrap(), node.rdm().unwrap()];
    bind(&sockets[0], ServiceRange::new(TYPE, 10, 20)).unwrap();
    for range in [(10, 10), (0, 10), (20, 30), (0, 100), (12, 13)] {
        let refused = bind(&sockets[1], ServiceRange::new(TYPE, range.0, range.1));
        assert!(matches!(refused, Err(Error::Taken { .. })), "{range:?}");
    }
    bind(&sockets[1], ServiceRange::new(TYPE, 0, 9)).unwrap();
    bind(&sockets[1], ServiceRange::new(TYPE + 1, 10, 20)).unwrap();
}

fn one_of_many_programs_gets_an_address(engine: Engine) {
    let nodes = pair(engine);
    let programs: Vec<Node> = (0..8).map(|i| nodes[i % 2].again()).collect();
    for instance in 0..20 {
        let start = Barrier::new(programs.len());
        let attempt = |node: &Node| {
            let socket = node.rdm().unwrap();
            start.wait();
            let result = bind(&socket, address(instance));
            // All sockets stay open until the last call has returned.
            start.wait();
            (socket, result)
        };
        let results: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = programs.iter().map(|node| scope.spawn(move || attempt(node))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winners: Vec<_> = results.iter().filter(|(_, result)| result.is_ok()).collect();
        assert_eq!(winners.len(), 1, "address {instance}");
        for (_, result) in &results {
            assert!(matches!(result, Ok(()) | Err(Error::Taken { .. })), "{result:?}");
        }
        let bound = nodes[0].bindings().iter().filter(|b| b.range == address(instance).into()).count();
        assert!(bound <= 1, "{bound} sockets at address {instance}");
    }
}

fn range_is_free_after_its_holder(engine: Engine) {
    let [red, blue] = pair(engine);
    let there = blue.rdm().unwrap();
    for _ in 0..5 {
        let here = red.rdm().unwrap();
        bind(&here, address(1)).unwrap();
        assert!(matches!(bind(&there, address(1)), Err(Error::Taken { .. })));
        drop(here);
        red.barrier(LIMIT).unwrap();
        bind(&there, address(1)).unwrap();
        there.unbind(address(1), Scope::Cluster).unwrap();
        blue.barrier(LIMIT).unwrap();
    }
}

fn node_scope_asks_no_other_node(engine: Engine) {
    let [red, blue] = pair(engine);
    let sockets = [red.rdm().unwrap(), blue.rdm().unwrap(), red.rdm().unwrap()];
    let bind = |socket: &Socket| socket.bind_exclusive(address(1), Scope::Node, Duration::from_secs(5));
    bind(&sockets[0]).unwrap();
    bind(&sockets[1]).unwrap();
    assert!(matches!(bind(&sockets[2]), Err(Error::Taken { by, .. }) if by == sockets[0].port()));
}

fn neighbour_that_does_not_answer_is_named(engine: Engine) {
    let ([red, blue], wire) = interrupted(engine);
    let socket = red.rdm().unwrap();
    wire.interrupt(true);
    let result = socket.bind_exclusive(address(1), Scope::Cluster, Duration::from_millis(100));
    assert!(matches!(&result, Err(Error::Awaited { nodes }) if *nodes == [blue.address()]), "{result:?}");
    wire.interrupt(false);
    bind(&socket, address(1)).unwrap();
}

fn invalid_range_is_refused_as_by_a_plain_binding(engine: Engine) {
    let node = alone(engine);
    let socket = node.rdm().unwrap();
    for range in [ServiceRange::new(TYPE, 2, 1), ServiceRange::new(7, 1, 1)] {
        let [plain, exclusive] = [socket.bind(range, Scope::Cluster), bind(&socket, range)];
        assert_eq!(exclusive.unwrap_err().to_string(), plain.unwrap_err().to_string());
    }
    assert!(node.bindings().iter().all(|binding| binding.port != socket.port()));
}
