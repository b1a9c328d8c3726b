//! Both ends of lanes in one process, without a daemon.

mod anycast;

use std::sync::Arc;
use std::time::{Duration, Instant};

use utipc_attach::{LaneId, PairId};
use utipc_core::addr::{NodeAddr, PortId};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{Received, RecvOptions, SocketKind};
use utipc_core::wire::blocks;

use crate::receiver::{POLLED, SHARE};
use crate::{
    Address, Arena, Check, Idle, InboundLane, Kind, LaneError, Next, OutboundLane, OwnSocket, Pair, Peek,
    ReadyLanes, ReceiveCall, Receiver, Route, SendOptions, Sender, Shape, Side, Sink,
};

const NODE: NodeAddr = NodeAddr(7);
const SHAPE: Shape = Shape { slots: 256, region: 16 << 20, ..Shape::STANDARD };

fn own(port: u32, kind: SocketKind) -> OwnSocket {
    OwnSocket { node: NODE, port, kind }
}

fn id(slot: u16) -> LaneId {
    LaneId { pair: PairId(1), writer: 0, slot }
}

/// An arena as the daemon has it, and its two sides.
fn pair() -> (Arena, Arc<Pair>, Arc<Pair>) {
    let (arena, fd) = Arena::create("utipc-test", SHAPE).unwrap();
    let side = |side| Arc::new(Pair::open(PairId(1), side, &fd, None).unwrap());
    let (writes, reads) = (side(0), side(1));
    (arena, writes, reads)
}

/// A receiving socket 99 and `count` sockets 1, 2 … that have a lane to it.
struct Fan {
    receiver: Receiver,
    ready: Arc<ReadyLanes>,
    writers: Vec<OutboundLane>,
    own: OwnSocket,
    arena: Arena,
}

impl Fan {
    fn new(count: u16, kind: SocketKind) -> Self {
        let (arena, writes, reads) = pair();
        let mut receiver = Receiver::default();
        receiver.node_is_empty();
        let ready = Arc::default();
        let writers = (0..count)
            .map(|slot| {
                arena.open_slot(Side::Zero, slot.into()).unwrap();
                let lane = InboundLane::new(id(slot), Arc::clone(&reads), u32::from(slot) + 1, None).unwrap();
                receiver.add(lane, &ready);
                OutboundLane::new(id(slot), Arc::clone(&writes), 99).unwrap()
            })
            .collect();
        Self { receiver, ready, writers, own: own(99, kind), arena }
    }

    fn send(&mut self, from: usize, data: &[u8]) -> Result<(), LaneError> {
        let (address, kind) = match self.own.kind.is_connection_oriented() {
            true => (Address::Connection, self.own.kind),
            false => (Address::Direct, self.own.kind),
        };
        let origin = PortId { port: from as u32 + 1, node: NODE };
        let to = PortId { port: 99, node: NODE };
        self.writers[from].send(SendOptions::new(kind), origin, to, address, data).map(drop)
    }

    fn next_call(&mut self, call: &mut ReceiveCall<'_>) -> Next {
        self.receiver.next(self.own, call, &self.ready)
    }

    fn next(&mut self, buffer: &mut [u8], options: RecvOptions) -> Next {
        self.next_call(&mut ReceiveCall::new(Sink::Slice(buffer), options))
    }

    fn got(&mut self, buffer: &mut [u8], options: RecvOptions) -> Received {
        let mut call = ReceiveCall::new(Sink::Slice(buffer), options);
        match self.next_call(&mut call) {
            Next::Got => call.received,
            other => panic!("{other:?}"),
        }
    }

    fn nothing(&mut self) -> bool {
        matches!(self.next(&mut [0; 9], RecvOptions::default()), Next::Nothing)
    }
}

