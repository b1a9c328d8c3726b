//! Requests, images, updates, closes.

use mdist::hub::Batch;
use rssl::rwf::{
    Close, CloseFlags, DataState, Domain, Key, Message, Qos, RefreshFlags, Request, RequestFlags,
    StreamState, code,
};
use rssl::wire::to_vec;

use crate::support::*;

const STREAMING: RequestFlags = RequestFlags::STREAMING;

#[test]
fn an_item_from_request_to_close() {
    let mut room = Room::new();
    let at = room.login();
    room.request(at, 5, "IBM.N");
    let heard = room.one(at);
    let refresh = heard.refresh();
    assert_eq!(
        (refresh.stream, refresh.state.stream, refresh.state.data),
        (5, StreamState::Open, DataState::Ok)
    );
    assert!(refresh.flags.contains(RefreshFlags::SOLICITED | RefreshFlags::COMPLETE));
    assert_eq!(refresh.key, Some(Key::item(1, b"IBM.N")));
    assert_eq!(refresh.payload, FIELDS);

    let item = room.hub.item("IBM.N");
    room.tell(item, &update(Domain::MARKET_PRICE));
    let heard = room.one(at);
    assert_eq!((heard.stream(), heard.update().payload), (5, &FIELDS[..]));

    room.close(at, 5);
    assert_eq!((room.hub.closes, room.hub.items[item.index()].is_none()), (1, true));
    room.tell(item, &update(Domain::MARKET_PRICE));
    assert_eq!(room.heard(at), []);
}

#[test]
fn many_mounts_share_an_item() {
    let mut room = Room::new();
    let clients: Vec<usize> = (0..5).map(|_| room.login()).collect();
    for &at in &clients {
        room.request(at, 10 + at as i32, "TRI");
        assert_eq!(room.one(at).refresh().stream, 10 + at as i32);
    }
    let item = room.hub.item("TRI");
    assert_eq!(room.hub.items.iter().flatten().count(), 1);
    room.tell(item, &update(Domain::MARKET_PRICE));
    for &at in &clients {
        assert_eq!(room.one(at).stream(), 10 + at as i32);
    }
    for &at in &clients {
        assert_eq!(room.hub.closes, 0, "somebody has it still");
        room.close(at, 10 + at as i32);
    }
    assert_eq!(room.hub.closes, 1);
}

#[test]
fn no_update_before_the_image() {
    let mut room = Room::new();
    room.hub.prompt = false;
    let (first, second) = (room.login(), room.login());
    room.request(first, 5, "A");
    room.request(second, 6, "A");
    let item = room.hub.item("A");
    room.tell(item, &update(Domain::MARKET_PRICE));
    assert_eq!((room.heard(first), room.heard(second)), (vec![], vec![]));
    let mut batch = Batch::default();
    room.hub.answer(&mut batch);
    room.apply(&batch);
    room.tell(item, &update(Domain::MARKET_PRICE));
    for at in [first, second] {
        let heard = room.heard(at);
        assert!(matches!(heard[0].message(), Message::Refresh(_)), "{heard:?}");
        assert!(matches!(heard[1].message(), Message::Update(_)), "{heard:?}");
        assert_eq!(heard.len(), 2);
    }
}

#[test]
fn snapshots_end_with_their_image() {
    let mut room = Room::new();
    let at = room.login();
    room.ask(at, 7, "TRI", RequestFlags::NONE);
    let heard = room.one(at);
    assert_eq!(heard.refresh().state.stream, StreamState::NonStreaming);
    assert_eq!(room.hub.items.len(), 0);
    room.request(at, 7, "TRI");
    assert_eq!(room.one(at).refresh().state.stream, StreamState::Open, "the id is free again");
}

#[test]
fn a_name_type_of_ric_is_no_difference() {
    let mut room = Room::new();
    let (first, second) = (room.login(), room.login());
    room.request(first, 5, "TRI");
    let request = Request {
        domain: Domain::MARKET_PRICE,
        stream: 5,
        flags: STREAMING,
        container: rssl::rwf::DataType::NO_DATA,
        qos: Some(Qos::REALTIME_TICK),
        key: Key { name_type: Some(1), ..Key::item(1, b"TRI") },
        ..Request::default()
    };
    room.send(second, &to_vec(|w| request.encode(w)).unwrap());
    assert_eq!(room.hub.items.iter().flatten().count(), 1, "nor is the quality that everybody gets");
}

