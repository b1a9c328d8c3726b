//! Tests of single rules of the broadcast link.

use super::super::bearers::Bearers;
use super::super::peers::PeerSet;
use super::*;
use crate::addr::ServiceRange;
use crate::limits::capability;
use crate::wire::{MessageType, Method};

fn sender_with(peers: core::ops::RangeInclusive<u32>) -> Sender {
    let mut s = Sender::new(1);
    for n in peers {
        s.add(node(n));
    }
    s
}

#[test]
fn frames_are_stamped_like_the_kernels() {
    // three-nodes: a multicast, and one in two fragments, as the socket submits them and as they are on the wire.
    let mut s = sender_with(2..=3);
    let plain = frame("41680035 20100007 00050006 1001001 406017fb 0 1001001 0 1518 1 1");
    let wire = frame("41780035 20100000 1 1001001 406017fb 1267 1001001 0 1518 1 1");
    s.send(plain).unwrap();
    assert_eq!(s.sent()[0].bytes(), wire.bytes());

    s.tx.link_up(0, 1468, true); // gives the kernel's packet size of 1428 bytes
    let large = frame("416807fc 20100000 0 1001001 406017fb 0 1001001 0 1518 1 1");
    s.send(large.clone()).unwrap();
    let sent = s.sent();
    let first = frame("59500594 0 2 1001001 10000 1267 1001001 0 0 0");
    let last = frame("595002b8 40000000 3 1001001 20000 1267 1001001 0 0 0");
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].bytes()[..40], first.bytes()[..40]);
    assert_eq!(sent[1].bytes()[..40], last.bytes()[..40]);
    assert_eq!((sent[0].size(), sent[1].size()), (first.size(), last.size()));
    assert_eq!([sent[0].data(), sent[1].data()].concat(), large.bytes());

    let mut fresh = Sender::new(1);
    let init = fresh.tx.add_peer(node(2));
    let kernel = frame("4b400028 0 1 1001001 0 4000 1001001 1001002 0 0");
    let mut stamped = init.clone();
    stamped.set_seqno(1); // stamped by the unicast link
    assert_eq!(stamped.bytes(), kernel.bytes());
}

#[test]
fn kernel_frames_are_received() {
    // three-nodes, from node 1.1.1: a binding, a multicast, the first of two fragments.
    let mut rx = receiver(node(2), 0);
    let mut out = VecDeque::new();
    for words in [
        "5750003c 4000000 1 1001001 1 1267 1001001 0 0 0 1518 1 1 56045f85 56045f86",
        "41780035 20100000 2 1001001 406017fb 1267 1001001 0 1518 1 1 6d756c74 69636173",
        "59500594 0 3 1001001 10000 1267 1001001 0 0 0 416807fc 20100000 0 1001001 406017fb 0",
    ] {
        assert_eq!(rx.receive(frame(words).view(), CLUSTER, usize::MAX, &mut out), Ok(false));
    }
    assert_eq!(rx.ack(), 3);
    let users: Vec<User> = out.iter().map(Message::user).collect();
    assert_eq!(users, [User::NameDistributor, User::Low]);
    // loss5-broadcast: the kernel of 1.1.2 reports what it has received.
    let nack = frame("4f48002c 1a 2008d 1001002 10003 75221001 1001002 1001001 0 0 40000");
    let mut s = sender_with(2..=3);
    (0..27).for_each(|n| _ = s.send(multicast(n, 300)));
    let mut at_sender = receiver(node(1), 0);
    let io = &mut BroadcastIo { frames: &mut s.frames, wakeups: &mut s.wakeups };
    let due = receive_link_protocol(&mut s.tx, &mut at_sender, s.now, node(2), nack.view(), io);
    assert_eq!(due, Ok(false), "a probe is always answered");
    assert_eq!((s.tx.acked(node(2)), s.tx.acked(node(3))), (Some(26), Some(0)));
    assert_eq!(at_sender.gap(), 1, "the kernel announced packet 1, which is missing");
}

