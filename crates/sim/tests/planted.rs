//! Each planted protocol fault is caught, and by the check that is meant to catch it: a check that cannot fail is none.

use utipc_core::planted::{Fault, plant};
use utipc_sim::check::Broken;
use utipc_sim::{SimConfig, run};

/// Seeds tried for each fault.
const SEEDS: std::ops::Range<u64> = 0..12;

fn config(seed: u64) -> SimConfig {
    SimConfig { pace_us: 20_000, ..SimConfig::new(4, seed, 0.3) }
}

/// What the runs with a fault break first.
fn caught(fault: Fault) -> Broken {
    plant(Some(fault));
    let broken = SEEDS.into_iter().find_map(|seed| run(&config(seed)).err());
    plant(None);
    let (violation, _) = *broken.unwrap_or_else(|| panic!("{fault:?} was not caught"));
    println!("{fault:?}: {violation}");
    violation.broken
}

macro_rules! faults {
    ($($name:ident: $fault:ident => [$expected:pat],)*) => {
        $(#[test]
        fn $name() {
            let broken = caught(Fault::$fault);
            assert!(matches!(broken, $expected), "{broken}");
        })*
    };
}

faults! {
    gap_off_by_one: GapOffByOne => [_],
    gap_block_off_by_one: GapBlockOffByOne => [_],
    ack_beyond: AckBeyond => [_],
    duplicate_not_dropped: DuplicateNotDropped => [_],
    no_retransmission: NoRetransmission => [_],
    stale_session: StaleSession => [_],
    fragment_order: FragmentOrder => [_],
    lost_wakeup: LostWakeup => [_],
    broadcast_sync_off_by_one: BroadcastSyncOffByOne => [_],
    broadcast_ack_beyond: BroadcastAckBeyond => [_],
    broadcast_acked_by_one: BroadcastAckedByOne => [_],
    broadcast_not_reset: BroadcastNotReset => [_],
    name_number_skipped: NameNumberSkipped => [_],
    withdrawal_lost: WithdrawalLost => [_],
    bulk_lacks_last: BulkLacksLast => [_],
    node_bindings_stay: NodeBindingsStay => [_],
    connections_stay: ConnectionsStay => [_],
    flow_control_leak: FlowControlLeak => [_],
    window_ignored: WindowIgnored => [_],
    return_lost: ReturnLost => [_],
    copy_per_binding: CopyPerBinding => [_],
    wrong_twin: WrongTwin => [_],
    silent_withdrawal: SilentWithdrawal => [_],
}
