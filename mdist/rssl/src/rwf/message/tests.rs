//! The byte vectors of the wire reference (rssl.md §13.2), read and written.

use super::*;
use crate::rwf::{DataState, Qos, State, StreamState, code};
use crate::wire::to_vec;

/// Bytes of a hex text; blanks are skipped.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|d| u8::try_from(d).unwrap()).collect();
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}

const LOGIN_REQUEST: &str =
    "00 78 01 01 00 00 00 01 04 00 6f 26 04 75 73 65 72 01 05 66 08 00 05 0d 41 70 70 6c 69
63 61 74 69 6f 6e 49 64 11 03 32 35 36 0f 41 70 70 6c 69 63 61 74 69 6f 6e 4e 61 6d 65 11 04 64
65 6d 6f 08 50 6f 73 69 74 69 6f 6e 11 0d 31 32 37 2e 30 2e 30 2e 31 2f 6e 65 74 0a 53 69 6e 67
6c 65 4f 70 65 6e 04 01 01 10 41 6c 6c 6f 77 53 75 73 70 65 63 74 44 61 74 61 04 01 01";
const LOGIN_REFRESH: &str =
    "00 a2 02 01 00 00 00 01 81 68 00 09 00 0e 4c 6f 67 69 6e 20 61 63 63 65 70 74 65 64 02
00 00 80 83 26 04 75 73 65 72 01 05 7a 08 00 06 0d 41 70 70 6c 69 63 61 74 69 6f 6e 49 64 11 03
32 35 36 08 50 6f 73 69 74 69 6f 6e 11 0d 31 32 37 2e 30 2e 30 2e 31 2f 6e 65 74 0a 53 69 6e 67
6c 65 4f 70 65 6e 04 01 01 10 41 6c 6c 6f 77 53 75 73 70 65 63 74 44 61 74 61 04 01 01 14 53 75
70 70 6f 72 74 42 61 74 63 68 52 65 71 75 65 73 74 73 04 01 07 0e 53 75 70 70 6f 72 74 4f 4d 4d
50 6f 73 74 04 01 01";
const DIRECTORY_REQUEST: &str = "00 0e 01 04 00 00 00 02 04 00 05 08 00 00 00 07";
const DIRECTORY_REFRESH: &str =
    "00 15 02 04 00 00 00 02 81 68 09 09 00 00 02 00 00 05 08 00 00 00 07 00 04 07 00 01 02
01 01 8d 00 05 02 02 01 5c 08 00 04 04 4e 61 6d 65 11 0b 44 49 52 45 43 54 5f 46 45 45 44 0c 43
61 70 61 62 69 6c 69 74 69 65 73 0f 06 04 01 00 02 05 06 10 44 69 63 74 69 6f 6e 61 72 69 65 73
55 73 65 64 0f 13 11 00 00 02 06 52 57 46 46 6c 64 07 52 57 46 45 6e 75 6d 03 51 6f 53 0f 06 0c
00 00 01 01 22 02 02 28 08 00 02 0c 53 65 72 76 69 63 65 53 74 61 74 65 04 01 01 11 41 63 63 65
70 74 69 6e 67 52 65 71 75 65 73 74 73 04 01 01";
const ITEM_REQUEST: &str = "00 11 01 06 00 00 00 05 04 00 08 03 01 05 49 42 4d 2e 4e";
const ITEM_REQUEST_QOS: &str = "00 13 01 06 00 00 00 06 46 00 01 01 22 07 07 01 03 54 52 49 01";
const REFRESH: &str = "00 25 02 06 00 00 00 05 81 e8 04 09 00 0b 41 6c 6c 20 69 73 20 77 65 6c 6c 02 00 01 22
09 07 01 05 49 42 4d 2e 4e 01 09 03 01 00 63 00 02 00 16 03 0c 0f 96 00 19 03 0c 0f 9a";
const UPDATE: &str = "00 09 04 06 00 00 00 05 00 04 01 08 00 02 00 16 03 0c 0f 97 00 1e 02 0e 09";
const STATUS: &str = "00 17 03 06 00 00 00 05 20 00 22 01 0c 4e 6f 20 73 75 63 68 20 69 74 65 6d";
const CLOSE: &str = "00 08 05 06 00 00 00 05 00 00";
const BATCH: &str = "00 0c 01 06 00 00 00 0a 88 04 05 02 01 01 08 00 01 09 3a 49 74 65 6d 4c 69 73 74 0f 0e
11 00 00 02 03 54 52 49 05 49 42 4d 2e 4e";

