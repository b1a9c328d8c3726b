//! Requests, images, updates, closes.

use rssl::rwf::{
    Close, CloseFlags, DataState, Domain, Key, Message, Qos, RefreshFlags, Request, RequestFlags,
    StreamState, code,
};

use crate::support::*;

const STREAMING: RequestFlags = RequestFlags::STREAMING;

#[test]
fn item_is_served_from_request_to_close() {
    let (mut rig, at) = Rig::logged_in();
    rig.request(at, 5, "IBM.N");
    let received = rig.one(at);
    let refresh = received.refresh();
    assert_eq!(
        (refresh.stream, refresh.state.stream, refresh.state.data),
        (5, StreamState::Open, DataState::Ok)
    );
    assert!(refresh.flags.contains(RefreshFlags::SOLICITED | RefreshFlags::COMPLETE));
    assert_eq!(refresh.key, Some(Key::item(1, b"IBM.N")));
    assert_eq!(refresh.payload, FIELDS);

    let item = rig.hub.item("IBM.N");
    rig.push_message(item, &update(Domain::MARKET_PRICE));
    let received = rig.one(at);
    assert_eq!((received.stream(), received.update().payload), (5, &FIELDS[..]));

    rig.close(at, 5);
    assert_eq!((rig.hub.closes, rig.hub.items[item.index()].is_none()), (1, true));
    rig.push_message(item, &update(Domain::MARKET_PRICE));
    assert_eq!(rig.received(at), []);
}

#[test]
fn mounts_share_an_item() {
    let mut rig = Rig::new();
    let consumers: Vec<usize> = (0..5).map(|_| rig.login()).collect();
    for &at in &consumers {
        rig.request(at, 10 + at as i32, "TRI");
        assert_eq!(rig.one(at).refresh().stream, 10 + at as i32);
    }
    let item = rig.hub.item("TRI");
    assert_eq!(rig.hub.items.iter().flatten().count(), 1);
    rig.push_message(item, &update(Domain::MARKET_PRICE));
    for &at in &consumers {
        assert_eq!(rig.one(at).stream(), 10 + at as i32);
    }
    for &at in &consumers {
        assert_eq!(rig.hub.closes, 0, "another mount has it");
        rig.close(at, 10 + at as i32);
    }
    assert_eq!(rig.hub.closes, 1);
}

#[test]
fn updates_do_not_precede_the_image() {
    let mut rig = Rig::new();
    rig.hub.answers_at_once = false;
    let (first, second) = (rig.login(), rig.login());
    rig.request(first, 5, "A");
    rig.request(second, 6, "A");
    let item = rig.hub.item("A");
    rig.push_message(item, &update(Domain::MARKET_PRICE));
    assert_eq!((rig.received(first), rig.received(second)), (vec![], vec![]));
    rig.answer();
    rig.push_message(item, &update(Domain::MARKET_PRICE));
    for at in [first, second] {
        let received = rig.received(at);
        assert!(matches!(received[0].message(), Message::Refresh(_)), "{received:?}");
        assert!(matches!(received[1].message(), Message::Update(_)), "{received:?}");
        assert_eq!(received.len(), 2);
    }
}

#[test]
fn snapshots_end_with_their_image() {
    let (mut rig, at) = Rig::logged_in();
    rig.request_with(at, 7, "TRI", RequestFlags::NONE);
    let received = rig.one(at);
    assert_eq!(received.refresh().state.stream, StreamState::NonStreaming);
    assert_eq!(rig.hub.items.len(), 0);
    rig.request(at, 7, "TRI");
    assert_eq!(rig.one(at).refresh().state.stream, StreamState::Open, "the stream id is free again");
}

#[test]
fn explicit_ric_name_type_means_the_same_item() {
    let mut rig = Rig::new();
    let (first, second) = (rig.login(), rig.login());
    rig.request(first, 5, "TRI");
    let request = Request {
        qos: Some(Qos::REALTIME_TICK),
        ..Request::streaming(Domain::MARKET_PRICE, 5, Key { name_type: Some(1), ..Key::item(1, b"TRI") })
    };
    rig.send(second, &request.to_vec().unwrap());
    assert_eq!(
        rig.hub.items.iter().flatten().count(),
        1,
        "the default quality of service means the same item too"
    );
}

#[test]
fn refused_requests_have_a_cause() {
    let (mut rig, at) = Rig::logged_in();
    let base = Request::streaming(Domain::MARKET_PRICE, 9, Key::item(1, b"A"));
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
        rig.send(at, &request.to_vec().unwrap());
        let received = rig.one(at);
        let state = received.status().state.unwrap();
        assert_eq!(
            (received.stream(), state.stream, state.data, state.code),
            (request.stream, stream, DataState::Suspect, code),
            "{state}"
        );
        assert!(state.to_string().contains(text), "{state}");
    }
    assert_eq!(rig.hub.opens, 0);
    // The mount still works.
    rig.request(at, 9, "A");
    assert_eq!(rig.one(at).refresh().stream, 9);
}

