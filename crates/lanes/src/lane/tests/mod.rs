// Writes 64-bit words over 32-bit ones, which Miri does not model.
#[cfg(not(miri))]
mod hostile;

use super::*;
use utipc_os::shm::{Memory, Segment};

use crate::{Arena, Incoming, LARGEST_CLASS, Outgoing, Shape, Wakeup};

/// Rings of 512 B, 1 KiB, 4 KiB and 16 KiB.
const SMALL: Shape = Shape { slots: 70, region: 64 << 10, ring_shifts: [9, 10, 12, 14] };

struct Pair {
    arena: Arena,
    out: Outgoing,
    into: Incoming,
}

fn pair(shape: Shape) -> Pair {
    let arena = Arena::format(Segment::heap(64 << 10 << 4), shape).unwrap();
    arena.open_slot(Side::Zero, 3).unwrap();
    Pair { out: arena.outgoing(Side::Zero), into: arena.incoming(Side::One), arena }
}

impl Pair {
    fn ends(&self) -> (Writer, Reader) {
        (self.out.writer(3).unwrap(), self.into.reader(3).unwrap())
    }
}

fn record(reader: &mut Reader) -> Record {
    match reader.peek().unwrap() {
        Peek::Record(record) => record,
        other => panic!("{other:?}"),
    }
}

fn receive(reader: &mut Reader) -> Vec<u8> {
    let record = record(reader);
    assert_eq!(record.kind(), Kind::Data);
    let mut bytes = vec![0; record.len()];
    assert_eq!(reader.copy_payload(&record, 0, &mut bytes), bytes.len());
    reader.consume(record, 1);
    bytes
}

fn message(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + n) as u8).collect()
}

/// Between two steps of a walk the process writes another position into the lane.
#[test]
fn walk_ends_when_the_reader_has_passed_it() {
    let pair = pair(SMALL);
    let (mut writer, mut reader) = pair.ends();
    for number in 0..4 {
        let _ = writer.send(&message(number, 24), &[], 1).unwrap();
    }
    let mut walk = reader.walk();
    assert!(reader.next_waiting(&mut walk, &mut 1000).is_some());
    for _ in 0..3 {
        receive(&mut reader);
    }
    assert_eq!(reader.next_waiting(&mut walk, &mut 1000), None);
    assert!(walk.is_over());
}

#[test]
fn waiting_records_are_counted_through_larger_rings() {
    let pair = pair(SMALL);
    let (mut writer, mut reader) = pair.ends();
    assert_eq!(reader.waiting(), (0, 0));
    let (mut sent, mut bytes) = (0, 0);
    for class in [0, 1, 2] {
        if class > 0 {
            writer.grow(class).unwrap();
        }
        while writer.send(&message(1, 24), &[&message(2, 76)], 1).is_ok() && sent < 20 * u32::from(class + 1)
        {
            (sent, bytes) = (sent + 1, bytes + 100);
            assert_eq!(reader.waiting(), (sent, bytes));
        }
    }
    while reader.waiting().0 > 0 {
        let before = reader.waiting();
        receive(&mut reader);
        assert_eq!(reader.waiting(), (before.0 - 1, before.1 - 100));
    }
    assert_eq!(reader.peek(), Ok(Peek::Empty));
}

#[test]
fn messages_of_all_sizes_arrive_in_order() {
    let pair = pair(SMALL);
    let (mut writer, mut reader) = pair.ends();
    assert_eq!(reader.peek(), Ok(Peek::Empty));
    let mut unread = std::collections::VecDeque::new();
    // Miri is a thousand times slower.
    for n in 0..if cfg!(miri) { 150 } else { 5000 } {
        let sent = message(n, n * 37 % 8000);
        let (header, payload) = sent.split_at(sent.len().min(24));
        let (first, second) = payload.split_at(payload.len() / 3);
        loop {
            match writer.send(header, &[first, second], 1) {
                Ok(ring) => break assert_eq!(ring, Wakeup::Quiet),
                Err(LaneError::NeedsRing(class)) => writer.grow(class).unwrap(),
                Err(LaneError::Full) => assert_eq!(Some(receive(&mut reader)), unread.pop_front()),
                Err(other) => panic!("{other}"),
            }
        }
        unread.push_back(sent);
        if n % 3 == 0 {
            assert_eq!(Some(receive(&mut reader)), unread.pop_front());
        }
        if n % 101 == 0 {
            while let Some(sent) = unread.pop_front() {
                assert_eq!(receive(&mut reader), sent);
            }
            assert_eq!(reader.peek(), Ok(Peek::Empty));
            assert!(writer.shrink_if_idle().is_ok());
        }
    }
    for sent in unread {
        assert_eq!(receive(&mut reader), sent);
    }
    assert_eq!(reader.peek(), Ok(Peek::Empty));
    writer.refresh().unwrap();
    assert_eq!(writer.outstanding_cost(), 0);
    writer.retire();
    assert_eq!(pair.out.bytes(), 0);
}

