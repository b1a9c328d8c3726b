//! Links coming up, staying up and going down.

use super::super::{Accepted, DownReason, Event, LinkConfig, LinkSignal, MonitorVerdict, State, base_name};
use super::pair::{A, B, Faults, Pair, Side, config, numbered};
use crate::addr::{NodeAddr, NodeId};
use crate::limits::MAX_WINDOW;
use crate::time::Time;
use crate::wire::{LinkProtocolType, View};

#[test]
fn links_come_up_by_their_ticks() {
    let mut pair = Pair::new(config(A, B), config(B, A), 1);
    pair.run(374);
    assert_eq!(pair.sides[0].link.state(), State::Reset);
    pair.run(1200);
    assert!(pair.both_up());
    let link = &pair.sides[0].link;
    assert_eq!(link.name(), "1001001:eth0-1001002:eth0");
    assert_eq!((link.peer_session(), link.session()), (Some(0x1235), 0x1235));
    assert_eq!((link.mtu(), link.mss(), link.window()), (1500, 1460, 50));
    assert_eq!(pair.downs(), 0);
}

#[test]
fn links_come_up_at_once_if_the_node_sends_setup() {
    let mut pair = Pair::new(config(A, B), config(B, A), 1);
    pair.call(0, |l, io| l.send_setup(false, io));
    pair.run(1);
    assert_eq!(pair.sides[1].link.state(), State::Establishing);
    pair.call(1, |l, io| l.send_setup(false, io));
    pair.run(1);
    assert!(pair.both_up(), "ACTIVATE brings one end up, its first STATE the other");
}

#[test]
fn links_come_up_over_a_faulty_network() {
    for seed in 0..40 {
        let mut pair = Pair::new(config(A, B), config(B, A), seed);
        pair.faults = Faults { loss: 200, duplicate: 100, jitter_us: 50_000 };
        pair.run(20_000);
        assert!(pair.both_up(), "seed {seed}");
    }
}

#[test]
fn sessions_and_counters_wrap() {
    for session in [65_533, 65_534, 65_535, 32_766, 32_767, 32_768] {
        let wrapping = |own, peer| LinkConfig { session, first_seqno: 65_500, ..config(own, peer) };
        let mut pair = Pair::new(wrapping(A, B), wrapping(B, A), 3);
        pair.run(3000);
        assert!(pair.both_up(), "session {session}");
        assert_eq!(pair.sides[0].link.session(), session.wrapping_add(1));
        for side in [0, 1] {
            pair.transfer(side, 300, |n| 20 + (n % 7) as usize * 400);
        }
        pair.run(40_000);
        assert_eq!(pair.received(1), (0..300).collect::<Vec<_>>());
        assert_eq!(pair.received(0), (0..300).collect::<Vec<_>>());
        assert!(pair.sides.iter().all(|s| s.link.stats().tx_states > 36), "STATE numbers wrapped too");
        for _ in 0..3 {
            pair.call(0, |l, io| {
                l.fail();
                io.signals.push(LinkSignal::Down(DownReason::Administrator));
            });
            pair.run(6000);
            assert!(pair.both_up(), "session {session}: the link comes back with the next session");
        }
        assert_eq!(pair.sides[0].link.session(), session.wrapping_add(4));
    }
}

#[test]
fn idle_link_probes_every_tick_and_stays_up_for_an_hour() {
    let mut pair = Pair::up(5);
    pair.sides[0].link.clear_stats();
    pair.run(37_500);
    let probes = pair.sides[0].link.stats().tx_probes;
    assert!((99..=101).contains(&probes), "{probes}");
    pair.run(3_600_000);
    assert!(pair.both_up() && pair.downs() == 0);
}

#[test]
fn idle_link_to_a_peer_that_others_supervise_is_silent_until_there_is_something_to_send() {
    let mut pair = Pair::up(5);
    let quiet = MonitorVerdict { supervised: false, probes_when_idle: false, ..MonitorVerdict::default() };
    pair.sides.iter_mut().for_each(|side| side.link.set_monitor(quiet));
    pair.run(3000);
    pair.sides[0].link.clear_stats();
    pair.run(60_000);
    let stats = pair.sides[0].link.stats();
    assert_eq!((stats.tx_states, stats.rx_states), (0, 0));
    // The only packet is lost, so that only a probe reveals it.
    pair.cut = [true, false];
    assert_eq!(pair.send(0, numbered(A, 1, 5)), Ok(Accepted::Sent));
    pair.run(100);
    pair.cut = [false, false];
    pair.run(1000);
    assert_eq!(pair.sides[1].delivered.len(), 1);
    // A report of its loss makes the link probe.
    pair.sides[0].link.clear_stats();
    pair.sides[0].link.set_monitor(MonitorVerdict { probing: true, ..quiet });
    pair.run(1000);
    assert!((2..=3).contains(&pair.sides[0].link.stats().tx_probes));
    assert!(pair.both_up() && pair.downs() == 0);
}

