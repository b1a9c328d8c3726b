//! Tests of the queues of a sequence.

use std::collections::VecDeque;

use super::super::Wakeup;
use super::super::backlog::{Backlog, Level, Queued};
use super::super::fragment::{FragmentFault, Fragments, Reassembly};
use super::super::packet::Outgoing;
use super::super::receive::{Arrival, MAX_DEFERRED_BYTES, ReceiveQueue};
use super::super::transmit::TransmitQueue;
use super::super::unpack::{Carrier, Unpacker};
use super::super::window::Window;
use crate::addr::{Importance, NodeAddr};
use crate::limits::{MAX_MESSAGE, MAX_USER_DATA, MAX_WINDOW, MESSAGE_OVERHEAD};
use crate::pool::Pool;
use crate::time::Time;
use crate::wire::{
    BASIC_HEADER, ErrorCode, INTERNAL_HEADER, MAX_GAP_BLOCKS, Message, MessageType, SHORT_HEADER, User, seq,
};

const OWN: NodeAddr = NodeAddr(0x0100_1001);
const PEER: NodeAddr = NodeAddr(0x0100_1002);

fn data(user: User, len: usize) -> Message {
    let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
    let mut m = Message::build(user, MessageType::Direct.into(), BASIC_HEADER, &bytes);
    m.set_prev_node(OWN);
    m.set_origin_port(77);
    m
}

fn packet(seqno: u16) -> Message {
    let mut m = data(User::Low, 10);
    m.set_seqno(seqno);
    m
}

fn receive(queue: &mut ReceiveQueue, seqno: u16) -> Arrival {
    queue.accept(packet(seqno).view(), usize::MAX)
}

fn seqnos(queue: &TransmitQueue) -> Vec<u16> {
    queue.iter().map(|s| s.packet.view().seqno()).collect()
}

#[test]
fn gap_blocks_equal_the_reference_example() {
    let mut queue = ReceiveQueue::new(5);
    for seqno in [20, 10, 14, 11, 15, 13] {
        assert_eq!(receive(&mut queue, seqno), Arrival::Deferred);
    }
    assert_eq!(queue.gap(), 5);
    assert_eq!(queue.gap_blocks(), [(11, 1), (15, 4), (20, 0)]);
    assert_eq!(receive(&mut queue, 14), Arrival::Duplicate);
    assert_eq!(queue.deferred_len(), 6);
}

/// A packet of the last session of the link arrives late, and early in this one.
#[test]
fn early_packet_gives_way_to_a_later_one_with_other_content() {
    let mut queue = ReceiveQueue::new(5);
    let mut old = data(User::Low, 700);
    old.set_seqno(7);
    assert_eq!(queue.accept(old.view(), usize::MAX), Arrival::Deferred);
    assert_eq!((receive(&mut queue, 6), receive(&mut queue, 7)), (Arrival::Deferred, Arrival::Deferred));
    // A retransmission differs in its acknowledgements only.
    let mut again = packet(7);
    again.set_ack(99);
    assert_eq!(queue.accept(again.view(), usize::MAX), Arrival::Duplicate);
    // The same data to another socket is another message.
    let mut other = packet(6);
    other.set_dest_port(5);
    assert_eq!(queue.accept(other.view(), usize::MAX), Arrival::Deferred);
    assert_eq!((queue.deferred_len(), queue.gap()), (2, 1));
    assert_eq!(queue.accept(old.view(), 0), Arrival::Full);
    assert_eq!(receive(&mut queue, 5), Arrival::InOrder);
    let kept: Vec<Message> = std::iter::from_fn(|| queue.pop()).collect();
    assert_eq!(
        kept.iter().map(|packet| packet.bytes()).collect::<Vec<_>>(),
        [other.bytes(), packet(7).bytes()]
    );
    assert_eq!((queue.deferred_bytes(), queue.rcv_nxt()), (0, 8));
}

#[test]
fn early_packets_are_delivered_in_order_across_the_wrap() {
    let mut queue = ReceiveQueue::new(65_534);
    for seqno in [1, 65_535, 0] {
        assert_eq!(receive(&mut queue, seqno), Arrival::Deferred);
    }
    assert!(queue.pop().is_none());
    assert_eq!(receive(&mut queue, 65_534), Arrival::InOrder);
    let out: Vec<u16> = core::iter::from_fn(|| queue.pop()).map(|m| m.seqno()).collect();
    assert_eq!(out, [65_535, 0, 1]);
    assert_eq!((queue.rcv_nxt(), queue.deferred_len(), queue.deferred_bytes(), queue.gap()), (2, 0, 0, 0));
    assert!(queue.gap_blocks().is_empty());
}