#[test]
fn refusals_say_why() {
    let mut room = Room::new();
    let at = room.login();
    let base = Request {
        domain: Domain::MARKET_PRICE,
        stream: 9,
        flags: STREAMING,
        container: rssl::rwf::DataType::NO_DATA,
        key: Key::item(1, b"A"),
        ..Request::default()
    };
    let delayed = Qos { timeliness: rssl::rwf::Timeliness::DelayedUnknown, ..Qos::REALTIME_TICK };
    let cases = [
        (
            Request { key: Key::item(77, b"A"), ..base.clone() },
            StreamState::ClosedRecover,
            code::SOURCE_UNKNOWN,
            "77",
        ),
        (
            Request { domain: Domain::YIELD_CURVE, ..base.clone() },
            StreamState::Closed,
            code::USAGE_ERROR,
            "YieldCurve",
        ),
        (Request { qos: Some(delayed), ..base.clone() }, StreamState::Closed, code::USAGE_ERROR, "quality"),
        (
            Request { key: Key { service: None, ..base.key }, ..base.clone() },
            StreamState::Closed,
            code::USAGE_ERROR,
            "service id",
        ),
        (
            Request { key: Key { name: None, ..base.key }, ..base.clone() },
            StreamState::Closed,
            code::USAGE_ERROR,
            "names no item",
        ),
        (
            Request { flags: STREAMING | RequestFlags::NO_REFRESH, ..base.clone() },
            StreamState::Closed,
            code::USAGE_ERROR,
            "not open",
        ),
        (Request { stream: -9, ..base.clone() }, StreamState::Closed, code::USAGE_ERROR, "positive"),
    ];
    for (request, stream, code, text) in cases {
        room.send(at, &to_vec(|w| request.encode(w)).unwrap());
        let heard = room.one(at);
        let state = heard.status().state.unwrap();
        assert_eq!(
            (heard.stream(), state.stream, state.data, state.code),
            (request.stream, stream, DataState::Suspect, code),
            "{state}"
        );
        assert!(state.to_string().contains(text), "{state}");
    }
    assert_eq!(room.hub.opens, 0);
    // None of it did any harm.
    room.request(at, 9, "A");
    assert_eq!(room.one(at).refresh().stream, 9);
}

#[test]
fn the_same_item_twice_ends_the_second_stream_alone() {
    let mut room = Room::new();
    let at = room.login();
    room.request(at, 5, "A");
    room.request(at, 6, "A");
    let heard = room.heard(at);
    assert_eq!((heard.len(), heard[0].refresh().stream), (2, 5));
    let state = heard[1].status().state.unwrap();
    assert_eq!((heard[1].stream(), state.stream, state.code), (6, StreamState::Closed, code::ALREADY_OPEN));
    let item = room.hub.item("A");
    room.tell(item, &update(Domain::MARKET_PRICE));
    assert_eq!(room.one(at).stream(), 5);
    room.close(at, 5);
    assert_eq!(
        room.hub.items[item.index()].as_ref().map(|item| item.holds),
        None,
        "all holds are given back"
    );
}

#[test]
fn private_streams_are_not_shared() {
    let mut room = Room::new();
    let at = room.login();
    for stream in [5, 6] {
        room.ask(at, stream, "A", STREAMING | RequestFlags::PRIVATE);
        assert_eq!(room.one(at).refresh().stream, stream);
    }
    room.request(at, 7, "A");
    assert_eq!(room.one(at).refresh().stream, 7);
    assert_eq!(room.hub.items.iter().flatten().count(), 3);
}

#[test]
fn reissues() {
    let mut room = Room::new();
    let at = room.login();
    room.request(at, 5, "A");
    room.one(at);
    // Priority alone.
    room.ask(at, 5, "A", STREAMING | RequestFlags::NO_REFRESH);
    assert_eq!((room.heard(at), room.hub.images_asked), (vec![], 0));
    // Another image.
    room.request(at, 5, "A");
    assert!(room.one(at).refresh().flags.contains(RefreshFlags::SOLICITED));
    assert_eq!((room.hub.opens, room.hub.images_asked), (1, 1));
    // A refresh by itself is not an answer.
    let item = room.hub.item("A");
    let spec = room.hub.items[item.index()].as_ref().unwrap().spec.clone();
    room.tell(item, &image(&spec, StreamState::Open, DataState::Ok));
    assert!(!room.one(at).refresh().flags.contains(RefreshFlags::SOLICITED));
    // Another item is a mistake, and ends the stream.
    room.request(at, 5, "B");
    let heard = room.one(at);
    let state = heard.status().state.unwrap();
    assert_eq!((state.stream, state.code), (StreamState::Closed, code::USAGE_ERROR));
    assert_eq!(room.hub.closes, 1);
    // So is another domain.
    room.request(at, 5, "A");
    room.one(at);
    let other = Request {
        domain: Domain::MARKET_BY_ORDER,
        stream: 5,
        flags: STREAMING,
        container: rssl::rwf::DataType::NO_DATA,
        key: Key::item(1, b"A"),
        ..Request::default()
    };
    room.send(at, &to_vec(|w| other.encode(w)).unwrap());
    let heard = room.one(at);
    assert_eq!(
        (heard.message().head().domain, heard.status().state.unwrap().stream),
        (Domain::MARKET_PRICE, StreamState::Closed)
    );
}

