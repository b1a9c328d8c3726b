//! Both ends of lanes in one process, without a daemon.

use std::sync::Arc;

use utipc_attach::{LaneId, PairId};
use utipc_core::addr::{NodeAddr, PortId};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{Received, RecvOptions, SocketKind};
use utipc_lanes::{Arena, Kind, Shape, Side};

use super::head::{Address, Style};
use super::inbound::{InLane, Sink};
use super::outbound::{OutLane, Put, Rest};
use super::pair::{Pair, ReadyBox};
use super::receive::{Call, Next, Own, POLLED, Receiver, SHARE};
use super::send::{Sender, Step};

const NODE: NodeAddr = NodeAddr(7);
const SHAPE: Shape = Shape { slots: 256, region: 16 << 20, ring_shifts: [12, 15, 18, 20] };

fn own(port: u32, kind: SocketKind) -> Own {
    Own { node: NODE, port, kind }
}

fn id(slot: u16) -> LaneId {
    LaneId { pair: PairId(1), writer: 0, slot }
}

/// The daemon's view of an arena, and the two sides' of it.
fn pair() -> (Arena, Arc<Pair>, Arc<Pair>) {
    let (arena, fd) = Arena::create("utipc-test", SHAPE).unwrap();
    let side = |side| Arc::new(Pair::open(PairId(1), side, &fd, None).unwrap());
    let (writes, reads) = (side(0), side(1));
    (arena, writes, reads)
}

/// A receiving socket 99 and `count` sockets 1, 2 … that have a lane to it.
struct Fan {
    receiver: Receiver,
    ready: Arc<ReadyBox>,
    writers: Vec<OutLane>,
    own: Own,
    arena: Arena,
}

impl Fan {
    fn new(count: u16, kind: SocketKind) -> Self {
        let (arena, writes, reads) = pair();
        let mut receiver = Receiver::new();
        receiver.node_is_empty();
        let ready = Arc::default();
        let writers = (0..count)
            .map(|slot| {
                arena.open_slot(Side::Zero, slot.into()).unwrap();
                let lane = InLane::new(id(slot), Arc::clone(&reads), u32::from(slot) + 1, None).unwrap();
                receiver.add(lane, &ready);
                OutLane::new(id(slot), Arc::clone(&writes), 99).unwrap()
            })
            .collect();
        Self { receiver, ready, writers, own: own(99, kind), arena }
    }

    fn send(&mut self, from: usize, data: &[u8]) -> Put {
        let (address, kind) = match self.own.kind.is_connection_oriented() {
            true => (Address::Connection, self.own.kind),
            false => (Address::Direct, self.own.kind),
        };
        let origin = PortId { port: from as u32 + 1, node: NODE };
        self.writers[from].put(Style::new(kind), origin, address, data)
    }

    fn next_call(&mut self, call: &mut Call<'_>) -> Next {
        self.receiver.next(self.own, call, &self.ready)
    }

    fn next(&mut self, buffer: &mut [u8], options: RecvOptions) -> Next {
        self.next_call(&mut Call::new(Sink::Slice(buffer), options))
    }

