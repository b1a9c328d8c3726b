//! Data over links: order, loss, window, congestion.

use super::super::{
    Accepted, DownReason, FIRST_SEQNO, Fragments, Link, LinkConfig, LinkIo, Outgoing, SendFault,
};
use super::pair::{A, B, Faults, Pair, Side, config, number, numbered};
use crate::addr::Importance;
use crate::limits::{MAX_USER_DATA, MAX_WINDOW};
use crate::time::Time;
use crate::wire::{INTERNAL_HEADER, Message, User, View};

fn size(n: u32) -> usize {
    [20, 900, 64, 3000, 1400, 40, 8][n as usize % 7]
}

fn seqnos(frames: &[Vec<u8>]) -> Vec<u16> {
    let views = frames.iter().map(|f| View::parse(f).unwrap());
    views.filter(|v| v.user() != User::LinkProtocol).map(|v| v.seqno()).collect()
}

#[test]
fn everything_arrives_once_and_in_order_over_a_faulty_network() {
    for (seed, loss) in [(1, 0), (2, 10), (3, 50), (4, 50), (5, 100)] {
        let mut pair = Pair::up(seed);
        pair.faults = Faults { loss, duplicate: 20, jitter_us: 400 };
        pair.transfer(0, 3000, size);
        pair.transfer(1, 500, size);
        assert_eq!(pair.received(1), (0..3000).collect::<Vec<_>>(), "seed {seed} loss {loss}");
        assert_eq!(pair.received(0), (0..500).collect::<Vec<_>>(), "seed {seed} loss {loss}");
        assert_eq!(pair.downs(), 0, "seed {seed} loss {loss}");
        let want = (0..3000).map(size).map(|len| len.max(4));
        assert!(pair.sides[1].delivered.iter().map(|m| m.data().len()).eq(want));
        if loss > 0 {
            assert!(pair.sides[0].link.stats().retransmitted > 0);
        }
    }
}

#[test]
fn largest_messages_arrive() {
    let mut pair = Pair::up(20);
    pair.faults.loss = 10;
    pair.transfer(0, 20, |_| MAX_USER_DATA);
    assert_eq!(pair.received(1), (0..20).collect::<Vec<_>>());
    let stats = pair.sides[1].link.stats();
    assert_eq!(stats.rx_fragmented, 20);
    assert_eq!(pair.sides[0].link.stats().tx_fragmented, 20);
}

/// The example of §5.8 from the sender's point of view.
#[test]
fn gap_report_releases_and_retransmits_exactly() {
    let mut side = Side::established(config(A, B));
    for n in 0..30 {
        assert_eq!(side.send(Time::ZERO, numbered(A, n, 100)), Ok(Accepted::Sent));
    }
    let mut state = Message::build(
        User::LinkProtocol,
        0,
        INTERNAL_HEADER,
        &[0, 16, 3, 0, 0, 11, 0, 1, 0, 15, 0, 4, 0, 20, 0, 0],
    );
    state.set_prev_node(B);
    state.set_session(0x4444);
    state.set_seqno(1);
    state.set_next_sent(1);
    state.set_ack(4);
    state.set_seq_gap(5);
    let missing = [5, 6, 7, 8, 9, 12, 16, 17, 18, 19];
    let frames = side.hear(Time::from_millis(5), state.bytes());
    assert_eq!(seqnos(&frames), missing);
    let kept: Vec<u16> = side.link.session.transmit.iter().map(|s| s.packet.view().seqno()).collect();
    assert_eq!(kept, [&missing[..], &(21..=30).collect::<Vec<_>>()].concat());
    state.set_seqno(2);
    assert!(side.hear(Time::from_millis(5), state.bytes()).is_empty(), "not twice within a millisecond");
    state.set_seqno(3);
    side.bcast.ack = 99;
    let frames = side.hear(Time::from_millis(6), state.bytes());
    assert_eq!(seqnos(&frames), missing);
    assert!(
        frames.iter().all(|f| View::parse(f).unwrap().bcast_ack() == 99),
        "acknowledgements are refreshed"
    );
    assert_eq!(side.link.stats().retransmitted, 20);
    assert_eq!(side.link.stats().rx_nacks, 3);
}

#[test]
fn packet_without_acknowledgement_takes_the_link_down() {
    let mut side = Side::established(config(A, B));
    let _ = side.send(Time::ZERO, numbered(A, 0, 10));
    let mut state = Message::build(User::LinkProtocol, 0, INTERNAL_HEADER, &[0, 4, 0, 0]);
    state.set_session(0x4444);
    state.set_seq_gap(1);
    for (n, millis) in [(1, 100), (2, 200), (3, 15_100)] {
        state.set_seqno(n);
        side.hear(Time::from_millis(millis), state.bytes());
        assert!(side.signals.is_empty(), "at {millis} ms");
    }
    state.set_seqno(4);
    side.hear(Time::from_millis(15_101), state.bytes());
    assert!(side.act().len() == 1);
    assert_eq!(side.downs, [DownReason::Retransmission]);
}

