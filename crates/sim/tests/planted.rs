//! Each planted protocol fault is caught: a check that cannot fail is none. What caught it is printed (`--nocapture`).

use utipc_core::planted::{Fault, plant};
use utipc_sim::{SimConfig, run};

/// Seeds tried for each fault.
const SEEDS: std::ops::Range<u64> = 0..80;

fn config(seed: u64) -> SimConfig {
    SimConfig { pace_us: 20_000, ..SimConfig::new(4, seed, 0.3) }
}

/// Runs with a fault until an invariant breaks.
fn caught(fault: Fault) {
    plant(Some(fault));
    let broken = SEEDS.into_iter().find_map(|seed| run(&config(seed)).err());
    plant(None);
    let (violation, _) = *broken.unwrap_or_else(|| panic!("{fault:?} was not caught"));
    println!("{fault:?}: {violation}");
}

macro_rules! faults {
    ($($name:ident: $fault:ident,)*) => {
        $(#[test]
        fn $name() {
            caught(Fault::$fault);
        })*
    };
}

faults! {
    gap_off_by_one: GapOffByOne,
    gap_block_off_by_one: GapBlockOffByOne,
    ack_beyond: AckBeyond,
    duplicate_not_dropped: DuplicateNotDropped,
    no_retransmission: NoRetransmission,
    stale_session: StaleSession,
    fragment_order: FragmentOrder,
    lost_wakeup: LostWakeup,
    broadcast_sync_off_by_one: BroadcastSyncOffByOne,
    broadcast_ack_beyond: BroadcastAckBeyond,
    broadcast_acked_by_one: BroadcastAckedByOne,
    broadcast_not_reset: BroadcastNotReset,
    name_number_skipped: NameNumberSkipped,
    withdrawal_lost: WithdrawalLost,
    bulk_lacks_last: BulkLacksLast,
    node_bindings_stay: NodeBindingsStay,
    connections_stay: ConnectionsStay,
    flow_control_leak: FlowControlLeak,
    return_lost: ReturnLost,
    copy_per_binding: CopyPerBinding,
    wrong_twin: WrongTwin,
    silent_withdrawal: SilentWithdrawal,
}