#[test]
fn all_senders_get_equal_turns() {
    const EACH: usize = 30;
    for count in [1, 5, 8, 9, 40, 200] {
        let mut fan = Fan::new(count, SocketKind::Rdm);
        assert!(fan.nothing());
        let lanes = usize::from(count);
        for round in 0..EACH {
            for from in 0..lanes {
                assert!(fan.send(from, &[round as u8]).is_ok());
            }
        }
        // At any time no sender is more than a round behind, except for the turn in progress.
        let share = if lanes > POLLED { SHARE as usize } else { 1 };
        let mut served = vec![0; lanes];
        for _ in 0..lanes * EACH {
            let mut buffer = [0; 4];
            let received = fan.got(&mut buffer, RecvOptions::default());
            let from = received.source.port as usize - 1;
            assert_eq!(usize::from(buffer[0]), served[from], "messages of one sender arrive in order");
            served[from] += 1;
            let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
            assert!(most - least <= 2 * share, "{count} lanes: {least} to {most}");
        }
        assert!(fan.nothing());
        // An idle lane that is armed reports its next message.
        for from in (0..lanes).rev() {
            fan.send(from, b"again").unwrap();
            let received = fan.got(&mut [0; 9], RecvOptions::default());
            assert_eq!(received.source.port as usize, from + 1);
        }
        assert_eq!(fan.receiver.arm_all(SocketKind::Rdm, &fan.ready), Check::Nothing);
        fan.send(0, b"wake").unwrap();
        assert_eq!(fan.receiver.arm_all(SocketKind::Rdm, &fan.ready), Check::Something);
    }
}

#[test]
fn lane_that_ends_between_two_checks_is_nothing_to_read() {
    for ends_by_marker in [false, true] {
        let mut fan = Fan::new(2, SocketKind::SeqPacket);
        let end = |fan: &mut Fan| {
            if ends_by_marker {
                let _ = fan.writers[0].writer.mark(Kind::End, &[]).unwrap();
            } else {
                let _ = fan.arena.freeze(Side::Zero, 0).unwrap();
            }
        };
        // The lane ends after the first check, and is armed before the second.
        assert_eq!(fan.receiver.arm_all(SocketKind::SeqPacket, &fan.ready), Check::Nothing);
        assert_eq!(fan.receiver.lane_at_end(), None);
        end(&mut fan);
        assert_eq!(fan.receiver.check(&fan.ready), Check::Ended);
        assert_eq!(fan.receiver.arm_all(SocketKind::SeqPacket, &fan.ready), Check::Ended);
        assert_eq!(fan.receiver.lane_at_end(), Some(id(0)));
        // A message in another lane counts.
        fan.send(1, b"message").unwrap();
        assert_eq!(fan.receiver.check(&fan.ready), Check::Something);
        drop(fan.receiver.remove(id(0)));
        assert_eq!(fan.receiver.arm_all(SocketKind::SeqPacket, &fan.ready), Check::Something);
        // The same holds for one that was written before its lane ended.
        let mut fan = Fan::new(1, SocketKind::SeqPacket);
        fan.send(0, b"last").unwrap();
        end(&mut fan);
        assert_eq!(fan.receiver.lane_at_end(), None);
        assert_eq!(fan.receiver.check(&fan.ready), Check::Something);
        assert_eq!(fan.receiver.arm_all(SocketKind::SeqPacket, &fan.ready), Check::Something);
    }
}

#[test]
fn marker_alone_is_nothing_to_read() {
    let mut fan = Fan::new(1, SocketKind::SeqPacket);
    let _ = fan.writers[0].writer.mark(Kind::Switch, &[]).unwrap();
    assert_eq!(fan.receiver.check(&fan.ready), Check::Nothing);
    let _ = fan.writers[0].writer.mark(Kind::Switch, &[]).unwrap();
    assert_eq!(fan.receiver.arm_all(SocketKind::SeqPacket, &fan.ready), Check::Nothing);
}

#[test]
fn busy_sender_does_not_starve_others() {
    let mut fan = Fan::new(30, SocketKind::Rdm);
    for _ in 0..20 {
        fan.send(29, b"busy").unwrap();
    }
    fan.send(3, b"rare").unwrap();
    let mut buffer = [0; 8];
    let mut waited = 0;
    while fan.got(&mut buffer, RecvOptions::default()).source.port != 4 {
        waited += 1;
    }
    assert!(waited <= 2, "{waited}");
}

