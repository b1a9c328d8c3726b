use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use utipc_core::names::ScopeRule;
use utipc_core::names::replica::ViewError;
use utipc_core::{NodeAddr, Scope, ServiceAddr, ServiceRange, SocketKind, StackConfig, Time};
use utipc_os::replica::Replica;

use super::*;
use mapped::view;

#[path = "../../tests/daemon/mapped.rs"]
mod mapped;

fn map(table: &SharedTable) -> Replica {
    let publisher = table.publisher();
    let [segment, cursors] = publisher.descriptors();
    Replica::map(segment, cursors).unwrap()
}

fn stack() -> Stack {
    Stack::new(Time::ZERO, StackConfig::default())
}

#[test]
fn mapped_table_shows_a_binding_from_bind_to_unbind() {
    let mut stack = stack();
    let server = stack.open(Time::ZERO, SocketKind::Rdm).unwrap();
    stack.bind(Time::ZERO, server, ServiceRange::new(100, 1, 1), Scope::Node).unwrap();
    let table = SharedTable::share(&mut stack).unwrap();
    let replica = map(&table);
    let found = |instance| {
        let to = ServiceAddr::new(100, instance);
        view(&replica).lookup(to, NodeAddr::NONE).unwrap().map(|found| found.port)
    };
    assert_eq!((found(1), found(2)), (Some(server), None), "bindings from before the table was shared");
    for instance in 2..2000 {
        let range = ServiceRange::new(100, instance, instance);
        stack.bind(Time::ZERO, server, range, Scope::Cluster).unwrap();
        assert_eq!(found(instance), Some(server));
        if instance % 3 == 0 {
            stack.unbind(Time::ZERO, server, Some((range, Scope::Cluster))).unwrap();
            assert_eq!(found(instance), None);
        }
    }
    let mut ports = Vec::new();
    view(&replica).local_ports(ServiceRange::new(100, 0, 5000), ScopeRule::Any, &mut ports).unwrap();
    assert_eq!(ports, [server]);
    assert_eq!(view(&replica).has_remote(ServiceRange::new(100, 0, 5000)), Ok(false));
    drop(stack);
    let looked = view(&replica).lookup(ServiceAddr::new(100, 1), NodeAddr::NONE);
    assert_eq!(looked, Err(ViewError::Gone));
}

#[test]
fn readers_follow_a_table_that_grows() {
    let mut stack = stack();
    let table = SharedTable::share(&mut stack).unwrap();
    let first = map(&table);
    table.publisher().set_congested(7, 1, true);
    let server = stack.open(Time::ZERO, SocketKind::Rdm).unwrap();
    // The bindings of one node do not fill the first segment, so continue with a small one.
    let mut sizes = Vec::new();
    {
        let publisher = Arc::new(table.publisher().successor(NAME, [800, 4640, 400]).unwrap());
        *table.current.lock().unwrap() = Arc::clone(&publisher);
        stack.share_names(Box::new(Segment { publisher, table: table.clone() })).unwrap();
        assert_eq!(view(&first).has_remote(ServiceRange::new(1, 1, 1)), Err(ViewError::Gone));
    }
    let mut replica = map(&table);
    for instance in 0..3000 {
        stack.bind(Time::ZERO, server, ServiceRange::new(100, instance, instance), Scope::Node).unwrap();
        if view(&replica).is_superseded() {
            sizes.push(areas(&table.publisher()).leaves.len());
            replica = map(&table);
        }
        let to = ServiceAddr::new(100, instance);
        assert_eq!(view(&replica).lookup(to, NodeAddr::NONE).unwrap().unwrap().port, server);
    }
    assert!(sizes.len() > 3 && sizes.is_sorted(), "{sizes:?} cells");
    assert!(map(&table).is_congested(7, 1));
}

#[test]
fn processes_share_the_round_robin_cursors() {
    let mut stack = stack();
    let table = SharedTable::share(&mut stack).unwrap();
    let service = ServiceAddr::new(100, 5);
    let servers: Vec<u32> = (0..4)
        .map(|_| {
            let server = stack.open(Time::ZERO, SocketKind::Rdm).unwrap();
            stack.bind(Time::ZERO, server, service.into(), Scope::Cluster).unwrap();
            server
        })
        .collect();
    // Each has its own mapping, like a process; some ask the node instead.
    let asked: Vec<u32> = (0..20).map(|_| stack.lookup(service, NodeAddr::NONE).unwrap().port).collect();
    let looked = thread::scope(|scope| {
        let lookup = || {
            let replica = map(&table);
            view(&replica).lookup(service, NodeAddr::NONE).unwrap().unwrap().port
        };
        let clients: Vec<_> = (0..80).map(|_| scope.spawn(lookup)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    for server in servers {
        let reached = asked.iter().chain(&looked).filter(|port| **port == server).count();
        assert_eq!(reached, 25, "of 100 messages to 4 servers");
    }
}

#[test]
fn mapped_readers_work_while_a_writer_does() {
    let mut stack = stack();
    let table = SharedTable::share(&mut stack).unwrap();
    let server = stack.open(Time::ZERO, SocketKind::Rdm).unwrap();
    let bind = |stack: &mut Stack, instance: u32| {
        stack.bind(Time::ZERO, server, ServiceRange::new(100, instance, instance), Scope::Node).unwrap();
    };
    (0..1000).filter(|n| n % 2 == 0).for_each(|n| bind(&mut stack, n));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..2_u32 {
            let (table, stop) = (&table, &stop);
            scope.spawn(move || {
                let replica = map(table);
                let mut number = reader;
                while !stop.load(Ordering::Relaxed) {
                    number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let instance = (number >> 8) % 1000;
                    let found = view(&replica).lookup(ServiceAddr::new(100, instance), NodeAddr::NONE);
                    let found = found.unwrap().map(|found| found.port);
                    assert!(found == Some(server) || found.is_none() && instance % 2 == 1, "{instance}");
                }
            });
        }
        for round in 0..40_u32 {
            for instance in (0..1000).filter(|n| n % 2 == 1) {
                bind(&mut stack, (instance + 2 * round) % 1000);
            }
            for instance in (0..1000).filter(|n| n % 2 == 1) {
                let range =
                    ServiceRange::new(100, (instance + 2 * round) % 1000, (instance + 2 * round) % 1000);
                stack.unbind(Time::ZERO, server, Some((range, Scope::Node))).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