#[test]
fn accept_window_is_8191_packets_and_bounded_in_bytes() {
    let mut queue = ReceiveQueue::new(1);
    assert_eq!(receive(&mut queue, 1 + MAX_WINDOW), Arrival::Deferred);
    assert_eq!(receive(&mut queue, 2 + MAX_WINDOW), Arrival::Duplicate);
    assert_eq!(receive(&mut queue, 0), Arrival::Duplicate);
    assert_eq!(queue.gap(), MAX_WINDOW);

    let mut queue = ReceiveQueue::new(1);
    let mut large = data(User::Low, MAX_USER_DATA);
    let kept = (2..).map(|seqno| {
        large.set_seqno(seqno);
        queue.accept(large.view(), usize::MAX)
    });
    let kept = kept.take_while(|a| *a == Arrival::Deferred).count();
    assert_eq!(kept, MAX_DEFERRED_BYTES / (large.size() + MESSAGE_OVERHEAD));
    assert_eq!(receive(&mut queue, 1), Arrival::InOrder, "the missing packet is always accepted");
}

#[test]
fn gap_record_has_at_most_64_blocks() {
    let mut queue = ReceiveQueue::new(1);
    for seqno in (3..400).step_by(2) {
        receive(&mut queue, seqno);
    }
    assert_eq!(queue.gap_blocks().len(), MAX_GAP_BLOCKS);
}

