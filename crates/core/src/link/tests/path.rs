//! Paths that carry smaller packets than the bearers at their ends.

use super::super::path::Path;
use super::super::{LinkConfig, Parts, parts};
use super::pair::{A, B, Faults, Pair, Side, config, number, numbered};
use crate::outbox::{FrameBatch, FrameSink, Target};
use crate::time::Time;
use crate::wire::{INTERNAL_HEADER, LinkProtocolType, Message, User, View};

/// MTU of a UDP bearer on an interface with jumbo frames, and of a path without.
const WIDE: u16 = 8972;
const NARROW: u16 = 1472;

fn wide(own: crate::addr::NodeAddr, peer: crate::addr::NodeAddr) -> LinkConfig {
    LinkConfig { mtu: WIDE, max_receive: 65_504, min_mtu: 128, base_mtu: 1200, ..config(own, peer) }
}

/// Two linked ends whose frames above `width` bytes are lost.
fn pair(width: usize, seed: u64) -> Pair {
    let mut pair = Pair::new(wide(A, B), wide(B, A), seed);
    pair.width = width;
    pair.run(3000);
    assert!(pair.both_up());
    pair
}

/// Sends messages of many sizes; all arrive in order and the link stays up. Returns the milliseconds that it took.
fn transfer(pair: &mut Pair, count: u32) -> u64 {
    let start = pair.now;
    pair.sides[1].delivered.clear();
    pair.transfer(0, count, |n| [100, 1400, 3000, 8900, 66_000][n as usize % 5]);
    assert_eq!(pair.received(1), (0..count).collect::<Vec<_>>());
    assert_eq!(pair.downs(), 0, "{:?} {:?}", pair.sides[0].downs, pair.sides[1].downs);
    pair.now.since(start).as_millis() as u64
}

#[test]
fn path_narrower_than_the_interface_carries_everything_without_a_reset() {
    for seed in 0..20 {
        let mut pair = Pair::new(wide(A, B), wide(B, A), seed);
        pair.width = NARROW.into();
        pair.run(1000);
        assert!(pair.both_up(), "it does not wait for the search");
        assert!(transfer(&mut pair, 50) < 1000);
        pair.run(10_000);
        for side in &pair.sides {
            assert_eq!((side.link.mtu(), side.link.mtu_limit()), (NARROW, WIDE));
            assert_eq!(side.sizes, [NARROW], "reported once");
        }
        assert!(transfer(&mut pair, 50) < 1000);
        pair.run(600_000);
        assert!(transfer(&mut pair, 50) < 1000, "the next search disturbs nothing");
        assert_eq!(pair.sides[0].sizes, [NARROW]);
    }
}

#[test]
fn wide_path_is_used_at_once() {
    let mut pair = Pair::new(wide(A, B), wide(B, A), 3);
    pair.run(1000);
    assert!(pair.both_up());
    assert!(pair.sides.iter().all(|side| side.link.mtu() == WIDE && side.sizes.is_empty()));
}