#[test]
fn full_lane_is_an_error_and_room_is_reported() {
    let pair = pair(SMALL);
    let (mut writer, mut reader) = pair.ends();
    let mut sent = 0;
    while writer.has_room(64).unwrap() {
        let _ = writer.send(&[1; 64], &[], 2).unwrap();
        sent += 1;
    }
    assert_eq!(writer.send(&[1; 64], &[], 2), Err(LaneError::Full));
    assert_eq!(writer.outstanding_cost(), 2 * sent);
    writer.tell_daemon(true);
    writer.want_room().unwrap();
    assert!(!writer.has_room(64).unwrap() && !pair.out.has_room());
    receive(&mut reader);
    assert_eq!(reader.take_wakeup(), Wakeup::TellDaemon);
    assert_eq!(reader.take_wakeup(), Wakeup::Quiet);
    assert!(pair.out.has_room());
    let mut slots = Vec::new();
    pair.out.take_room(|slot| slots.push(slot));
    assert_eq!(slots, [3]);
    assert!(writer.has_room(64).unwrap());
    assert_eq!(writer.outstanding_cost(), 2 * sent - 1);
}

#[test]
fn room_is_reported_when_the_outstanding_cost_is_low_enough() {
    let pair = pair(SMALL);
    let (mut writer, mut reader) = pair.ends();
    let mut sent = 0;
    while writer.has_room(64).unwrap() {
        let _ = writer.send(&[1; 64], &[], 100).unwrap();
        sent += 1;
    }
    writer.want_outstanding(100).unwrap();
    let mut read = 0;
    while !pair.out.has_room() {
        let record = record(&mut reader);
        reader.consume(record, 100);
        read += 1;
    }
    assert_eq!((read, sent > 2), (sent - 1, true));
}

#[test]
fn armed_lane_is_reported_once() {
    let pair = pair(SMALL);
    let (mut writer, mut reader) = pair.ends();
    reader.tell_daemon(true);
    assert!(!reader.arm().unwrap());
    let bell = pair.arena.doorbell(Side::One);
    let parked = bell.park();
    let seen = bell.seq();
    assert_eq!(writer.send(b"one", &[], 1), Ok(Wakeup::TellDaemon));
    assert_eq!(writer.send(b"two", &[], 1), Ok(Wakeup::Quiet));
    assert_ne!(bell.seq(), seen);
    drop(parked);
    let mut slots = Vec::new();
    pair.into.take_ready(|slot| slots.push(slot));
    assert_eq!(slots, [3]);
    assert!(reader.arm().unwrap(), "something is there already");
    assert_eq!((receive(&mut reader), receive(&mut reader)), (b"one".to_vec(), b"two".to_vec()));
    // The thread that parks is woken, not the daemon.
    reader.tell_daemon(false);
    assert!(!reader.arm().unwrap());
    let parked = bell.park();
    writer.push(b"three", &[], 1).unwrap();
    assert_eq!(writer.flush(), Ok(Wakeup::Woken));
    parked.wait(bell.seq().wrapping_sub(1), None);
    drop(parked);
    assert!(!bell.is_parked());
}