#[test]
fn acknowledged_packets_leave_holes() {
    let mut queue: TransmitQueue = TransmitQueue::new(65_533);
    for _ in 0..8 {
        queue.push(packet(0), (), Time::ZERO);
    }
    assert_eq!(seqnos(&queue), [65_533, 65_534, 65_535, 0, 1, 2, 3, 4]);
    assert_eq!(queue.release_to(65_532, &mut Pool::default()), 0);
    assert_eq!(queue.release_to(5, &mut Pool::default()), 0, "never sent");
    assert_eq!(queue.release_to(65_534, &mut Pool::default()), 2);
    assert_eq!(queue.release_range(1, 2, &mut Pool::default()), 2);
    assert!(queue.has_holes());
    assert_eq!(seqnos(&queue), [65_535, 0, 3, 4]);
    assert_eq!(queue.range_mut(0, 3).map(|s| s.packet.view().seqno()).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(queue.range_mut(65_000, 65_535).count(), 1);
    assert!(queue.remove(65_535) && !queue.remove(65_535));
    assert_eq!((queue.head(), queue.len()), (0, 3));
    assert_eq!(queue.release_to(0, &mut Pool::default()), 1);
    assert_eq!(queue.head(), 3, "holes at the front go with it");
    assert_eq!(queue.release_to(4, &mut Pool::default()), 2);
    assert!(queue.is_empty() && !queue.has_holes());
}

#[test]
fn implausible_reports_are_detected() {
    let mut queue: TransmitQueue = TransmitQueue::new(1);
    for _ in 0..20 {
        queue.push(packet(0), (), Time::ZERO);
    }
    assert!(queue.is_plausible(4, 5, &[(11, 1), (15, 4), (20, 0)]));
    assert!(queue.is_plausible(0, 20, &[]));
    assert!(queue.is_plausible(60_000, 0, &[]), "old reports are normal");
    assert!(!queue.is_plausible(21, 0, &[]));
    assert!(!queue.is_plausible(0, 21, &[]));
    assert!(!queue.is_plausible(4, 5, &[(11, 1), (10, 0)]));
    assert!(!queue.is_plausible(4, 5, &[(9, 1)]));
    assert!(!queue.is_plausible(4, 5, &[(21, 0)]));
    assert!(!queue.is_plausible(4, 5, &[(15, 6)]));
}

#[test]
fn packet_is_retransmitted_at_most_once_per_interval() {
    let mut queue: TransmitQueue = TransmitQueue::new(1);
    queue.push(packet(0), (), Time::ZERO);
    let sent = queue.get_mut(1).unwrap();
    assert!(sent.try_retransmit(Time::from_millis(5), 1));
    assert!(!sent.try_retransmit(Time::from_millis(5), 1));
    assert!(sent.try_retransmit(Time::from_millis(6), 1));
    assert_eq!(sent.first_retransmit(), Some(Time::from_millis(5)));
}

#[test]
fn packets_in_flight_never_exceed_the_accept_window() {
    let mut queue: TransmitQueue = TransmitQueue::new(1);
    while queue.has_room(u16::MAX) {
        queue.push(packet(0), (), Time::ZERO);
    }
    assert_eq!(queue.len(), usize::from(MAX_WINDOW));
    queue.release_range(2, 8000, &mut Pool::default());
    assert!(!queue.has_room(u16::MAX), "packet 1 still holds the window");
}

#[test]
fn window_grows_to_its_limit_and_shrinks() {
    let mut w = Window::new(50, MAX_WINDOW);
    w.released(10, 49, false);
    assert_eq!(w.size(), 50, "not the limit, no growth");
    w.released(10, 50, true);
    assert_eq!(w.size(), 50, "holes, no growth");
    let mut rounds = 0;
    while w.size() < MAX_WINDOW {
        w.released(usize::from(w.size()), usize::from(w.size()), false);
        rounds += 1;
    }
    assert_eq!(rounds, 8, "slow start doubles");
    w.retransmitted();
    assert_eq!((w.size(), w.ssthresh()), (4095, 4095));
    w.idle();
    assert_eq!((w.size(), w.ssthresh()), (50, 2047));
    w.retransmitted();
    assert_eq!((w.size(), w.ssthresh()), (50, 300));
    while w.size() <= 300 {
        w.released(50, usize::from(w.size()), false);
    }
    let size = w.size();
    w.released(usize::from(size) - 1, usize::from(size), false);
    assert_eq!(w.size(), size);
    w.released(1, usize::from(size), false);
    assert_eq!(w.size(), size + 1, "beyond the threshold: one packet a window");
    let mut fixed = Window::new(50, 50);
    fixed.released(50, 50, false);
    assert_eq!(fixed.size(), 50);
}

#[test]
fn backlog_limits_equal_the_reference() {
    let backlog = Backlog::new(50, 1500);
    let limits: Vec<usize> = [User::Low, User::Medium, User::High, User::Critical, User::NameDistributor]
        .map(|u| backlog.usage(Level::of(Message::build(u, 3, INTERNAL_HEADER, &[]).view())).1)
        .to_vec();
    assert_eq!(limits, [100, 200, 300, 400, 873]);
    assert_eq!(Backlog::new(50, 14_000).usage(Level::SYSTEM).1, 93);
}

#[test]
fn levels_follow_importance_and_error() {
    assert_eq!(Level::of(data(User::High, 1).view()).number(), 2);
    let mut returned = data(User::High, 1);
    returned.set_error_code(ErrorCode::NoPort);
    assert_eq!(Level::of(returned.view()), Level::SYSTEM);
    let mut bundle = Message::build(User::Bundler, 0, INTERNAL_HEADER, &[]);
    bundle.set_carried_importance(7);
    assert_eq!(Level::of(bundle.view()), Level::SYSTEM);
}

#[test]
fn small_packets_of_one_level_are_bundled() {
    let mut backlog = Backlog::new(50, 1500);
    let small: Vec<Message> = [61, 62, 63, 64].map(|n| data(User::Low, n)).to_vec();
    let mut push = |m: &Message| backlog.push(m.clone(), 1460, OWN, PEER);
    assert_eq!(push(&small[0]), Queued::Alone);
    assert_eq!(push(&small[1]), Queued::NewBundle);
    assert_eq!(push(&small[2]), Queued::Bundled);
    assert_eq!(push(&data(User::Low, 1420 - 32)), Queued::Alone, "too large to share");
    assert_eq!(push(&small[3]), Queued::Alone, "no later packet joins it");
    assert_eq!(backlog.len(), 3);
    assert_eq!(backlog.usage(Level::of(small[0].view())).0, 3);

    let bundle = backlog.pop().unwrap().into_message();
    assert_eq!((bundle.user(), bundle.message_count(), bundle.carried_importance()), (User::Bundler, 3, 0));
    assert_eq!((bundle.prev_node(), bundle.dest_node()), (OWN, Some(PEER)));
    let mut out = VecDeque::new();
    Unpacker::default().unpack(Carrier::Borrowed(bundle.view()), &mut Pool::default(), &mut out).unwrap();
    assert_eq!(out, &small[..3]);
    backlog.pop();
    assert_eq!(
        backlog.push(small[0].clone(), 1460, OWN, PEER),
        Queued::NewBundle,
        "the last port still waits"
    );
    backlog.clear();
    assert_eq!(backlog.push(small[0].clone(), 1460, OWN, PEER), Queued::Alone, "the backlog is empty");
}

#[test]
fn waiting_packets_do_not_overtake_each_other() {
    let mut backlog = Backlog::new(50, 1500);
    let mut end = data(User::Critical, 0);
    end.set_error_code(ErrorCode::NoPort);
    let fragment = fragment(0, &[7; 1000]);
    let ack = Message::build(User::ConnManager, 2, INTERNAL_HEADER, &[]);
    let sent = [&ack, &data(User::Low, 61), &data(User::Low, 62), &fragment, &data(User::High, 63), &end];
    for message in sent {
        backlog.push(message.clone(), 1460, OWN, PEER);
    }
    backlog.push(data(User::Low, 64), 1460, OWN, PEER);
    let mut got = VecDeque::new();
    while let Some(packet) = backlog.pop().map(Outgoing::into_message) {
        match packet.user() {
            User::Bundler => {
                Unpacker::default()
                    .unpack(Carrier::Borrowed(packet.view()), &mut Pool::default(), &mut got)
                    .unwrap();
            }
            _ => got.push_back(packet),
        }
    }
    assert_eq!(got.pop_back(), Some(data(User::Low, 64)));
    assert!(got.iter().eq(sent));
}

#[test]
fn bundle_never_exceeds_the_packet_size() {
    let mut backlog = Backlog::new(50, 1500);
    for _ in 0..200 {
        backlog.push(data(User::Low, 29), 1460, OWN, PEER);
    }
    let mut total = 0;
    while let Some(packet) = backlog.pop().map(Outgoing::into_message) {
        assert!(packet.size() <= 1460);
        total += usize::from(packet.message_count());
    }
    assert_eq!(total, 200);
    assert_eq!(backlog.usage(Level::of(data(User::Low, 1).view())).0, 0);
}

#[test]
fn ports_are_woken_when_their_level_has_room() {
    let mut backlog = Backlog::new(1, 1500);
    let big = || data(User::Low, 1440);
    let port = |port| Wakeup { port, importance: Importance::Low };
    for _ in 0..2 {
        backlog.push(big(), 1460, OWN, PEER);
    }
    assert!(backlog.is_congested(Level::of(big().view())));
    backlog.register(port(1));
    backlog.register(port(2));
    backlog.register(port(1));
    assert_eq!(backlog.waiting(), 2);
    let mut woken = Vec::new();
    backlog.wake(&mut woken);
    assert!(woken.is_empty());
    backlog.pop();
    backlog.wake(&mut woken);
    assert_eq!(woken, [port(1)], "room for one packet wakes one port");
    backlog.wake_all(&mut woken);
    assert_eq!(woken, [port(1), port(2)]);
}

#[test]
fn messages_of_every_size_are_reassembled() {
    for len in [1421, 1460, 2840, 20_000, MAX_USER_DATA] {
        let whole = data(User::Medium, len);
        let fragments = Fragments::new(whole.clone(), 1460, OWN, PEER);
        let count = fragments.remaining();
        let packets: Vec<Message> = fragments.map(Outgoing::into_message).collect();
        assert_eq!(packets.len(), count);
        let (last, rest) = packets.split_last().unwrap();
        assert!(rest.iter().all(|p| p.size() == 1460) && last.size() <= 1460);
        assert_eq!((packets[0].kind(), last.kind(), last.carried_importance()), (0, 2, 1));
        let mut unpacker = Unpacker::default();
        let mut out = VecDeque::new();
        for p in &packets {
            assert!(out.is_empty());
            unpacker.unpack(Carrier::Borrowed(p.view()), &mut Pool::default(), &mut out).unwrap();
        }
        assert_eq!(out, [whole]);
        assert_eq!((unpacker.stats.fragments, unpacker.stats.fragmented), (count as u64, 1));
    }
}

fn fragment(kind: u8, data: &[u8]) -> Message {
    Message::build(User::Fragmenter, kind, INTERNAL_HEADER, data)
}

#[test]
fn unexpected_fragments_are_refused_and_leave_no_state() {
    let mut r = Reassembly::default();
    assert_eq!(r.add(fragment(1, b"x").view(), &mut Pool::default()), Err(FragmentFault::NoFirst));
    assert_eq!(r.add(fragment(2, b"x").view(), &mut Pool::default()), Err(FragmentFault::NoFirst));
    assert_eq!(r.add(fragment(0, b"x").view(), &mut Pool::default()), Ok(None));
    assert_eq!(r.add(fragment(0, b"x").view(), &mut Pool::default()), Err(FragmentFault::Unfinished));
    assert!(!r.is_pending());
    assert_eq!(r.add(fragment(5, b"x").view(), &mut Pool::default()), Err(FragmentFault::Invalid));
    r.add(fragment(0, &[0; 40]).view(), &mut Pool::default()).unwrap();
    assert_eq!(
        r.add(fragment(2, b"x").view(), &mut Pool::default()),
        Err(FragmentFault::Invalid),
        "not a message"
    );
    for forbidden in [User::Bundler, User::Tunnel, User::Fragmenter, User::BcastProtocol, User::LinkProtocol]
    {
        let inner = Message::build(forbidden, 0, INTERNAL_HEADER, &[0; 40]);
        r.add(fragment(0, &inner.bytes()[..50]).view(), &mut Pool::default()).unwrap();
        assert_eq!(
            r.add(fragment(2, &inner.bytes()[50..]).view(), &mut Pool::default()),
            Err(FragmentFault::Invalid)
        );
        assert!(!r.is_pending());
    }
}

#[test]
fn reassembly_is_bounded() {
    let mut r = Reassembly::default();
    let slice = vec![0xff; 10_000];
    r.add(fragment(0, &slice).view(), &mut Pool::default()).unwrap();
    let fault = (0..10).find_map(|_| r.add(fragment(1, &slice).view(), &mut Pool::default()).err());
    assert_eq!(fault, Some(FragmentFault::TooLarge));
    assert!(!r.is_pending());
    let mut whole = data(User::Low, MAX_USER_DATA - 8).into_bytes();
    whole.resize(MAX_MESSAGE, 0);
    r.add(fragment(0, &whole[..60_000]).view(), &mut Pool::default()).unwrap();
    assert!(
        r.add(fragment(2, &whole[60_000..]).view(), &mut Pool::default()).unwrap().is_some(),
        "a message of the largest size is legal"
    );
}

#[test]
fn hostile_bundles_deliver_only_legal_messages() {
    let unpack = |data: &[u8]| {
        let mut out = VecDeque::new();
        let mut unpacker = Unpacker::default();
        let bundle = Message::build(User::Bundler, 0, INTERNAL_HEADER, data);
        unpacker.unpack(Carrier::Borrowed(bundle.view()), &mut Pool::default(), &mut out).unwrap();
        (out, unpacker.stats.refused)
    };
    let good = data(User::Low, 4);
    assert_eq!(unpack(good.bytes()), (VecDeque::from([good.clone()]), 0));
    for forbidden in [User::BcastProtocol, User::Bundler, User::Tunnel, User::Fragmenter, User::Other(4)] {
        let mut bytes = Message::build(forbidden, 0, INTERNAL_HEADER, &[]).into_bytes();
        bytes.extend_from_slice(good.bytes());
        assert_eq!(unpack(&bytes), (VecDeque::from([good.clone()]), 1), "{forbidden:?}");
    }
    let event = Message::build(User::Low, MessageType::GroupEvent.into(), 44, &[]);
    assert_eq!(unpack(event.bytes()), (VecDeque::new(), 1));
    let short = Message::build(User::Low, MessageType::Named.into(), SHORT_HEADER, &[]);
    assert_eq!(unpack(short.bytes()), (VecDeque::new(), 1), "header too short for the type");
    assert_eq!(unpack(&good.bytes()[..34]), (VecDeque::new(), 1), "size beyond the bundle");
    assert_eq!(unpack(&[0; 23]), (VecDeque::new(), 0));
    let mut many = good.clone().into_bytes();
    many.extend_from_slice(&[0xff; 60]);
    many.extend_from_slice(good.bytes());
    assert_eq!(unpack(&many).0.len(), 1, "messages after a malformed one are dropped");
}

#[test]
fn half_range_comparison() {
    assert!(seq::lt(65_535, 0) && seq::gt(0, 32_768));
}