#[test]
fn gap_is_reported_at_the_third_early_packet_and_every_sixteenth_after() {
    let mut side = Side::established(config(A, B));
    let mut reports = Vec::new();
    for seqno in 3..60 {
        let mut m = numbered(B, 0, 10);
        m.set_seqno(seqno);
        for frame in side.hear(Time::ZERO, m.bytes()) {
            let state = View::parse(&frame).unwrap();
            assert_eq!((state.seq_gap(), state.ack(), state.probe()), (2, 0, false));
            reports.push(side.link.session.receive.deferred_len());
        }
    }
    assert_eq!(reports, [3, 19, 35, 51]);
}

#[test]
fn sixteen_packets_are_acknowledged_unless_data_carries_the_ack() {
    let mut side = Side::established(config(A, B));
    let hear = |side: &mut Side, seqno| {
        let mut m = numbered(B, 0, 10);
        m.set_seqno(seqno);
        side.hear(Time::ZERO, m.bytes()).len()
    };
    assert_eq!((1..=15).map(|n| hear(&mut side, n)).sum::<usize>(), 0);
    assert_eq!(hear(&mut side, 16), 1);
    assert_eq!((17..=31).map(|n| hear(&mut side, n)).sum::<usize>(), 0);
    let _ = side.send(Time::ZERO, numbered(A, 0, 10));
    assert_eq!(hear(&mut side, 32), 0, "the packet sent carried the acknowledgement");
    let frames = side.with(|l, io| l.tick(Time::ZERO, io)).1;
    assert_eq!(View::parse(&frames[0]).unwrap().ack(), 32, "the rest is acknowledged at the next tick");
}

#[test]
fn window_grows_to_8191_on_any_medium() {
    for mtu in [1400, 14_000] {
        let wide = |own, peer| LinkConfig { mtu, min_window: 500, ..config(own, peer) };
        let mut pair = Pair::new(wide(A, B), wide(B, A), 21);
        for side in [0, 1, 0] {
            pair.call(side, |l, io| l.send_setup(false, io));
            pair.run(1);
        }
        let mut widest = 0;
        let mut n = 0;
        for _ in 0..40 {
            while pair.send(0, numbered(A, n, 20_000)) == Ok(Accepted::Sent) {
                n += 1;
            }
            pair.run(2);
            widest = widest.max(pair.sides[0].link.window());
            pair.sides[1].delivered.clear();
        }
        assert_eq!(widest, MAX_WINDOW, "mtu {mtu}");
        assert_eq!((pair.downs(), pair.sides[0].link.stats().retransmitted), (0, 0));
        pair.run(2000);
        assert_eq!(pair.sides[0].link.window(), 500, "idle");
    }
}

#[test]
fn fixed_window_does_not_change() {
    let fixed = |own, peer| LinkConfig { max_window: 50, ..config(own, peer) };
    let mut pair = Pair::new(fixed(A, B), fixed(B, A), 22);
    pair.run(3000);
    pair.transfer(0, 2000, size);
    assert_eq!(pair.sides[0].link.window(), 50);
    assert!(pair.sides[0].link.stats().queue_max <= 50);
    assert_eq!(pair.received(1).len(), 2000);
}

/// Sends messages of a user until the result changes; returns how many were accepted before, and the new result.
fn fill(side: &mut Side, user: User) -> (u32, Result<Accepted, SendFault>) {
    let mut n = 0;
    loop {
        let mut m = numbered(A, n, 1400);
        m.set_user(user);
        m.set_origin_port(1000 + u32::from(u8::from(user)));
        match side.send(Time::ZERO, m) {
            Ok(Accepted::Sent) => n += 1,
            other => return (n, other),
        }
    }
}

