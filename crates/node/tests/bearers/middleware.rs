//! Fault injection follows its settings and its seed.

use std::time::Duration;

use utipc_core::outbox::Target;
use utipc_node::bearers::{Bearer, Control, Direction, FaultCounters, Faults, LoopbackNetwork, Middleware};

use crate::conformance::{Rig, frame};

const SOON: Duration = Duration::from_millis(100);
const MUST_COME: Duration = Duration::from_secs(20);

fn pair(seed: u64) -> (Rig, Control, Target) {
    let network = LoopbackNetwork::new();
    let mac = |last| utipc_core::wire::MediaAddr::Ethernet([2, 0, 0, 0, 0, last]);
    let wrapped = Middleware::new(Box::new(network.attach(mac(1), 1500).unwrap()), seed).unwrap();
    let control = wrapped.control();
    (
        Rig::new(vec![Box::new(wrapped), Box::new(network.attach(mac(2), 1500).unwrap())]),
        control,
        Target::Unicast(mac(2)),
    )
}

/// The numbers of the frames that arrive, of `count` sent with these faults.
fn through(seed: u64, faults: Faults, count: u32) -> (Vec<u32>, FaultCounters) {
    let (mut bearers, control, target) = pair(seed);
    control.set(Direction::Send, faults);
    let frames: Vec<_> = (0..count).map(|number| (target, frame(0, number, 64))).collect();
    bearers.send_all(0, &frames);
    let got = bearers.gather(1, usize::MAX, SOON);
    let number = |frame: &[u8]| u32::from_be_bytes(frame[1..5].try_into().unwrap());
    (got.iter().map(|(_, frame)| number(frame)).collect(), control.counters(Direction::Send))
}

#[test]
fn same_seed_drops_the_same_frames() {
    let (first, counters) = through(42, Faults::loss(5), 1000);
    assert_eq!((counters.seen, first.len() as u64), (1000, 1000 - counters.dropped));
    assert_eq!(counters.dropped, 49, "of this seed");
    assert_eq!(through(42, Faults::loss(5), 1000).0, first);
    assert_ne!(through(43, Faults::loss(5), 1000).0, first);
    assert!(through(42, Faults::loss(100), 50).0.is_empty());
}

#[test]
fn duplicates_follow_their_original() {
    let (got, counters) = through(7, Faults { duplicate_ppm: 100_000, ..Faults::default() }, 200);
    assert_eq!(got.len() as u64, 200 + counters.duplicated);
    assert_eq!(counters.duplicated, 16, "of this seed");
    assert!(got.is_sorted());
}

#[test]
fn reordering_drops_no_frame() {
    let (got, counters) = through(7, Faults { reorder_ppm: 100_000, ..Faults::default() }, 200);
    assert_eq!(counters.reordered, 21, "of this seed");
    assert!(!got.is_sorted());
    let mut sorted = got.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..200).collect::<Vec<_>>());
}

#[test]
fn delayed_frames_make_a_descriptor_readable_when_due() {
    let (mut bearers, control, target) = pair(1);
    let delay = Duration::from_millis(30);
    control.set(Direction::Send, Faults { delay, ..Faults::default() });
    let start = std::time::Instant::now();
    bearers.send_all(0, &[(target, frame(0, 1, 64)), (target, frame(0, 2, 64))]);
    let got = bearers.gather(1, 2, MUST_COME);
    assert!(start.elapsed() >= delay);
    assert_eq!(got.iter().map(|(_, frame)| frame[4]).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(control.counters(Direction::Send).delayed, 2);
    // In the other direction the timer wakes the receiver.
    control.set(Direction::Send, Faults::default());
    control.set(Direction::Receive, Faults { delay, ..Faults::default() });
    let back = bearers.to(0);
    let start = std::time::Instant::now();
    bearers.send_all(1, &[(back, frame(1, 3, 64))]);
    assert_eq!(bearers.gather(0, 1, MUST_COME).len(), 1);
    assert!(start.elapsed() >= delay);
}

#[test]
fn interrupted_bearer_carries_no_frames_until_it_is_restored() {
    let (mut bearers, control, target) = pair(1);
    let back = bearers.to(0);
    let both = |bearers: &mut Rig, number| {
        bearers.send_all(0, &[(target, frame(0, number, 64))]);
        bearers.send_all(1, &[(back, frame(1, number, 64))]);
        let out = bearers.gather(1, 1, SOON).len();
        (out, bearers.gather(0, 1, SOON).len())
    };
    assert_eq!(both(&mut bearers, 1), (1, 1));
    control.interrupt(true);
    assert_eq!(both(&mut bearers, 2), (0, 0));
    assert_eq!(control.counters(Direction::Send).interrupted, 1);
    assert_eq!(control.counters(Direction::Receive).interrupted, 1);
    control.interrupt(false);
    assert_eq!(both(&mut bearers, 3), (1, 1));
}

#[test]
fn error_of_the_wrapped_bearer_about_remotes_is_returned() {
    let network = LoopbackNetwork::new();
    let inner = network.attach(utipc_core::wire::MediaAddr::Ethernet([2; 6]), 1500).unwrap();
    let mut wrapped = Middleware::new(Box::new(inner), 0).unwrap();
    let error = wrapped.add_remote("127.0.0.1:6118".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:6118") && error.contains("enable a UDP bearer"), "{error}");
}
