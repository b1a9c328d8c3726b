//! Each row of §14.2 that concerns links: the message is refused and changes nothing.

use super::super::{DownReason, LinkSignal};
use super::pair::{A, B, Side, config, number, numbered};
use crate::time::Time;
use crate::wire::{INTERNAL_HEADER, Message, MessageType, SHORT_HEADER, User};

const SESSION: u16 = 0x4444;

fn up() -> Side {
    let mut side = Side::established(config(A, B));
    for n in 0..20 {
        let _ = side.send(Time::ZERO, numbered(A, n, 100));
    }
    side
}

fn state(ack: u16, gap: u16, record: &[u8]) -> Message {
    let mut m = Message::build(User::LinkProtocol, 0, INTERNAL_HEADER, record);
    m.set_prev_node(B);
    m.set_session(SESSION);
    m.set_seqno(1);
    m.set_next_sent(1);
    m.set_ack(ack);
    m.set_seq_gap(gap);
    m
}

fn setup(kind: u8, session: u16) -> Message {
    let mut m = Message::build(User::LinkProtocol, kind, INTERNAL_HEADER, b"eth0\0\0\0\0\0\0\0\0\0\0\0\0");
    m.set_prev_node(B);
    m.set_session(session);
    m.set_max_packet(375);
    m
}

fn fingerprint(side: &mut Side) -> String {
    side.link.clear_stats();
    format!("{:?}", side.link)
}

/// The frame changes nothing, gets no answer and delivers nothing.
#[track_caller]
fn refused(side: &mut Side, frame: &Message) {
    let before = fingerprint(side);
    let frames = side.hear(Time::from_millis(7), frame.bytes());
    assert!(frames.is_empty() && side.signals.is_empty() && side.delivered.is_empty());
    let stats = side.link.stats();
    assert!(stats.refused > 0 || stats.rx_duplicates > 0, "counted");
    assert_eq!(fingerprint(side), before);
}

#[test]
fn protocol_messages_outside_the_session() {
    let mut side = up();
    for session in [SESSION - 1, SESSION + 1, 0] {
        let mut m = state(0, 0, &[0, 4, 0, 0]);
        m.set_session(session);
        refused(&mut side, &m);
    }
    refused(&mut side, &setup(1, SESSION));
    refused(&mut side, &setup(1, SESSION - 1));
    refused(&mut side, &setup(1, SESSION.wrapping_sub(32_767)));
    refused(&mut side, &setup(2, SESSION - 1));
    refused(&mut side, &setup(3, SESSION + 1));
    refused(&mut side, &setup(6, SESSION + 1));
}

#[test]
fn setup_messages_of_wrong_size_or_mtu() {
    let mut side = up();
    for kind in [1, 2] {
        let mut short = setup(kind, SESSION + 1);
        short.truncate_data(15);
        refused(&mut side, &short);
        let mut narrow = setup(kind, SESSION + 1);
        narrow.set_max_packet(24);
        refused(&mut side, &narrow);
        narrow.set_max_packet(0);
        refused(&mut side, &narrow);
    }
    let mut small = Message::build(User::LinkProtocol, 1, SHORT_HEADER, &[0; 40]);
    small.set_prev_node(B);
    refused(&mut side, &small);
}

#[test]
fn unterminated_interface_names_are_truncated() {
    let mut side = Side::new(config(A, B));
    let mut m = Message::build(User::LinkProtocol, 1, INTERNAL_HEADER, b"0123456789abcdef-and-more");
    m.set_prev_node(B);
    m.set_max_packet(u16::MAX);
    side.hear(Time::ZERO, m.bytes());
    assert!(side.link.name().ends_with(":0123456789abcde"));
    assert_eq!(side.link.mtu(), 1500, "an MTU beyond 16 bits does not wrap");
    let mut m = setup(1, 1);
    m.truncate_data(0);
    m.append(b"\x1b[31m\xff\0aaaaaaaaa");
    let mut side = Side::new(config(A, B));
    side.hear(Time::ZERO, m.bytes());
    assert!(side.link.name().ends_with(":?[31m?"), "{}", side.link.name());
}