#[test]
fn packet_is_released_when_all_peers_acknowledged_it() {
    let mut s = sender_with(2..=4);
    (0..3).for_each(|n| _ = s.send(multicast(n, 100)));
    let taken = |released, retransmitted| Acknowledged::Taken { released, retransmitted };
    assert_eq!(s.ack(node(2), 3, 0, &[]), taken(0, 0));
    assert_eq!(s.ack(node(3), 2, 0, &[]), taken(0, 0));
    assert_eq!(s.ack(node(4), 2, 0, &[]), taken(2, 0));
    assert_eq!(s.ack(node(4), 2, 0, &[]), Acknowledged::Ignored);
    assert_eq!(s.ack(node(4), 1, 1, &[]), Acknowledged::Ignored, "an old acknowledgement");
    assert_eq!(s.ack(node(9), 3, 0, &[]), Acknowledged::Ignored, "an unknown node");
    assert_eq!(s.tx.queued(), (1, 0));
    s.remove(node(3));
    s.add(node(4)); // a new contact
    assert_eq!((s.tx.queued(), s.tx.peer_count()), ((0, 0), 2));
}

#[test]
fn selective_acknowledgements_count_once_per_peer() {
    let mut s = sender_with(2..=3);
    (0..10).for_each(|n| _ = s.send(multicast(n, 100)));
    s.sent();
    s.now = Time::from_millis(20);
    // 1 and 2 received, 3 and 4 missing, 5 and 6 received, 7 missing, 8 received.
    let report = (2, 2, [(6, 1), (8, 0)]);
    s.ack(node(2), report.0, report.1, &report.2);
    assert_eq!(s.sent_numbers(), [3, 4, 7]);
    s.ack(node(2), report.0, report.1, &report.2);
    assert_eq!(s.sent_numbers(), [], "spaced by 10 ms");
    assert_eq!(s.tx.queued().0, 10, "node 3 has acknowledged nothing, and node 2 counts once");
    s.now = Time::from_millis(30);
    s.ack(node(2), report.0, report.1, &report.2);
    assert_eq!(s.sent_numbers(), [3, 4, 7]);
    assert_eq!(s.ack(node(3), 6, 0, &[]), Acknowledged::Taken { released: 4, retransmitted: 0 });
    s.now = Time::from_millis(40);
    // Node 3 has 3 and 4; a gap that it reports must not retransmit packets for other peers.
    s.ack(node(2), 2, 2, &[(6, 1), (8, 0)]);
    assert_eq!(s.sent_numbers(), [3, 4, 7]);
    s.ack(node(2), 8, 0, &[]);
    s.ack(node(3), 10, 0, &[]);
    assert_eq!(s.tx.queued(), (2, 0));
}

#[test]
fn implausible_acknowledgements_are_ignored() {
    let mut s = sender_with(2..=2);
    (0..10).for_each(|n| _ = s.send(multicast(n, 100)));
    s.sent();
    s.now = Time::from_millis(50);
    for (ack, gap, blocks) in [
        (11, 0, vec![]),
        (5, 6, vec![]),
        (0x8000, 0, vec![]),
        (2, 2, vec![(4, 1)]),
        (2, 2, vec![(6, 1), (6, 1)]),
        (2, 2, vec![(6, 1), (5, 0)]),
        (2, 2, vec![(6, 1), (11, 0)]),
        (2, 2, vec![(6, 0xffff)]),
        (2, 0xffff, vec![(6, 0)]),
    ] {
        let got = s.ack(node(2), ack, gap, &blocks);
        assert_eq!(got, Acknowledged::Implausible, "{ack} {gap} {blocks:?}");
    }
    assert_eq!((s.tx.queued(), s.sent_numbers().len()), ((10, 0), 0));
    assert_eq!(s.tx.stats().implausible, 9);
}

