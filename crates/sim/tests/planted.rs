//! Plants a fault in the protocol and checks that an invariant detects it: a check that detects no fault is of
//! no use. The invariant is printed (`--nocapture`).

use std::time::Instant;

use utipc_core::planted::{Fault, plant};
use utipc_sim::check::Broken;
use utipc_sim::{SimConfig, run};

/// Seeds tried for each fault.
const SEEDS: std::ops::Range<u64> = 0..12;

fn config(seed: u64) -> SimConfig {
    SimConfig { pace_us: 20_000, ..SimConfig::new(4, seed, 0.3) }
}

/// Runs with a fault until an invariant breaks; The next seed is tried after a violation in `passed`.
fn caught(fault: Fault, expected: fn(&Broken) -> bool, passed: fn(&Broken) -> bool) {
    let begun = Instant::now();
    plant(Some(fault));
    let broken = SEEDS.into_iter().find_map(|seed| {
        let failure = run(&config(seed)).err()?;
        (!passed(&failure.0.broken)).then_some((seed, failure))
    });
    plant(None);
    let (seed, failure) = broken.unwrap_or_else(|| panic!("{fault:?} was not caught"));
    let (violation, _) = *failure;
    println!("{fault:?}: seed {seed}, {:.1} s: {violation}", begun.elapsed().as_secs_f64());
    assert!(expected(&violation.broken), "{fault:?} broke an unexpected invariant: {violation}");
}

#[test]
fn runs_without_a_fault_succeed() {
    for seed in SEEDS {
        run(&config(seed)).unwrap_or_else(|e| panic!("seed {seed}: {}", e.0));
    }
}

macro_rules! faults {
    ($($name:ident: $fault:ident => $($broken:ident)|+ $(beside $passed:ident)?,)*) => {
        $(#[test]
        fn $name() {
            caught(
                Fault::$fault,
                |broken| matches!(broken, $(Broken::$broken(_))|+),
                |_broken| false $(|| matches!(_broken, Broken::$passed(_)))?,
            );
        })*
    };
}

faults! {
    // The link stalls: setups time out, probes get no reply, tables are outdated, the link goes down.
    gap_off_by_one: GapOffByOne => FalseDown | Setup | SpuriousBreak | Tables,
    gap_block_off_by_one: GapBlockOffByOne => FalseDown | Setup | SpuriousBreak | Tables,
    ack_beyond: AckBeyond => FalseDown | Setup | SpuriousBreak | Tables,
    no_retransmission: NoRetransmission => FalseDown | Setup | SpuriousBreak | Tables,
    duplicate_not_dropped: DuplicateNotDropped => Duplicate | Order | Corrupted,
    stale_session: StaleSession => FalseDown,
    state_storm: StateStorm => Livelock,
    fragment_order: FragmentOrder => Corrupted,
    // In some runs the rest of a stream is missing first.
    // In some runs the rest of a stream is missing first. The topology server waits for room as other senders do.
    lost_wakeup: LostWakeup => Stalled | Topology beside Lost,
    broadcast_sync_off_by_one: BroadcastSyncOffByOne => Order | Tables,
    // The broadcast link stalls, which ends the contact.
    broadcast_ack_beyond: BroadcastAckBeyond => FalseDown,
    broadcast_acked_by_one: BroadcastAckedByOne => FalseDown,
    broadcast_not_reset: BroadcastNotReset => NoContact,
    name_number_skipped: NameNumberSkipped => Tables,
    withdrawal_lost: WithdrawalLost => Tables,
    bulk_lacks_last: BulkLacksLast => Tables,
    node_bindings_stay: NodeBindingsStay => Tables | Refused,
    connections_stay: ConnectionsStay => Survived,
    // The topology server, whose messages are small, can no longer send.
    flow_control_leak: FlowControlLeak => Topology | Stalled,
    // The receive buffer overflows, which ends the connection, unless the unread bytes are detected first.
    window_ignored: WindowIgnored => SpuriousBreak | Memory,
    // Also lost: the rejected message of an ended connection, from which the other end learns that it has ended.
    return_lost: ReturnLost => Lost | Survived,
    copy_per_binding: CopyPerBinding => Duplicate,
    wrong_syn: WrongSyn => Order,
    silent_withdrawal: SilentWithdrawal => Topology,
}