#[test]
fn tolerance_and_priority_out_of_range_are_ignored() {
    let mut side = up();
    let mut m = state(0, 0, &[0, 4, 0, 0]);
    for (n, tolerance) in [(1, 1), (2, 49), (3, 30_001), (4, 65_535)] {
        m.set_seqno(n);
        m.set_link_tolerance(tolerance);
        side.hear(Time::ZERO, m.bytes());
        assert_eq!(side.link.config().tolerance_ms, 1500);
    }
    assert!(side.link.is_up());
}

#[test]
fn gap_records_that_exceed_the_data() {
    let mut side = up();
    refused(&mut side, &state(0, 0, &[]));
    refused(&mut side, &state(0, 0, &[0, 4, 0]));
    refused(&mut side, &state(0, 0, &[0, 5, 0, 0]));
    refused(&mut side, &state(0, 0, &[0xff, 0xff, 64, 64]));
}

/// A STATE that is accepted but whose report must not affect the transmit queue.
#[test]
fn implausible_reports_change_nothing() {
    let cases: [(u16, u16, &[u8]); 8] = [
        (21, 0, &[0, 4, 0, 0]),
        (0, 21, &[0, 4, 0, 0]),
        (0, 8191, &[0, 4, 0, 0]),
        (4, 5, &[0, 12, 2, 0, 0, 11, 0, 1, 0, 10, 0, 0]),
        (4, 5, &[0, 12, 2, 0, 0, 11, 0, 1, 0, 11, 0, 0]),
        (4, 5, &[0, 8, 1, 0, 0, 8, 0, 0]),
        (4, 5, &[0, 8, 1, 0, 0, 30, 0, 0]),
        (4, 5, &[0, 8, 1, 0, 0, 15, 0xff, 0xff]),
    ];
    for (ack, gap, record) in cases {
        let mut side = up();
        let frames = side.hear(Time::from_millis(7), state(ack, gap, record).bytes());
        assert!(frames.is_empty(), "{ack} {gap}");
        assert_eq!(side.link.queue_lengths(), (20, 0), "{ack} {gap}");
        assert_eq!(side.link.stats().refused, 1);
        assert!(side.link.is_up() && side.signals.is_empty());
    }
}

#[test]
fn blocks_are_ignored_if_counts_and_length_disagree() {
    let mut large = vec![1, 8, 65, 0];
    large.resize(264, 0);
    for record in [&[0, 8, 2, 0, 0, 11, 0, 0][..], &[0, 8, 0, 2, 0, 11, 0, 0], &[0, 0, 9, 9], &large] {
        let mut side = up();
        let frames = side.hear(Time::from_millis(7), state(4, 1, record).bytes());
        assert_eq!(frames.len(), 1, "ack and gap are used: packet 5 is retransmitted");
        assert_eq!(side.link.queue_lengths(), (16, 0));
    }
}

#[test]
fn old_states_and_acknowledgements_are_ignored() {
    let mut side = up();
    let mut m = state(10, 0, &[0, 4, 0, 0]);
    m.set_seqno(5);
    side.hear(Time::ZERO, m.bytes());
    assert_eq!(side.link.queue_lengths().0, 10);
    m.set_seqno(4);
    m.set_ack(20);
    refused(&mut side, &m);
    m.set_seqno(6);
    m.set_ack(3);
    side.hear(Time::ZERO, m.bytes());
    assert_eq!(side.link.queue_lengths().0, 10);
    assert!(side.link.is_up());
}

#[test]
fn states_that_acknowledge_before_the_link_is_up() {
    let mut side = Side::new(config(A, B));
    side.hear(Time::ZERO, setup(1, SESSION).bytes());
    refused(&mut side, &state(5, 0, &[0, 4, 0, 0]));
    side.hear(Time::ZERO, state(0, 0, &[0, 4, 0, 0]).bytes());
    assert_eq!(side.signals.len(), 1);
}