#[test]
fn pause_and_resume_an_item() {
    let mut room = Room::new();
    let at = room.login();
    room.request(at, 5, "A");
    room.request(at, 6, "B");
    room.heard(at);
    room.ask(at, 5, "A", STREAMING | RequestFlags::PAUSE);
    for name in ["A", "B"] {
        let item = room.hub.item(name);
        room.tell(item, &update(Domain::MARKET_PRICE));
    }
    assert_eq!(room.one(at).stream(), 6);
    assert_eq!(room.hub.images_asked, 0);
    room.request(at, 5, "A");
    assert_eq!(room.one(at).refresh().stream, 5, "what was missed comes as an image");
    let item = room.hub.item("A");
    room.tell(item, &update(Domain::MARKET_PRICE));
    assert_eq!(room.one(at).stream(), 5);
    // Without streaming there is nothing to pause.
    room.ask(at, 5, "A", RequestFlags::PAUSE);
    assert_eq!(
        room.one(at).refresh().state.stream,
        StreamState::NonStreaming,
        "and the stream ends with its image"
    );
    assert_eq!(room.hub.closes, 1);
}

#[test]
fn pause_and_resume_the_login() {
    let mut room = Room::new();
    let at = room.login();
    for (stream, name) in [(5, "A"), (6, "B")] {
        room.request(at, stream, name);
    }
    room.ask(at, 6, "B", STREAMING | RequestFlags::PAUSE);
    room.heard(at);
    let flags = STREAMING | RequestFlags::PAUSE | RequestFlags::NO_REFRESH;
    room.send(at, &login_request_on(1, flags, "user", &[]));
    for name in ["A", "B"] {
        let item = room.hub.item(name);
        room.tell(item, &update(Domain::MARKET_PRICE));
    }
    assert_eq!(room.heard(at), []);
    room.send(at, &login_request_on(1, STREAMING | RequestFlags::NO_REFRESH, "user", &[]));
    assert_eq!(room.one(at).refresh().stream, 5, "the other is paused by itself");
    for name in ["A", "B"] {
        let item = room.hub.item(name);
        room.tell(item, &update(Domain::MARKET_PRICE));
    }
    assert_eq!(room.one(at).stream(), 5);
}

#[test]
fn keys_in_updates() {
    let mut room = Room::new();
    let (with, without) = (room.login(), room.login());
    room.ask(with, 5, "A", STREAMING | RequestFlags::KEY_IN_UPDATES);
    room.request(without, 5, "A");
    room.heard(with);
    room.heard(without);
    let item = room.hub.item("A");
    room.tell(item, &update(Domain::MARKET_PRICE));
    let heard = room.one(with);
    assert_eq!((heard.update().key, heard.update().payload), (Some(Key::item(1, b"A")), &FIELDS[..]));
    assert_eq!(room.one(without).update().key, None);
}

/// `:ItemList`, an array of ASCII.
fn item_list(names: &[&str]) -> Vec<u8> {
    let mut array = vec![17, 0, 0, names.len() as u8];
    for name in names {
        array.push(name.len() as u8);
        array.extend_from_slice(name.as_bytes());
    }
    let mut payload = b"\x08\x00\x01\x09:ItemList\x0f".to_vec();
    payload.push(array.len() as u8);
    payload.extend(array);
    payload
}

fn stream_ids(ids: &[i32]) -> Vec<u8> {
    let mut payload = b"\x08\x00\x01\x0d:StreamIdList\x0f".to_vec();
    payload.extend_from_slice(&[4 + 4 * ids.len() as u8, 3, 4, 0, ids.len() as u8]);
    for id in ids {
        payload.extend_from_slice(&id.to_be_bytes());
    }
    payload
}