#[test]
fn acknowledgements_are_ignored_until_the_peer_is_open() {
    let mut s = Sender::new(1);
    s.tx.link_up(0, 1500, true);
    s.tx.add_peer(node(2));
    s.send(multicast(0, 100)).unwrap();
    assert_eq!(s.ack(node(2), 1, 0, &[]), Acknowledged::Ignored);
    let mut at_sender = BroadcastReceiver::new(node(1), CAPABILITIES);
    let peer_rx = receiver(node(2), 1);
    let mut said = state(node(2), node(1), &peer_rx, 0, false);
    let hear = |s: &mut Sender, rx: &mut BroadcastReceiver, m: &Message| {
        let io = &mut BroadcastIo { frames: &mut s.frames, wakeups: &mut s.wakeups };
        receive_link_protocol(&mut s.tx, rx, s.now, node(2), m.view(), io).unwrap();
        (s.tx.is_open(node(2)), s.tx.acked(node(2)))
    };
    assert_eq!(hear(&mut s, &mut at_sender, &said), (false, Some(0)), "this side is not synchronised");
    at_sender.synchronize(0);
    said.set_ack(0);
    assert_eq!(hear(&mut s, &mut at_sender, &said), (false, Some(0)), "packet 1 is not acknowledged");
    said.set_ack(1);
    said.set_bcast_ack_invalid(true);
    assert_eq!(hear(&mut s, &mut at_sender, &said), (false, Some(0)), "the peer is not synchronised");
    said.set_bcast_ack_invalid(false);
    assert_eq!(hear(&mut s, &mut at_sender, &said), (true, Some(0)));
    assert_eq!(hear(&mut s, &mut at_sender, &said), (true, Some(1)));
    assert_eq!(s.tx.queued(), (0, 0));
}

#[test]
fn unicast_packets_carry_acknowledgements() {
    let mut s = sender_with(2..=2);
    (0..5).for_each(|n| _ = s.send(multicast(n, 100)));
    let mut hear = |m: &Message| {
        let io = &mut BroadcastIo { frames: &mut s.frames, wakeups: &mut s.wakeups };
        receive_ack(&mut s.tx, s.now, node(2), m.view(), io)
    };
    let mut data = Message::build(User::Low, 3, 32, b"x");
    data.set_bcast_ack(3);
    data.set_dest_port(0x4000); // this bit means "invalid" in other messages
    assert_eq!(hear(&data), Acknowledged::Taken { released: 3, retransmitted: 0 });
    let mut names = Message::build(User::NameDistributor, 0, 40, &[]);
    names.set_bcast_ack(5);
    names.set_bcast_ack_invalid(true);
    assert_eq!(hear(&names), Acknowledged::Ignored);
    names.set_bcast_ack_invalid(false);
    assert_eq!(hear(&names), Acknowledged::Taken { released: 2, retransmitted: 0 });
}

#[test]
fn legacy_nack_retransmits_missing_packets() {
    let mut s = sender_with(2..=3);
    (0..5).for_each(|n| _ = s.send(multicast(n, 100)));
    s.sent();
    s.now = Time::from_millis(20);
    let mut nack = Message::build(User::BcastProtocol, 0, 40, &[]);
    nack.set_non_sequenced(true);
    nack.set_prev_node(node(2));
    nack.set_dest_node(node(3));
    nack.set_bcast_ack(2);
    nack.set_bcast_gap_after(2);
    nack.set_bcast_gap_to(4);
    let mut hear = |m: &Message| {
        let io = &mut BroadcastIo { frames: &mut s.frames, wakeups: &mut s.wakeups };
        receive_legacy_nack(&mut s.tx, node(1), s.now, m.view(), io)
    };
    assert_eq!(hear(&nack), Acknowledged::Ignored, "addressed to another node");
    nack.set_dest_node(node(1));
    assert_eq!(hear(&nack), Acknowledged::Taken { released: 0, retransmitted: 2 });
    nack.set_bcast_gap_to(9);
    assert_eq!(hear(&nack), Acknowledged::Implausible);
    assert_eq!(s.sent_numbers(), [3, 4]);
    assert_eq!(s.tx.acked(node(2)), Some(2));
}

#[test]
fn full_window_queues_bundles_and_congests_the_sender() {
    let mut s = sender_with(2..=2);
    let mut congested = None;
    for n in 0..10_000 {
        if s.send(multicast(n, 700)) == Ok(Accepted::Congested) {
            congested = Some(n);
            break;
        }
    }
    // 50 in flight; 100 packets of two messages each are waiting.
    assert_eq!(congested, Some(50 + 100));
    assert_eq!(s.sent().len(), 50);
    assert!(s.wakeups.is_empty());
    s.ack(node(2), 50, 0, &[]);
    assert_eq!(s.wakeups.len(), 1);
    assert_eq!(s.wakeups[0].port, 0x1000);

    let mut small = sender_with(2..=2);
    (0..58).for_each(|n| _ = small.send(multicast(n, 100)));
    small.sent();
    small.ack(node(2), 50, 0, &[]);
    let sent = small.sent();
    assert_eq!(sent.iter().map(Message::user).collect::<Vec<_>>(), [User::Bundler]);
    let mut rx = receiver(node(2), 50);
    assert_eq!(deliver(&mut rx, &sent).0, (50..58).collect::<Vec<_>>());
}