fn packet(side: &Side, user: User, kind: u8, header: usize, data: &[u8]) -> Message {
    let mut m = Message::build(user, kind, header, data);
    m.set_prev_node(B);
    m.set_seqno(side.link.rcv_nxt());
    m
}

#[test]
fn packets_outside_the_accept_window() {
    let mut side = up();
    for seqno in [0, 8193, 32_769, 40_000] {
        let mut m = numbered(B, 0, 10);
        m.set_seqno(seqno);
        refused(&mut side, &m);
    }
    let mut early = numbered(B, 0, 10);
    early.set_seqno(4);
    side.hear(Time::ZERO, early.bytes());
    refused(&mut side, &early);
}

#[test]
fn users_that_links_do_not_carry() {
    let mut side = up();
    let event = u8::from(MessageType::GroupEvent);
    for (user, kind, header) in [
        (User::Other(4), 0, 40),
        (User::LinkConfig, 0, 60),
        (User::TopologyServer, 0, 40),
        (User::Low, event, 44),
        (User::NameDistributor, 0, 24),
        (User::Low, MessageType::Named.into(), 32),
        (User::Low, MessageType::Mcast.into(), 40),
        (User::Low, MessageType::Direct.into(), 24),
        (User::Bundler, 0, 24),
        (User::Fragmenter, 1, 24),
        (User::Tunnel, 1, 24),
    ] {
        let next = side.link.rcv_nxt();
        let m = packet(&side, user, kind, header, &[0; 64]);
        side.link.clear_stats();
        side.hear(Time::ZERO, m.bytes());
        assert!(side.delivered.is_empty() && side.link.is_up(), "{user:?}");
        assert_eq!(side.link.stats().refused, 1, "{user:?}");
        assert_eq!(side.link.rcv_nxt(), next.wrapping_add(1), "its number is consumed nevertheless");
    }
}

#[test]
fn forged_acknowledgements_in_data_are_ignored() {
    let mut side = up();
    let mut m = packet(&side, User::Low, 0, SHORT_HEADER, b"x");
    m.set_ack(21);
    side.hear(Time::ZERO, m.bytes());
    assert_eq!(side.link.queue_lengths().0, 20);
}

#[test]
fn rest_of_a_bundle_is_dropped_after_a_malformed_message() {
    let mut side = up();
    let mut data = numbered(B, 1, 8).into_bytes();
    data.extend_from_slice(&[0xff; 40]);
    data.extend_from_slice(numbered(B, 2, 8).bytes());
    let m = packet(&side, User::Bundler, 0, INTERNAL_HEADER, &data);
    side.hear(Time::ZERO, m.bytes());
    assert_eq!(side.delivered.drain(..).map(|m| number(&m)).collect::<Vec<_>>(), [1]);
    assert!(side.link.is_up());
}

#[test]
fn unexpected_fragments_take_the_link_down() {
    let cases: [&[(u8, usize)]; 5] =
        [&[(1, 100)], &[(2, 100)], &[(0, 100), (0, 100)], &[(0, 100), (2, 100)], &[(0, 60_000), (1, 60_000)]];
    for fragments in cases {
        let mut side = up();
        for (kind, len) in fragments {
            let m = packet(&side, User::Fragmenter, *kind, INTERNAL_HEADER, &vec![0; *len]);
            side.hear(Time::ZERO, m.bytes());
        }
        side.act();
        assert_eq!(side.downs, [DownReason::Reassembly], "{fragments:?}");
        assert!(side.delivered.is_empty());
    }
}

#[test]
fn tunnels_without_a_failover_carry_nothing() {
    let mut side = up();
    for kind in [1, 2, 7] {
        let m = packet(&side, User::Tunnel, kind, INTERNAL_HEADER, numbered(B, 1, 8).bytes());
        side.hear(Time::ZERO, m.bytes());
        assert!(side.delivered.is_empty() && side.link.is_up());
    }
    assert_eq!(side.link.stats().refused, 3);
}

