//! The computed vectors of §16, compared byte for byte.

use super::super::{BcastStamp, LinkConfig, SendFault};
use super::pair::{Side, config};
use crate::addr::NodeAddr;
use crate::time::Time;
use crate::wire::{BASIC_HEADER, INTERNAL_HEADER, Message, MessageType, User};

const OWN: NodeAddr = NodeAddr(0x6602_0012);
const PEER: NodeAddr = NodeAddr(0x0a0b_0c0d);

fn side() -> Side {
    Side::new(config(OWN, PEER))
}

fn hex(frame: &[u8]) -> String {
    let words: Vec<String> =
        frame.chunks(4).map(|c| c.iter().map(|b| format!("{b:02x}")).collect()).collect();
    words.join(" ")
}

fn early(seqno: u16) -> Message {
    let mut m = Message::build(User::Low, MessageType::Direct.into(), BASIC_HEADER, b"x");
    m.set_prev_node(PEER);
    m.set_seqno(seqno);
    m
}

#[test]
fn reset() {
    let frames = side().with(|l, io| l.send_setup(false, io)).1;
    let want = "4f400038 20000000 00008000 66020012 00000001 12354000 66020012 0a0b0c0d 00000000 01770000 \
                65746830 00000000 00000000 00000000";
    assert_eq!(frames.iter().map(|f| hex(f)).collect::<Vec<_>>(), [want]);
}

#[test]
fn activate() {
    let mut side = side();
    let mut peer = Side::new(LinkConfig { session: 0x4443, ..config(PEER, OWN) });
    let reset = peer.with(|l, io| l.send_setup(false, io)).1;
    side.hear(Time::ZERO, &reset[0]);
    let frames = side.with(|l, io| l.tick(Time::ZERO, io)).1;
    let want = "4f400038 40014444 00008000 66020012 00000001 12354000 66020012 0a0b0c0d 00000000 01770000 \
                65746830 00000000 00000000 00000000";
    assert_eq!(frames.iter().map(|f| hex(f)).collect::<Vec<_>>(), [want]);
}

#[test]
fn first_state_with_probe() {
    let mut side = Side::established(config(OWN, PEER));
    let frames = side.with(|l, io| l.tick(Time::ZERO, io)).1;
    let want =
        "4f48002c 00000000 00000001 66020012 00000001 12354001 66020012 0a0b0c0d 00000000 00000000 00040000";
    assert_eq!(frames.iter().map(|f| hex(f)).collect::<Vec<_>>(), [want]);
}

/// STATE number 9 of an endpoint that sent 32 packets, expects packet 5 and has 10 11 13 14 15 20.
#[test]
fn state_that_reports_gaps() {
    let mut side = Side::established(config(OWN, PEER));
    side.bcast = BcastStamp { ack: 7, last_sent: 7, ..BcastStamp::default() };
    for _ in 0..8 {
        side.with(|l, io| l.send_state(io));
    }
    for _ in 0..32 {
        side.send(Time::ZERO, early(0)).map(|_| ()).unwrap_or_else(|e: SendFault| panic!("{e}"));
    }
    for seqno in 1..=4 {
        side.hear(Time::ZERO, early(seqno).bytes());
    }
    side.hear(Time::ZERO, early(10).bytes());
    side.hear(Time::ZERO, early(20).bytes());
    assert_eq!(side.link.stats().rx_deferred, 2);
    // The third early packet triggers a report of its own, so the others are added directly.
    for seqno in [11, 13, 14, 15] {
        side.link.session.receive.accept(early(seqno).view(), usize::MAX);
    }
    let note = super::super::protocol::StateNote { gap: 5, ..Default::default() };
    let frames = side.with(|l, io| l.send_state_with(note, io)).1;
    let want = "4f400038 00050007 00040009 66020012 00070021 12351000 66020012 0a0b0c0d 00000000 00000000 \
                00100300 000b0001 000f0004 00140000";
    assert_eq!(frames.iter().map(|f| hex(f)).collect::<Vec<_>>(), [want]);
}

/// BCAST_PROTOCOL init as packet 1; NAMED SYN and CONN data with the stamps of the vectors.
#[test]
fn stamps_of_sequenced_packets() {
    let mut side = Side::established(config(OWN, PEER));
    let mut init = Message::build(User::BcastProtocol, 0, INTERNAL_HEADER, &[]);
    init.set_prev_node(OWN);
    init.set_origin_node(OWN);
    init.set_dest_node(PEER);
    init.set_bcast_ack_invalid(true);
    let frames = side.with(|l, io| l.send(Time::ZERO, init, io)).1;
    let want = "4b400028 00000000 00000001 66020012 00000000 00004000 66020012 0a0b0c0d 00000000 00000000";
    assert_eq!(frames.iter().map(|f| hex(f)).collect::<Vec<_>>(), [want]);

    side.bcast.ack = 7;
    for seqno in 1..=4 {
        side.hear(Time::ZERO, early(seqno).bytes());
    }
    let words: [u32; 10] = [
        0x4142_0028,
        0x4010_0000,
        0,
        0x6602_0012,
        0x1111_2222,
        0x3333_4444,
        0x6602_0012,
        0x0a0b_0c0d,
        0x49c8,
        0x11,
    ];
    let bytes = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    let mut frames = Vec::new();
    for _ in 2..=10 {
        let named = Message::from_vec(Vec::clone(&bytes)).unwrap();
        frames = side.with(|l, io| l.send(Time::ZERO, named, io)).1;
    }
    let want = "41420028 40100007 0004000a 66020012 11112222 33334444 66020012 0a0b0c0d 000049c8 00000011";
    assert_eq!(frames.iter().map(|f| hex(f)).collect::<Vec<_>>(), [want]);
}