#[test]
fn system_messages_beyond_the_limit_are_refused() {
    let mut s = sender_with(2..=2);
    let dummy = || {
        let mut dummy = multicast(0, 1400);
        dummy.set_error_code(crate::wire::ErrorCode::NoPort);
        dummy
    };
    let refused = (0..10_000).find_map(|_| s.send(dummy()).err());
    assert_eq!(refused, Some(BroadcastFault::Overflow(65_535 / (1500 / 20))));
}

/// A lost name update leaves a gap that is never closed, so name updates may use the whole backlog.
#[test]
fn name_updates_have_a_larger_limit() {
    let mut s = sender_with(2..=2);
    s.tx.link_up(0, 130, true); // too small for bundles
    let names = || Message::build(User::NameDistributor, 0, 40, &[0; 20]);
    let sent = (0..100_000).take_while(|_| s.send(names()).is_ok()).count();
    assert_eq!(sent, 50 + 65_535);
}

/// Woken ports need not send; the ports behind them must not wait forever.
#[test]
fn every_waiting_port_is_woken_in_time() {
    let mut s = sender_with(2..=2);
    let mut waiting = 0;
    for port in 1..=400 {
        let mut message = multicast(port, 1400);
        message.set_origin_port(port);
        waiting += usize::from(s.send(message) == Ok(Accepted::Congested));
    }
    assert_eq!(waiting, 250);
    while s.ack(node(2), s.tx.last_sent(), 0, &[]) != Acknowledged::Ignored {}
    for _ in 0..5 {
        let io = &mut BroadcastIo { frames: &mut s.frames, wakeups: &mut s.wakeups };
        s.tx.wake(io);
    }
    let ports: Vec<u32> = s.wakeups.iter().map(|w| w.port).collect();
    assert_eq!(ports, (151..=400).collect::<Vec<_>>());
}

#[test]
fn receivers_acknowledge_and_report_gaps_at_different_times() {
    let mut s = sender_with(2..=2);
    s.tx.set_window(200);
    (0..150).for_each(|n| _ = s.send(multicast(n, 100)));
    let sent = s.sent();
    for own in [2, 7, 15] {
        let mut rx = receiver(node(own), 0);
        let (got, due) = deliver(&mut rx, &sent[..100]);
        assert_eq!(got.len(), 100);
        let at: Vec<u16> = (1..).zip(&due).filter(|(_, d)| **d == Ok(true)).map(|(n, _)| n).collect();
        // Nothing was acknowledged before, so from the 16th packet on any packet may trigger a STATE.
        let want: Vec<u16> = (16..=100).filter(|n| (u32::from(n + 1) ^ own) & 0xf == 0xf).collect();
        assert_eq!(at, want);
        assert!(rx.is_unacked());
        rx.state_sent();
        assert!(!rx.is_unacked());

        let mut rx = receiver(node(own), 0);
        let (_, due) = deliver(&mut rx, &sent[1..41]);
        let at: Vec<u32> = (1..).zip(&due).filter(|(_, d)| **d == Ok(true)).map(|(n, _)| n).collect();
        assert_eq!(at, (1..41).filter(|n| n & 0xf == own & 0xf).collect::<Vec<_>>());
        assert_eq!((rx.ack(), rx.gap(), rx.gap_blocks()), (0, 1, vec![(41, 0)]));
    }
}

#[test]
fn announced_packets_that_are_missing_are_reported() {
    let mut rx = receiver(node(2), 10);
    assert!(!rx.announce(10));
    assert!(rx.announce(13));
    assert_eq!((rx.ack(), rx.gap()), (10, 3));
    assert!(!rx.announce(9), "an old announcement");
    assert!(!rx.announce(10 + 9000), "beyond every window");
    assert_eq!(rx.gap(), 3);
    assert!(rx.announce(10 + 2000));
    assert_eq!(rx.gap(), 1023, "the gap has ten bits");
    rx.reset();
    assert_eq!((rx.is_open(), rx.ack(), rx.gap()), (false, 0, 0));
    assert!(!rx.announce(5), "nothing is missing before the receiver is open");
}

