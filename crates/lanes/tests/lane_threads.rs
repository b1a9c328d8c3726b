//! Both ends of lanes as threads of one process, over heap memory, which Miri and ThreadSanitizer support.
//!
//! `cargo +nightly miri test -p utipc-lanes --test lane_threads`

mod lane_support;

use std::thread;

use lane_support::{Receiver, Sender, receive_all};
use utipc_lanes::{Arena, Kind, LARGEST_CLASS, LaneError, Peek, Shape, Side, Wakeup};
use utipc_os::shm::Segment;

/// Rings of 512 B to 32 KiB.
const SHAPE: Shape = Shape { slots: 130, region: 512 << 10, ring_shifts: [9, 11, 13, 15] };

/// Enough messages to lap every ring; Miri is a thousand times slower.
const MESSAGES: u64 = if cfg!(miri) { 60 } else { 20_000 };

fn arena(slots: &[u32]) -> Arena {
    let arena = Arena::format(Segment::heap(2 << 20), SHAPE).unwrap();
    for side in [Side::Zero, Side::One] {
        slots.iter().for_each(|slot| arena.open_slot(side, *slot).unwrap());
    }
    arena
}

#[test]
fn both_directions_arrive_whole_and_in_order() {
    both_directions(MESSAGES);
}

fn both_directions(messages: u64) {
    let arena = arena(&[7]);
    let side = |me: Side| {
        let arena = arena.clone();
        move || {
            let (outgoing, incoming) = (arena.outgoing(me), arena.incoming(me));
            let mut sender = Sender::new(&arena, &outgoing, me, 7, 3000);
            let mut receivers = [Receiver::new(&incoming, 7)];
            thread::scope(|scope| {
                scope.spawn(|| {
                    for n in 0..messages {
                        sender.send().unwrap();
                        if n % 97 == 0 {
                            sender.flush().unwrap();
                            sender.shrink().unwrap();
                        }
                    }
                    sender.end().unwrap();
                });
                receive_all(&arena, me, &mut receivers).unwrap();
            });
            assert_eq!(receivers[0].received(), messages);
            (outgoing, sender.into_writer())
        }
    };
    let other = thread::spawn(side(Side::One));
    let mine = side(Side::Zero)();
    for (outgoing, writer) in [mine, other.join().unwrap()] {
        writer.retire();
        assert_eq!(outgoing.bytes(), 0);
    }
}

#[test]
fn many_lanes_share_a_doorbell() {
    many_lanes(MESSAGES / 5);
}

fn many_lanes(messages: u64) {
    let slots = [0, 1, 63, 64, 129];
    let arena = arena(&slots);
    let outgoing = arena.outgoing(Side::One);
    let mut receivers = slots.map(|slot| Receiver::new(&arena.incoming(Side::Zero), slot));
    thread::scope(|scope| {
        for slot in slots {
            let (arena, outgoing) = (&arena, &outgoing);
            scope.spawn(move || {
                let mut sender = Sender::new(arena, outgoing, Side::One, slot, 200);
                for _ in 0..messages {
                    sender.send().unwrap();
                }
                sender.end().unwrap();
            });
        }
        receive_all(&arena, Side::Zero, &mut receivers).unwrap();
    });
    assert!(receivers.iter().all(|receiver| receiver.received() == messages));
}

#[test]
fn messages_sent_while_the_reader_dies_are_counted_once() {
    for round in 0..if cfg!(miri) { 3 } else { 300 } {
        reader_dies(round);
    }
}

/// The reader dies after `round` messages.
fn reader_dies(round: u64) {
    let arena = arena(&[5]);
    let outgoing = arena.outgoing(Side::Zero);
    let mut receiver = Receiver::new(&arena.incoming(Side::One), 5);
    let sender = thread::spawn({
        let arena = arena.clone();
        move || {
            let mut sender = Sender::new(&arena, &outgoing, Side::Zero, 5, 100);
            // The number that the daemon must have claimed.
            loop {
                match sender.send() {
                    Ok(()) => {}
                    Err(LaneError::Gone { unsent: 0 }) => return sender.sent(),
                    // This one was pushed but is not counted as sent.
                    Err(LaneError::Gone { unsent }) => return sender.sent() + 1 - u64::from(unsent),
                    Err(other) => panic!("{other}"),
                }
                match sender.flush() {
                    Ok(()) => {}
                    Err(LaneError::Gone { unsent }) => return sender.sent() - u64::from(unsent),
                    Err(other) => panic!("{other}"),
                }
            }
        }
    });
    while receiver.received() < round {
        if receiver.take().unwrap() != lane_support::Taken::Message {
            thread::yield_now();
        }
    }
    let mut number = receiver.received();
    drop(receiver);
    let _ = arena.mark_gone(Side::Zero, 5).unwrap();
    let mut left = arena.recover(Side::Zero, 5, LARGEST_CLASS).unwrap();
    let mut body = Vec::new();
    while let Some(kind) = left.next_into(&mut body).unwrap() {
        assert_eq!(kind, Kind::Data);
        lane_support::check_message(&body, number);
        number += 1;
    }
    assert_eq!(sender.join().unwrap(), number);
}