#[test]
fn busy_senders_do_not_starve_the_node() {
    // The node's messages come from sockets without a lane, which get one only after these are read.
    const WAITS: usize = 80;
    let mut fan = Fan::new(200, SocketKind::Rdm);
    for from in 0..200 {
        fan.send(from, b"1").unwrap();
        fan.send(from, b"2").unwrap();
    }
    fan.receiver.node_is_ready();
    let (mut served, mut asked, mut waited) = (0, 0, 0);
    while served < 400 {
        match fan.next(&mut [0; 4], RecvOptions::default()) {
            Next::Got => (served, waited) = (served + 1, waited + 1),
            Next::AskNode => {
                fan.receiver.node_served(false);
                (asked, waited) = (asked + 1, 0);
            }
            other => panic!("{other:?}"),
        }
        assert!(waited <= WAITS, "the node has waited for {waited} messages");
    }
    assert!(asked >= 400 / WAITS, "{asked}");
    // A peeked message of the node stays the next one.
    while !matches!(fan.next(&mut [0; 4], RecvOptions::default()), Next::AskNode) {}
    fan.receiver.node_served(true);
    assert!(matches!(fan.next(&mut [0; 4], RecvOptions::default()), Next::AskNode));
    fan.receiver.node_is_empty();
    assert!(fan.nothing());
}

#[test]
fn receive_options_work_as_at_a_node() {
    let mut fan = Fan::new(1, SocketKind::SeqPacket);
    let keep = RecvOptions { keep_remainder: true, ..RecvOptions::default() };
    let peek = RecvOptions { peek: true, ..RecvOptions::default() };
    fan.send(0, b"first message").unwrap();
    fan.send(0, b"").unwrap();
    fan.send(0, b"second message").unwrap();
    let mut buffer = [0; 5];
    let looked = fan.got(&mut buffer, peek);
    assert_eq!((looked.len, looked.truncated, &buffer), (5, true, b"first"));
    let part = fan.got(&mut buffer, keep);
    assert_eq!((part.len, part.end_of_record), (5, false));
    let rest = fan.got(&mut [0; 64], keep);
    assert_eq!((rest.len, rest.end_of_record), (8, true));
    // The rest of this message is lost; the empty one before it is never delivered.
    let cut = fan.got(&mut buffer, RecvOptions::default());
    assert_eq!((cut.truncated, &buffer), (true, b"secon"));
    assert!(fan.nothing());
}

#[test]
fn stream_ignores_message_bounds() {
    let mut fan = Fan::new(1, SocketKind::Stream);
    for part in [b"abc".as_slice(), b"defg", b"h"] {
        fan.send(0, part).unwrap();
    }
    let mut buffer = [0; 5];
    let peek = RecvOptions { peek: true, ..RecvOptions::default() };
    assert_eq!(fan.got(&mut buffer, peek).len, 3);
    assert_eq!((fan.got(&mut buffer, RecvOptions::default()).len, &buffer), (5, b"abcde"));
    let mut rest = [0; 64];
    assert_eq!(fan.got(&mut rest, RecvOptions::default()).len, 3);
    assert_eq!(&rest[..3], b"fgh");
    assert!(fan.nothing());
}

#[test]
fn lane_ends_after_its_last_message() {
    let mut fan = Fan::new(1, SocketKind::SeqPacket);
    fan.send(0, b"last bytes").unwrap();
    let _ = fan.writers[0].writer.mark(Kind::End, &[]).unwrap();
    assert_eq!(fan.send(0, b"too late"), Err(LaneError::Ended));
    assert_eq!(fan.got(&mut [0; 64], RecvOptions::default()).len, 10);
    assert!(matches!(fan.next(&mut [0; 9], RecvOptions::default()), Next::Ended(lane) if lane == id(0)));
    assert!(fan.receiver.remove(id(0)).is_some());
    fan.receiver.node_is_ready();
    assert!(matches!(fan.next(&mut [0; 9], RecvOptions::default()), Next::AskNode));

    // If the writer died, the lane is read up to the last whole record.
    let mut fan = Fan::new(12, SocketKind::Rdm);
    fan.send(11, b"alive").unwrap();
    let _ = fan.arena.freeze(Side::Zero, 11).unwrap();
    assert_eq!(fan.got(&mut [0; 64], RecvOptions::default()).source.port, 12);
    assert!(matches!(fan.next(&mut [0; 9], RecvOptions::default()), Next::Ended(lane) if lane == id(11)));
    assert!(fan.receiver.remove(id(11)).is_some());
    assert!(fan.nothing());
}

