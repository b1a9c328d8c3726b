//! Readers of a shared table while it changes or is corrupted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::super::test_memory::Shared;
use super::layout::{MAX_LEVELS, ROOT, Ref};
use super::*;
use crate::Load;
use crate::addr::{Binding, NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use crate::names::{NameTable, PublishError, ScopeRule};
use crate::rng::Rng;

const OWN: NodeAddr = NodeAddr(0x0100_1001);
const PEER: NodeAddr = NodeAddr(0x0100_1002);

fn binding(service: u32, lower: u32, upper: u32, port: u32, node: NodeAddr) -> Binding {
    Binding {
        range: ServiceRange::new(service, lower, upper),
        scope: Scope::Cluster,
        port: PortId { port, node },
        key: port,
    }
}

fn withdraw(table: &mut NameTable, b: &Binding) {
    table.withdraw(b.range, b.port, b.key).unwrap();
}

/// Simulates short cache lines, so that small tables have deep trees.
#[derive(Debug)]
enum Tiny {}

impl Access for Tiny {
    const GROUP: usize = 3;
    type Cell = AtomicU64;
    type Cursor = AtomicU64;

    fn load(cell: &AtomicU64) -> u64 {
        Atomics::load(cell)
    }

    fn cursor(cursor: &AtomicU64) -> u64 {
        Atomics::cursor(cursor)
    }

    fn exchange(cursor: &AtomicU64, seen: u64, new: u64) -> bool {
        Atomics::exchange(cursor, seen, new)
    }
}

impl WriteAccess for Tiny {
    fn store(cell: &AtomicU64, value: u64) {
        Atomics::store(cell, value);
    }

    fn set_cursor(cursor: &AtomicU64, value: u64) {
        Atomics::set_cursor(cursor, value);
    }
}

/// Areas of tiny cells, and the table's private state.
struct TinyTable {
    cells: [Vec<AtomicU64>; 4],
    index: Index,
    places: Vec<(Place, Binding, u32)>,
    made: u32,
}

impl TinyTable {
    fn new() -> Self {
        let cells = [4000, 20_000, 1000, 1000].map(|n| (0..n).map(|_| AtomicU64::default()).collect());
        Self { cells, index: Index::with_grace(8), places: Vec::new(), made: 0 }
    }

    fn view(&self) -> View<'_, Tiny> {
        View::with_grace(areas(&self.cells), 8)
    }

    fn bind(&mut self, b: Binding) {
        self.made += 1;
        let mut place = Place::new(b.range, self.made % 1000, self.made.into());
        let record = self.index.add(areas(&self.cells), &mut place, &b, OWN).expect("there is room");
        self.places.push((place, b, record));
    }

    fn unbind(&mut self, at: usize) {
        let (mut place, _, record) = self.places.swap_remove(at);
        self.index.remove(areas(&self.cells), &mut place, record);
    }

    /// The port given by the rules of tipc.md §1.4, found by searching from the front.
    fn expected(&self, service: u32, instance: u32, local: bool) -> Option<u32> {
        let fits = |b: &Binding| {
            b.range.overlaps(&ServiceRange::new(service, instance, instance))
                && (!local || b.port.node == OWN)
        };
        let all = self.places.iter().map(|(_, b, _)| b).filter(|b| fits(b));
        all.min_by_key(|b| (b.range.lower, std::cmp::Reverse(b.key))).map(|b| b.port.port)
    }
}

fn areas(cells: &[Vec<AtomicU64>; 4]) -> Areas<'_, Tiny> {
    let [leaves, branches, records, cursors] = cells;
    Areas { leaves, branches, records, cursors }
}