/// Several senders of one side share its doorbell and the reports of room. A sender that checks before it announces its
/// sleep is not woken, and another may take the report: the last check must be of its own lane.
#[test]
fn room_that_comes_before_the_announced_sleep_shows_only_in_the_lane() {
    let arena = arena(&[7]);
    let (outgoing, incoming) = (arena.outgoing(Side::One), arena.incoming(Side::Zero));
    let (mut writer, mut reader) = (outgoing.writer(7).unwrap(), incoming.reader(7).unwrap());
    while writer.push(&[0; 24], &[&[0; 100]], 1).is_ok() {}
    let bell = arena.doorbell(Side::One);
    let seen = bell.seq();
    writer.want_room().unwrap();
    assert!(!writer.has_room(124).unwrap());
    while let Peek::Record(record) = reader.peek().unwrap() {
        reader.consume(record, 1);
    }
    assert_eq!(reader.take_wakeup(), Wakeup::Quiet);
    let mut reported = Vec::new();
    outgoing.take_room(|slot| reported.push(slot));
    assert_eq!(reported, [7]);
    let parked = bell.park();
    assert_eq!((bell.seq(), outgoing.has_room()), (seen, false));
    assert!(writer.has_room(124).unwrap());
    drop(parked);
}

#[cfg(feature = "schedule")]
mod perturbed {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::time::{Duration, SystemTime};

    use utipc_lanes::schedule::{perturb, visits};

    /// Messages of each thread of a run.
    const MESSAGES: u64 = 300;
    /// If no thread reaches a point for this many seconds, a wake-up was lost. A run may last longer.
    const LONGEST_S: u64 = 60;

    fn number(variable: &str) -> Option<u64> {
        std::env::var(variable).ok()?.parse().ok()
    }

    /// Ends the process if nothing happens for a long time.
    fn watch(done: &'static AtomicU64, seed: u64) {
        let state = || (done.load(SeqCst), visits().values().sum::<u64>());
        std::thread::spawn(move || {
            loop {
                let before = state();
                std::thread::sleep(Duration::from_secs(LONGEST_S));
                if state() == before {
                    let seed = seed + before.0;
                    eprintln!(
                        "run with seed {seed} hangs (repeat it: cargo xtask soak schedules --seed {seed})"
                    );
                    std::process::abort();
                }
            }
        });
    }

    /// `cargo xtask soak schedules` sets the number of runs and the first seed.
    #[test]
    fn nothing_is_lost_in_perturbed_schedules() {
        static DONE: AtomicU64 = AtomicU64::new(0);
        let runs = number("UTIPC_SCHEDULE_RUNS").unwrap_or(40);
        let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let seed = number("UTIPC_SCHEDULE_SEED").unwrap_or(time.as_secs()).max(1);
        println!("schedules: {runs} runs from seed {seed}");
        watch(&DONE, seed);
        for run in 0..runs {
            // Shown if the run fails.
            println!("seed {}", seed + run);
            perturb(seed + run);
            super::both_directions(MESSAGES);
            super::many_lanes(MESSAGES / 5);
            super::reader_dies(run % 50);
            DONE.fetch_add(1, SeqCst);
        }
        perturb(0);
        let visits = visits();
        println!("schedules: {runs} runs, pauses: {visits:?}");
        let labels = ["arm", "park", "ring", "flush", "release", "wait", "mark gone", "recover", "want room"];
        for label in labels {
            assert!(runs < 100 || visits.keys().any(|at| at.starts_with(label)), "no pause at {label}");
        }
    }
}
