//! Both ends of lanes as threads of one process, over heap memory, which Miri and ThreadSanitizer support.
//!
//! `cargo +nightly miri test -p utipc-lanes --test lane_threads`

mod lane_support;

use std::thread;

use lane_support::{Receiver, Sender, receive_all};
use utipc_lanes::{Arena, Kind, LaneError, Shape, Side};
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
    let arena = arena(&[7]);
    let side = |me: Side| {
        let arena = arena.clone();
        move || {
            let (outgoing, incoming) = (arena.outgoing(me), arena.incoming(me));
            let mut sender = Sender::new(&arena, &outgoing, me, 7, 3000);
            let mut receivers = [Receiver::new(&incoming, 7)];
            thread::scope(|scope| {
                scope.spawn(|| {
                    for n in 0..MESSAGES {
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
            assert_eq!(receivers[0].received(), MESSAGES);
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
    let slots = [0, 1, 63, 64, 129];
    let arena = arena(&slots);
    let outgoing = arena.outgoing(Side::One);
    let mut receivers = slots.map(|slot| Receiver::new(&arena.incoming(Side::Zero), slot));
    thread::scope(|scope| {
        for slot in slots {
            let (arena, outgoing) = (&arena, &outgoing);
            scope.spawn(move || {
                let mut sender = Sender::new(arena, outgoing, Side::One, slot, 200);
                for _ in 0..MESSAGES / 5 {
                    sender.send().unwrap();
                }
                sender.end().unwrap();
            });
        }
        receive_all(&arena, Side::Zero, &mut receivers).unwrap();
    });
    assert!(receivers.iter().all(|receiver| receiver.received() == MESSAGES / 5));
}

#[test]
fn messages_sent_while_the_reader_dies_are_counted_once() {
    for round in 0..if cfg!(miri) { 3 } else { 300 } {
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
            if receiver.look().unwrap() != lane_support::Looked::Message {
                thread::yield_now();
            }
        }
        let mut number = receiver.received();
        drop(receiver);
        let _ = arena.mark_gone(Side::Zero, 5).unwrap();
        let mut left = arena.recover(Side::Zero, 5).unwrap();
        let mut body = Vec::new();
        while let Some(kind) = left.next_into(&mut body).unwrap() {
            assert_eq!(kind, Kind::Data);
            lane_support::check_message(&body, number);
            number += 1;
        }
        assert_eq!(sender.join().unwrap(), number);
    }
}