    fn got(&mut self, buffer: &mut [u8], options: RecvOptions) -> Received {
        let mut call = Call::new(Sink::Slice(buffer), options);
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
fn every_sender_is_served_in_turn_however_many_there_are() {
    const EACH: usize = 30;
    for count in [1, 5, 8, 9, 40, 200] {
        let mut fan = Fan::new(count, SocketKind::Rdm);
        assert!(fan.nothing());
        let lanes = usize::from(count);
        for round in 0..EACH {
            for from in 0..lanes {
                assert!(matches!(fan.send(from, &[round as u8]), Put::Sent(_)));
            }
        }
        // Whatever was served so far: nobody is more than a round behind, but for the turn in progress.
        let share = if lanes > POLLED { SHARE as usize } else { 1 };
        let mut served = vec![0; lanes];
        for _ in 0..lanes * EACH {
            let mut buffer = [0; 4];
            let received = fan.got(&mut buffer, RecvOptions::default());
            let from = received.source.port as usize - 1;
            assert_eq!(usize::from(buffer[0]), served[from], "the order of one sender");
            served[from] += 1;
            let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
            assert!(most - least <= 2 * share, "{count} lanes: {least} to {most}");
        }
        assert!(fan.nothing());
        // An idle lane that is armed is heard of again.
        for from in (0..lanes).rev() {
            fan.send(from, b"again");
            let received = fan.got(&mut [0; 9], RecvOptions::default());
            assert_eq!(received.source.port as usize, from + 1);
        }
        assert!(!fan.receiver.arm_all(SocketKind::Rdm, &fan.ready));
        fan.send(0, b"wake");
        assert!(fan.receiver.arm_all(SocketKind::Rdm, &fan.ready));
    }
}

#[test]
fn a_busy_sender_does_not_starve_the_others() {
    let mut fan = Fan::new(30, SocketKind::Rdm);
    for _ in 0..20 {
        fan.send(29, b"busy");
    }
    fan.send(3, b"rare");
    let mut buffer = [0; 8];
    let mut waited = 0;
    while fan.got(&mut buffer, RecvOptions::default()).source.port != 4 {
        waited += 1;
    }
    assert!(waited <= 2, "{waited}");
}

#[test]
fn many_busy_senders_do_not_starve_the_node() {
    // What the node has comes from those that have no lane yet, and they get none before it is read.
    const WAITS: usize = 80;
    let mut fan = Fan::new(200, SocketKind::Rdm);
    for from in 0..200 {
        fan.send(from, b"1");
        fan.send(from, b"2");
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
    // A message of the node's that is looked at stays the next one.
    while !matches!(fan.next(&mut [0; 4], RecvOptions::default()), Next::AskNode) {}
    fan.receiver.node_served(true);
    assert!(matches!(fan.next(&mut [0; 4], RecvOptions::default()), Next::AskNode));
    fan.receiver.node_is_empty();
    assert!(fan.nothing());
}

#[test]
fn options_of_a_receive_mean_the_same_as_at_a_node() {
    let mut fan = Fan::new(1, SocketKind::SeqPacket);
    let keep = RecvOptions { keep_remainder: true, ..RecvOptions::default() };
    let peek = RecvOptions { peek: true, ..RecvOptions::default() };
    fan.send(0, b"first message");
    fan.send(0, b"");
    fan.send(0, b"second message");
    let mut buffer = [0; 5];
    let looked = fan.got(&mut buffer, peek);
    assert_eq!((looked.len, looked.truncated, &buffer), (5, true, b"first"));
    let part = fan.got(&mut buffer, keep);
    assert_eq!((part.len, part.end_of_record), (5, false));
    let rest = fan.got(&mut [0; 64], keep);
    assert_eq!((rest.len, rest.end_of_record), (8, true));
    // The rest of this one is lost; the empty one before it is never delivered.
    let cut = fan.got(&mut buffer, RecvOptions::default());
    assert_eq!((cut.truncated, &buffer), (true, b"secon"));
    assert!(fan.nothing());
}

#[test]
fn a_stream_has_no_bounds() {
    let mut fan = Fan::new(1, SocketKind::Stream);
    for part in [b"abc".as_slice(), b"defg", b"h"] {
        fan.send(0, part);
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
fn the_end_comes_after_everything_else() {
    let mut fan = Fan::new(1, SocketKind::SeqPacket);
    fan.send(0, b"last words");
    let _ = fan.writers[0].writer.mark(Kind::End, &[]).unwrap();
    assert_eq!(fan.send(0, b"too late"), Put::Over);
    assert_eq!(fan.got(&mut [0; 64], RecvOptions::default()).len, 10);
    assert!(matches!(fan.next(&mut [0; 9], RecvOptions::default()), Next::Ended(lane) if lane == id(0)));
    assert!(fan.receiver.remove(id(0)).is_some());
    fan.receiver.node_is_ready();
    assert!(matches!(fan.next(&mut [0; 9], RecvOptions::default()), Next::AskNode));

    // A writer that is dead: up to the last whole record.
    let mut fan = Fan::new(12, SocketKind::Rdm);
    fan.send(11, b"alive");
    let _ = fan.arena.freeze(Side::Zero, 11).unwrap();
    assert_eq!(fan.got(&mut [0; 64], RecvOptions::default()).source.port, 12);
    assert!(matches!(fan.next(&mut [0; 9], RecvOptions::default()), Next::Ended(lane) if lane == id(11)));
    assert!(fan.receiver.remove(id(11)).is_some());
    assert!(fan.nothing());
}

#[test]
fn a_lane_with_a_lie_in_it_is_left_and_the_others_work() {
    let mut fan = Fan::new(2, SocketKind::Rdm);
    // In the name of another socket, then as a connection, then to another socket.
    let liar = PortId { port: 2, node: NODE };
    fan.writers[0].put(Style::new(SocketKind::Rdm), liar, Address::Direct, b"it was not me");
    fan.send(1, b"honest");
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
fn sender(kind: SocketKind) -> (Arena, Sender, Receiver, Arc<ReadyBox>) {
    let (arena, writes, reads) = pair();
    arena.open_slot(Side::Zero, 0).unwrap();
    let (mut sender, mut receiver, ready) = (Sender::default(), Receiver::new(), Arc::default());
    sender.add(OutLane::new(id(0), writes, 99).unwrap(), kind);
    receiver.node_is_empty();
    receiver.add(InLane::new(id(0), reads, 1, None).unwrap(), &ready);
    (arena, sender, receiver, ready)
}

#[test]
fn a_connection_stops_at_its_window_and_goes_on_when_the_peer_reads() {
    let kind = SocketKind::Stream;
    let (_arena, mut sender, mut receiver, ready) = sender(kind);
    let data = vec![3; 3 * MAX_USER_DATA];
    let mut sent = 0;
    loop {
        match sender.step_connected(own(1, kind), Style::new(kind), &data) {
            Step::Sent(bytes) => sent += bytes,
            Step::Grow(growth) => assert!(sender.granted(growth, true)),
            Step::Blocked => break,
            other => panic!("{other:?}"),
        }
        assert!(sent < 4 << 20, "the sender is never stopped");
    }
    // One message may overshoot the window of 512 blocks.
    assert!((512 << 10..(512 << 10) + 2 * MAX_USER_DATA).contains(&sent), "{sent}");
    assert!(sender.wait_reason(NODE).is_some());
    assert!(!sender.want_room(1));
    let mut got = 0;
    let mut buffer = vec![0; 100_000];
    while got < sent {
        let mut call = Call::new(Sink::Slice(&mut buffer), RecvOptions::default());
        match receiver.next(own(99, kind), &mut call, &ready) {
            Next::Got => got += call.received.len,
            other => panic!("{other:?}"),
        }
    }
    assert!(sender.want_room(1));
    assert!(matches!(sender.step_connected(own(1, kind), Style::new(kind), b"on"), Step::Sent(2)));
    assert!(sender.wait_reason(NODE).is_none());
}

#[test]
fn a_connectionless_sender_without_a_grant_is_told_of_the_overload() {
    let kind = SocketKind::Rdm;
    let (_arena, mut sender, _receiver, _ready) = sender(kind);
    let mut refused = 0;
    let overload = loop {
        match sender.step_to(own(1, kind), Style::new(kind), 99, Address::Direct, &[1; 100]) {
            Step::Sent(_) => {}
            Step::Grow(growth) => {
                refused += 1;
                assert!(!sender.granted(growth, false));
            }
            other => break other,
        }
        assert!(refused <= 1, "it asks again and again");
    };
    assert!(matches!(overload, Step::Overload));
    // Others are the node's business.
    let step = sender.step_to(own(1, kind), Style::new(kind), 98, Address::Direct, b"x");
    assert!(matches!(step, Step::Node));
    assert!(sender.reaches_all(&[99]) && !sender.reaches_all(&[98, 99]));
    assert!(!sender.wants_lane(99), "there is one");
    assert!(sender.wants_lane(98));
    assert!(!sender.wants_lane(98), "once is enough");
}

#[test]
fn an_idle_lane_gives_its_large_ring_back() {
    let mut fan = Fan::new(1, SocketKind::Rdm);
    let message = vec![7; 20_000];
    let Put::Full(Some(growth)) = fan.send(0, &message) else { panic!("it does not fit the first ring") };
    assert_eq!(fan.writers[0].rest(), Rest::Small);
    assert!(fan.writers[0].granted(growth, true));
    assert!(matches!(fan.send(0, &message), Put::Sent(_)));
    assert_eq!(fan.writers[0].rest(), Rest::Large, "something was sent since the last look");
    assert_eq!(fan.writers[0].rest(), Rest::Large, "it is unread");
    assert_eq!(fan.got(&mut vec![0; 20_000], RecvOptions::default()).len, 20_000);
    assert!(fan.nothing());
    assert!(matches!(fan.writers[0].rest(), Rest::Returned(_)));
    assert_eq!(fan.writers[0].rest(), Rest::Large, "the reader has not looked");
    assert!(matches!(fan.send(0, b"small"), Put::Sent(_)));
    assert_eq!(fan.got(&mut [0; 9], RecvOptions::default()).len, 5);
    assert!(fan.nothing());
    assert_eq!(fan.writers[0].rest(), Rest::Large);
    assert_eq!(fan.writers[0].rest(), Rest::Small);
    assert!(matches!(fan.send(0, &message), Put::Full(Some(_))), "it asks for a large ring again");
}