#[test]
fn second_stream_of_the_same_item_is_refused() {
    let (mut rig, at) = Rig::logged_in();
    rig.request(at, 5, "A");
    rig.request(at, 6, "A");
    let received = rig.received(at);
    assert_eq!((received.len(), received[0].refresh().stream), (2, 5));
    let state = received[1].status().state.unwrap();
    assert_eq!(
        (received[1].stream(), state.stream, state.code),
        (6, StreamState::Closed, code::ALREADY_OPEN)
    );
    let item = rig.hub.item("A");
    rig.push_update("A");
    assert_eq!(rig.one(at).stream(), 5);
    rig.close(at, 5);
    assert_eq!(rig.hub.items[item.index()].as_ref().map(|item| item.holds), None, "all holds are given back");
}

#[test]
fn private_streams_are_not_shared() {
    let (mut rig, at) = Rig::logged_in();
    for stream in [5, 6] {
        rig.request_with(at, stream, "A", STREAMING | RequestFlags::PRIVATE);
        assert_eq!(rig.one(at).refresh().stream, stream);
    }
    rig.request(at, 7, "A");
    assert_eq!(rig.one(at).refresh().stream, 7);
    assert_eq!(rig.hub.items.iter().flatten().count(), 3);
}

#[test]
fn reissues_change_a_stream_or_end_it() {
    let (mut rig, at) = Rig::logged_in();
    rig.open(at, 5, "A");
    // A new priority alone.
    rig.request_with(at, 5, "A", STREAMING | RequestFlags::NO_REFRESH);
    assert_eq!((rig.received(at), rig.hub.image_requests), (vec![], 0));
    // A further image.
    rig.request(at, 5, "A");
    assert!(rig.one(at).refresh().flags.contains(RefreshFlags::SOLICITED));
    assert_eq!((rig.hub.opens, rig.hub.image_requests), (1, 1));
    // An unsolicited refresh is not an answer.
    let item = rig.hub.item("A");
    let spec = rig.hub.items[item.index()].as_ref().unwrap().spec.clone();
    rig.push_message(item, &image(&spec, StreamState::Open, DataState::Ok));
    assert!(!rig.one(at).refresh().flags.contains(RefreshFlags::SOLICITED));
    // A reissue for another item ends the stream.
    rig.request(at, 5, "B");
    let received = rig.one(at);
    let state = received.status().state.unwrap();
    assert_eq!((state.stream, state.code), (StreamState::Closed, code::USAGE_ERROR));
    assert_eq!(rig.hub.closes, 1);
    // So does one for another domain.
    rig.open(at, 5, "A");
    rig.send(at, &Request::streaming(Domain::MARKET_BY_ORDER, 5, Key::item(1, b"A")).to_vec().unwrap());
    let received = rig.one(at);
    assert_eq!(
        (received.message().head().domain, received.status().state.unwrap().stream),
        (Domain::MARKET_PRICE, StreamState::Closed)
    );
}

#[test]
fn paused_item_gets_an_image_on_resume() {
    let (mut rig, at) = Rig::logged_in();
    rig.open(at, 5, "A");
    rig.open(at, 6, "B");
    rig.request_with(at, 5, "A", STREAMING | RequestFlags::PAUSE);
    for name in ["A", "B"] {
        rig.push_update(name);
    }
    assert_eq!(rig.one(at).stream(), 6);
    assert_eq!(rig.hub.image_requests, 0);
    rig.request(at, 5, "A");
    assert_eq!(rig.one(at).refresh().stream, 5, "an image replaces the missed updates");
    rig.push_update("A");
    assert_eq!(rig.one(at).stream(), 5);
    // A pause without streaming has no effect.
    rig.request_with(at, 5, "A", RequestFlags::PAUSE);
    assert_eq!(
        rig.one(at).refresh().state.stream,
        StreamState::NonStreaming,
        "and the stream ends with its image"
    );
    assert_eq!(rig.hub.closes, 1);
}

#[test]
fn paused_login_pauses_all_items() {
    let (mut rig, at) = Rig::logged_in();
    for (stream, name) in [(5, "A"), (6, "B")] {
        rig.request(at, stream, name);
    }
    rig.request_with(at, 6, "B", STREAMING | RequestFlags::PAUSE);
    rig.received(at);
    let flags = STREAMING | RequestFlags::PAUSE | RequestFlags::NO_REFRESH;
    rig.send(at, &login_request_on(1, flags, "user", &[]));
    for name in ["A", "B"] {
        rig.push_update(name);
    }
    assert_eq!(rig.received(at), []);
    rig.send(at, &login_request_on(1, STREAMING | RequestFlags::NO_REFRESH, "user", &[]));
    assert_eq!(rig.one(at).refresh().stream, 5, "the other stream is paused itself");
    for name in ["A", "B"] {
        rig.push_update(name);
    }
    assert_eq!(rig.one(at).stream(), 5);
}

