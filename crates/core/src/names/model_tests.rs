//! Compares the table with a reference model: plain lists, searched from the front, as in the rules of tipc.md §1.4.
//! Lookups go to the table or to a reader of its memory.

use super::replica::View;
use super::test_memory::Shared;
use super::*;
use crate::addr::{Binding, NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use crate::rng::Rng;

const OWN: NodeAddr = NodeAddr(0x0100_1001);

struct ModelRange {
    range: ServiceRange,
    all: Vec<(u64, Binding)>,
    local: Vec<(u64, Binding)>,
}

struct Model {
    own: NodeAddr,
    legacy: bool,
    ranges: Vec<ModelRange>,
    count: u64,
}

impl Model {
    fn publish(&mut self, b: Binding) -> Result<bool, ()> {
        if b.range.lower > b.range.upper {
            return Err(());
        }
        let known = self
            .ranges
            .iter()
            .flat_map(|r| &r.all)
            .any(|(_, o)| o.range == b.range && o.port == b.port && o.key == b.key);
        if known {
            return Err(());
        }
        let at = self.ranges.iter().position(|r| r.range == b.range).unwrap_or_else(|| {
            let at =
                self.ranges.iter().position(|r| r.range.lower >= b.range.lower).unwrap_or(self.ranges.len());
            self.ranges.insert(at, ModelRange { range: b.range, all: Vec::new(), local: Vec::new() });
            at
        });
        let r = &mut self.ranges[at];
        let first = r.all.is_empty();
        r.all.insert(0, (self.count, b));
        if b.port.node == self.own {
            r.local.insert(0, (self.count, b));
        }
        self.count += 1;
        Ok(first)
    }

    fn withdraw(&mut self, range: ServiceRange, port: PortId, key: u32) -> Option<bool> {
        let same = |(_, b): &(u64, Binding)| b.port == port && b.key == key;
        let at = self.ranges.iter().position(|r| r.range == range)?;
        let r = &mut self.ranges[at];
        let hit = r.all.iter().position(same)?;
        r.all.remove(hit);
        r.local.retain(|e| !same(e));
        let last = r.all.is_empty();
        if last {
            self.ranges.remove(at);
        }
        Some(last)
    }

    fn lookup(&mut self, to: ServiceAddr, domain: NodeAddr) -> Option<(u32, NodeAddr)> {
        let covers = domain.0 == 0
            || domain == self.own
            || self.legacy && (domain.0 == self.own.0 & 0xffff_f000 || domain.0 == self.own.0 & 0xff00_0000);
        if !covers {
            return Some((0, domain));
        }
        for r in self.ranges.iter_mut().filter(|r| r.range.overlaps(&to.into())) {
            let list = if domain == self.own {
                if r.local.is_empty() {
                    continue;
                }
                &mut r.local
            } else if self.legacy && domain.0 == 0 && !r.local.is_empty() {
                &mut r.local
            } else {
                &mut r.all
            };
            let taken = list.remove(0);
            list.push(taken);
            return Some((taken.1.port.port, taken.1.port.node));
        }
        None
    }

    fn entries(&self, range: ServiceRange) -> impl Iterator<Item = &(u64, Binding)> {
        self.ranges.iter().filter(move |r| r.range.overlaps(&range)).flat_map(|r| &r.all)
    }

    fn snapshot(&self, range: ServiceRange, each: bool) -> Vec<Binding> {
        let hits = self.ranges.iter().filter(|r| r.range.overlaps(&range));
        let mut all: Vec<(u64, Binding)> = if each {
            hits.flat_map(|r| r.all.clone()).collect()
        } else {
            hits.map(|r| *r.all.iter().min_by_key(|e| e.0).unwrap()).collect()
        };
        all.sort_by_key(|e| e.0);
        all.into_iter().map(|e| e.1).collect()
    }
}

/// A random range; equal lower ends, nesting, single instances and extreme ends are frequent.
fn any_range(rng: &mut Rng, spread: u64) -> ServiceRange {
    let service = 100 + rng.below(3) as u32;
    let lower = rng.below(spread) as u32;
    let upper = match rng.below(8) {
        0 => u32::MAX,
        1 => lower.wrapping_sub(rng.below(3) as u32),
        2..5 => lower,
        _ => lower + rng.below(spread / 2 + 1) as u32,
    };
    ServiceRange::new(service, lower, upper)
}

const NODES: [NodeAddr; 4] = [OWN, NodeAddr(0x0100_1002), NodeAddr(0x0100_1003), NodeAddr(0x0200_0001)];
const DOMAINS: [NodeAddr; 7] =
    [NodeAddr(0), NodeAddr(0), OWN, NODES[1], NodeAddr(0x0100_1000), NodeAddr(0x0100_0000), NODES[3]];

/// The table and its model side by side; every step changes both or compares them.
struct Comparison {
    rng: Rng,
    /// Range of the lower ends drawn.
    spread: u64,
    table: NameTable,
    model: Model,
    alive: Vec<Binding>,
    /// Seed and step, for failures.
    context: String,
}

impl Comparison {
    fn publish(&mut self) {
        let rng = &mut self.rng;
        let port = PortId { port: 1 + rng.below(6) as u32, node: NODES[rng.below(4) as usize] };
        let scope = if port.node == OWN && rng.below(3) == 0 { Scope::Node } else { Scope::Cluster };
        let b = Binding { range: any_range(rng, self.spread), scope, port, key: rng.below(4) as u32 };
        let context = &self.context;
        let got = self.table.publish(b).map(|c| {
            assert!(c.up && c.binding == b, "{context}");
            c.edge
        });
        let expected = self.model.publish(b);
        assert_eq!(got.map_err(|_| ()), expected, "{context}: publish {b:?}");
        if expected.is_ok() {
            self.alive.push(b);
        }
    }

    fn withdraw(&mut self) {
        let picked = self.rng.below(self.alive.len() as u64 + 1) as usize;
        let (range, port, key) = match self.alive.get(picked) {
            Some(b) => (b.range, b.port, b.key),
            None => (any_range(&mut self.rng, self.spread), PortId { port: 9, node: OWN }, 0),
        };
        let context = &self.context;
        let got = self.table.withdraw(range, port, key).map(|c| {
            assert!(!c.up, "{context}");
            c.edge
        });
        assert_eq!(got, self.model.withdraw(range, port, key), "{context}: withdraw {range}");
        self.alive.retain(|b| (b.range, b.port, b.key) != (range, port, key));
    }

    fn withdraw_node(&mut self) {
        let node = NODES[1 + self.rng.below(3) as usize];
        let all = self.model.ranges.iter().flat_map(|r| r.all.clone());
        let mut expected: Vec<(u64, Binding)> = all.filter(|e| e.1.port.node == node).collect();
        expected.sort_by_key(|e| e.0);
        let changes = self.table.withdraw_node(node);
        let context = &self.context;
        assert_eq!(changes.len(), expected.len(), "{context}");
        for (change, (_, b)) in changes.iter().zip(&expected) {
            assert_eq!(change.binding, *b, "{context}");
            assert_eq!(Some(change.edge), self.model.withdraw(b.range, b.port, b.key), "{context}");
        }
        self.alive.retain(|b| b.port.node != node);
    }

    fn lookup(&mut self, reader: Option<&View<'_>>) {
        let rng = &mut self.rng;
        let to =
            ServiceAddr { service: 100 + rng.below(4) as u32, instance: rng.below(self.spread * 2) as u32 };
        let domain = DOMAINS[rng.below(7) as usize];
        let got = match reader {
            Some(view) => view.lookup(to, domain).unwrap(),
            None => self.table.lookup(to, domain),
        };
        let got = got.map(|l| (l.port, l.node));
        let context = &self.context;
        assert_eq!(got, self.model.lookup(to, domain), "{context}: lookup {to} domain {domain}");
    }

    fn compare_overlapping(&mut self, reader: Option<&View<'_>>) {
        let range = any_range(&mut self.rng, self.spread);
        let range = ServiceRange { upper: range.upper.max(range.lower), ..range };
        let (table, model, context) = (&self.table, &self.model, &self.context);
        for each in [true, false] {
            assert_eq!(table.snapshot(range, each), model.snapshot(range, each), "{context}: {range}");
        }
        let mut nodes: Vec<NodeAddr> = model.entries(range).map(|e| e.1.port.node).collect();
        nodes.sort();
        nodes.dedup();
        let local = nodes.contains(&OWN);
        nodes.retain(|n| *n != OWN);
        if let Some(view) = reader {
            assert_eq!(view.has_remote(range), Ok(!nodes.is_empty()), "{context}: {range}");
        }
        assert_eq!(table.destination_nodes(range), Destinations { local, remote: nodes }, "{context}");
        for rule in [ScopeRule::Any, ScopeRule::Exactly(Scope::Cluster), ScopeRule::Exactly(Scope::Node)] {
            let fits = |b: &Binding| rule == ScopeRule::Any || rule == ScopeRule::Exactly(b.scope);
            let here = model.entries(range).filter(|e| e.1.port.node == OWN && fits(&e.1));
            let mut expected: Vec<u32> = here.map(|e| e.1.port.port).collect();
            expected.sort();
            expected.dedup();
            let mut got = vec![77];
            match reader {
                Some(view) => view.local_ports(range, rule, &mut got).unwrap(),
                None => table.local_ports(range, rule, &mut got),
            }
            assert_eq!(got, expected, "{context}: {range} {rule:?}");
        }
    }

    fn compare_all(&mut self) {
        let mut ranges: Vec<&ModelRange> = self.model.ranges.iter().collect();
        ranges.sort_by_key(|r| r.range.service); // stable: keeps the order within a type
        let expected: Vec<Binding> = ranges.iter().flat_map(|r| r.all.iter().map(|e| e.1)).collect();
        if self.rng.below(50) == 0 {
            assert_eq!(self.table.bindings(), expected, "{}", self.context);
        }
        assert_eq!(self.table.len(), expected.len(), "{}", self.context);
    }
}

fn run(seed: u64, legacy: bool, spread: u64, steps: usize, shrink: u64) {
    let mut rng = Rng::new(seed);
    let (memory, source) = Shared::new();
    let (mut memory, shared_from) = (Some(memory), rng.below(500) as usize);
    let mut test = Comparison {
        rng,
        spread,
        table: NameTable::new(OWN, legacy),
        model: Model { own: OWN, legacy, ranges: Vec::new(), count: 0 },
        alive: Vec::new(),
        context: String::new(),
    };
    for step in 0..steps {
        test.context = format!("seed {seed} step {step}");
        if step >= shared_from
            && let Some(memory) = memory.take()
        {
            test.table.share(Box::new(memory)).unwrap();
        }
        let reader = (memory.is_none() && test.rng.below(2) == 0).then(|| source.current());
        let reader = reader.as_ref().map(|segment| segment.view());
        match test.rng.below(20) {
            0..6 => test.publish(),
            n if n < 6 + shrink => test.withdraw(),
            11..17 => test.lookup(reader.as_ref()),
            17 => test.compare_overlapping(reader.as_ref()),
            18 if test.rng.below(40) == 0 => test.withdraw_node(),
            _ => test.compare_all(),
        }
    }
}

#[test]
fn few_overlapping_ranges_agree_with_the_model() {
    for seed in 0..40 {
        run(seed, seed % 2 == 0, 12, 3000, 5);
    }
}

#[test]
fn many_ranges_agree_with_the_model() {
    for seed in 100..104 {
        run(seed, false, 100_000, 6000, 1);
    }
    for seed in 200..204 {
        run(seed, true, 600, 6000, 3);
    }
}