#[test]
fn markers_stay_in_order_and_end_fits_a_full_ring() {
    let pair = pair(SMALL);
    let (mut writer, mut reader) = pair.ends();
    let _ = writer.mark(Kind::Switch, &[1, u64::MAX]).unwrap();
    let mut count = 0;
    while writer.send(&[7; 100], &[], 1).is_ok() {
        count += 1;
    }
    assert_eq!(writer.mark(Kind::Open, &[1]), Err(LaneError::Full));
    let _ = writer.mark(Kind::End, &[9; 12]).unwrap();
    assert_eq!(writer.send(b"late", &[], 1), Err(LaneError::Ended));
    assert_eq!(writer.grow(1), Err(LaneError::Ended));
    let switch = record(&mut reader);
    assert_eq!((switch.kind(), reader.words(&switch)), (Kind::Switch, [1, u64::MAX, 0, 0, 0, 0, 0]));
    reader.consume(switch, 0);
    reader.consume(switch, 0);
    for _ in 0..count {
        assert_eq!(receive(&mut reader), [7; 100]);
    }
    let end = record(&mut reader);
    assert_eq!((end.kind(), reader.words(&end)), (Kind::End, [9; 7]));
    reader.consume(end, 0);
    assert_eq!(reader.peek(), Ok(Peek::Ended));
    // A reader that resumes sees the end too.
    let mut left = pair.arena.recover(Side::Zero, 3, LARGEST_CLASS).unwrap();
    assert_eq!(left.next_into(&mut Vec::new()), Ok(Some(Kind::End)));
    assert_eq!(left.next_into(&mut Vec::new()), Ok(None));
}

#[test]
fn frozen_lane_is_read_to_its_last_record() {
    let pair = pair(SMALL);
    let (mut writer, mut reader) = pair.ends();
    let _ = writer.send(b"last", &[], 1).unwrap();
    assert!(!reader.arm().unwrap_or(true) || reader.peek().is_ok());
    let _ = pair.arena.freeze(Side::Zero, 3).unwrap();
    assert_eq!(writer.send(b"more", &[], 1), Err(LaneError::Frozen));
    assert!(pair.into.has_ready());
    assert_eq!(receive(&mut reader), b"last");
    assert_eq!(reader.peek(), Ok(Peek::Ended));
    // A lane whose writer never wrote.
    pair.arena.open_slot(Side::Zero, 4).unwrap();
    let _ = pair.arena.freeze(Side::Zero, 4).unwrap();
    assert_eq!(pair.into.reader(4).unwrap().peek(), Ok(Peek::Ended));
    // Neither an unopened slot nor a missing one.
    assert_eq!(pair.out.writer(5).unwrap().send(b"x", &[], 1), Err(LaneError::Frozen));
    assert!(pair.out.writer(70).is_err() && pair.into.reader(70).is_err());
}

#[test]
fn unread_records_are_recovered_from_the_last_position() {
    let pair = pair(SMALL);
    let (mut writer, mut reader) = pair.ends();
    let mut expected = Vec::new();
    for n in 0..300 {
        let sent = message(n, n * 3);
        loop {
            match writer.send(&sent, &[], 1) {
                Ok(_) => break,
                Err(LaneError::NeedsRing(class)) => writer.grow(class).unwrap(),
                Err(LaneError::Full) if writer.class() != Some(3) => {
                    writer.grow(writer.class().unwrap() + 1).unwrap();
                }
                Err(LaneError::Full) => drop(receive(&mut reader)),
                Err(other) => panic!("{other}"),
            }
        }
        expected.push(sent);
    }
    for _ in 0..5 {
        receive(&mut reader);
    }
    drop(reader);
    let _ = pair.arena.mark_gone(Side::Zero, 3).unwrap();
    assert_eq!(writer.send(b"more", &[], 1), Err(LaneError::Gone { unsent: 0 }));
    let mut left = pair.arena.recover(Side::Zero, 3, LARGEST_CLASS).unwrap();
    let mut got = Vec::new();
    let mut body = Vec::new();
    while let Some(kind) = left.next_into(&mut body).unwrap() {
        assert_eq!(kind, Kind::Data);
        got.push(body.clone());
    }
    assert!(got.len() > 4, "{}", got.len());
    assert_eq!(got, expected[expected.len() - got.len()..]);
    // They are recovered only once.
    assert_eq!(pair.arena.recover(Side::Zero, 3, LARGEST_CLASS).unwrap().next_into(&mut body), Ok(None));
}

