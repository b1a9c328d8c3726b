//! Clusters on one segment with and without the monitor: contacts hold, crashes are noticed in time, and the monitor
//! saves probes.

use std::time::Duration;

use utipc_sim::peers::Probe;
use utipc_sim::scale::{Plan, Report, bounds, run};

fn report(nodes: usize, monitoring: bool) -> Report {
    let plan = Plan { nodes, monitoring, quiet_ms: 10_000, seed: 7 };
    let probe = Probe { memory: || 0, cpu: || Duration::ZERO };
    run(&plan, probe).unwrap_or_else(|e| panic!("{nodes} nodes: {}: {:?}", e.0, e.1))
}

#[test]
fn nodes_above_the_threshold_probe_few_peers_and_notice_crashes_in_time() {
    let (on, off) = (report(40, true), report(40, false));
    assert!(on.is_monitored && !off.is_monitored);
    assert!(on.supervised < 14.0 && on.quiet.probes * 2 < off.quiet.probes, "{on:?} {off:?}");
    assert!(on.quiet.frames * 2 < off.quiet.frames, "{on:?} {off:?}");
    assert_eq!((on.one.crashed, on.domain.crashed), (1, 7));
    assert_eq!(off.one.direct, 39);
    assert!(off.domain.last_ms <= bounds::DIRECT_MS as f64);
    assert!(on.one.last_ms > off.one.last_ms, "reports take time: {on:?} {off:?}");
}

#[test]
fn nodes_below_the_threshold_supervise_each_other() {
    let report = report(10, true);
    assert!(!report.is_monitored && report.supervised > 8.9, "{report:?}");
}
