//! Whole runs: they repeat byte for byte, and the invariants hold under all faults.

use utipc_vsync::Components;
use utipc_vsync_sim::{SimConfig, run};

#[test]
fn same_seed_gives_the_same_run() {
    let mut traces = Vec::new();
    for seed in [2, 3] {
        let config = SimConfig { rounds: 1, ..SimConfig::new(5, seed) };
        let (first, second) = (run(&config).unwrap(), run(&config).unwrap());
        assert_eq!(first, second);
        assert!(first.delivered > 1000 && first.views > 10, "{first:?}");
        traces.push(first.trace);
    }
    assert_ne!(traces[0], traces[1]);
}

#[test]
fn invariants_hold_under_all_faults() {
    for seed in 10_000..10_010 {
        let config = SimConfig::new(4 + seed as usize % 3, seed);
        if let Err(failure) = run(&config) {
            panic!("seed {seed}: {:?}", failure.broken);
        }
    }
}

#[test]
fn without_faults_nothing_is_excluded_or_blocked() {
    for components in [Components::Primary, Components::All] {
        for seed in 1..6 {
            let config = SimConfig { rounds: 1, faults: Vec::new(), components, ..SimConfig::new(5, seed) };
            let outcome = run(&config).unwrap();
            assert_eq!((outcome.excluded, outcome.blocked, outcome.crashes), (0, 0, 0), "{outcome:?}");
            assert_eq!(outcome.atomic[1..], [0, 0]);
        }
    }
}