#[test]
fn send_during_the_readers_end_is_either_claimed_or_taken_back() {
    for taken in 0..4 {
        let pair = pair(SMALL);
        let (mut writer, _reader) = pair.ends();
        for n in 0..3 {
            writer.push(&[n; 80], &[], 1).unwrap();
        }
        let _ = pair.arena.mark_gone(Side::Zero, 3).unwrap();
        let mut left = pair.arena.recover(Side::Zero, 3, LARGEST_CLASS).unwrap();
        for _ in 0..taken.min(3) {
            assert_eq!(left.next_into(&mut Vec::new()), Ok(Some(Kind::Data)));
        }
        let unsent = 3 - taken.min(3) as u32;
        let expected = if unsent == 0 { Ok(Wakeup::Quiet) } else { Err(LaneError::Gone { unsent }) };
        assert_eq!(writer.flush(), expected);
        assert_eq!(left.next_into(&mut Vec::new()), Ok(None));
    }
}

#[test]
fn another_reader_resumes() {
    let pair = pair(SMALL);
    let (mut writer, mut reader) = pair.ends();
    for n in 0..4 {
        let _ = writer.send(&[n; 50], &[], 1).unwrap();
    }
    receive(&mut reader);
    drop(reader);
    let mut reader = pair.arena.resume(Side::Zero, 3, LARGEST_CLASS).unwrap();
    for n in 1..4 {
        assert_eq!(receive(&mut reader), [n; 50]);
    }
    for n in 0..100 {
        let _ = writer.send(&[n; 50], &[], 1).unwrap();
        assert_eq!(receive(&mut reader), [n; 50]);
    }
}

#[test]
fn sizes_have_limits() {
    let pair = pair(SMALL);
    let (mut writer, _reader) = pair.ends();
    assert_eq!(writer.send(&[0; 3000], &[], 1), Err(LaneError::NeedsRing(3)));
    assert_eq!(writer.send(&[0; 9000], &[], 1), Err(LaneError::TooLarge));
    let _ = writer.send(&[0; 200], &[], 1).unwrap();
    assert_eq!(writer.send(&[0; 300], &[], 1), Err(LaneError::NeedsRing(1)));
    assert_eq!(writer.grow(0), Err(LaneError::NoRing), "the lane is in its first ring");
    for _ in 0..4 {
        writer.grow(1).unwrap();
    }
    assert_eq!(writer.grow(1), Err(LaneError::NoRing), "the reader has not left any of them");
}

#[test]
fn largest_messages_pass_in_the_standard_shape() {
    let shape = Shape { slots: 130, region: 2 << 20, ..Shape::STANDARD };
    let arena = Arena::format(Segment::heap(16 << 20), shape).unwrap();
    arena.open_slot(Side::One, 129).unwrap();
    let mut writer = arena.outgoing(Side::One).writer(129).unwrap();
    let mut reader = arena.incoming(Side::Zero).reader(129).unwrap();
    let sent = message(1, 66_000);
    assert_eq!(writer.send(&[9; 60], &[&sent], 65), Err(LaneError::NeedsRing(2)));
    writer.grow(2).unwrap();
    for _ in 0..20 {
        let _ = writer.send(&[9; 60], &[&sent], 65).unwrap();
        let record = record(&mut reader);
        let mut header = [0; 60];
        assert_eq!(reader.read_header(&record, &mut header), 60);
        let mut payload = vec![0; 70_000];
        assert_eq!(reader.copy_payload(&record, 60, &mut payload), 66_000);
        assert_eq!((header, &payload[..66_000]), ([9; 60], &sent[..]));
        reader.consume(record, 65);
        assert_eq!(reader.copy_payload(&record, 66_061, &mut payload), 0);
    }
    assert_eq!(writer.send(&vec![0; RECORD_MAX + 1], &[], 1), Err(LaneError::TooLarge));
}

/// Lanes of one arena whose start words lead to one ring would have the daemon read it once for each of them.
#[test]
fn lane_begins_in_the_first_ring_of_its_slot() {
    let pair = pair(SMALL);
    pair.arena.open_slot(Side::Zero, 4).unwrap();
    let (mut writer, _) = pair.ends();
    for n in 0..3 {
        writer.push(&[n; 80], &[], 1).unwrap();
    }
    let start = |slot| pair.arena.layout.slot(Side::Zero, slot).unwrap() + crate::layout::slot::START;
    let word = |slot| pair.arena.memory.load64(start(slot), std::sync::atomic::Ordering::Relaxed);
    assert_eq!(pair.into.reader(3).unwrap().waiting().0, 3);
    pair.arena.memory.store64(start(4), word(3), std::sync::atomic::Ordering::Relaxed);
    let mut other = pair.into.reader(4).unwrap();
    assert_eq!((other.waiting(), other.has_waiting()), ((0, 0), false));
    assert!(other.peek().is_err());
    let _ = pair.arena.mark_gone(Side::Zero, 4).unwrap();
    assert!(pair.arena.recover(Side::Zero, 4, LARGEST_CLASS).unwrap().next_into(&mut Vec::new()).is_err());
}