const ALL: [&str; 11] = [
    LOGIN_REQUEST,
    LOGIN_REFRESH,
    DIRECTORY_REQUEST,
    DIRECTORY_REFRESH,
    ITEM_REQUEST,
    ITEM_REQUEST_QOS,
    REFRESH,
    UPDATE,
    STATUS,
    CLOSE,
    BATCH,
];

#[test]
fn vectors_are_written_as_they_were_read() {
    for text in ALL {
        let bytes = hex(text);
        let message = Message::decode(&bytes).unwrap();
        assert_eq!(to_vec(|w| message.encode(w)).unwrap(), bytes, "{message:?}");
        assert_eq!(peek(&bytes), Ok(message.head()));
        assert_eq!(peek_payload(&bytes), Ok((message.container(), message.payload())));
    }
}

#[test]
fn vectors_decode_to_expected_messages() {
    let bytes = hex(ITEM_REQUEST_QOS);
    let request = Request {
        domain: Domain::MARKET_PRICE,
        stream: 6,
        flags: RequestFlags::STREAMING,
        priority: Some(Priority { class: 1, count: 1 }),
        qos: Some(Qos::REALTIME_TICK),
        key: Key { name_type: Some(1), ..Key::item(1, b"TRI") },
        ..Request::default()
    };
    assert_eq!(Request::decode(&bytes), Ok(request));
    let bytes = hex(REFRESH);
    let refresh = Refresh::decode(&bytes).unwrap();
    assert_eq!(refresh.state, State::new(StreamState::Open, DataState::Ok, code::NONE, b"All is well"));
    assert_eq!(refresh.flags, RefreshFlags::SOLICITED | RefreshFlags::COMPLETE | RefreshFlags::CLEAR_CACHE);
    assert_eq!((refresh.group, refresh.qos), (&[0, 1][..], Some(Qos::REALTIME_TICK)));
    assert_eq!((refresh.container, refresh.payload.len()), (DataType::FIELD_LIST, 19));
    let bytes = hex(BATCH);
    let batch = Request::decode(&bytes).unwrap();
    assert_eq!(batch.flags, RequestFlags::STREAMING.with(RequestFlags::BATCH));
    assert_eq!((batch.key.service, batch.key.name), (Some(1), None));
    assert_eq!(Update::decode(&bytes), Err(Error::Class(1)));
}

#[test]
fn every_prefix_is_an_error_or_has_less_payload() {
    for text in ALL {
        let bytes = hex(text);
        let header = 2 + usize::from(bytes[1]);
        for n in 0..bytes.len() {
            match Message::decode(&bytes[..n]) {
                Ok(m) => assert!(n >= header && m.payload() == &bytes[header..n]),
                Err(_) => assert!(n < header),
            }
        }
    }
}

#[test]
fn headers_may_end_before_their_last_parts_or_have_unknown_bytes() {
    let refresh =
        Refresh { post_user: Some(PostUser { addr: 1, id: 2 }), part: Some(0), ..Refresh::default() };
    let mut bytes = to_vec(|w| refresh.encode(w)).unwrap();
    // Flags of post user, part and request key; the header ends after the post user.
    bytes.truncate(bytes.len() - 1);
    bytes[1] -= 1;
    assert_eq!(Refresh::decode(&bytes), Ok(Refresh { part: None, ..refresh.clone() }));
    // Unknown bytes before the payload.
    bytes.extend([9, 9, 9]);
    bytes[1] += 3;
    bytes[8] &= !0x10;
    assert_eq!(Refresh::decode(&bytes), Ok(Refresh { part: None, ..refresh }));
}