#[test]
fn hostile_tunnels_during_a_failover() {
    let mut side = up();
    side.with(|l, io| l.join_failover(1, io));
    let inner = |n: u16, user: User| {
        let mut m = if user == User::Tunnel {
            Message::build(user, 1, INTERNAL_HEADER, numbered(B, 9, 8).bytes())
        } else {
            numbered(B, 9, 8)
        };
        m.set_seqno(n);
        m.into_bytes()
    };
    let short = inner(1, User::Low)[..30].to_vec();
    for (number, count, data) in
        [(0, 0, short), (3, 2, inner(1, User::Low)), (0, 2, inner(1, User::Low)), (1, 1, inner(1, User::Low))]
    {
        let mut m = packet(&side, User::Tunnel, 1, INTERNAL_HEADER, &data);
        m.set_fragment_number(number);
        m.set_fragment_count(count);
        side.link.clear_stats();
        side.hear(Time::ZERO, m.bytes());
        assert_eq!((side.link.stats().refused, side.link.drop_point()), (1, Some(1)), "{number}/{count}");
    }
    let m = packet(&side, User::Tunnel, 1, INTERNAL_HEADER, &inner(1, User::Tunnel));
    side.hear(Time::ZERO, m.bytes());
    assert!(side.delivered.is_empty(), "no failover inside a failover");
    let m = packet(&side, User::Tunnel, 1, INTERNAL_HEADER, &inner(60_000, User::Low));
    side.hear(Time::ZERO, m.bytes());
    assert!(side.delivered.is_empty() && side.link.is_up(), "outside the accept window of the failed link");
    let m = packet(&side, User::Tunnel, 1, INTERNAL_HEADER, &inner(2, User::Low));
    side.hear(Time::ZERO, m.bytes());
    assert_eq!(side.delivered.len(), 1, "the failover continues");
}

/// Random frames after a valid header: no panic, no memory beyond the limits.
#[test]
fn random_frames_do_not_panic() {
    let mut rng = crate::rng::Rng::new(99);
    let mut side = up();
    for round in 0..60_000u64 {
        let header = [24, 32, 40, 44, 60][rng.below(5) as usize];
        let len = rng.below(90) as usize;
        let data: Vec<u8> =
            (0..len).map(|_| if rng.below(3) == 0 { rng.next_u32() as u8 } else { 0 }).collect();
        let mut m = Message::build(User::from(rng.below(16) as u8), rng.below(8) as u8, header, &data);
        m.set_word(4, if rng.below(2) == 0 { 0 } else { rng.next_u32() });
        m.set_word(5, rng.next_u32());
        if rng.below(2) == 0 {
            m.set_session(side.link.peer_session().unwrap_or(0).wrapping_add(rng.below(2) as u16));
        }
        m.set_ack(rng.below(40) as u16);
        m.set_max_packet(375);
        m.set_seqno(side.link.rcv_nxt().wrapping_add(rng.below(4) as u16));
        side.hear(Time::from_millis(round), m.bytes());
        side.act();
        side.delivered.clear();
        if !side.link.is_up() {
            side.hear(Time::from_millis(round), setup(1, rng.next_u32() as u16).bytes());
            side.link.establish();
        } else if rng.below(3) == 0 {
            let _ = side.send(Time::from_millis(round), numbered(A, 0, 100));
            side.with(|l, io| l.tick(Time::from_millis(round), io));
        }
    }
    assert!(side.downs.len() > 10, "the random frames reach the state machine");
}

/// After a late packet of an earlier session all reports of a correct peer are implausible: the ends must start over.
#[test]
fn repeated_implausible_reports_take_the_link_down() {
    let mut side = up();
    for number in 1..=8 {
        let mut m = state(500, 0, &[0, 4, 0, 0]);
        m.set_seqno(number);
        side.hear(Time::from_millis(7), m.bytes());
        assert!(side.signals.is_empty(), "report {number}");
    }
    let mut m = state(500, 0, &[0, 4, 0, 0]);
    m.set_seqno(9);
    side.hear(Time::from_millis(7), m.bytes());
    assert!(side.signals.contains(&LinkSignal::Down(DownReason::Implausible)));
}