#[test]
fn corrupt_lane_is_reported_and_others_work() {
    let mut fan = Fan::new(2, SocketKind::Rdm);
    // In the name of another socket.
    let liar = PortId { port: 2, node: NODE };
    let to = PortId { port: 99, node: NODE };
    let _ = fan.writers[0]
        .send(SendOptions::new(SocketKind::Rdm), liar, to, Address::Direct, b"not mine")
        .unwrap();
    fan.send(1, b"honest").unwrap();
    assert!(matches!(fan.next(&mut [0; 64], RecvOptions::default()), Next::Corrupt(lane) if lane == id(0)));
    assert!(fan.receiver.remove(id(0)).is_some());
    assert_eq!(fan.got(&mut [0; 64], RecvOptions::default()).source.port, 2);
    let garbage: &[&[u8]] = &[&[0xff; 3], &[0; 100], &[0xff; 70]];
    for bytes in garbage {
        let mut fan = Fan::new(1, SocketKind::SeqPacket);
        let _ = fan.writers[0].writer.send(bytes, &[], 1).unwrap();
        assert!(matches!(fan.next(&mut [0; 64], RecvOptions::default()), Next::Corrupt(_)));
    }
}

/// A sending socket 1 of a kind with a lane to socket 99.
fn sender(kind: SocketKind) -> (Arena, Sender, Receiver, Arc<ReadyLanes>) {
    let (arena, writes, reads) = pair();
    arena.open_slot(Side::Zero, 0).unwrap();
    let (mut sender, mut receiver, ready) = (Sender::default(), Receiver::default(), Arc::default());
    sender.add(OutboundLane::new(id(0), writes, 99).unwrap(), kind);
    receiver.node_is_empty();
    receiver.add(InboundLane::new(id(0), reads, 1, None).unwrap(), &ready);
    (arena, sender, receiver, ready)
}

#[test]
fn connection_stops_at_its_window_until_the_peer_reads() {
    let kind = SocketKind::Stream;
    let (_arena, mut sender, mut receiver, ready) = sender(kind);
    let data = vec![3; 3 * MAX_USER_DATA];
    let mut sent = 0;
    loop {
        match sender.send_connected(own(1, kind), SendOptions::new(kind), &data) {
            Ok(bytes) => sent += bytes,
            Err(LaneError::WindowFull) => break,
            Err(error) => match sender.wants_ring(Route::Sole, error) {
                Some(growth) => assert!(sender.grow(growth, true)),
                None => panic!("{error}"),
            },
        }
        assert!(sent < 4 << 20, "the sender is never stopped");
    }
    // One message may overshoot the window of 512 blocks.
    assert!((512 << 10..(512 << 10) + 2 * MAX_USER_DATA).contains(&sent), "{sent}");
    sender.wait_for_room();
    assert!(sender.wait_reason(NODE).is_some());
    assert!(!sender.want_room(1));
    let mut got = 0;
    let mut buffer = vec![0; 100_000];
    while got < sent {
        let mut call = ReceiveCall::new(Sink::Slice(&mut buffer), RecvOptions::default());
        match receiver.next(own(99, kind), &mut call, &ready) {
            Next::Got => got += call.received.len,
            other => panic!("{other:?}"),
        }
    }
    assert!(sender.want_room(1));
    assert_eq!(sender.send_connected(own(1, kind), SendOptions::new(kind), b"on"), Ok(2));
    assert!(sender.wait_reason(NODE).is_none());
}

#[test]
fn node_wakes_the_writer_of_a_full_lane_when_half_of_it_is_free() {
    let kind = SocketKind::Stream;
    let (arena, fd) = Arena::create("utipc-test", SHAPE).unwrap();
    let waker = std::fs::File::open("/dev/null").unwrap().into();
    let to_daemon = Arc::new(Pair::open(PairId(1), 0, &fd, Some(waker)).unwrap());
    arena.open_slot(Side::Zero, 0).unwrap();
    let mut sender = Sender::default();
    sender.add(OutboundLane::new(id(0), to_daemon, 99).unwrap(), kind);
    let send = |sender: &mut Sender| {
        let data = vec![1; 9000];
        sender.send_connected(own(1, kind), SendOptions::new(kind), &data).map(drop)
    };
    let mut sent = 0;
    loop {
        match send(&mut sender) {
            Ok(()) => sent += 1,
            Err(error) => match sender.wants_ring(Route::Sole, error) {
                Some(growth) => assert!(sender.grow(growth, true)),
                None => break,
            },
        }
    }
    sender.wait_for_room();
    assert!(!sender.want_room(9000));
    let (mut reader, out) = (arena.incoming(Side::One).reader(0).unwrap(), arena.outgoing(Side::Zero));
    let mut read = 0;
    while !out.has_room() {
        match reader.peek().unwrap() {
            Peek::Record(record) => reader.consume(record, blocks(record.len())),
            other => panic!("{other:?} after {read} of {sent}"),
        }
        read += 1;
    }
    assert!((sent / 2..=sent * 3 / 4).contains(&read), "after {read} of {sent}");
    assert!(send(&mut sender).is_ok());
}