#[test]
fn deep_trees_keep_the_order() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let mut table = TinyTable::new();
        table.index.set_own(areas(&table.cells), OWN, false);
        let (mut deepest, spread) = (0, 1 + rng.below(60));
        for step in 0..1500_u32 {
            let grow = if step % 600 < 300 { 7 } else { 3 };
            if table.places.len() < 120 && rng.below(10) < grow {
                // Ascending, descending, several interleaved ascending runs, and random.
                let lower = match seed % 4 {
                    0 => step,
                    1 => 5000 - step,
                    2 => step % 3 * 3000 + step / 3,
                    _ => rng.below(spread) as u32,
                };
                let upper = lower + if rng.below(3) == 0 { rng.below(spread) as u32 } else { 0 };
                let node = if rng.below(3) == 0 { OWN } else { PEER };
                let service = 7 + rng.below(3) as u32;
                table.bind(binding(service, lower, upper, step + 1, node));
            } else if !table.places.is_empty() {
                let at = match seed % 2 {
                    0 => rng.below(table.places.len() as u64) as usize,
                    _ => table.places.len() - 1,
                };
                table.unbind(at);
            }
            deepest = deepest.max(Ref(table.cells[0][ROOT].load(Ordering::Relaxed)).level());
            for service in 6..11 {
                let around = table.places.first().map_or(0, |(_, b, _)| b.range.lower);
                let instance = around.saturating_add(rng.below(40) as u32).saturating_sub(20);
                let to = ServiceAddr { service, instance };
                for (domain, local) in [(NodeAddr::NONE, false), (OWN, true)] {
                    let got = table.view().lookup(to, domain).unwrap().map(|found| found.port);
                    assert_eq!(got, table.expected(service, instance, local), "seed {seed} step {step} {to}");
                }
                let range = ServiceRange::new(service, instance, instance + rng.below(50) as u32);
                let hits = || table.places.iter().map(|(_, b, _)| b).filter(|b| b.range.overlaps(&range));
                let mut expected: Vec<u32> =
                    hits().filter(|b| b.port.node == OWN).map(|b| b.port.port).collect();
                expected.sort_unstable();
                let mut got = Vec::new();
                table.view().local_ports(range, ScopeRule::Any, &mut got).unwrap();
                assert_eq!(got, expected, "seed {seed} step {step} {range}");
                let remote = hits().any(|b| b.port.node != OWN);
                assert_eq!(table.view().has_remote(range), Ok(remote), "seed {seed} step {step} {range}");
            }
        }
        while !table.places.is_empty() {
            table.unbind(0);
        }
        assert_eq!(table.cells[0][ROOT].load(Ordering::Relaxed), 0, "an empty tree has no blocks");
        assert!((2..MAX_LEVELS).contains(&deepest), "seed {seed}: {deepest} levels");
    }
}

#[test]
fn bindings_in_ascending_order_fill_their_leaves() {
    for runs in [1, 4] {
        let mut table = TinyTable::new();
        for number in 0..200_u32 {
            let instance = number % runs * 1000 + number / runs;
            table.bind(binding(7, instance, instance, number + 1, OWN));
        }
        let leaves = table.index.used(areas(&table.cells)).leaves / super::blocks::leaf_len::<Tiny>();
        // 40 leaves are full; the others were replaced in the last changes.
        assert!(leaves <= 58, "{leaves} leaves for {runs} runs");
    }
}

#[test]
fn growth_moves_readers_to_new_memory() {
    let mut table = NameTable::new(OWN, false);
    table.publish(binding(100, 0, 0, 7, PEER)).unwrap();
    let (memory, source) = Shared::new();
    table.share(Box::new(memory)).unwrap();
    let mut old = source.current();
    let mut moves = 0;
    for instance in 1..3000 {
        table.publish(binding(100, instance, instance, 7 + instance, PEER)).unwrap();
        if old.view().is_superseded() {
            let to = ServiceAddr::new(100, instance);
            assert_eq!(old.view().lookup(to, NodeAddr::NONE), Err(ViewError::Superseded));
            assert_eq!(old.view().has_remote(to.into()), Err(ViewError::Superseded));
            old = source.current();
            moves += 1;
        }
        for known in [0, instance / 2, instance] {
            let found = old.view().lookup(ServiceAddr::new(100, known), NodeAddr::NONE).unwrap().unwrap();
            assert_eq!((found.port, found.node), (7 + known, PEER));
        }
    }
    assert!(moves > 3);
    drop(table);
    assert_eq!(old.view().lookup(ServiceAddr::new(100, 1), NodeAddr::NONE), Err(ViewError::Gone));
}