#[test]
fn each_importance_has_its_own_limit_and_wakes_its_own_ports() {
    let mut side = Side::established(LinkConfig { max_window: 50, ..config(A, B) });
    assert_eq!(fill(&mut side, User::Low), (50 + 100, Ok(Accepted::Congested)));
    assert_eq!(fill(&mut side, User::Medium), (200, Ok(Accepted::Congested)));
    assert_eq!(fill(&mut side, User::High), (300, Ok(Accepted::Congested)));
    assert_eq!(fill(&mut side, User::Critical), (400, Ok(Accepted::Congested)));
    assert_eq!(side.link.queue_lengths(), (50, 1004), "the congested messages are queued too");
    assert_eq!(side.link.waiting_ports(), 4);
    assert_eq!(side.link.stats().congestions, 4);
    let mut ack = numbered(B, 0, 10);
    ack.set_seqno(1);
    ack.set_ack(1);
    side.hear(Time::from_millis(1), ack.bytes());
    assert!(side.wakeups.is_empty(), "the only free place is taken by the message beyond the limit");
    ack.set_seqno(2);
    ack.set_ack(2);
    side.hear(Time::from_millis(1), ack.bytes());
    let woken: Vec<_> = side.wakeups.iter().map(|w| (w.port, w.importance)).collect();
    assert_eq!(woken, [(1000, Importance::Low)]);
    side.wakeups.clear();
    side.link.reset(&mut side.wakeups);
    assert_eq!(side.wakeups.len(), 3, "the others are woken at reset");
}

#[test]
fn level_is_congested_from_full_until_half_empty() {
    let mut side = Side::established(LinkConfig { max_window: 50, ..config(A, B) });
    assert_eq!(side.link.congestion(0), 0);
    for n in 0..149 {
        let _ = side.send(Time::ZERO, numbered(A, n, 1400)).unwrap();
    }
    assert_eq!(side.link.congestion(0), 0);
    assert_eq!(side.link.congestion(1), 1, "the level was congested before");
    let _ = side.send(Time::ZERO, numbered(A, 149, 1400)).unwrap();
    assert_eq!(side.link.congestion(0), 1);
    let mut bits = 1;
    for acked in 1..=150 {
        let mut ack = numbered(B, 0, 10);
        ack.set_seqno(acked);
        ack.set_ack(acked);
        side.hear(Time::from_millis(1), ack.bytes());
        bits = side.link.congestion(bits);
        let waiting = side.link.queue_lengths().1;
        assert_eq!(bits, u8::from(waiting > 50), "{waiting} wait");
    }
}

#[test]
fn too_many_system_messages_take_the_link_down() {
    let mut side = Side::established(config(A, B));
    let big = |user: User| Message::build(user, 0, INTERNAL_HEADER, &[0; 1400]);
    for _ in 0..50 + 873 {
        assert_eq!(side.send(Time::ZERO, big(User::ConnManager)), Ok(Accepted::Sent));
    }
    assert_eq!(
        side.send(Time::ZERO, big(User::NameDistributor)),
        Ok(Accepted::Sent),
        "name messages have a larger limit"
    );
    assert_eq!(side.send(Time::ZERO, big(User::ConnManager)), Err(SendFault::Overflow));
    side.act();
    assert_eq!(side.downs, [DownReason::Backlog]);
    assert_eq!(side.send(Time::ZERO, big(User::NameDistributor)), Err(SendFault::Down));
}

#[test]
fn packets_are_never_fragmented_twice() {
    let mut side = Side::established(config(A, B));
    let fragment = |len| Message::build(User::Fragmenter, 0, INTERNAL_HEADER, &vec![0; len]);
    assert_eq!(side.send(Time::ZERO, fragment(1460)), Ok(Accepted::Sent));
    let fault = side.send(Time::ZERO, fragment(1461));
    assert_eq!(fault, Err(SendFault::TooLarge { size: 1501, mtu: 1500 }));
}

#[test]
fn small_messages_are_bundled_once_the_window_is_full() {
    let mut pair = Pair::up(23);
    for n in 0..149 {
        assert_eq!(pair.send(0, numbered(A, n, 40)), Ok(Accepted::Sent));
    }
    pair.run(50);
    assert_eq!(pair.received(1), (0..149).collect::<Vec<_>>());
    let (tx, rx) = (pair.sides[0].link.stats(), pair.sides[1].link.stats());
    assert!(tx.tx_bundles >= 5 && tx.tx_bundled == 99, "{tx:?}");
    assert_eq!((rx.rx_bundles, rx.rx_bundled), (tx.tx_bundles, tx.tx_bundled));
    assert_eq!(rx.rx_packets, tx.tx_packets);
}

#[test]
fn statistics_include_the_length_profile() {
    let mut side = Side::established(config(A, B));
    let _ = side.send(Time::ZERO, numbered(A, 0, 5000));
    side.with(|l, io| l.tick(Time::ZERO, io));
    let stats = side.link.stats();
    assert_eq!((stats.profile_samples, stats.profile_average()), (1, 5032));
    assert_eq!(stats.profile, [0, 0, 0, 0, 1, 0, 0]);
    assert_eq!((stats.queue_max, stats.queue_average()), (4, 4));
    side.link.clear_stats();
    assert_eq!(side.link.stats(), super::super::LinkStats::default());
}