/// A writer may fill any part of the arena. The daemon reads what it has granted.
#[test]
fn daemon_reads_rings_of_granted_classes_only() {
    let pair = pair(SMALL);
    let (mut writer, _) = pair.ends();
    writer.push(&[1; 80], &[], 1).unwrap();
    writer.grow(2).unwrap();
    writer.push(&[2; 80], &[], 1).unwrap();
    let read = |largest| {
        let mut left = pair.arena.read_out(Side::Zero, 3, largest).unwrap();
        let next = |left: &mut Recovered| left.next_into(&mut Vec::new());
        let all = [next(&mut left), next(&mut left)].map(|found| found.is_ok_and(|kind| kind.is_some()));
        let reader = pair.arena.resume(Side::Zero, 3, largest).unwrap();
        (all, reader.waiting().0)
    };
    assert_eq!(read(1), ([true, false], 0));
    let pair = self::pair(SMALL);
    let (mut writer, _) = pair.ends();
    writer.grow(2).unwrap();
    writer.push(&[2; 80], &[], 1).unwrap();
    let waiting = |largest| pair.arena.resume(Side::Zero, 3, largest).unwrap().waiting().0;
    assert_eq!([0, 1, 2, 3].map(waiting), [0, 0, 1, 1]);
}

/// Each step of a walk visits as many records as it may, whatever the writer has written.
#[test]
fn steps_of_reading_out_and_of_counting_have_a_bounded_size() {
    let pair = pair(SMALL);
    let (mut writer, reader) = pair.ends();
    writer.grow(3).unwrap();
    let mut sent = 0;
    while writer.push(&[], &[], 0).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 16 * 1024 / 64 - 1);
    let (mut walk, mut counted, mut steps) = (reader.walk(), 0, 0);
    while !walk.is_over() {
        let mut visits = 10;
        while reader.next_waiting(&mut walk, &mut visits).is_some() {
            counted += 1;
        }
        steps += 1;
    }
    assert_eq!((counted, steps), (sent, sent / 10 + 1));
    let mut left = pair.arena.read_out(Side::Zero, 3, LARGEST_CLASS).unwrap();
    let (mut body, mut read, mut steps) = (Vec::new(), 0, 0);
    loop {
        let mut visits = 10;
        let found = loop {
            match left.next(&mut body, &mut visits).unwrap() {
                Step::Record(_) => read += 1,
                found => break found,
            }
        };
        steps += 1;
        if found == Step::Empty {
            break;
        }
    }
    assert_eq!((read, steps), (sent, sent / 10 + 1));
    // It has released no space: the writer cannot continue while the daemon reads.
    assert_eq!(writer.push(&[], &[], 0), Err(LaneError::Full));
}

/// A writer that learns of the end does not take back what the reader has taken, even before the reader releases the
/// space.
#[test]
fn writer_that_learns_of_the_end_takes_back_what_was_not_read_out() {
    let pair = pair(SMALL);
    let (mut writer, reader) = pair.ends();
    drop(reader);
    for n in 0..4 {
        writer.push(&[n; 20], &[], 1).unwrap();
    }
    let (mut left, mut body) = (pair.arena.read_out(Side::Zero, 3, 0).unwrap(), Vec::new());
    for n in 0..2 {
        assert_eq!(left.next_into(&mut body), Ok(Some(Kind::Data)));
        assert_eq!(body, [n; 20]);
    }
    let _ = pair.arena.mark_gone(Side::Zero, 3).unwrap();
    left.note_gone();
    assert_eq!(left.next_into(&mut body), Ok(Some(Kind::Data)));
    assert_eq!(writer.flush(), Err(LaneError::Gone { unsent: 1 }));
    assert_eq!(left.next_into(&mut body), Ok(None));
}
