//! Plants a fault in the protocol and checks that the model detects it: a check that detects no fault is of no use.
//! The invariant is printed (`--nocapture`).

use utipc_vsync::Components;
use utipc_vsync::planted::{Fault, plant};
use utipc_vsync_sim::{Broken, SimConfig, run};

/// Seeds tried for each fault.
const SEEDS: u64 = 500;

fn config(seed: u64, components: Components) -> SimConfig {
    SimConfig { rounds: 1, components, ..SimConfig::new(5, seed) }
}

/// Runs with a fault until an invariant breaks.
fn caught(fault: Fault, components: Components, expected: fn(&Broken) -> bool) {
    plant(Some(fault));
    let broken = (1..=SEEDS).find_map(|seed| Some((seed, run(&config(seed, components)).err()?)));
    plant(None);
    let (seed, failure) = broken.unwrap_or_else(|| panic!("{fault:?} was not caught"));
    println!("{fault:?}: seed {seed}: {:?}", failure.broken);
    assert!(expected(&failure.broken), "{fault:?} broke an unexpected invariant: {:?}", failure.broken);
}

macro_rules! faults {
    ($($name:ident: $fault:ident in $components:ident => $($broken:ident)|+,)*) => {
        $(#[test]
        fn $name() {
            caught(Fault::$fault, Components::$components, |broken| matches!(broken, $(Broken::$broken(_))|+));
        })*
    };
}

faults! {
    shortest_order: ShortestOrder in Primary => SameSet | GaveUp | Order | Stuck,
    coordinators_packets_only: CoordinatorsPacketsOnly in Primary => SameSet | GaveUp | Order | Stuck | Outcome,
    not_frozen: NotFrozen in All => SameSet | GaveUp | Order | Stuck,
    accepted_too_early: AcceptedTooEarly in All => SameSet | Stuck,
    no_majority_needed: NoMajorityNeeded in Primary => TwoPrimaries | SameSet,
    accepted_forgotten: AcceptedForgotten in Primary => TwoPrimaries,
    promise_broken: PromiseBroken in Primary => TwoPrimaries | SameSet | View | Order | Stuck,
    installed_too_early: InstalledTooEarly in All => SameSet | Stuck | View | Order,
    joiner_skips: JoinerSkips in Primary => SameSet | Order,
    fetch_off_by_one: FetchOffByOne in Primary => Stuck,
    sent_again: SentAgain in Primary => Duplicate,
    stable_too_early: StableTooEarly in Primary => NotSafe | SameSet | GaveUp,
    unplaced_dropped: UnplacedDropped in Primary => Stuck,
}