#[test]
fn set_stream_replaces_the_stream_id() {
    let mut bytes = hex(UPDATE);
    set_stream(&mut bytes, -7).unwrap();
    assert_eq!(Update::decode(&bytes).unwrap().stream, -7);
    assert!(set_stream(&mut bytes[..7], 1).is_err());
    assert!(peek(&bytes[..7]).is_err() && peek(&[0; 8]).is_err());
}

#[test]
fn every_combination_of_optional_parts_round_trips() {
    let key = Key { name_type: Some(1), ..Key::item(0x1234, b"A.B") };
    let long = [5u8; 300];
    for bits in 0u32..512 {
        let has = |bit: u32| bits & 1 << bit != 0;
        let seq = has(0).then_some(77);
        let perm = has(1).then_some(&long[..if has(2) { 300 } else { 3 }]);
        let some_key = has(2).then_some(key);
        let ext = has(3).then_some(&long[..9]);
        let post_user = has(4).then_some(PostUser { addr: 0x7F00_0001, id: 9 });
        let part = has(5).then_some(if has(1) { 5 } else { 500 });
        let req_key = has(6).then_some(Key::item(2, b"C"));
        let qos = has(7).then_some(Qos::REALTIME_TICK);
        let state = State::new(StreamState::Open, DataState::Suspect, code::TIMEOUT, b"text");
        let (domain, stream, container) = (Domain(200), -9, DataType::OPAQUE);
        let payload = &long[..if has(8) { 40 } else { 0 }];
        let all = [
            Message::Request(Request {
                domain,
                stream,
                container,
                ext,
                payload,
                qos,
                key,
                flags: RequestFlags::PRIVATE,
                priority: has(0).then_some(Priority { class: 2, count: 300 }),
                worst_qos: has(1).then_some(Qos::default()),
            }),
            Message::Refresh(Refresh {
                domain,
                stream,
                container,
                ext,
                payload,
                seq,
                perm,
                qos,
                key: some_key,
                post_user,
                part,
                req_key,
                state,
                flags: RefreshFlags::PRIVATE,
                group: &long[..if has(8) { 2 } else { 0 }],
            }),
            Message::Status(Status {
                domain,
                stream,
                container,
                ext,
                payload,
                perm,
                key: some_key,
                post_user,
                req_key,
                flags: StatusFlags::CLEAR_CACHE,
                state: has(0).then_some(state),
                group: has(5).then_some(&[1, 2, 3]),
            }),
            Message::Update(Update {
                domain,
                stream,
                container,
                ext,
                payload,
                seq,
                perm,
                key: some_key,
                post_user,
                flags: UpdateFlags::DISCARDABLE,
                kind: update_kind::TRADE,
                conflation: has(5).then_some(Conflation { count: 200, time_ms: 9 }),
            }),
            Message::Close(Close { domain, stream, container, ext, payload, flags: CloseFlags::ACK }),
            Message::Ack(Ack {
                domain,
                stream,
                container,
                ext,
                payload,
                seq,
                key: some_key,
                flags: AckFlags::PRIVATE,
                ack_id: 8,
                nak: has(1).then_some(nak::NOT_OPEN),
                text: has(4).then_some(b"no"),
            }),
            Message::Generic(Generic {
                domain,
                stream,
                container,
                ext,
                payload,
                seq,
                perm,
                key: some_key,
                part,
                req_key,
                flags: GenericFlags::COMPLETE,
                secondary_seq: has(4).then_some(6),
            }),
            Message::Post(Post {
                domain,
                stream,
                container,
                ext,
                payload,
                seq,
                perm,
                key: some_key,
                part,
                flags: PostFlags::ACK,
                post_user: PostUser { addr: 3, id: 4 },
                post_id: has(4).then_some(6),
                rights: has(6).then_some(rights::CREATE),
            }),
        ];
        for message in all {
            let bytes = to_vec(|w| message.encode(w)).unwrap();
            assert_eq!(Message::decode(&bytes).as_ref(), Ok(&message));
            assert_eq!(peek_payload(&bytes), Ok((container, payload)));
        }
    }
}