fn batch(stream: i32, flags: RequestFlags, payload: &[u8]) -> Vec<u8> {
    let request = Request {
        domain: Domain::MARKET_PRICE,
        stream,
        flags: flags | RequestFlags::BATCH,
        container: rssl::rwf::DataType::ELEMENT_LIST,
        key: Key { service: Some(1), ..Key::default() },
        payload,
        ..Request::default()
    };
    to_vec(|w| request.encode(w)).unwrap()
}

#[test]
fn a_batch_opens_reissues_and_closes() {
    let mut room = Room::new();
    let at = room.login();
    room.request(at, 12, "X");
    room.heard(at);
    room.send(at, &batch(10, STREAMING, &item_list(&["TRI", "IBM.N", "TRI", ""])));
    let heard = room.heard(at);
    let done = heard.iter().find(|heard| heard.stream() == 10).unwrap();
    let state = done.status().state.unwrap();
    assert_eq!((state.stream, state.data, state.code), (StreamState::Closed, DataState::Ok, 0));
    let of = |stream: i32| heard.iter().find(|heard| heard.stream() == stream).unwrap().state().unwrap();
    assert_eq!(of(11).stream, StreamState::Open);
    assert_eq!(
        (of(12).stream, of(12).code),
        (StreamState::Closed, code::USAGE_ERROR),
        "the id was in use for another item"
    );
    assert_eq!((of(13).stream, of(13).code), (StreamState::Closed, code::ALREADY_OPEN));
    assert_eq!((of(14).stream, of(14).code), (StreamState::Closed, code::USAGE_ERROR));

    room.send(at, &batch(20, STREAMING, &item_list(&["A", "B", "C"])));
    assert_eq!(room.heard(at).len(), 4);
    room.send(at, &batch(20, STREAMING | RequestFlags::PAUSE, &stream_ids(&[21, 22, 99])));
    room.heard(at);
    for name in ["A", "B", "C"] {
        let item = room.hub.item(name);
        room.tell(item, &update(Domain::MARKET_PRICE));
    }
    assert_eq!(room.one(at).stream(), 23);
    let close = Close {
        domain: Domain::MARKET_PRICE,
        stream: 20,
        flags: CloseFlags::BATCH,
        container: rssl::rwf::DataType::ELEMENT_LIST,
        payload: &stream_ids(&[21, 22, 23, 99]),
        ..Close::default()
    };
    let closes = room.hub.closes;
    room.send(at, &to_vec(|w| close.encode(w)).unwrap());
    assert_eq!((room.hub.closes - closes, room.heard(at)), (3, vec![]));
}

#[test]
fn any_domain_that_the_service_lists_is_passed_on() {
    let mut room = Room::new();
    let at = room.login();
    for domain in [Domain::MARKET_BY_ORDER, Domain::MARKET_BY_PRICE, Domain(200)] {
        let stream = i32::from(domain.0);
        let request = Request {
            domain,
            stream,
            flags: STREAMING,
            container: rssl::rwf::DataType::NO_DATA,
            key: Key::item(1, b"A"),
            ..Request::default()
        };
        room.send(at, &to_vec(|w| request.encode(w)).unwrap());
        let heard = room.one(at);
        assert_eq!((heard.message().head().domain, heard.stream()), (domain, stream));
    }
    assert_eq!(room.hub.items.iter().flatten().count(), 3, "the domain is part of what an item is");
}

#[test]
fn closes_of_nothing_mean_nothing() {
    let mut room = Room::new();
    let at = room.login();
    room.close(at, 5);
    room.close(at, -5);
    room.request(at, 5, "A");
    room.close(at, 5);
    room.close(at, 5);
    assert_eq!(room.heard(at).len(), 1);
    assert_eq!(room.cuts, []);
}

#[test]
fn closing_before_the_answer_gives_the_item_back() {
    let mut room = Room::new();
    room.hub.prompt = false;
    let at = room.login();
    room.request(at, 5, "A");
    room.close(at, 5);
    assert_eq!(room.hub.closes, 1);
    let mut batch = Batch::default();
    room.hub.answer(&mut batch);
    room.apply(&batch);
    assert_eq!(room.heard(at), []);
    // Request and close in one read: the hub's answer finds nobody.
    let mut both = request(6, "A", STREAMING);
    room.send(at, &both);
    both = request(7, "B", STREAMING);
    room.send(at, &both);
    room.worker.closed(room.clients[at].mount, mdist::mounts::Reason::PeerClosed).unwrap();
    room.run();
    assert_eq!(room.hub.items.iter().flatten().count(), 0);
}