#[test]
fn path_that_becomes_narrow_loses_nothing_and_is_wide_again_later() {
    for seed in 0..20 {
        let mut pair = pair(usize::MAX, seed);
        assert_eq!(pair.sides[0].link.mtu(), WIDE);
        // The window and the backlog are full of packets of the old size.
        let mut sent = 0;
        while sent < 60 && pair.send(0, numbered(A, sent, [100, 66_000][sent as usize % 2])).is_ok() {
            sent += 1;
        }
        pair.width = NARROW.into();
        pair.run(5000);
        assert_eq!(pair.received(1), (0..sent).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(pair.downs(), 0);
        pair.run(10_000);
        assert_eq!((pair.sides[0].link.mtu(), &pair.sides[0].sizes[..]), (NARROW, &[NARROW][..]));
        transfer(&mut pair, 50);
        pair.width = usize::MAX;
        pair.run(601_000);
        assert_eq!((pair.sides[0].link.mtu(), &pair.sides[0].sizes[..]), (WIDE, &[NARROW, WIDE][..]));
    }
}

#[test]
fn one_large_packet_on_a_path_that_became_narrow_arrives_soon() {
    let mut pair = pair(usize::MAX, 1);
    pair.width = NARROW.into();
    let _ = pair.send(0, numbered(A, 0, 5000)).unwrap();
    pair.run(2000);
    assert_eq!(pair.received(1), [0]);
}

#[test]
fn losses_of_all_sizes_do_not_reduce_the_size() {
    for seed in 0..20 {
        let mut pair = pair(usize::MAX, seed);
        pair.faults = Faults { loss: 100, duplicate: 20, jitter_us: 2000 };
        transfer(&mut pair, 200);
        pair.faults = Faults::default();
        pair.run(10_000);
        assert_eq!(pair.sides[0].link.mtu(), WIDE, "seed {seed}");
    }
}

#[test]
fn search_finds_the_size_of_common_paths() {
    for (carried, found) in
        [(1450, 1450), (1449, 1420), (1492, 1492), (1280, 1280), (1300, 1280), (8896, 8896)]
    {
        let mut path = Path::new(8972, 1200, 28);
        let mut now = Time::ZERO;
        let mut probes = 0;
        while let Some(size) = path.next_probe(now) {
            probes += 1;
            now = now.plus_millis(375);
            if size + 28 <= carried {
                path.answered();
            }
            path.tick(now, true);
        }
        assert_eq!(path.size(), found - 28, "{carried}");
        assert!(probes <= 12 && path.take_report() && !path.take_report(), "{probes} probes");
    }
}

#[test]
fn reply_to_an_ordinary_probe_proves_nothing() {
    let mut pair = pair(NARROW.into(), 2);
    for _ in 0..200 {
        pair.call(0, super::super::Link::probe);
        pair.run(100);
        assert!(pair.sides[0].link.mtu() <= NARROW);
    }
    assert_eq!(pair.downs(), 0);
}

/// A reply that is late must not be taken for that to a later probe.
#[test]
fn late_replies_prove_nothing() {
    for seed in 0..40 {
        let mut pair = Pair::new(wide(A, B), wide(B, A), seed);
        pair.width = NARROW.into();
        pair.faults = Faults { loss: 20, duplicate: 20, jitter_us: 150_000 };
        for step in 0..200 {
            pair.run(150);
            if step % 7 < 3 {
                let _ = pair.send(0, numbered(A, step, 100)); // idle and busy in turns
            }
            assert!(pair.sides.iter().all(|side| side.link.mtu() <= NARROW), "seed {seed}, step {step}");
        }
    }
}

/// Linux reads a message as far as its header says, so that it answers a probe as any other.
#[test]
fn probe_is_a_state_with_bytes_after_it() {
    let mut side = Side::established(wide(A, B));
    let (sent, frames) = side.with(|link, io| link.probe_path(Time::ZERO, io));
    let view = View::parse(&frames[0]).unwrap();
    assert!(sent && frames[0].len() == usize::from(side.link.mtu_limit()));
    assert_eq!(
        (view.user(), view.link_type(), view.probe()),
        (User::LinkProtocol, LinkProtocolType::State, true)
    );
    assert_eq!(view.size(), INTERNAL_HEADER + 4, "the gap-ack record is the last of the message");
    let again = side.with(|link, io| link.probe_path(Time::ZERO, io)).0;
    assert!(!again, "one at a time");
}

fn parts_of(packet: &Message, largest: usize) -> Vec<Message> {
    let mut batch = FrameBatch::default();
    let mut sink = FrameSink::new(&mut batch, 0, Target::Broadcast);
    parts::push(packet.bytes(), parts::header(A, B), largest, &mut sink);
    batch.frames().iter().map(|frame| Message::from_vec(batch.frame(frame).to_vec()).unwrap()).collect()
}

#[test]
fn parts_make_the_packet_in_any_order_and_only_if_they_fit() {
    let packet = |seqno, len| {
        let mut packet = numbered(A, 7, len);
        packet.set_seqno(seqno);
        packet
    };
    let large = packet(9, 8900);
    let pieces = parts_of(&large, 1200);
    assert!(pieces.len() == 8 && pieces.iter().all(|piece| piece.size() <= 1200));
    let mut parts = Parts::default();
    for piece in pieces.iter().rev().chain(&pieces[3..]) {
        let whole = parts.take(piece.view(), 2000);
        assert_eq!(whole.is_some(), piece.fragment_number() == 1);
        assert!(whole.is_none_or(|whole| whole.bytes() == large.bytes() && number(&whole) == 7));
    }
    assert_eq!(parts.bytes(), pieces[3..].iter().map(|piece| piece.data().len()).sum::<usize>());
    parts.tick();
    parts.tick();
    assert_eq!(parts.bytes(), 0);
    assert!(parts.take(pieces[0].view(), 100).is_none() && parts.bytes() == 0, "no room");
    // Two divisions of one packet into the same number of parts.
    let small = packet(10, 2000);
    let (even, odd) = (parts_of(&small, 1200), parts_of(&small, 1300));
    assert_eq!((even.len(), odd.len()), (2, 2));
    assert!(parts.take(even[0].view(), 9000).is_none() && parts.take(odd[1].view(), 9000).is_none());
    assert_eq!(parts.bytes(), 0, "they do not fit");
    // A part may not carry what only comes by itself, nor a packet of another node.
    for (user, node) in [(User::LinkProtocol, A), (User::LinkConfig, A), (User::Low, B)] {
        let mut inner = Message::build(user, 0, INTERNAL_HEADER, &[1; 100]);
        inner.set_prev_node(node);
        assert!(parts_of(&inner, 1200).iter().all(|piece| parts.take(piece.view(), 9000).is_none()));
    }
}

#[test]
fn memory_of_incomplete_packets_is_bounded() {
    let mut parts = Parts::default();
    for seqno in 0..5000 {
        let mut packet = numbered(A, 7, 60_000);
        packet.set_seqno(seqno);
        let all = parts_of(&packet, 1200);
        for piece in &all[..all.len() - 1] {
            assert!(parts.take(piece.view(), usize::MAX).is_none());
        }
        assert!(parts.bytes() <= 288 << 10, "{}", parts.bytes());
        if seqno == 20 {
            break;
        }
    }
    for bits in 0..=u16::MAX {
        let mut piece = Message::build(User::LinkProtocol, 7, INTERNAL_HEADER, &[1; 20]);
        piece.set_fragment_number(bits);
        piece.set_fragment_count(bits.rotate_left(7));
        piece.set_seqno(bits.wrapping_mul(40_503));
        let _ = parts.take(piece.view(), usize::MAX);
    }
    assert!(parts.bytes() <= 288 << 10);
}
