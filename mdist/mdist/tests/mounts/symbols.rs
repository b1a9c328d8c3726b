//! Symbol lists, and the streams that the server opens for them.

use mdist::hub::{Batch, Kind};
use rssl::rdm::items::RequestPayload;
use rssl::rwf::{
    Close, DataType, Domain, Key, MapAction, MapWriter, Refresh, RefreshFlags, Request, State, StreamState,
    Update,
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
        container: if payload.is_empty() { DataType::NO_DATA } else { DataType::ELEMENT_LIST },
        payload: &payload,
        ..Request::streaming(Domain::SYMBOL_LIST, 9, Key::item(1, b"LIST"))
    };
    request.to_vec().unwrap()
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

/// A rig whose hub has answered the symbol list with these names.
fn listed(data_streams: Option<u64>, names: &[&str]) -> (Rig, usize) {
    let mut rig = Rig::new();
    rig.hub.answers_at_once = false;
    let at = rig.login();
    rig.send(at, &list_request(data_streams));
    let (token, item, _) = rig.hub.waiting.remove(0);
    let names: Vec<_> = names.iter().map(|name| (MapAction::Add, *name)).collect();
    let payload = map(&names);
    let refresh = Refresh {
        flags: RefreshFlags::COMPLETE | RefreshFlags::CLEAR_CACHE,
        state: State::OK,
        key: Some(Key::item(1, b"LIST")),
        ..Refresh::new(Domain::SYMBOL_LIST, 1, DataType::MAP, &payload)
    };
    let mut batch = Batch::default();
    batch.push(Kind::Image, SIDE, item, token, &refresh.to_vec().unwrap());
    rig.hub.answers_at_once = true;
    rig.apply(&batch);
    (rig, at)
}

fn update_list(rig: &mut Rig, names: &[(MapAction, &str)]) {
    let (item, payload) = (rig.hub.item("LIST"), map(names));
    let update = Update::new(Domain::SYMBOL_LIST, 1, DataType::MAP, &payload);
    rig.push_message(item, &update.to_vec().unwrap());
}

#[test]
fn plain_symbol_list_opens_no_items() {
    let (mut rig, at) = listed(None, &["A", "B"]);
    assert_eq!(rig.one(at).refresh().domain, Domain::SYMBOL_LIST);
    assert_eq!(rig.hub.opens, 1);
}

#[test]
fn symbol_list_with_streams_opens_its_items() {
    let (mut rig, at) = listed(Some(1), &["A", "B"]);
    let received = rig.received(at);
    assert_eq!(received[0].refresh().domain, Domain::SYMBOL_LIST, "the list comes first");
    let mut opened: Vec<(i32, Vec<u8>)> = received[1..]
        .iter()
        .map(|received| (received.stream(), received.refresh().key.unwrap().name.unwrap().to_vec()))
        .collect();
    opened.sort();
    assert_eq!(opened, [(-2, b"B".to_vec()), (-1, b"A".to_vec())]);
    for received in &received[1..] {
        let refresh = received.refresh();
        assert!(!refresh.flags.contains(RefreshFlags::SOLICITED), "the consumer did not request it");
        assert_eq!((refresh.domain, refresh.state.stream), (Domain::MARKET_PRICE, StreamState::Open));
    }
    // An update with a new item and an open one, which is not opened again.
    update_list(&mut rig, &[(MapAction::Add, "C"), (MapAction::Add, "A"), (MapAction::Delete, "B")]);
    let received = rig.received(at);
    assert_eq!(received.len(), 2, "{received:?}");
    assert_eq!(received.iter().filter(|received| received.stream() < 0).count(), 1);
    // Updates of a listed item, and its close by the consumer.
    let item = rig.hub.item("A");
    rig.push_message(item, &crate::support::update(Domain::MARKET_PRICE));
    assert_eq!(rig.one(at).stream(), -1);
    rig.send(at, &Close::new(Domain::MARKET_PRICE, -1).to_vec().unwrap());
    rig.push_message(item, &crate::support::update(Domain::MARKET_PRICE));
    assert_eq!(rig.received(at), []);
}

#[test]
fn symbol_list_with_snapshots_sends_images() {
    let (mut rig, at) = listed(Some(2), &["A"]);
    let received = rig.received(at);
    assert_eq!(received[1].refresh().state.stream, StreamState::NonStreaming);
    let stats = rig.worker.stats(rig.consumers[at].mount).unwrap();
    assert_eq!(stats.streams, 2, "login and list");
}

#[test]
fn status_of_an_unannounced_item_is_not_sent() {
    let (mut rig, at) = listed(Some(1), &["A", ""]);
    let received = rig.received(at);
    assert_eq!(received.len(), 2, "no status of the item without a name: {received:?}");
    let item = rig.hub.item("A");
    let state = State::closed(1, b"gone");
    rig.push_message(item, &status(Domain::MARKET_PRICE, state));
    assert_eq!(rig.one(at).stream(), -1, "after its image the consumer gets its statuses");
}

#[test]
fn items_of_a_long_symbol_list_are_opened_in_portions() {
    /// Items that one turn opens.
    const PORTION: usize = 1024;
    let names: Vec<String> = (0..3 * PORTION + 500).map(|n| format!("I{n}")).collect();
    let (mut rig, at) = listed(Some(1), &names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut received = rig.received(at).len();
    assert_eq!(received, 1 + PORTION);
    // An update of the list in the middle: with a new item, and with one that is still to be opened.
    for name in ["NEW", "I3000"] {
        update_list(&mut rig, &[(MapAction::Add, name)]);
    }
    received += rig.received(at).len();
    assert_eq!(received, 1 + PORTION + 2 + 2);
    // Input waits until all are open.
    rig.request(at, 10, "OWN");
    assert_eq!(rig.received(at), []);
    let mut turns = 0;
    while rig.worker.deadline() == Some(std::time::Duration::ZERO) {
        rig.worker.tick(rig.now);
        rig.run();
        let got = rig.received(at).len();
        assert!(got <= PORTION + 1, "{got} in a turn");
        (received, turns) = (received + got, turns + 1);
    }
    assert_eq!((turns, received), (3, 1 + 2 + names.len() + 1 + 1));
}

#[test]
fn symbol_list_that_is_closed_by_a_logout_opens_no_more_items() {
    let names: Vec<String> = (0..5_000).map(|n| format!("I{n}")).collect();
    let (mut rig, at) = listed(Some(1), &names.iter().map(String::as_str).collect::<Vec<_>>());
    let id = rig.consumers[at].mount;
    rig.consumers[at].reads = false;
    rig.worker.closed(id, mdist::mounts::Reason::PeerClosed).unwrap();
    let opens = rig.hub.opens;
    while rig.worker.deadline() == Some(std::time::Duration::ZERO) {
        rig.worker.tick(rig.now);
        rig.run();
    }
    assert_eq!((rig.hub.opens, rig.worker.mounts().count()), (opens, 0));
}