#[test]
fn connectionless_sender_without_a_grant_finds_the_lane_full() {
    let kind = SocketKind::Rdm;
    let (_arena, mut sender, _receiver, _ready) = sender(kind);
    let (socket, options) = (own(1, kind), SendOptions::new(kind));
    let mut refused = 0;
    let error = loop {
        let Err(error) = sender.send_to(socket, options, 99, Address::Direct, &[1; 100]) else { continue };
        let Some(growth) = sender.wants_ring(Route::Socket(99), error) else { break error };
        assert!(!growth.is_needed && !sender.grow(growth, false));
        refused += 1;
        assert!(refused <= 1, "it asks again and again");
    };
    assert_eq!(error, LaneError::Full);
    // No lane leads to other sockets.
    assert_eq!(sender.send_to(socket, options, 98, Address::Direct, b"x"), Err(LaneError::NoLane));
    assert!(sender.reaches_all(&[99]) && !sender.reaches_all(&[98, 99]));
    assert!(!sender.note_request_to(99), "there is a lane");
    assert!(sender.note_request_to(98));
    assert!(!sender.note_request_to(98), "a lane is asked for once");
}

#[test]
fn idle_lane_gives_its_large_ring_back() {
    let mut fan = Fan::new(1, SocketKind::Rdm);
    let message = vec![7; 20_000];
    let error = fan.send(0, &message).unwrap_err();
    let growth = fan.writers[0].wants_ring(error).unwrap();
    assert!(growth.is_needed);
    assert_eq!(fan.writers[0].shrink_if_idle(), Idle::Small);
    assert!(fan.writers[0].grow(growth, true));
    assert!(fan.send(0, &message).is_ok());
    assert_eq!(fan.writers[0].shrink_if_idle(), Idle::Busy, "something was sent since the last look");
    assert_eq!(fan.writers[0].shrink_if_idle(), Idle::Busy, "it is unread");
    assert_eq!(fan.got(&mut vec![0; 20_000], RecvOptions::default()).len, 20_000);
    assert!(fan.nothing());
    assert!(matches!(fan.writers[0].shrink_if_idle(), Idle::Shrunk(_)));
    assert_eq!(fan.writers[0].shrink_if_idle(), Idle::Busy, "the reader has not looked");
    assert!(fan.send(0, b"small").is_ok());
    assert_eq!(fan.got(&mut [0; 9], RecvOptions::default()).len, 5);
    assert!(fan.nothing());
    assert_eq!(fan.writers[0].shrink_if_idle(), Idle::Busy);
    assert_eq!(fan.writers[0].shrink_if_idle(), Idle::Left, "the daemon learns of it once");
    assert_eq!(fan.writers[0].shrink_if_idle(), Idle::Small);
    assert!(matches!(fan.send(0, &message), Err(LaneError::NeedsRing(_))), "it asks for a large ring again");
}

/// A correct writer sends nothing without data and few markers; a hostile one could hold a reader in a call that must
/// not wait.
#[test]
fn lane_of_endless_records_without_data_is_corrupt() {
    for kind in [SocketKind::Rdm, SocketKind::Stream] {
        let mut fan = Fan::new(1, kind);
        let mut writer = fan.arena.outgoing(Side::Zero).writer(0).unwrap();
        writer.grow(3).unwrap();
        let written = (0..).take_while(|_| writer.mark(Kind::Switch, &[]).is_ok()).count();
        assert!(written > 10_000, "only {written} fit");
        let next = fan.next(&mut [0; 9], RecvOptions::default());
        assert!(matches!(next, Next::Corrupt(_)), "{kind:?}: {next:?}");
    }
}

