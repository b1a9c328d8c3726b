//! Two links to one peer: synchronisation and failover.

use super::super::{DownReason, Event, LinkConfig, State, failover_point, synch_point};
use super::pair::{A, B, Pair, Side, config, number, numbered};
use crate::limits::capability;
use crate::time::Time;
use crate::wire::{INTERNAL_HEADER, Message, User, View, seq};

/// A pair on a second bearer, plane B, between the same nodes.
fn second(mtu: u16, capabilities: u16) -> Pair {
    let on = |own, peer| LinkConfig {
        bearer: 1,
        net_plane: 1,
        mtu,
        peer_capabilities: capabilities,
        session: 0x7777,
        ..config(own, peer)
    };
    let mut pair = Pair::new(on(A, B), on(B, A), 2);
    pair.run(3000);
    assert!(pair.both_up());
    pair
}

/// Takes the first pair's links down on both sides and lets the second take over, as the node layer does.
fn fail_over(first: &mut Pair, second: &mut Pair) {
    for side in [0, 1] {
        let failed = &mut first.sides[side];
        assert!(failed.link.fail());
        let failover = failed.link.take_failover();
        failed.link.event(Event::LocalReset);
        failed.link.reset(&mut failed.wakeups);
        failed.link.event(Event::FailoverBegin);
        assert_eq!(failed.link.state(), State::FailingOver);
        second.call(side, |l, io| l.carry_failover(failover, io)).unwrap();
    }
}

fn all(first: &Pair, second: &Pair, side: usize) -> Vec<u32> {
    let mut got = first.received(side);
    got.extend(second.received(side));
    got
}

#[test]
fn failover_neither_loses_nor_duplicates_messages() {
    for (seed, mtu) in [(1, 1500), (2, 1500), (3, 1280), (4, 9000)] {
        let mut first = Pair::up(seed);
        let mut second = second(mtu, 0xfff);
        first.faults.loss = 150;
        first.faults.jitter_us = 300;
        second.faults.loss = 20;
        for n in 0..140 {
            let len = [60, 1390, 30, 5000][n as usize % 4];
            for (side, own) in [(0, A), (1, B)] {
                let _ = first.send(side, numbered(own, n, len));
            }
        }
        first.run(2);
        fail_over(&mut first, &mut second);
        second.run(4000);
        for side in [0, 1] {
            assert!(first.received(side).len() < 140, "seed {seed}: the failure happens before the end");
            assert_eq!(all(&first, &second, side), (0..140).collect::<Vec<_>>(), "seed {seed} side {side}");
        }
        assert_eq!(second.downs(), 0);
    }
}

#[test]
fn every_tunnel_packet_holds_the_end_of_the_failover() {
    let mut first = Side::established(config(A, B));
    let mut tunnel = Side::established(config(A, B));
    for n in 0..60 {
        let _ = first.send(Time::ZERO, numbered(A, n, 1000));
    }
    let (window, waiting) = first.link.queue_lengths();
    assert_eq!((window, waiting), (50, 10));
    first.link.peer_bearer = 2;
    let failover = first.link.take_failover();
    let frames = tunnel.with(|l, io| l.carry_failover(failover, io).unwrap()).1;
    assert_eq!(frames.len(), 50, "the window is full");
    for (i, frame) in frames.iter().enumerate() {
        let packet = View::parse(frame).unwrap();
        let inner = View::parse(packet.payload()).unwrap();
        assert_eq!((packet.user(), packet.kind(), packet.bearer_id()), (User::Tunnel, 1, 2));
        assert_eq!((packet.message_count(), packet.fragment_count()), (61, 0));
        assert_eq!(usize::from(inner.seqno()), i + 1);
        assert_eq!(failover_point(packet).unwrap().wrapping_sub(i as u16), 61);
    }
    assert_eq!(tunnel.link.drop_point(), Some(1));
    assert_eq!(tunnel.link.queue_lengths(), (50, 11), "the dummy is the last");
}

#[test]
fn packets_too_large_for_the_tunnel_are_sent_in_parts() {
    let wide = |own, peer| LinkConfig { mtu: 14_000, ..config(own, peer) };
    let mut first = Pair::new(wide(A, B), wide(B, A), 5);
    first.run(3000);
    let mut second = second(1500, 0xfff);
    second.faults.loss = 20;
    first.cut = [true, true];
    for n in 0..30 {
        let _ = first.send(0, numbered(A, n, 9000));
    }
    fail_over(&mut first, &mut second);
    second.run(4000);
    assert_eq!(second.received(1), (0..30).collect::<Vec<_>>());
    assert!(second.sides[0].link.stats().tx_packets > 30 * 6);

    let mut old = Side::established(LinkConfig {
        peer_capabilities: 0xfff & !capability::TUNNEL_ENHANCED,
        ..config(A, B)
    });
    let mut first = Side::established(config(A, B));
    first.link.mtu = 9000;
    let _ = first.send(Time::ZERO, numbered(A, 1, 5000));
    let failover = first.link.take_failover();
    let (result, frames) = old.with(|l, io| l.carry_failover(failover, io));
    assert!(result.is_err() && frames.is_empty() && old.link.drop_point().is_none());
}

