//! One test for each rule of tipc.md §14 that the wire layer checks, with a message that violates it.
//! `docs/spec/bad-input.md` lists all rules.

use std::path::Path;

use utipc_core::error::WireError;
use utipc_core::wire::{
    BcastControl, Bundle, ConnControl, Data, Decoded, DiscoveryMessage, DomainRecord, Dump, Encrypted,
    Fragment, GapRecord, GroupControl, KeyDistribution, MediaAddr, NameUpdate, Restart, State, TopologyEvent,
    Tunnel, User, reverse,
};
use utipc_core::{Message, NodeAddr, View};

use utipc_core::wire::ErrorCode;

fn set(bytes: &mut [u8], low: u32, width: u32, value: u32) {
    let word = u32::from_be_bytes(bytes[..4].try_into().unwrap());
    let mask = (u32::MAX >> (32 - width)) << low;
    bytes[..4].copy_from_slice(&(word & !mask | value << low).to_be_bytes());
}

fn message(user: User, kind: u8, header: usize, data: &[u8]) -> Message {
    Message::build(user, kind, header, data)
}

fn refuses<T>(parsed: Result<T, WireError>) -> WireError {
    parsed.map(drop).expect_err("must be refused")
}

// §14.1

#[test]
fn padding_is_not_kept() {
    let mut bytes = message(User::Low, 3, 32, b"abc").into_bytes();
    bytes.resize(2000, 0xee);
    let view = View::parse(&bytes).unwrap();
    assert_eq!(view.to_message().into_bytes().capacity(), 35);
    assert_eq!(Message::from_vec(bytes).unwrap().bytes().len(), 35);
}

#[test]
fn fewer_bytes_than_a_header() {
    let whole = message(User::Low, 0, 24, &[]).into_bytes();
    for have in 0..24 {
        assert_eq!(refuses(View::parse(&whole[..have])), WireError::Truncated { need: 24, have });
    }
}

#[test]
fn header_size_out_of_range() {
    for words in 0..6u32 {
        let mut bytes = message(User::Low, 0, 24, &[0; 40]).into_bytes();
        set(&mut bytes, 21, 4, words);
        assert_eq!(
            refuses(View::parse(&bytes)),
            WireError::HeaderSize { need: 24, have: words as usize * 4 }
        );
    }
    // 4 bits of 4 bytes each cannot exceed 60.
}

#[test]
fn header_cut_off() {
    let whole = message(User::LinkConfig, 0, 60, &[]).into_bytes();
    for have in 24..60 {
        assert_eq!(refuses(View::parse(&whole[..have])), WireError::Truncated { need: 60, have });
    }
}

#[test]
fn another_version() {
    for version in (0..8).filter(|v| *v != 2) {
        let mut bytes = message(User::Low, 0, 24, &[]).into_bytes();
        set(&mut bytes, 29, 3, version);
        assert_eq!(refuses(View::parse(&bytes)), WireError::Version(version as u8));
    }
}

#[test]
fn size_below_the_header() {
    let mut bytes = message(User::Low, 3, 32, b"abc").into_bytes();
    for size in 0..32 {
        set(&mut bytes, 0, 17, size);
        assert!(matches!(refuses(View::parse(&bytes)), WireError::Size { .. }));
    }
}

#[test]
fn size_above_the_limit() {
    let mut bytes = message(User::Low, 3, 32, &vec![0; 66_000]).into_bytes();
    assert!(View::parse(&bytes).is_ok());
    bytes.resize(0x2_0000, 0);
    for size in [66_033, 70_000, 0x1_ffff] {
        set(&mut bytes, 0, 17, size);
        assert!(matches!(refuses(View::parse(&bytes)), WireError::Size { .. }));
    }
}

#[test]
fn size_beyond_the_bytes() {
    let bytes = message(User::Low, 3, 32, b"abc").into_bytes();
    for have in 32..35 {
        assert!(matches!(refuses(View::parse(&bytes[..have])), WireError::Size { .. }));
    }
    assert_eq!(View::parse(&[&bytes[..], &[0; 30]].concat()).unwrap().data(), b"abc");
}