#[test]
fn sender_waits_for_a_reader_until_that_has_not_read_for_too_long() {
    let mut fan = Fan::new(1, SocketKind::Rdm);
    let mut sender = Sender::default();
    sender.add(fan.writers.remove(0), SocketKind::Rdm);
    let own = OwnSocket { port: 1, ..fan.own };
    let send = |sender: &mut Sender| {
        sender.send_to(own, SendOptions::new(own.kind), 99, Address::Direct, &[7; 1000]).map(drop)
    };
    let begin = Instant::now();
    let after = |millis| begin + Duration::from_millis(millis);
    let fill = |sender: &mut Sender| while send(sender).is_ok() {};
    fill(&mut sender);
    assert_eq!(sender.check_room(99, 1000), Err(LaneError::Full));
    assert!(sender.waits_for_reader(99, begin) && sender.take_new_wait());
    assert!(sender.waits_for_reader(99, after(39)) && !sender.take_new_wait());
    assert!(!sender.want_room(1000), "there is no room");
    for time in [40, 41, 5000] {
        assert!(!sender.waits_for_reader(99, after(time)), "the reader is waited for again after {time} ms");
    }
    // A few messages are not enough.
    let mut buffer = [0; 1000];
    fan.got(&mut buffer, RecvOptions::default());
    while matches!(fan.next(&mut buffer, RecvOptions::default()), Next::Got) {}
    assert!(sender.want_room(1000), "there is room");
    fill(&mut sender);
    assert!(!sender.waits_for_reader(99, after(6000)));
    while matches!(fan.next(&mut buffer, RecvOptions::default()), Next::Got) {}
    for _ in 0..600 {
        send(&mut sender).unwrap();
        fan.got(&mut buffer, RecvOptions::default());
    }
    fill(&mut sender);
    assert!(sender.waits_for_reader(99, after(7000)) && sender.waits_for_reader(99, after(7079)));
    assert!(!sender.waits_for_reader(99, after(7080)));
}

/// Messages that a tap finds, by their first byte and length, and the bytes that it missed.
fn scan(tap: &mut crate::Tap) -> (Vec<(u8, usize)>, u64) {
    let (mut found, mut missed) = (Vec::new(), 0);
    tap.scan(3, &mut |tapped| match tapped {
        crate::Tapped::Message(message) => {
            // Header, then data of equal bytes.
            let last = message[message.len() - 1];
            let data = message.iter().rev().take_while(|byte| **byte == last).count();
            found.push((last, data));
        }
        crate::Tapped::Missed(bytes) => missed += bytes,
    });
    (found, missed)
}

#[test]
fn tap_sees_messages_that_the_reader_has_read() {
    let mut fan = Fan::new(1, SocketKind::Rdm);
    fan.send(0, &[1; 50]).unwrap();
    let mut all = fan.arena.tap(Side::Zero, 0, false).unwrap();
    let mut later = fan.arena.tap(Side::Zero, 0, true).unwrap();
    assert_eq!(scan(&mut later), (vec![], 0), "what was there before");
    assert!(fan.arena.tap(Side::Zero, 9999, true).is_none());
    let mut buffer = [0; 4096];
    // The header ends with 7.
    for round in 8..200u8 {
        fan.send(0, &[round; 50]).unwrap();
        fan.got(&mut buffer, RecvOptions::default());
        let expected = if round == 8 { vec![(1, 50), (8, 50)] } else { vec![(round, 50)] };
        assert_eq!(scan(&mut all), (expected, 0), "round {round}");
        assert_eq!(scan(&mut later), (vec![(round, 50)], 0), "round {round}");
        assert_eq!(scan(&mut all), (vec![], 0));
    }
}

#[test]
fn tap_reports_what_was_overwritten_and_goes_on() {
    let mut fan = Fan::new(1, SocketKind::Rdm);
    let mut tap = fan.arena.tap(Side::Zero, 0, false).unwrap();
    let mut buffer = [0; 4096];
    // Far more than the ring of 4 KiB, without a scan.
    for _ in 0..500 {
        fan.send(0, &[3; 100]).unwrap();
        fan.got(&mut buffer, RecvOptions::default());
    }
    let (found, missed) = scan(&mut tap);
    assert!(missed > 0 && found.len() < 500, "{missed} {}", found.len());
    assert!(found.iter().all(|message| *message == (3, 100)), "{found:?}");
    fan.send(0, &[4; 100]).unwrap();
    let (found, missed) = scan(&mut tap);
    assert_eq!((found.last(), missed), (Some(&(4, 100)), 0));
}