#[test]
fn unfinished_messages_and_early_packets_are_taken_over() {
    let mut sender = Side::established(config(A, B));
    let mut first = Side::established(config(B, A));
    let mut tunnel = Side::established(config(B, A));
    let frames = sender.with(|l, io| l.send(Time::ZERO, numbered(A, 7, 5000), io).unwrap()).1;
    assert_eq!(frames.len(), 4);
    first.hear(Time::ZERO, &frames[0]);
    first.hear(Time::ZERO, &frames[2]);
    let failover = first.link.take_failover();
    tunnel.with(|l, io| l.carry_failover(failover, io).unwrap());
    assert_eq!(tunnel.link.drop_point(), Some(2));
    for (n, inner) in [(1, 0), (2, 3), (3, 1)] {
        let mut packet = Message::build(User::Tunnel, 1, INTERNAL_HEADER, &frames[inner]);
        packet.set_seqno(n);
        assert!(tunnel.delivered.is_empty());
        tunnel.hear(Time::ZERO, packet.bytes());
    }
    assert_eq!(tunnel.delivered.iter().map(number).collect::<Vec<_>>(), [7]);
    assert_eq!(tunnel.delivered[0].data().len(), 5000);
    assert_eq!(tunnel.link.stats().rx_fragmented, 1);
}

#[test]
fn side_that_never_used_the_link_joins_the_failover() {
    let mut second = second(1500, 0xfff);
    let mut first = Side::established(config(A, B));
    for n in 0..5 {
        let _ = first.send(Time::ZERO, numbered(A, n, 100));
    }
    let failover = first.link.take_failover();
    second.call(1, |l, io| l.join_failover(0, io));
    second.call(0, |l, io| l.carry_failover(failover, io)).unwrap();
    second.run(1000);
    assert_eq!(second.received(1), [0, 1, 2, 3, 4]);
    assert!(second.sides[0].delivered.is_empty(), "the dummy only announces");
    assert_eq!(second.sides[0].link.stats().refused, 0);
}

#[test]
fn failover_state_is_dropped_with_the_link() {
    let mut side = Side::established(config(A, B));
    side.with(|l, io| l.join_failover(1, io));
    assert_eq!(side.link.drop_point(), Some(1));
    side.link.reset(&mut Vec::new());
    assert_eq!(side.link.drop_point(), None);
}

#[test]
fn invalid_tunnel_fragment_takes_the_tunnel_down() {
    let mut side = Side::established(config(A, B));
    side.with(|l, io| l.join_failover(1, io));
    let mut packet = Message::build(User::Tunnel, 1, INTERNAL_HEADER, &[0; 50]);
    packet.set_seqno(1);
    packet.set_fragment_number(2);
    packet.set_fragment_count(3);
    side.hear(Time::ZERO, packet.bytes());
    side.act();
    assert_eq!(side.downs, [DownReason::Reassembly]);
}

#[test]
fn synch_holds_the_last_packet_of_the_old_link() {
    let mut old = Side::established(config(A, B));
    for n in 0..60 {
        let _ = old.send(Time::ZERO, numbered(A, n, 1000));
    }
    let synch = old.link.synch_message();
    assert_eq!(synch_point(synch.view()), Some(60));
    assert_eq!((synch.size(), synch.user(), synch.kind()), (40, User::Tunnel, 0));
    let mut new = Side::established(config(A, B));
    let frames = new.with(|l, io| l.send(Time::ZERO, synch, io).unwrap()).1;
    assert_eq!(View::parse(&frames[0]).unwrap().seqno(), 1);

    let mut receiver = Side::established(config(B, A));
    receiver.link.event(Event::SynchBegin);
    assert!(receiver.link.is_synching());
    receiver.hear(Time::ZERO, &frames[0]);
    assert!(receiver.delivered.is_empty() && receiver.link.rcv_nxt() == 2, "the SYNCH carries no data");
    receiver.link.event(Event::SynchEnd);
    assert_eq!(receiver.link.state(), State::Established);
}

#[test]
fn legacy_synch_is_accepted() {
    let mut inner = numbered(A, 0, 100);
    inner.set_seqno(65_530);
    let mut synch = Message::build(User::Tunnel, 0, INTERNAL_HEADER, inner.bytes());
    synch.set_message_count(10);
    assert_eq!(synch_point(synch.view()), Some(3));
    assert!(seq::gt(4, 3));
    assert_eq!(failover_point(synch.view()), None);
    let broken = Message::build(User::Tunnel, 0, INTERNAL_HEADER, &inner.bytes()[..20]);
    assert_eq!(synch_point(broken.view()), None);
    assert_eq!(synch_point(inner.view()), None);
}

#[test]
fn probes_do_not_request_packets_held_back_by_synchronisation() {
    let mut side = Side::established(config(A, B));
    let mut probe = Message::build(User::LinkProtocol, 0, INTERNAL_HEADER, &[0, 4, 0, 0]);
    probe.set_session(0x4444);
    probe.set_probe(true);
    probe.set_keepalive(true);
    probe.set_next_sent(9);
    let mut gap_after = |side: &mut Side, n| {
        probe.set_seqno(n);
        View::parse(&side.hear(Time::ZERO, probe.bytes())[0]).unwrap().seq_gap()
    };
    assert_eq!(gap_after(&mut side, 1), 8);
    side.link.event(Event::SynchBegin);
    assert_eq!(gap_after(&mut side, 2), 0);
}