#[test]
fn silence_is_detected_after_five_or_six_ticks() {
    let mut pair = Pair::up(6);
    pair.cut = [true, true];
    pair.run(1800);
    assert!(pair.both_up());
    pair.run(700);
    assert_eq!(pair.sides[0].downs, [DownReason::Silence]);
    assert_eq!(pair.sides[1].downs, [DownReason::Silence]);
    pair.cut = [false, false];
    pair.run(10_000);
    assert!(pair.both_up());
}

#[test]
fn one_way_silence_resets_both_ends() {
    let mut pair = Pair::up(7);
    pair.cut = [true, false];
    pair.run(4000);
    assert_eq!(pair.sides[1].downs, [DownReason::Silence]);
    assert_eq!(pair.sides[0].downs.len(), 1, "reset by the other end's RESET");
    pair.cut = [false, false];
    pair.run(10_000);
    assert!(pair.both_up());
}

#[test]
fn recreated_endpoint_is_accepted() {
    for session in [0x1234, 0, 0x9999, 0x1230] {
        let mut pair = Pair::up(8);
        pair.sides[1] = Side::new(LinkConfig { session, ..config(B, A) });
        pair.run(15_000);
        assert!(pair.both_up(), "session {session:x}");
        pair.transfer(0, 10, |_| 100);
        assert_eq!(pair.received(1).len(), 10);
    }
}

#[test]
fn reset_messages_are_limited_in_rate() {
    let ticks_with_reset = |side: &mut Side| -> Vec<u32> {
        (1..=200).filter(|_| !side.with(|l, io| l.tick(Time::ZERO, io)).1.is_empty()).collect()
    };
    assert_eq!(ticks_with_reset(&mut Side::new(config(A, B))), [1, 2, 16, 160], "it has never answered");
    let mut side = Side::established(config(A, B));
    side.link.fail();
    side.link.event(Event::LocalReset);
    side.link.reset(&mut Vec::new());
    assert_eq!(ticks_with_reset(&mut side)[..9], [1, 2, 3, 4, 5, 16, 32, 48, 64]);
}

#[test]
fn stopping_peer_restarts_the_link() {
    let mut pair = Pair::up(9);
    pair.call(0, |l, io| {
        l.fail();
        io.signals.push(LinkSignal::Down(DownReason::Administrator));
    });
    pair.run(5);
    assert_eq!(pair.sides[1].downs, [DownReason::PeerStopping]);
    assert_eq!(pair.sides[1].link.state(), State::Reset);
}

#[test]
fn properties_are_sent_to_the_peer() {
    let mut pair = Pair::up(10);
    pair.call(0, |l, io| l.set_tolerance(800, io));
    pair.run(5);
    assert_eq!(pair.sides[1].link.config().tolerance_ms, 800);
    assert_eq!(pair.sides[1].link.wanted_interval_ms(), 200);
    assert_eq!(pair.downs(), 0);
    pair.call(0, |l, io| l.set_priority(15, io));
    pair.run(10_000);
    assert_eq!(pair.sides[1].downs, [DownReason::PriorityChange]);
    assert!(pair.both_up());
    assert!(pair.sides.iter().all(|s| s.link.config().priority == 15));
    pair.call(0, |l, io| l.set_tolerance(1, io));
    assert_eq!(pair.sides[0].link.config().tolerance_ms, 50, "clamped");
}

#[test]
fn smaller_mtu_is_used_until_reset() {
    let small = LinkConfig { mtu: 1282, max_receive: 1282, ..config(B, A) };
    let mut pair = Pair::new(LinkConfig { mtu: 14_000, max_receive: 14_000, ..config(A, B) }, small, 11);
    pair.run(3000);
    assert_eq!([0, 1].map(|i| pair.sides[i].link.mtu()), [1280, 1282], "advertised in units of four bytes");
    pair.sides[0].link.reset(&mut Vec::new());
    assert_eq!(pair.sides[0].link.mtu(), 14_000);
}

#[test]
fn receive_limit_applies_only_to_the_peer() {
    let small = LinkConfig { mtu: 1472, max_receive: 65_504, ..config(B, A) };
    let mut pair = Pair::new(LinkConfig { mtu: 14_000, max_receive: 14_000, ..config(A, B) }, small, 11);
    pair.run(3000);
    assert_eq!([0, 1].map(|i| pair.sides[i].link.mtu()), [14_000, 1472]);
}

#[test]
fn higher_priority_wins_at_setup() {
    let mut pair = Pair::new(LinkConfig { priority: 20, ..config(A, B) }, config(B, A), 12);
    let (reset, mut frames) = ((), pair.sides[0].with(|l, io| l.send_setup(false, io)).1);
    let () = reset;
    let mut msg = View::parse(&frames.remove(0)).unwrap().to_message();
    msg.set_link_priority(20);
    pair.sides[1].hear(Time::ZERO, msg.bytes());
    assert_eq!(pair.sides[1].link.config().priority, 20);
    msg.set_link_priority(5);
    msg.set_session(0x2000);
    pair.sides[1].hear(Time::ZERO, msg.bytes());
    assert_eq!(pair.sides[1].link.config().priority, 20, "a lower priority is not adopted");
}

