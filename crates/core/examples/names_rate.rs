//! Measures the binding table: lookups in a full table and changes of it, in nanoseconds.
//!
//! ```text
//! cargo run --release --example names_rate -p utipc-core [BINDINGS]
//! ```
//!
//! *chained*: each lookup waits for the result of the previous one, as in a program that sends one message after
//! another to random services. *apart*: the processor may start the next lookup earlier. Only the CPU time of this
//! thread counts, as reported by Linux. Because other work on the machine also evicts caches, the best of five rounds
//! is shown.

use utipc_core::names::NameTable;
use utipc_core::{Binding, NodeAddr, PortId, Rng, Scope, ServiceAddr, ServiceRange};

const OWN: NodeAddr = NodeAddr(0x0100_1001);
const LOOKUPS: u32 = 1_000_000;

/// Distribution of the bindings.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    /// Ranges in one type.
    ranges: u32,
    /// Bindings of the same range.
    bindings_per_range: u32,
    /// Instances of a range; each range starts one instance after the previous one.
    width: u32,
}

impl Shape {
    fn address(self, place: u32) -> ServiceAddr {
        ServiceAddr::new(1000 + place / self.ranges, place % self.ranges)
    }

    fn binding(self, number: u32) -> Binding {
        let ServiceAddr { service, instance } = self.address(number / self.bindings_per_range);
        // Alternate between the own node and peers, with as many peers as the limits require.
        let node = if number & 1 == 0 { OWN } else { NodeAddr(0x0100_1002 + number / 100_000) };
        Binding {
            range: ServiceRange::new(service, instance, instance + self.width - 1),
            scope: Scope::Cluster,
            port: PortId { port: 1 + number % 10_000, node },
            key: number,
        }
    }
}

/// CPU time of this thread, nanoseconds.
fn cpu_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")
        .expect("Linux reports the CPU time of a thread");
    stat.split(' ').next().and_then(|first| first.parse().ok()).expect("the first field is a number")
}

/// Nanoseconds per step of `count` steps.
fn each(count: u32, steps: impl FnOnce()) -> f64 {
    let start = cpu_time();
    steps();
    (cpu_time() - start) as f64 / f64::from(count)
}

fn lookups(table: &mut NameTable, shape: Shape, bindings: u32, chained: bool) -> f64 {
    let places = bindings.div_ceil(shape.bindings_per_range);
    let mut number = 1_u32;
    each(LOOKUPS, || {
        for _ in 0..LOOKUPS {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let place = ((u64::from(number) * u64::from(places)) >> 32) as u32;
            let found = table.lookup(shape.address(place), NodeAddr::NONE).expect("a binding is missing");
            if chained {
                number ^= found.port & 1;
            }
        }
    })
}

fn main() {
    let bindings = std::env::args().nth(1).map_or(100_000, |n| n.parse().expect("a number of bindings"));
    let one_type = Shape { name: "one type", ranges: u32::MAX, bindings_per_range: 1, width: 1 };
    let shapes = [
        one_type,
        Shape { name: "1000 in each type", ranges: 1000, ..one_type },
        Shape { name: "a type each", ranges: 1, ..one_type },
        Shape { name: "one type, ranges of 10 that overlap", width: 10, ..one_type },
        Shape { name: "one type, 4 bindings of each range", bindings_per_range: 4, ..one_type },
        Shape { name: "one range", bindings_per_range: u32::MAX, ..one_type },
    ];
    println!(
        "{:<40} {:>9} {:>9} {:>9} {:>9}",
        format!("{bindings} bindings"),
        "chained",
        "apart",
        "bind",
        "unbind"
    );
    for shape in shapes {
        let mut order: Vec<u32> = (0..bindings).collect();
        let mut rng = Rng::new(1);
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        let mut table = NameTable::new(OWN, false);
        let bind = each(bindings, || {
            for number in &order {
                table.publish(shape.binding(*number)).expect("the binding is within the limits");
            }
        });
        let best = |chained, table: &mut NameTable| {
            (0..5).map(|_| lookups(table, shape, bindings, chained)).fold(f64::INFINITY, f64::min)
        };
        let (chained, apart) = (best(true, &mut table), best(false, &mut table));
        let unbind = each(bindings, || {
            for number in &order {
                let b = shape.binding(*number);
                table.withdraw(b.range, b.port, b.key).expect("the binding exists");
            }
        });
        println!("{:<40} {chained:>9.0} {apart:>9.0} {bind:>9.0} {unbind:>9.0}", shape.name);
    }
}
