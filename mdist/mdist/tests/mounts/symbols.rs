//! Symbol lists, and the streams that the server opens for them.

use mdist::hub::{Batch, Kind};
use rssl::rdm::items::RequestPayload;
use rssl::rwf::{
    Close, DataState, DataType, Domain, Key, MapAction, MapWriter, Refresh, RefreshFlags, Request,
    RequestFlags, State, StreamState, Update,
};
use rssl::wire::to_vec;

use crate::support::*;

fn list_request(data_streams: Option<u64>) -> Vec<u8> {
    let payload = data_streams
        .map(|bits| {
            to_vec(|w| RequestPayload { data_streams: Some(bits), ..RequestPayload::default() }.encode(w))
                .unwrap()
        })
        .unwrap_or_default();
    let request = Request {
        domain: Domain::SYMBOL_LIST,
        stream: 9,
        flags: RequestFlags::STREAMING,
        container: if payload.is_empty() { DataType::NO_DATA } else { DataType::ELEMENT_LIST },
        key: Key::item(1, b"LIST"),
        payload: &payload,
        ..Request::default()
    };
    to_vec(|w| request.encode(w)).unwrap()
}

fn map(names: &[(MapAction, &str)]) -> Vec<u8> {
    to_vec(|w| {
        let mut map = MapWriter::new(w, DataType::ASCII_STRING, DataType::NO_DATA)?;
        for (action, name) in names {
            map.entry(*action, name.as_bytes(), |_| Ok(()))?;
        }
        map.finish()
    })
    .unwrap()
}

/// A room whose hub has answered the symbol list with these names.
fn listed(data_streams: Option<u64>, names: &[&str]) -> (Room, usize) {
    let mut room = Room::new();
    room.hub.prompt = false;
    let at = room.login();
    room.send(at, &list_request(data_streams));
    let (token, item, _) = room.hub.waiting.remove(0);
    let names: Vec<_> = names.iter().map(|name| (MapAction::Add, *name)).collect();
    let refresh = Refresh {
        domain: Domain::SYMBOL_LIST,
        stream: 1,
        flags: RefreshFlags::COMPLETE | RefreshFlags::CLEAR_CACHE,
        container: DataType::MAP,
        state: State::OK,
        key: Some(Key::item(1, b"LIST")),
        payload: &map(&names),
        ..Refresh::default()
    };
    let mut batch = Batch::default();
    batch.push(Kind::Image, SIDE, item, token, &to_vec(|w| refresh.encode(w)).unwrap());
    room.hub.prompt = true;
    room.apply(&batch);
    (room, at)
}

#[test]
fn a_plain_list_opens_nothing() {
    let (mut room, at) = listed(None, &["A", "B"]);
    assert_eq!(room.one(at).refresh().domain, Domain::SYMBOL_LIST);
    assert_eq!(room.hub.opens, 1);
}

#[test]
fn a_list_with_streams_opens_its_items_too() {
    let (mut room, at) = listed(Some(1), &["A", "B"]);
    let heard = room.heard(at);
    assert_eq!(heard[0].refresh().domain, Domain::SYMBOL_LIST, "the list comes first");
    let mut opened: Vec<(i32, Vec<u8>)> = heard[1..]
        .iter()
        .map(|heard| (heard.stream(), heard.refresh().key.unwrap().name.unwrap().to_vec()))
        .collect();
    opened.sort();
    assert_eq!(opened, [(-2, b"B".to_vec()), (-1, b"A".to_vec())]);
    for heard in &heard[1..] {
        let refresh = heard.refresh();
        assert!(!refresh.flags.contains(RefreshFlags::SOLICITED), "the client has not asked for it");
        assert_eq!((refresh.domain, refresh.state.stream), (Domain::MARKET_PRICE, StreamState::Open));
    }
    // An item more, in an update; one that is open already is not opened again.
    let item = room.hub.item("LIST");
    let payload = map(&[(MapAction::Add, "C"), (MapAction::Add, "A"), (MapAction::Delete, "B")]);
    let update = Update {
        domain: Domain::SYMBOL_LIST,
        stream: 1,
        container: DataType::MAP,
        payload: &payload,
        ..Update::default()
    };
    room.tell(item, &to_vec(|w| update.encode(w)).unwrap());
    let heard = room.heard(at);
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert_eq!(heard.iter().filter(|heard| heard.stream() < 0).count(), 1);
    // Its updates, and its close by the client.
    let item = room.hub.item("A");
    room.tell(item, &crate::support::update(Domain::MARKET_PRICE));
    assert_eq!(room.one(at).stream(), -1);
    room.send(
        at,
        &to_vec(|w| Close { domain: Domain::MARKET_PRICE, stream: -1, ..Close::default() }.encode(w))
            .unwrap(),
    );
    room.tell(item, &crate::support::update(Domain::MARKET_PRICE));
    assert_eq!(room.heard(at), []);
}

#[test]
fn a_list_with_snapshots() {
    let (mut room, at) = listed(Some(2), &["A"]);
    let heard = room.heard(at);
    assert_eq!(heard[1].refresh().state.stream, StreamState::NonStreaming);
    let stats = room.worker.stats(room.clients[at].mount).unwrap();
    assert_eq!(stats.streams, 2, "login and list");
}

#[test]
fn trouble_with_an_item_nobody_asked_for_is_not_told() {
    let (mut room, at) = listed(Some(1), &["A", ""]);
    let heard = room.heard(at);
    assert_eq!(heard.len(), 2, "no word of the item without a name: {heard:?}");
    let item = room.hub.item("A");
    let state = State::new(StreamState::Closed, DataState::Suspect, 1, b"gone");
    room.tell(item, &status(Domain::MARKET_PRICE, state));
    assert_eq!(room.one(at).stream(), -1, "once its image was given, it is");
}