#[test]
fn updates_carry_the_key_if_requested() {
    let mut rig = Rig::new();
    let (with, without) = (rig.login(), rig.login());
    rig.request_with(with, 5, "A", STREAMING | RequestFlags::KEY_IN_UPDATES);
    rig.request(without, 5, "A");
    rig.received(with);
    rig.received(without);
    rig.push_update("A");
    let received = rig.one(with);
    assert_eq!((received.update().key, received.update().payload), (Some(Key::item(1, b"A")), &FIELDS[..]));
    assert_eq!(rig.one(without).update().key, None);
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

pub(crate) fn batch(stream: i32, flags: RequestFlags, payload: &[u8]) -> Vec<u8> {
    let request = Request {
        container: rssl::rwf::DataType::ELEMENT_LIST,
        payload,
        ..Request::new(
            Domain::MARKET_PRICE,
            stream,
            flags | RequestFlags::BATCH,
            Key { service: Some(1), ..Key::default() },
        )
    };
    request.to_vec().unwrap()
}

#[test]
fn batches_open_reissue_and_close_streams() {
    let (mut rig, at) = Rig::logged_in();
    rig.open(at, 12, "X");
    rig.send(at, &batch(10, STREAMING, &item_list(&["TRI", "IBM.N", "TRI", ""])));
    let received = rig.received(at);
    let done = received.iter().find(|received| received.stream() == 10).unwrap();
    let state = done.status().state.unwrap();
    assert_eq!((state.stream, state.data, state.code), (StreamState::Closed, DataState::Ok, 0));
    let of =
        |stream: i32| received.iter().find(|received| received.stream() == stream).unwrap().state().unwrap();
    assert_eq!(of(11).stream, StreamState::Open);
    assert_eq!(
        (of(12).stream, of(12).code),
        (StreamState::Closed, code::USAGE_ERROR),
        "the id was in use for another item"
    );
    assert_eq!((of(13).stream, of(13).code), (StreamState::Closed, code::ALREADY_OPEN));
    assert_eq!((of(14).stream, of(14).code), (StreamState::Closed, code::USAGE_ERROR));

    rig.send(at, &batch(20, STREAMING, &item_list(&["A", "B", "C"])));
    assert_eq!(rig.received(at).len(), 4);
    rig.send(at, &batch(20, STREAMING | RequestFlags::PAUSE, &stream_ids(&[21, 22, 99])));
    rig.received(at);
    for name in ["A", "B", "C"] {
        rig.push_update(name);
    }
    assert_eq!(rig.one(at).stream(), 23);
    let close = Close {
        domain: Domain::MARKET_PRICE,
        stream: 20,
        flags: CloseFlags::BATCH,
        container: rssl::rwf::DataType::ELEMENT_LIST,
        payload: &stream_ids(&[21, 22, 23, 99]),
        ..Close::default()
    };
    let closes = rig.hub.closes;
    rig.send(at, &close.to_vec().unwrap());
    assert_eq!((rig.hub.closes - closes, rig.received(at)), (3, vec![]));
}

#[test]
fn each_domain_of_the_service_is_served() {
    let (mut rig, at) = Rig::logged_in();
    for domain in [Domain::MARKET_BY_ORDER, Domain::MARKET_BY_PRICE, Domain(200)] {
        let stream = i32::from(domain.0);
        rig.send(at, &Request::streaming(domain, stream, Key::item(1, b"A")).to_vec().unwrap());
        let received = rig.one(at);
        assert_eq!((received.message().head().domain, received.stream()), (domain, stream));
    }
    assert_eq!(rig.hub.items.iter().flatten().count(), 3, "the domain is part of an item's identity");
}

#[test]
fn closes_of_unknown_streams_have_no_effect() {
    let (mut rig, at) = Rig::logged_in();
    rig.close(at, 5);
    rig.close(at, -5);
    rig.request(at, 5, "A");
    rig.close(at, 5);
    rig.close(at, 5);
    assert_eq!(rig.received(at).len(), 1);
    assert_eq!(rig.disconnects, []);
}

#[test]
fn close_before_the_answer_releases_the_item() {
    let mut rig = Rig::new();
    rig.hub.answers_at_once = false;
    let at = rig.login();
    rig.request(at, 5, "A");
    rig.close(at, 5);
    assert_eq!(rig.hub.closes, 1);
    rig.answer();
    assert_eq!(rig.received(at), []);
    // Request and close in one read: the stream has ended when the hub answers.
    let mut both = request(6, "A", STREAMING);
    rig.send(at, &both);
    both = request(7, "B", STREAMING);
    rig.send(at, &both);
    rig.worker.closed(rig.consumers[at].mount, mdist::mounts::Reason::PeerClosed).unwrap();
    rig.run();
    assert_eq!(rig.hub.items.iter().flatten().count(), 0);
}
