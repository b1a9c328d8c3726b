//! Walks in portions find what one walk at once finds.

use std::collections::BTreeSet;

use super::replica::Holders;
use super::*;
use crate::addr::{Binding, NodeAddr, PortId, Scope, ServiceRange};
use crate::rng::Rng;

const OWN: NodeAddr = NodeAddr(0x0100_1001);
const SERVICE: u32 = 1000;

/// A binding of a random socket; ranges repeat, nest and overlap.
fn any_binding(rng: &mut Rng, spread: u64, key: u32) -> Binding {
    let lower = rng.below(spread) as u32;
    let upper = match rng.below(4) {
        0 => u32::MAX,
        1 => lower + rng.below(spread) as u32,
        _ => lower,
    };
    let node = NodeAddr(OWN.0 + rng.below(4) as u32);
    let scope = if node == OWN && rng.below(3) == 0 { Scope::Node } else { Scope::Cluster };
    let port = PortId { port: 1 + rng.below(50) as u32, node };
    Binding { range: ServiceRange::new(SERVICE, lower, upper), scope, port, key }
}

/// A table with this number of bindings, beside those of another type.
fn table(rng: &mut Rng, spread: u64, bindings: u32) -> (NameTable, Vec<Binding>) {
    let mut table = NameTable::new(OWN, false);
    for key in 0..20 {
        let port = PortId { port: 7, node: OWN };
        let range = ServiceRange::new(SERVICE + 1, key, u32::MAX);
        table.publish(Binding { range, scope: Scope::Cluster, port, key }).unwrap();
    }
    let all: Vec<Binding> = (0..bindings).map(|key| any_binding(rng, spread, key)).collect();
    for binding in &all {
        table.publish(*binding).unwrap();
    }
    (table, all)
}

fn any_range(rng: &mut Rng, spread: u64) -> ServiceRange {
    let lower = rng.below(spread * 2) as u32;
    let upper = lower + rng.below(spread * 2) as u32;
    if rng.below(3) == 0 {
        ServiceRange::new(SERVICE, 0, u32::MAX)
    } else {
        ServiceRange::new(SERVICE, lower, upper)
    }
}

type Identity = (ServiceRange, PortId, u32);

fn identity(binding: &Binding) -> Identity {
    (binding.range, binding.port, binding.key)
}

/// Walks to the end, with a call between two portions; the bindings that were visited.
fn walked(
    table: &mut NameTable,
    mut walk: Walk,
    most: usize,
    mut between: impl FnMut(&mut NameTable),
) -> Vec<Binding> {
    let mut found = Vec::new();
    loop {
        let before = found.len();
        let is_over = table.walk(&mut walk, &mut most.clone(), |_, binding| found.push(*binding));
        assert!(found.len() - before <= most + 16, "a portion is bounded");
        if is_over {
            return found;
        }
        between(table);
    }
}

#[test]
fn walk_in_portions_finds_what_an_undivided_one_finds() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let spread = [1, 5, 300][rng.below(3) as usize];
        let count = rng.below(1500) as u32;
        let (mut table, _) = table(&mut rng, spread, count);
        for _ in 0..20 {
            let range = any_range(&mut rng, spread);
            let most = 1 + rng.below(200) as usize;
            let found = walked(&mut table, Walk::new(range, Holders::Any), most, |_| {});
            let mut expected = table.snapshot(range, true);
            assert_eq!(found.len(), expected.len(), "seed {seed}: {range}");
            let once: BTreeSet<Identity> = found.iter().map(identity).collect();
            expected.retain(|binding| !once.contains(&identity(binding)));
            assert_eq!((expected, once.len()), (Vec::new(), found.len()), "seed {seed}: {range}");

            let local = walked(&mut table, Walk::new(range, Holders::Local), most, |_| {});
            let ports: BTreeSet<u32> =
                local.iter().filter(|b| b.port.node == OWN).map(|b| b.port.port).collect();
            let mut undivided = Vec::new();
            table.local_ports(range, ScopeRule::Any, &mut undivided);
            assert_eq!(ports.into_iter().collect::<Vec<_>>(), undivided, "seed {seed}: {range}");

            let remote = walked(&mut table, Walk::new(range, Holders::Remote), most, |_| {});
            let nodes: BTreeSet<NodeAddr> =
                remote.iter().map(|b| b.port.node).filter(|node| *node != OWN).collect();
            let undivided = table.destination_nodes(range);
            assert_eq!(nodes.into_iter().collect::<Vec<_>>(), undivided.remote, "seed {seed}: {range}");
        }
    }
}

#[test]
fn binding_that_stays_is_visited_once_whatever_comes_and_goes_meanwhile() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let spread = [1, 5, 300][rng.below(3) as usize];
        let (mut table, all) = table(&mut rng, spread, 800);
        let (mut alive, mut touched) = (all.clone(), BTreeSet::new());
        let (range, most) = (any_range(&mut rng, spread), 1 + rng.below(60) as usize);
        let mut key = 10_000;
        let found = walked(&mut table, Walk::new(range, Holders::Any), most, |table| {
            for _ in 0..rng.below(40) {
                if rng.below(2) == 0 && !alive.is_empty() {
                    let gone = alive.swap_remove(rng.below(alive.len() as u64) as usize);
                    table.withdraw(gone.range, gone.port, gone.key).unwrap();
                    touched.insert(identity(&gone));
                } else {
                    key += 1;
                    let new = any_binding(&mut rng, spread, key);
                    table.publish(new).unwrap();
                    touched.insert(identity(&new));
                    alive.push(new);
                }
            }
        });
        let once: BTreeSet<Identity> = found.iter().map(identity).collect();
        assert_eq!(once.len(), found.len(), "seed {seed}: no binding is visited twice");
        for binding in &all {
            let expected = binding.range.overlaps(&range);
            let id = identity(binding);
            assert!(touched.contains(&id) || once.contains(&id) == expected, "seed {seed}: {binding:?}");
        }
        let known = |id: &Identity| touched.contains(id) || all.iter().any(|b| identity(b) == *id);
        assert!(once.iter().all(known), "seed {seed}");
    }
}

#[test]
fn few_bindings_are_found_at_once_and_many_refused() {
    let mut rng = Rng::new(1);
    let all = ServiceRange::new(SERVICE, 0, u32::MAX);
    for spread in [1, 300, 1_000_000] {
        let (small, _) = table(&mut rng, spread, 64);
        let mut ports = Vec::new();
        assert!(small.few_local_ports(all, ScopeRule::Any, &mut ports));
        let mut undivided = Vec::new();
        small.local_ports(all, ScopeRule::Any, &mut undivided);
        assert_eq!(ports, undivided);
        let found = small.few_destination_nodes(all, Holders::Any);
        assert_eq!(found, Some(small.destination_nodes(all)));
        let remote = small.few_destination_nodes(all, Holders::Remote).map(|found| found.remote);
        assert_eq!(remote, Some(small.destination_nodes(all).remote));

        let (large, _) = table(&mut rng, spread, 20 * PORTION as u32);
        assert!(!large.few_local_ports(all, ScopeRule::Any, &mut ports));
        assert_eq!(large.few_destination_nodes(all, Holders::Any), None);
        assert_eq!(large.few_destination_nodes(all, Holders::Remote), None);
    }
}
