//! Whole runs: they repeat byte for byte, and a network that only loses, reorders and duplicates does not end a
//! contact. The same holds for hostile peers.

use std::time::Duration;

use utipc_sim::peers::{self, Campaign, Probe};
use utipc_sim::{FaultKind, SimConfig, run};

#[test]
fn same_seed_gives_the_same_run() {
    let mut traces = Vec::new();
    for seed in [2, 3] {
        let config = SimConfig::new(5, seed, 0.3);
        assert_eq!(config.near_wrap, seed == 3);
        let (first, second) = (run(&config).unwrap(), run(&config).unwrap());
        assert_eq!(first, second);
        assert!(first.datagrams > 100 && first.connections > 5 && first.topology_events > 50, "{first:?}");
        traces.push(first.trace);
    }
    assert_ne!(traces[0], traces[1]);
}

#[test]
fn invariants_hold_under_all_faults() {
    for seed in 100..106 {
        let outcome = run(&SimConfig::new(4, seed, 0.3)).unwrap_or_else(|e| panic!("seed {seed}: {}", e.0));
        assert!(outcome.rounds >= 1);
    }
}

#[test]
fn invariants_hold_while_session_keys_change_under_all_faults() {
    for seed in 200..203 {
        let config = SimConfig { keys: true, ..SimConfig::new(4, seed, 3.0) };
        let outcome = run(&config).unwrap_or_else(|e| panic!("seed {seed}: {}", e.0));
        assert!(outcome.rounds >= 2 && outcome.datagrams > 100, "{outcome:?}");
    }
}

#[test]
fn session_keys_change_without_losing_a_message_or_a_link() {
    let mut config = SimConfig { keys: true, ..SimConfig::new(4, 9, 10.0) };
    config.faults = vec![FaultKind::Loss, FaultKind::Reorder, FaultKind::Duplicate];
    let outcome = run(&config).unwrap_or_else(|e| panic!("{}", e.0));
    assert_eq!(outcome.contacts_lost, 0);
    assert!(outcome.datagrams > 1000 && outcome.returned < outcome.datagrams, "{outcome:?}");
}

#[test]
fn links_stay_up_for_sixty_minutes() {
    let mut config = SimConfig::new(3, 7, 60.0);
    config.faults = vec![FaultKind::Loss, FaultKind::Reorder, FaultKind::Duplicate];
    config.pace_us = 400_000;
    let outcome = run(&config).unwrap_or_else(|e| panic!("{}", e.0));
    assert_eq!(outcome.contacts_lost, 0);
    assert!(outcome.virtual_ms >= 3_600_000 && outcome.datagrams > 10_000, "{outcome:?}");
}

/// Without measures of the process; `utipc-sim --peers` has them.
#[test]
fn hostile_peers_cost_honest_nodes_no_message_and_no_link() {
    let campaign = Campaign { peers: 90, attack_ms: 4000, burst: 8, attacks: Vec::new(), seed: 5 };
    let probe = Probe { memory: || 0, cpu: || Duration::ZERO };
    let report = peers::run(campaign, probe).unwrap_or_else(|e| panic!("{}: {:?}", e.0, e.1));
    assert!(report.most_linked > 60 && report.messages > 1000 && report.deferred > 1 << 20, "{report:?}");
}