#[test]
fn packets_that_may_not_be_broadcast_are_refused() {
    let mut s = sender_with(2..=2);
    s.send(multicast(0, 100)).unwrap();
    let good = s.sent().remove(0);
    let mut rx = BroadcastReceiver::new(node(2), CAPABILITIES);
    let mut out = VecDeque::new();
    let mut hear =
        |rx: &mut BroadcastReceiver, m: &Message| rx.receive(m.view(), CLUSTER, usize::MAX, &mut out);
    assert_eq!(hear(&mut rx, &good), Err(Refused::NotOpen));
    rx.synchronize(0);
    rx.synchronize(77); // ignored: already open
    let mut foreign = good.clone();
    foreign.set_cluster_id(ClusterId(9));
    assert_eq!(hear(&mut rx, &foreign), Err(Refused::OtherCluster(9)));
    for kind in [MessageType::Conn, MessageType::Named, MessageType::Direct, MessageType::GroupEvent] {
        let mut m = good.clone();
        m = frame(&format!("{:x} {:x} 1 1 1 1267", m.word(0), u32::from(u8::from(kind)) << 29));
        assert!(matches!(hear(&mut rx, &m), Err(Refused::NotBroadcast { .. })), "{kind:?}");
    }
    for user in [5, 7, 8, 9, 10, 13, 15] {
        let mut m = good.clone();
        m.set_user(User::from(user));
        assert!(matches!(hear(&mut rx, &m), Err(Refused::NotBroadcast { .. })), "user {user}");
    }
    let short = frame("57100020 0 1 1001001 0 1267 0 0"); // NAME_DISTRIBUTOR with a header of 8 words
    assert!(matches!(hear(&mut rx, &short), Err(Refused::NotBroadcast { .. })));
    assert_eq!(hear(&mut rx, &good), Ok(false));
    assert_eq!(hear(&mut rx, &good), Err(Refused::Duplicate(1)));
    assert_eq!(out.len(), 1);
}

#[test]
fn bundled_messages_that_may_not_be_broadcast_are_dropped() {
    let conn = Message::build(User::Low, 0, 24, b"conn");
    let inner = [conn.bytes(), multicast(7, 100).bytes()].concat();
    let mut bundle = Message::build(User::Bundler, 0, 40, &inner);
    bundle.set_non_sequenced(true);
    bundle.set_cluster_id(CLUSTER);
    bundle.set_seqno(1);
    let mut rx = receiver(node(2), 0);
    assert_eq!(deliver(&mut rx, &[bundle]).0, [7]);
    assert_eq!(rx.stats().dropped, 1);
}

#[test]
fn joining_within_a_message_loses_only_that_message() {
    let mut s = sender_with(2..=2);
    s.send(multicast(0, 5000)).unwrap();
    s.send(multicast(1, 100)).unwrap();
    let sent = s.sent();
    let mut rx = receiver(node(2), 2); // joined after two fragments
    assert_eq!(deliver(&mut rx, &sent[2..]).0, [1]);
    assert_eq!(rx.stats().dropped as usize, sent.len() - 3);
}

#[test]
fn legacy_peers_announce_their_start_in_reset() {
    let old = CAPABILITIES & !capability::BCAST_SYNCH;
    let mut s = sender_with(2..=2);
    let mut reset = Message::build(User::LinkProtocol, 1, 40, &[0; 16]);
    reset.set_last_bcast(41);
    let mut hear = |rx: &mut BroadcastReceiver, m: &Message| {
        let io = &mut BroadcastIo { frames: &mut s.frames, wakeups: &mut s.wakeups };
        receive_link_protocol(&mut s.tx, rx, s.now, node(2), m.view(), io).unwrap();
        rx.open_legacy();
        (rx.is_open(), rx.ack())
    };
    assert_eq!(hear(&mut BroadcastReceiver::new(node(1), CAPABILITIES), &reset), (false, 0));
    assert_eq!(hear(&mut BroadcastReceiver::new(node(1), old), &reset), (true, 41));
    reset.set_redundant_link(true);
    assert_eq!(hear(&mut BroadcastReceiver::new(node(1), old), &reset), (true, 0));
}