// §14.2

#[test]
fn header_too_small_for_user_and_type() {
    let mut checked = 0;
    for user in 0..16 {
        for kind in 0..8 {
            for header in (24..60).step_by(4) {
                let m = message(User::from(user), kind, header, &[0; 100]);
                let need = match (user, kind) {
                    (0..4, 0) => 24,
                    (0..4, 3) => 32,
                    (0..4, 2) => 40,
                    (0..4, _) => 44,
                    (13, _) => 60,
                    _ => 40,
                };
                assert_eq!(m.header_fits(), header >= need, "user {user} type {kind} header {header}");
                let known = !matches!(user, 4 | 15) && Decoded::parse(m.view()).is_ok();
                assert!(!known || header >= need, "user {user} type {kind} header {header}");
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 16 * 8 * 9);
}

#[test]
fn fields_beyond_the_header_are_not_read_from_the_data() {
    let m = message(User::Low, 0, 24, &[0xff; 100]);
    assert_eq!(m.dest_node(), None);
    assert_eq!(message(User::Low, 0, 28, &[0xff; 100]).dest_node(), None);
    assert_eq!((m.name_type(), m.name_instance(), m.name_upper()), (0, 0, 0));
    assert_eq!((m.conn_acked(), m.max_packet(), m.bcast_gap(), m.net_hash()), (0, 0, 0, 0));
}

#[test]
fn short_header_outside_connections() {
    for kind in 1..8 {
        refuses(Data::parse(message(User::Low, kind, 24, &[]).view()));
    }
    for user in [5, 6, 7, 8, 9, 10, 11, 12, 13, 14] {
        assert!(Decoded::parse(message(User::from(user), 0, 24, &[0; 60]).view()).is_err(), "user {user}");
    }
}

#[test]
fn member_event_from_the_wire() {
    let event = message(User::Low, 4, 44, &[0; 48]);
    assert_eq!(refuses(Data::parse(event.view())), WireError::Type { user: 0, kind: 4 });
}

#[test]
fn unknown_types_of_users() {
    let known = [(5, 1), (6, 1), (7, 3), (8, 3), (9, 7), (10, 2), (11, 2), (12, 3), (13, 4), (14, 1)];
    for (user, first_unknown) in known {
        for kind in first_unknown..8 {
            let m = message(User::from(user), kind, 60, &[1; 60]);
            let (v, type_error) = (m.view(), Err(WireError::Type { user, kind }));
            let result = match user {
                5 => BcastControl::parse(v).map(drop),
                6 => Bundle::parse(v).map(drop),
                7 => Restart::parse(v).map(drop),
                8 => ConnControl::parse(v).map(drop),
                9 => GroupControl::parse(v).map(drop),
                10 => Tunnel::parse(v).map(drop),
                11 => NameUpdate::parse(v).map(drop),
                12 => Fragment::parse(v).map(drop),
                14 => KeyDistribution::parse(v).map(drop),
                _ => Err(WireError::Type { user, kind }), // discovery checks the non-sequenced bit first
            };
            assert_eq!(result, type_error, "user {user} type {kind}");
            assert_eq!(Decoded::parse(v).map(|d| d.to_bytes()).unwrap_or_default().is_empty(), user == 13);
        }
    }
}

#[test]
fn unknown_users_types_and_bits_survive() {
    for user in [4, 15] {
        let m = message(User::from(user), 5, 44, &[7; 33]);
        let decoded = Decoded::parse(m.view()).unwrap();
        assert_eq!(decoded.to_bytes(), m.bytes());
    }
    // Every word of every kind of message, with every unused bit set.
    for user in (0..16).filter(|u| *u != 13) {
        for kind in 0..8 {
            let mut m = message(User::from(user), kind, 60, &[0; 32]);
            for word in 3..15 {
                m.set_word(word, 0xffff_ffff);
            }
            if let Ok(decoded) = Decoded::parse(m.view()) {
                assert_eq!(decoded.to_bytes(), m.bytes(), "user {user} type {kind}");
            }
        }
    }
}

#[test]
fn discovery_on_the_sequenced_path() {
    let m = message(User::LinkConfig, 0, 60, &[1; 16]);
    assert_eq!(refuses(DiscoveryMessage::parse(m.view())), WireError::User(13));
}

#[test]
fn restart_without_a_whole_interface_name() {
    for kind in [1, 2] {
        for have in 0..16 {
            let m = message(User::LinkProtocol, kind, 40, &[b'x'; 16][..have]);
            assert_eq!(refuses(Restart::parse(m.view())), WireError::Truncated { need: 16, have });
        }
    }
}

#[test]
fn interface_name_without_an_end() {
    let m = message(User::LinkProtocol, 1, 40, b"abcdefghijklmnopqrst");
    assert_eq!(Restart::parse(m.view()).unwrap().interface.text(), "abcdefghijklmno");
    let m = message(User::LinkProtocol, 1, 40, b"e\n\x1b[0m\xff\0 secret...");
    assert_eq!(Restart::parse(m.view()).unwrap().interface.text(), "e??[0m?");
}

#[test]
fn state_with_too_much_data() {
    let m = message(User::LinkProtocol, 0, 40, &vec![0; 65_536]);
    refuses(State::parse(m.view(), false));
}

#[test]
fn gap_record_beyond_the_data() {
    for data in [&[][..], &[0], &[0, 4, 0], &[0, 5, 0, 0], &[0xff, 0xff, 1, 1, 0, 0, 0, 0]] {
        refuses(GapRecord::parse(data));
        let m = message(User::LinkProtocol, 0, 40, data);
        refuses(State::parse(m.view(), true));
    }
}

#[test]
fn inconsistent_gap_record() {
    let blocks = |head: &[u8]| [head, &[1; 1000]].concat();
    for head in [[0, 8, 0, 0], [0, 12, 1, 2], [0, 16, 1, 0], [0, 0, 9, 9], [1, 8, 65, 0], [1, 8, 0, 65]] {
        let record = GapRecord::parse(&blocks(&head)).unwrap();
        assert!(record.unicast.is_empty() && record.broadcast.is_empty(), "{head:?}");
    }
    // the monitor record is found nevertheless
    assert_eq!(GapRecord::parse(&blocks(&[0, 8, 0, 0])).unwrap().len, 8);
}

#[test]
fn gap_blocks_out_of_order() {
    assert!(GapRecord::rises(4, 5, &[(11, 1), (15, 4), (20, 0)]));
    assert!(GapRecord::rises(65_530, 3, &[(65_535, 4), (5, 0)]));
    for blocks in [[(9, 1), (15, 0)], [(11, 4), (15, 0)], [(11, 1), (11, 0)], [(15, 0), (11, 0)]] {
        assert!(!GapRecord::rises(4, 5, &blocks), "{blocks:?}");
    }
}

#[test]
fn monitor_record_with_wrong_lengths() {
    let record = |len: u16, n: u16, members: usize| {
        let head = [len, 1, 1, n].map(u16::to_be_bytes).concat();
        [&head[..], &[0; 8], &vec![1; members * 4]].concat()
    };
    assert_eq!(DomainRecord::parse(&record(24, 2, 2)).unwrap().members.len(), 2);
    assert_eq!(DomainRecord::parse(&record(272, 64, 64)).unwrap().members.len(), 64);
    for bad in
        [record(276, 65, 65), record(24, 3, 2), record(28, 2, 2), record(24, 2, 3), record(16, 0xffff, 0)]
    {
        refuses(DomainRecord::parse(&bad));
    }
    for have in 0..16 {
        refuses(DomainRecord::parse(&record(16, 0, 0)[..have]));
    }
}

#[test]
fn bundle_inside_a_bundle() {
    let good = message(User::Low, 3, 32, b"abcde");
    for nested in [User::Bundler, User::Fragmenter, User::Tunnel, User::BcastProtocol] {
        let mut data = Vec::new();
        Bundle::append(&mut data, good.view());
        Bundle::append(&mut data, message(nested, 0, 40, b"abc").view());
        Bundle::append(&mut data, good.view());
        let outer = message(User::Bundler, 0, 40, &data);
        let inside: Vec<_> = Bundle::parse(outer.view()).unwrap().messages().collect();
        assert_eq!(inside, [Ok(good.view()), Err(WireError::User(nested.into())), Ok(good.view())]);
    }
}

#[test]
fn malformed_message_in_a_bundle() {
    let good = message(User::Low, 3, 32, b"abcde");
    let mut data = Vec::new();
    for _ in 0..3 {
        Bundle::append(&mut data, good.view());
    }
    set(&mut data[40..], 0, 17, 5000);
    let outer = message(User::Bundler, 0, 40, &data);
    let inside: Vec<_> = Bundle::parse(outer.view()).unwrap().messages().collect();
    assert!(matches!(inside[..], [Ok(_), Err(WireError::Size { .. })]), "{inside:?}");
}

#[test]
fn tunnel_part_beyond_the_parts() {
    for (part, parts) in [(2, 1), (1, 0), (0, 3)] {
        let mut m = message(User::Tunnel, 1, 40, b"data");
        m.set_fragment_number(part);
        m.set_fragment_count(parts);
        refuses(Tunnel::parse(m.view()));
    }
}

#[test]
fn tunnel_in_a_tunnel() {
    let inner = message(User::Tunnel, 1, 40, &[]);
    let m = message(User::Tunnel, 1, 40, inner.bytes());
    refuses(Tunnel::parse(m.view()).unwrap().inner());
    let m = message(User::Tunnel, 1, 40, b"not a message, but long enough to be one");
    refuses(Tunnel::parse(m.view()).unwrap().inner());
}

fn key_message(claimed: u32, key: usize) -> Message {
    message(User::Crypto, 0, 40, &[&[0; 32][..], &claimed.to_be_bytes(), &vec![7; key]].concat())
}

#[test]
fn key_length_that_exceeds_the_message() {
    for good in [20, 28, 36] {
        let m = key_message(good, good as usize);
        let value = KeyDistribution::parse(m.view()).unwrap();
        assert_eq!(value.to_message(&utipc_core::wire::Envelope::of(m.view())), m);
        assert!(!format!("{value:?}").contains('7'), "the key must not be printed");
    }
    for (claimed, key) in [(20, 24), (36, 20), (0xffff_ffff, 36), (37, 37), (72, 72), (19, 19), (0, 0)] {
        refuses(KeyDistribution::parse(key_message(claimed, key).view()));
    }
    for have in 0..56 {
        let data = vec![0; have];
        refuses(KeyDistribution::parse(message(User::Crypto, 0, 40, &data).view()));
    }
}

#[test]
fn discovery_too_short_for_its_identity() {
    let mut m = message(User::LinkConfig, 0, 60, &[1; 15]);
    m.set_non_sequenced(true);
    m.set_capabilities(0xfff);
    m.set_prev_node(NodeAddr(1));
    m.set_word(5, 1);
    m.set_word(6, 0x0200_0000);
    assert_eq!(refuses(DiscoveryMessage::parse(m.view())), WireError::Truncated { need: 16, have: 15 });
    m.append(&[1]);
    assert!(DiscoveryMessage::parse(m.view()).is_ok());
    let mut short = message(User::LinkConfig, 0, 40, &[1; 36]);
    short.set_non_sequenced(true);
    assert!(matches!(refuses(DiscoveryMessage::parse(short.view())), WireError::HeaderSize { .. }));
}

#[test]
fn invalid_media_addresses() {
    let info = |body: &[u8]| {
        let mut info = [&[0; 3][..], body].concat();
        info.resize(32, 0);
        MediaAddr::from_info(&info)
    };
    let udp =
        |protocol: u16, ip: &[u8]| info(&[&[3][..], &protocol.to_be_bytes(), &[0x17, 0xe6], ip].concat());
    let bad = WireError::MediaAddress;
    assert_eq!(refuses(info(&[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])), bad, "broadcast MAC");
    assert_eq!(refuses(info(&[1, 1, 0, 0x5e, 0, 0, 1])), bad, "multicast MAC");
    assert_eq!(refuses(info(&[2, 1, 2, 3, 4, 5, 6])), bad, "InfiniBand");
    assert_eq!(refuses(udp(0x0800, &[228, 0, 18, 103])), bad, "multicast IPv4");
    assert_eq!(refuses(udp(0x0800, &[255; 4])), bad, "broadcast IPv4");
    assert_eq!(refuses(udp(0x86dd, &[0xff, 2])), bad, "multicast IPv6");
    assert_eq!(refuses(udp(0x1234, &[10, 0, 0, 1])), bad, "unknown protocol");
    assert!(udp(0x0800, &[10, 0, 0, 1]).is_ok());
    for have in 0..32 {
        assert_eq!(refuses(MediaAddr::from_info(&[0; 32][..have])), bad);
    }
}

#[test]
fn returned_message_is_not_returned_again() {
    let own = NodeAddr(1);
    let m = message(User::Low, 3, 32, &[5; 3000]);
    let back = reverse(own, m.clone(), ErrorCode::NoPort).unwrap();
    assert_eq!(back.data().len(), 1024);
    assert_eq!(reverse(own, back, ErrorCode::NoPort), None);
    let short = reverse(own, message(User::Low, 0, 28, b"abc"), ErrorCode::NoPort).unwrap();
    assert_eq!((short.header_size(), short.data()), (32, &b"abc"[..]), "room for nodes");
    let mut droppable = m;
    droppable.set_dest_droppable(true);
    assert_eq!(reverse(own, droppable, ErrorCode::NoPort), None);
}

#[test]
fn encrypted_packet_too_short() {
    let whole = |user: u8, len: usize| [&[0xe0 | user << 1][..], &vec![0; len - 1]].concat();
    for (user, header) in [(7, 16), (0, 16), (13, 28)] {
        for len in 1..=header + 16 {
            assert!(matches!(refuses(Encrypted::parse(&whole(user, len))), WireError::Truncated { .. }));
        }
        let frame = whole(user, header + 17);
        assert_eq!(Encrypted::parse(&frame).unwrap().to_bytes(), frame);
    }
    refuses(Encrypted::parse(&[]));
    assert_eq!(refuses(Encrypted::parse(&[0x40; 60])), WireError::Version(2));
}

#[test]
fn topology_event_of_another_size_or_kind() {
    let order = utipc_core::topology::ByteOrder::Big;
    let event = |kind: u32| [&kind.to_be_bytes()[..], &[0; 44]].concat();
    for kind in [1, 2, 3] {
        assert!(TopologyEvent::from_bytes(&event(kind), order).is_ok());
    }
    for kind in [0, 4, u32::MAX] {
        refuses(TopologyEvent::from_bytes(&event(kind), order));
    }
    for len in [0, 27, 47, 49] {
        refuses(TopologyEvent::from_bytes(&vec![1; len], order));
    }
}

// the printer

#[test]
fn everything_prints_in_one_line() {
    let frames = [
        (vec![], "malformed: truncated: 0 bytes, 24 needed (0 bytes)"),
        (vec![0xff; 60], "encrypted"),
        (vec![0xe0; 20], "malformed encrypted packet"),
        (message(User::Other(4), 5, 40, b"abc").into_bytes(), "0>0 #0 ack 0/0 user 4 type 5 3 bytes"),
        (message(User::LinkProtocol, 1, 40, b"abc").into_bytes(), "malformed"),
    ];
    for (frame, expected) in frames {
        let line = Dump(&frame).to_string();
        assert!(line.contains(expected) && !line.contains('\n'), "{line}");
    }
}

// the table

/// Checks that every test named in the table exists.
#[test]
fn the_table_of_bad_input_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = std::fs::read_to_string(root.join("docs/spec/bad-input.md")).unwrap();
    let mut named = 0;
    for row in table.lines().filter(|line| line.starts_with('|')) {
        for reference in row.split('`').skip(1).step_by(2).filter(|r| r.contains(".rs::")) {
            let (file, test) = reference.split_once("::").unwrap();
            let source = std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
            assert!(source.contains(&format!("fn {test}(")), "{file} has no test {test}");
            named += 1;
        }
    }
    assert!(named > 30, "only {named} tests in the table");
}