#[test]
fn larger_address_adopts_the_net_plane() {
    let plane = |own, peer, net_plane| LinkConfig { net_plane, ..config(own, peer) };
    let mut pair = Pair::new(plane(A, B, 2), plane(B, A, 5), 13);
    pair.run(3000);
    assert_eq!([0, 1].map(|i| pair.sides[i].link.net_plane()), [2, 2]);
}

#[test]
fn blocked_link_ignores_everything() {
    let mut pair = Pair::up(14);
    let state = pair.sides[1].with(|l, io| l.send_state(io)).1;
    let side = &mut pair.sides[0];
    side.link.fail();
    assert_eq!(side.link.state(), State::Resetting);
    let before = format!("{:?}", side.link);
    let mut setup = Side::new(LinkConfig { session: 0x5000, net_plane: 3, ..config(B, A) });
    let reset = setup.with(|l, io| l.send_setup(false, io)).1;
    assert!(side.hear(Time::ZERO, &reset[0]).is_empty() && side.hear(Time::ZERO, &state[0]).is_empty());
    assert_eq!(format!("{:?}", side.link), before);
    assert!(side.with(|l, io| l.send_state(io)).1.is_empty());
    assert!(side.with(|l, io| l.tick(Time::ZERO, io)).1.is_empty());
}

#[test]
fn data_brings_an_establishing_link_up() {
    let mut pair = Pair::new(config(A, B), config(B, A), 15);
    pair.call(0, |l, io| l.send_setup(false, io));
    pair.run(1);
    let mut data = numbered(A, 0, 10);
    data.set_seqno(1);
    let side = &mut pair.sides[1];
    assert_eq!(side.link.state(), State::Establishing);
    side.hear(Time::ZERO, data.bytes());
    assert_eq!(side.signals, [LinkSignal::Up]);
    assert!(side.delivered.is_empty(), "the packet itself is retransmitted");
    assert_eq!(side.link.rcv_nxt(), 1);
}

#[test]
fn activate_with_a_stale_session_advances_the_own_session() {
    let mut side = Side::new(config(A, B));
    let mut peer = Side::new(config(B, A));
    let reset = side.with(|l, io| l.send_setup(false, io)).1;
    peer.hear(Time::ZERO, &reset[0]);
    let mut activate = View::parse(&peer.with(|l, io| l.send_setup(false, io)).1[0]).unwrap().to_message();
    assert_eq!(activate.link_type(), LinkProtocolType::Activate);
    activate.set_dest_session(0x2000);
    side.hear(Time::ZERO, activate.bytes());
    assert_eq!((side.link.session(), side.link.state()), (0x2001, State::Reset));
    activate.set_dest_session(0x1000);
    side.hear(Time::ZERO, activate.bytes());
    assert_eq!((side.link.session(), side.link.state()), (0x2001, State::Reset));
    assert!(side.signals.is_empty());
}

/// Late copies of earlier RESETs have given each end an old session of the other. Without help both would send ACTIVATE
/// for an obsolete session forever.
#[test]
fn ends_with_old_sessions_of_each_other_come_up() {
    let mut sides = [Side::new(config(A, B)), Side::new(config(B, A))];
    let old = sides.each_mut().map(|side| side.with(|l, io| l.send_setup(false, io)).1.remove(0));
    for (side, reset) in sides.iter_mut().zip(old.iter().rev()) {
        side.link.reset(&mut Vec::new());
        side.hear(Time::ZERO, reset);
        assert_eq!(side.link.state(), State::Establishing);
    }
    let mut late: Vec<Vec<u8>> = Vec::new();
    for round in 0..6 {
        let own = round % 2;
        let mut frames = sides[own].with(|l, io| l.send_setup(false, io)).1;
        frames.append(&mut late);
        for frame in frames {
            late.extend(sides[1 - own].hear(Time::ZERO, &frame));
        }
    }
    assert!(sides.iter().all(|side| side.signals.contains(&LinkSignal::Up)));
}

#[test]
fn link_names_use_short_identities() {
    let (short, long) = (NodeId::from_text("alpha"), NodeId([0xfe; 16]));
    assert_eq!(base_name((&short, NodeAddr(1)), "w", (&long, NodeAddr(0xabc))), "alpha:w-abc");
    let side = Side::new(config(A, B));
    assert_eq!(side.link.name(), "1001001:eth0-1001002:unknown");
}

#[test]
fn limits_of_the_configuration_are_clamped() {
    let side = Side::new(LinkConfig { max_window: 60_000, min_window: 0, tolerance_ms: 0, ..config(A, B) });
    assert_eq!((side.link.config().max_window, side.link.config().min_window), (MAX_WINDOW, 1));
    assert_eq!(side.link.wanted_interval_ms(), 1);
}

#[test]
fn illegal_events_keep_the_state() {
    let mut side = Side::new(config(A, B));
    side.link.event(Event::SynchBegin);
    assert_eq!(side.link.state(), State::Reset);
}