#[test]
fn malformed_gap_records_are_refused_or_ignored() {
    let mut s = sender_with(2..=2);
    (0..9).for_each(|n| _ = s.send(multicast(n, 100)));
    s.sent();
    s.now = Time::from_millis(20);
    let mut hear = |data: &[u8], capabilities| {
        let mut m = Message::build(User::LinkProtocol, 0, 40, data);
        m.set_bcast_ack(2);
        m.set_bcast_gap(1);
        let mut rx = BroadcastReceiver::new(node(1), capabilities);
        rx.synchronize(0);
        let io = &mut BroadcastIo { frames: &mut s.frames, wakeups: &mut s.wakeups };
        let ok = receive_link_protocol(&mut s.tx, &mut rx, s.now, node(2), m.view(), io).is_ok();
        (ok, s.tx.queued().0, s.tx.stats().implausible)
    };
    assert_eq!(hear(&[0, 9, 0, 0], CAPABILITIES), (false, 9, 0), "longer than the message");
    assert_eq!(hear(&[0], CAPABILITIES), (false, 9, 0));
    let many = [&[1, 8, 0, 65][..], &[0; 260]].concat();
    assert_eq!(hear(&[0, 8, 0, 1, 0, 3, 0, 1], CAPABILITIES), (true, 9, 1), "blocks that do not rise");
    assert_eq!(hear(&many, CAPABILITIES), (true, 7, 1), "65 blocks: all are ignored");
    let old = CAPABILITIES & !capability::GAP_ACK_BLOCK;
    assert_eq!(hear(&[0xff, 0xff, 9, 9], old), (true, 7, 1), "not a gap record at all");
    assert_eq!(
        hear(&[0, 8, 1, 1, 0, 9, 0, 0, 9, 9], CAPABILITIES),
        (true, 7, 1),
        "inconsistent counts: all blocks are ignored"
    );
    assert_eq!(hear(&[0, 12, 1, 1, 0, 9, 0, 0, 0, 0, 0, 0], CAPABILITIES), (true, 1, 1));
}

#[test]
fn single_bearer_is_used_if_it_reaches_all_peers() {
    let mut b = Bearers::default();
    let targets = |b: &mut Bearers, peers, own| {
        b.select_primary(peers, NodeAddr(own));
        (b.targets().collect::<Vec<_>>(), b.mtu(), b.has_broadcast())
    };
    assert_eq!(targets(&mut b, 0, 1), (vec![], 1500, true));
    b.link_up(0, 1500, true);
    b.link_up(1, 14_000, false);
    assert_eq!(targets(&mut b, 1, 1), (vec![0], 1500, true), "0 XOR 1 is odd");
    assert_eq!(targets(&mut b, 1, 2), (vec![1], 1500, false), "1 XOR 2 is odd");
    assert_eq!(targets(&mut b, 2, 1), (vec![0, 1], 1500, false), "none reaches both");
    b.link_down(0, 1500);
    assert_eq!(targets(&mut b, 1, 1), (vec![1], 14_000, false));
    b.link_up(7, 100, true); // unknown bearer
    assert_eq!(b.mtu(), 14_000);
    b.link_up(1, 1280, false);
    b.link_up(1, 9000, false);
    assert_eq!(b.mtu(), 1280, "the peer with the smallest MTU counts");
}

#[test]
fn packets_track_hundreds_of_peers() {
    let mut set = PeerSet::default();
    for n in (0..300).rev() {
        assert!(set.insert(n) && !set.insert(n));
    }
    assert_eq!((set.len(), set.first_free()), (300, 300));
    assert!(set.remove(130) && !set.remove(130) && !set.remove(9999));
    assert_eq!((set.first_free(), set.contains(130), set.contains(131)), (130, false, true));
    (0..300).for_each(|n| _ = set.remove(n));
    assert!(set.is_empty());

    let mut s = sender_with(2..=301);
    (0..50).for_each(|n| _ = s.send(multicast(n, 100)));
    for n in 2..=301 {
        assert_eq!(s.tx.queued().0, 50, "before node {n}");
        s.ack(node(n), 50, 0, &[]);
    }
    assert_eq!(s.tx.queued().0, 0);
}