#[test]
fn without_memory_bindings_can_be_removed_but_not_added() {
    let mut table = NameTable::new(OWN, false);
    let (memory, source) = Shared::new();
    table.share(Box::new(memory)).unwrap();
    source.refuse();
    let mut made = Vec::new();
    let refused = loop {
        let instance = made.len() as u32;
        let b = binding(100 + instance % 3, instance, instance + instance % 5, 1 + instance, OWN);
        match table.publish(b) {
            Ok(_) => made.push(b),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, PublishError::NoMemory);
    assert_eq!(table.len(), made.len());
    for b in &made {
        withdraw(&mut table, b);
        assert_eq!(source.current().view().has_remote(b.range), Ok(false));
    }
    assert_eq!((table.len(), table.bindings()), (0, Vec::new()));
    for b in &made {
        table.publish(*b).unwrap();
    }
}

#[test]
fn invalid_cursors_only_affect_the_choice_among_bindings() {
    let mut rng = Rng::new(3);
    let mut table = NameTable::new(OWN, true);
    let (memory, source) = Shared::new();
    table.share(Box::new(memory)).unwrap();
    let mut alive: Vec<Binding> = Vec::new();
    for step in 0..20_000_u32 {
        let segment = source.current();
        let cursors = segment.areas().cursors;
        if let Some(cell) = cursors.get(rng.below(cursors.len().max(1) as u64) as usize) {
            let half = |rng: &mut Rng| [rng.below(60) as u32, rng.next_u32()][rng.below(2) as usize];
            Atomics::store(cell, u64::from(half(&mut rng)) << 32 | u64::from(half(&mut rng)));
        }
        if alive.len() < 40 && rng.below(2) == 0 {
            let node = if rng.below(2) == 0 { OWN } else { PEER };
            let instance = rng.below(4) as u32;
            let b = binding(100, instance, instance, 1 + step, node);
            table.publish(b).unwrap();
            alive.push(b);
        } else if !alive.is_empty() {
            withdraw(&mut table, &alive.swap_remove(rng.below(alive.len() as u64) as usize));
        }
        let to = ServiceAddr::new(100, rng.below(4) as u32);
        let segment = source.current();
        for domain in [NodeAddr::NONE, OWN] {
            let found = segment.view().lookup(to, domain).unwrap();
            let fits = |b: &&Binding| b.range == to.into() && (domain.is_none() || b.port.node == OWN);
            assert_eq!(found.is_some(), alive.iter().any(|b| fits(&b)), "step {step}");
            if let Some(found) = found {
                let port = PortId { port: found.port, node: found.node };
                assert!(alive.iter().filter(fits).any(|b| b.port == port), "step {step}");
            }
        }
        if step % 50 == 0 {
            let (mut got, mut expected) = (table.bindings(), alive.clone());
            got.sort();
            expected.sort();
            assert_eq!(got, expected, "step {step}");
        }
    }
}

#[test]
fn arbitrary_contents_do_not_panic() {
    let mut rng = Rng::new(11);
    let mut outcomes = [0; 3];
    for round in 0..400_u32 {
        let mut table = NameTable::new(OWN, round % 2 == 0);
        let (memory, source) = Shared::new();
        table.share(Box::new(memory)).unwrap();
        for instance in 0..rng.below(2500) as u32 {
            let node = if instance % 3 == 0 { PEER } else { OWN };
            let place = instance % 1000;
            table.publish(binding(100 + place % 2, place, place + place % 7, instance + 1, node)).unwrap();
        }
        let segment = source.current();
        let Areas { leaves, branches, records, cursors } = segment.areas();
        // A few wrong words in a correct table lead further than random words.
        let wrong = if round % 4 == 0 { 200_000 } else { 1 + rng.below(60) };
        for _ in 0..wrong {
            let area = [leaves, branches, records, cursors][rng.below(4) as usize];
            let Some(cell) = area.get(rng.below(area.len().max(1) as u64) as usize) else { continue };
            let other = area[rng.below(area.len() as u64) as usize].load(Ordering::Relaxed);
            let word = [rng.next_u64(), rng.below(100), other, rng.below(3) << 32 | rng.below(300)];
            Atomics::store(cell, word[rng.below(4) as usize]);
        }
        let view = segment.view();
        let mut ports = Vec::new();
        for _ in 0..30 {
            let service = [100, 101, rng.next_u32()][rng.below(3) as usize];
            let lower = [rng.below(1000) as u32, 0, rng.next_u32()][rng.below(3) as usize];
            let domain = [NodeAddr::NONE, OWN, PEER, NodeAddr(0x0100_1000)][rng.below(4) as usize];
            let looked = view.lookup(ServiceAddr::new(service, lower), domain).map(|found| found.is_some());
            outcomes[match looked {
                Ok(true) => 0,
                Ok(false) => 1,
                Err(_) => 2,
            }] += 1;
            let mut asked = 0;
            let load = |_| {
                asked += 1;
                Load::Full
            };
            view.choose(ServiceAddr::new(service, lower), domain, load).ok();
            assert!(asked < 2000, "{asked} receivers were compared");
            let range = ServiceRange::new(service, lower, lower.saturating_add(rng.below(2000) as u32));
            view.local_ports(range, ScopeRule::Any, &mut ports).ok();
            view.has_remote(range).ok();
        }
    }
    assert!(outcomes.iter().all(|n| *n > 100), "{outcomes:?}");
}

#[test]
fn concurrent_readers_see_consistent_tables() {
    let mut table = NameTable::new(OWN, false);
    let (memory, source) = Shared::new();
    table.share(Box::new(memory)).unwrap();
    // Port and node follow from the address, so that a mix of two reads is detected.
    let port = |service: u32, instance: u32| (service << 16) | (instance + 1);
    let node = |instance: u32| if instance & 1 == 0 { OWN } else { PEER };
    let one =
        |service, instance| binding(service, instance, instance, port(service, instance), node(instance));
    for instance in (0..2000).step_by(2) {
        table.publish(one(1, instance)).unwrap();
        table.publish(one(2, instance + 1)).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|reader| {
            let (source, stop) = (source.clone(), Arc::clone(&stop));
            thread::spawn(move || {
                let mut rng = Rng::new(reader);
                let mut segment = source.current();
                let (mut answers, mut ports) = (0_u64, Vec::new());
                while !stop.load(Ordering::Relaxed) || answers < 1000 {
                    let (service, instance) = (1 + rng.below(2) as u32, rng.below(2000) as u32);
                    let to = ServiceAddr::new(service, instance);
                    // Every other time, through the whole ring.
                    let load = |_| if answers % 2 == 0 { Load::IDLE } else { Load::Open(1) };
                    let chosen = segment.view().choose(to, NodeAddr::NONE, load);
                    let found = match chosen.map(|choice| choice.map(|choice| choice.found)) {
                        Ok(found) => found,
                        Err(ViewError::Superseded) => {
                            segment = source.current();
                            continue;
                        }
                        // The small memory of this test is reused at once.
                        Err(ViewError::Contended) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    let stays = instance % 2 == service - 1;
                    assert!(found.is_some() || !stays, "{to} was not found");
                    if let Some(found) = found {
                        assert_eq!((found.port, found.node), (port(service, instance), node(instance)));
                    }
                    let range = ServiceRange::new(1, instance, instance + 20);
                    if segment.view().local_ports(range, ScopeRule::Any, &mut ports).is_ok() {
                        let must = (instance..=instance + 20).filter(|i| i % 2 == 0 && *i < 2000);
                        assert!(must.clone().all(|i| ports.contains(&port(1, i))), "{range}: {ports:?}");
                        assert_eq!(ports.len(), must.count(), "{range}: {ports:?}");
                    }
                    answers += 1;
                }
                answers
            })
        })
        .collect();
    // Bindings and rings that come and go between permanent ones.
    let mut rng = Rng::new(99);
    let mut guests: Vec<Binding> = Vec::new();
    for step in 0..150_000_u32 {
        if guests.len() < 300 && rng.below(2) == 0 {
            let service = 1 + rng.below(2) as u32;
            let instance = 2 * rng.below(1000) as u32 + (2 - service);
            let mut guest = one(service, instance);
            guest.key = 1_000_000 + step;
            if table.publish(guest).is_ok() {
                guests.push(guest);
            }
        } else if !guests.is_empty() {
            withdraw(&mut table, &guests.swap_remove(rng.below(guests.len() as u64) as usize));
        }
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.join().unwrap() >= 1000);
    }
}
