//! Snapshots in parts, while bindings come and go.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::addr::{NodeAddr, Scope, ServiceRange};
use crate::rng::Rng;

fn table() -> NameTable {
    NameTable::new(NodeAddr(0x0100_1001), false)
}

fn range(rng: &mut Rng, spread: u64) -> ServiceRange {
    let lower = rng.below(spread) as u32;
    let width = if rng.below(8) == 0 { spread } else { 1 + spread / 10 };
    ServiceRange::new(100, lower, lower + rng.below(width) as u32)
}

#[test]
fn bindings_that_stay_are_visited_once_and_new_ones_not_at_all() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let spread = [3, 40, 2000][seed as usize % 3];
        let mut table = table();
        for port in 0..400 {
            table.bind(port, range(&mut rng, spread), Scope::Cluster).unwrap();
        }
        let wanted = range(&mut rng, spread);
        let before: Vec<_> = table.snapshot(wanted, true);
        let ages: BTreeMap<u32, u64> = before.iter().map(|b| (b.port.port, u64::from(b.port.port))).collect();
        let mut gone = BTreeSet::new();
        let mut walk = Walk::snapshot(&table, wanted, true);
        let mut seen = Vec::new();
        loop {
            let mut budget = 1 + rng.below(20) as usize;
            let most = seen.len() + budget;
            if table.walk(&mut walk, &mut budget, |age, b| seen.push((age, *b))) {
                break;
            }
            assert!(seen.len() <= most && budget == 0, "seed {seed}");
            for _ in 0..rng.below(6) {
                let port = rng.below(400) as u32;
                gone.insert(port);
                table.unbind(port, None).unwrap();
                table.bind(400 + rng.below(50) as u32, range(&mut rng, spread), Scope::Cluster).unwrap();
            }
        }
        let ports: BTreeSet<u32> = seen.iter().map(|(_, b)| b.port.port).collect();
        assert_eq!(ports.len(), seen.len(), "seed {seed}: visited twice");
        assert!(ports.iter().all(|port| ages.contains_key(port)), "seed {seed}: a new one");
        assert!(ages.keys().all(|port| gone.contains(port) || ports.contains(port)), "seed {seed}: lost");
        assert!(seen.iter().all(|(age, b)| ages[&b.port.port] == *age), "seed {seed}: wrong age");
    }
}

#[test]
fn oldest_binding_of_each_range_is_visited_in_parts_of_any_length() {
    for part in [1, 2, 7, 1000] {
        let (mut table, mut rng) = (table(), Rng::new(part as u64));
        for port in 0..500 {
            table.bind(port, range(&mut rng, 30), Scope::Cluster).unwrap();
        }
        let wanted = ServiceRange::new(100, 5, 20);
        let (mut walk, mut seen) = (Walk::snapshot(&table, wanted, false), Vec::new());
        while !table.walk(&mut walk, &mut part.clone(), |age, b| seen.push((age, *b))) {}
        seen.sort_unstable_by_key(|(age, _)| *age);
        let seen: Vec<_> = seen.into_iter().map(|(_, b)| b).collect();
        assert_eq!(seen, table.snapshot(wanted, false));
        let ranges: BTreeSet<_> = seen.iter().map(|b| b.range).collect();
        let all = table.bindings().into_iter().filter(|b| b.range.overlaps(&wanted));
        assert_eq!(ranges, all.map(|b| b.range).collect());
        assert_eq!(ranges.len(), seen.len());
    }
}

/// A subscription to one instance must not cost a walk through all lower ones.
#[test]
fn walk_to_one_of_many_ranges_is_short() {
    let mut table = table();
    for port in 0..20_000 {
        table.bind(port, ServiceRange::new(100, port, port), Scope::Cluster).unwrap();
    }
    let (mut budget, mut found) = (2, 0);
    let mut walk = Walk::snapshot(&table, ServiceRange::new(100, 15_000, 15_000), true);
    assert!(table.walk(&mut walk, &mut budget, |_, _| found += 1));
    assert_eq!(found, 1);
}

#[test]
fn withdrawal_says_whether_an_older_binding_of_the_range_is_left() {
    let mut table = table();
    let range = ServiceRange::new(100, 1, 2);
    let ages: Vec<u64> = (1..5).map(|port| table.bind(port, range, Scope::Cluster).unwrap().age).collect();
    assert!(ages.is_sorted());
    table.bind(9, ServiceRange::new(100, 1, 3), Scope::Cluster).unwrap();
    let mut withdraw = |port| table.unbind(port, None).unwrap()[0];
    for (port, is_oldest, edge) in [(3, false, false), (1, true, false), (4, false, false), (2, true, true)] {
        let change = withdraw(port);
        assert_eq!((change.is_oldest, change.edge), (is_oldest, edge), "{port}");
        assert_eq!(change.age, ages[port as usize - 1]);
    }
}