#[test]
fn multicast_method_follows_the_rules_in_order() {
    let auto = ClusterView {
        has_broadcast: true,
        all_replicast: true,
        all_switch: true,
        peers: 20,
        policy: MulticastPolicy::default(),
    };
    let pick =
        |cluster: &ClusterView, dests| MethodCookie::default().choose(Time::ZERO, dests, cluster).method;
    assert_eq!((pick(&auto, 3), pick(&auto, 4)), (Method::Replicast, Method::Broadcast));
    let small = ClusterView { peers: 2, ..auto };
    assert_eq!((pick(&small, 1), pick(&small, 2)), (Method::Replicast, Method::Broadcast));
    assert_eq!(pick(&ClusterView { has_broadcast: false, ..auto }, 20), Method::Replicast);
    assert_eq!(pick(&ClusterView { all_replicast: false, ..auto }, 1), Method::Broadcast);
    let forced = ClusterView { policy: MulticastPolicy::Forced(Method::Replicast), ..auto };
    assert_eq!(pick(&forced, 20), Method::Replicast);

    let mut cookie = MethodCookie::default();
    cookie.force(Some(Method::Broadcast));
    assert_eq!(cookie.choose(Time::ZERO, 1, &forced).method, Method::Broadcast, "the socket's choice wins");
    cookie.force(None);
    assert_eq!(cookie.choose(Time::ZERO, 1, &auto), Choice { method: Method::Replicast, changed: true });

    let old = ClusterView { all_switch: false, ..auto };
    let mut cookie = MethodCookie::default();
    let at = |c: &mut MethodCookie, millis, dests| c.choose(Time::from_millis(millis), dests, &old);
    assert_eq!(at(&mut cookie, 1000, 1), Choice { method: Method::Replicast, changed: false });
    assert_eq!(at(&mut cookie, 5999, 20), Choice { method: Method::Replicast, changed: false });
    assert_eq!(at(&mut cookie, 10_999, 20), Choice { method: Method::Broadcast, changed: true });
}

#[test]
fn change_of_method_is_announced_by_a_pair_of_syns() {
    let cluster = ClusterView {
        has_broadcast: true,
        all_replicast: true,
        all_switch: true,
        peers: 1,
        policy: MulticastPolicy::default(),
    };
    // mcast: the kernel's pair when its first multicast used replicast, before the links stamped it.
    let mut message = frame("41680035 20100000 0 1001002 d0965ea5 0 1001002 0 898 2d 37");
    let change = Choice { method: Method::Replicast, changed: true };
    let dummy = start_switch(&mut message, change, &cluster).unwrap();
    assert_eq!(message.bytes(), frame("416e0035 20100000 0 1001002 d0965ea5 0 1001002 0 898 2d 37").bytes());
    assert_eq!(dummy.bytes(), frame("416a002c 24100000 0 1001002 d0965ea5 0 1001002 0 898 2d 37").bytes());

    let mut plain = frame("41680035 20100000 0 1001002 d0965ea5 0 1001002 0 898 2d 37");
    let same = Choice { changed: false, ..change };
    assert_eq!(start_switch(&mut plain, same, &cluster), None);
    assert!(plain.is_replicast() && !plain.syn());
    let old = ClusterView { all_switch: false, ..cluster };
    assert_eq!(start_switch(&mut plain, change, &old), None);
    let mut group = frame("41680035 a0100000 0 1001002 d0965ea5 0 1001002 0 898 2d 37");
    assert_eq!(start_switch(&mut group, change, &cluster), None);
    assert!(!group.syn());
}

#[test]
fn each_range_of_a_socket_changes_its_method_separately() {
    let cluster = ClusterView {
        has_broadcast: true,
        all_replicast: true,
        all_switch: true,
        peers: 10,
        policy: MulticastPolicy::default(),
    };
    let mut socket = SocketMethods::default();
    let range = |n| ServiceRange::new(1000, n, n);
    let mut choose = |n, dests| {
        let choice = socket.choose(Time::ZERO, range(n), dests, &cluster);
        (choice.method == Method::Broadcast, choice.changed)
    };
    assert_eq!(choose(1, 1), (false, false));
    assert_eq!(choose(2, 9), (true, false));
    assert_eq!(choose(1, 9), (true, true), "the change was not announced to range 1 yet");
    assert_eq!(choose(1, 9), (true, false));
    for n in 3..20 {
        assert!(!choose(n, 1).0);
    }
    assert_eq!(choose(2, 9), (true, true), "forgotten, so it counts as a change");
}