#[test]
fn loss_of_the_last_packet_is_detected_by_a_probe() {
    let mut pair = Pair::up(24);
    pair.transfer(0, 5, |_| 100);
    pair.cut[0] = true;
    let _ = pair.send(0, numbered(A, 5, 100));
    pair.cut[0] = false;
    pair.run(1000);
    assert_eq!(pair.sides[1].delivered.back().map(number), Some(5));
}

#[test]
fn fragments_are_acknowledged_less_often_when_the_peer_window_is_large() {
    let mut side = Side::established(config(A, B));
    let mut seqno = 0;
    // The packets of a message of `count` fragments; all but the last are full.
    let mut fragments = |count: usize| -> Vec<Vec<u8>> {
        let message = numbered(B, 0, 1000 * count - 100);
        let cut = Fragments::new(message, 1000 + INTERNAL_HEADER, B, A);
        cut.map(|fragment| {
            seqno += 1;
            let mut packet = fragment.into_message();
            packet.set_seqno(seqno);
            packet.into_bytes()
        })
        .collect()
    };
    // Packets that arrive before anything is sent share one acknowledgement.
    let hear = |side: &mut Side, packets: &[Vec<u8>]| {
        let receive = |link: &mut Link, io: &mut LinkIo<'_>| {
            packets.iter().for_each(|packet| link.receive(Time::ZERO, View::parse(packet).unwrap(), io));
        };
        side.with(receive).1.len()
    };
    let one_by_one = |side: &mut Side, packets: &[Vec<u8>]| {
        packets.iter().map(|packet| side.hear(Time::ZERO, packet).len()).sum::<usize>()
    };
    let packets = fragments(48);
    assert_eq!(one_by_one(&mut side, &packets), 3);
    let packets = fragments(48);
    assert_eq!(one_by_one(&mut side, &packets), 3, "the window may be as small as 16");
    let packets = fragments(48);
    assert_eq!(hear(&mut side, &packets), 1);
    let packets = fragments(48);
    assert_eq!(one_by_one(&mut side, &packets), 1);
    let packets = fragments(20);
    assert_eq!(one_by_one(&mut side, &packets), 1, "the end of a message is acknowledged as usual");
    // A tick with unacknowledged packets: the peer may be waiting for the acknowledgement.
    let packets = fragments(40);
    assert_eq!(one_by_one(&mut side, &packets[..30]), 0);
    assert!(!side.with(|link, io| link.tick(Time::ZERO, io)).1.is_empty());
    assert_eq!(one_by_one(&mut side, &packets[30..]), 0);
    let packets = fragments(48);
    assert_eq!(one_by_one(&mut side, &packets), 3);
}

#[test]
fn fragment_is_taken_alone_only_if_nothing_follows_from_it() {
    let message = numbered(B, 0, 40_000);
    let fragments = Fragments::new(message.clone(), 1000 + INTERNAL_HEADER, B, A);
    let mut packets: Vec<Message> = fragments.map(Outgoing::into_message).collect();
    for (number, packet) in (1..).zip(&mut packets) {
        packet.set_seqno(number);
    }
    let mut side = Side::established(config(A, B));
    let take = |side: &mut Side, packet: &Message| side.with(|link, _| link.take_middle(packet.view())).0;
    assert!(!take(&mut side, &packets[1]), "it is not the next one");
    assert!(!take(&mut side, &packets[0]), "it begins a message");
    side.hear(Time::ZERO, packets[0].bytes());
    assert!(take(&mut side, &packets[1]));
    assert!(!take(&mut side, &packets[1]), "it has arrived before");
    side.hear(Time::ZERO, packets[3].bytes());
    assert!(!take(&mut side, &packets[2]), "a packet waits behind it");
    side.hear(Time::ZERO, packets[2].bytes());
    let mut alone = 0;
    for packet in &packets[4..] {
        if take(&mut side, packet) {
            alone += 1;
        } else {
            side.hear(Time::ZERO, packet.bytes());
        }
    }
    assert_eq!(
        alone,
        packets.len() - 4 - 3,
        "two acknowledgements are due, and the last completes the message"
    );
    assert_eq!(side.delivered, [message]);
    let stats = side.link.stats();
    assert_eq!((stats.rx_packets, stats.rx_fragments), (packets.len() as u64, packets.len() as u64));
    assert!(side.send(Time::ZERO, numbered(A, 0, 10)).is_ok());
    let next = packets.len() as u16 + 1;
    packets[0].set_seqno(next);
    side.hear(Time::ZERO, packets[0].bytes());
    packets[1].set_seqno(next + 1);
    packets[1].set_ack(FIRST_SEQNO);
    let acknowledges = &packets[1];
    assert!(!take(&mut side, acknowledges), "it releases a packet in flight");
}
