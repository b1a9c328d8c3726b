//! Items and services in trouble: statuses after each client's own rules.

use mdist::hub::{Batch, ItemId, Kind};
use rssl::rwf::{DataState, Domain, State, StreamState};

use crate::support::*;

const LOGINS: [(u64, u64); 4] = [(1, 1), (1, 0), (0, 1), (0, 0)];

/// Four clients, one for each column of the table.
fn room() -> (Room, Vec<usize>) {
    let mut room = Room::new();
    let clients = LOGINS
        .iter()
        .map(|(single_open, allow)| {
            room.login_as(&[("SingleOpen", *single_open), ("AllowSuspectData", *allow)])
        })
        .collect();
    (room, clients)
}

fn suspect(stream: StreamState) -> State<'static> {
    State::new(stream, DataState::Suspect, 0, b"trouble")
}

fn expect(room: &mut Room, clients: &[usize], states: [StreamState; 4]) {
    for (&at, expected) in clients.iter().zip(states) {
        let heard = room.one(at);
        let state = heard.state().unwrap();
        assert_eq!(
            (state.stream, state.data, heard.stream()),
            (expected, DataState::Suspect, 5),
            "client {at}"
        );
    }
}

/// Whoever was told that its stream is over gets nothing more, the others do.
fn expect_left(room: &mut Room, clients: &[usize], states: [StreamState; 4]) {
    for (&at, state) in clients.iter().zip(states) {
        assert_eq!(room.heard(at).len(), usize::from(state == StreamState::Open), "client {at}");
    }
}

#[test]
fn an_item_in_trouble_after_the_table() {
    use StreamState::{Closed, ClosedRecover as Recover, Open};
    for (told, expected) in [
        (Open, [Open, Open, Open, Recover]),
        (Recover, [Open, Open, Recover, Recover]),
        (Closed, [Closed, Closed, Closed, Closed]),
    ] {
        let (mut room, clients) = room();
        for &at in &clients {
            room.request(at, 5, "A");
            room.one(at);
        }
        let item = room.hub.item("A");
        room.tell(item, &status(Domain::MARKET_PRICE, suspect(told)));
        expect(&mut room, &clients, expected);
        room.tell(item, &update(Domain::MARKET_PRICE));
        expect_left(&mut room, &clients, expected);
        assert_eq!(room.hub.closes, usize::from(told == Closed), "the last stream gives the item back");
    }
}

#[test]
fn a_suspect_image_after_the_table() {
    use StreamState::{ClosedRecover as Recover, Open};
    let (mut room, clients) = room();
    room.hub.prompt = false;
    for &at in &clients {
        room.request(at, 5, "A");
    }
    let item = room.hub.item("A");
    let spec = room.hub.items[item.index()].as_ref().unwrap().spec.clone();
    let mut batch = Batch::default();
    for (token, item, _) in std::mem::take(&mut room.hub.waiting) {
        batch.push(Kind::Image, SIDE, item, token, &image(&spec, Open, DataState::Suspect));
    }
    room.apply(&batch);
    expect(&mut room, &clients, [Open, Open, Open, Recover]);
    room.tell(item, &image(&spec, Open, DataState::Suspect));
    for &at in &clients[..3] {
        assert_eq!(room.one(at).refresh().state.data, DataState::Suspect);
    }
    room.tell(item, &image(&spec, Open, DataState::Ok));
    for &at in &clients[..3] {
        assert_eq!(room.one(at).refresh().state.data, DataState::Ok);
    }
    assert_eq!(room.heard(clients[3]), []);
}

#[test]
fn an_image_whose_stream_upstream_is_closed_for_now() {
    use StreamState::{ClosedRecover as Recover, Open};
    let (mut room, clients) = room();
    for &at in &clients {
        room.request(at, 5, "A");
        room.one(at);
    }
    let item = room.hub.item("A");
    let spec = room.hub.items[item.index()].as_ref().unwrap().spec.clone();
    let expected = [Open, Open, Recover, Recover];
    room.tell(item, &image(&spec, Recover, DataState::Suspect));
    expect(&mut room, &clients, expected);
    room.tell(item, &update(Domain::MARKET_PRICE));
    expect_left(&mut room, &clients, expected);
    room.tell(item, &image(&spec, Open, DataState::Ok));
    for &at in &clients[..2] {
        assert_eq!(room.one(at).refresh().state.data, DataState::Ok);
    }
}

#[test]
fn a_request_while_the_service_is_down() {
    use StreamState::{ClosedRecover as Recover, Open};
    let (mut room, clients) = room();
    room.hub.prompt = false;
    room.services[0].state.as_mut().unwrap().up = false;
    room.show_services();
    for &at in &clients {
        room.request(at, 5, "A");
    }
    assert_eq!(room.hub.opens, 2, "who recovers by itself is told to come back");
    let mut batch = Batch::default();
    for (token, item, _) in room.hub.waiting.clone() {
        batch.push(Kind::Notice, SIDE, item, token, &status(Domain::MARKET_PRICE, suspect(Open)));
    }
    room.apply(&batch);
    expect(&mut room, &clients, [Open, Open, Recover, Recover]);
    // The service comes back, and the items with it.
    room.services[0].state.as_mut().unwrap().up = true;
    room.show_services();
    let mut batch = Batch::default();
    room.hub.answer(&mut batch);
    room.apply(&batch);
    for &at in &clients[..2] {
        assert_eq!(room.one(at).refresh().state.data, DataState::Ok);
    }
}

#[test]
fn a_service_that_goes_down_between_request_and_answer() {
    use StreamState::{ClosedRecover as Recover, Open};
    let (mut room, clients) = room();
    room.hub.prompt = false;
    for &at in &clients {
        room.request(at, 5, "A");
    }
    room.services[0].state.as_mut().unwrap().up = false;
    room.show_services();
    let mut batch = Batch::default();
    for (token, item, _) in room.hub.waiting.clone() {
        batch.push(Kind::Notice, SIDE, item, token, &status(Domain::MARKET_PRICE, suspect(Open)));
    }
    room.apply(&batch);
    expect(&mut room, &clients, [Open, Open, Recover, Recover]);
}

#[test]
fn refused_requests_and_items_that_end() {
    let mut room = Room::new();
    room.hub.prompt = false;
    let at = room.login();
    room.request(at, 5, "A");
    room.request(at, 6, "B");
    let (token, _, _) = room.hub.waiting[0];
    let mut batch = Batch::default();
    let state = State::new(StreamState::Closed, DataState::Suspect, 1, b"No such item");
    batch.push(Kind::Refused, SIDE, ItemId::NONE, token, &status(Domain::MARKET_PRICE, state));
    room.apply(&batch);
    let heard = room.one(at);
    assert_eq!((heard.stream(), heard.status().state), (5, Some(state)));
    let item = room.hub.item("B");
    batch.clear();
    batch.push_bare(Kind::Gone, SIDE, item, 0);
    room.apply(&batch);
    let heard = room.one(at);
    assert_eq!((heard.stream(), heard.state().unwrap().is_final()), (6, true), "no stream is left hanging");
    assert_eq!(room.hub.items[item.index()].as_ref().map(|item| item.holds), None);
}

#[test]
fn a_good_status_is_everybodys() {
    let (mut room, clients) = room();
    for &at in &clients {
        room.request(at, 5, "A");
        room.one(at);
    }
    let item = room.hub.item("A");
    let state = State::new(StreamState::Open, DataState::Ok, 10, b"failover completed");
    room.tell(item, &status(Domain::MARKET_PRICE, state));
    for &at in &clients {
        assert_eq!(room.one(at).status().state, Some(state));
    }
}
