//! Items and services in trouble: statuses by the options of each consumer's login.

use mdist::hub::{Batch, ItemId, Kind};
use rssl::rwf::{DataState, Domain, State, StreamState};

use crate::support::*;

const LOGINS: [(u64, u64); 4] = [(1, 1), (1, 0), (0, 1), (0, 0)];

/// Four consumers, one for each column of the table.
fn rig() -> (Rig, Vec<usize>) {
    let mut rig = Rig::new();
    let consumers = LOGINS
        .iter()
        .map(|(single_open, allow)| {
            rig.login_as(&[("SingleOpen", *single_open), ("AllowSuspectData", *allow)])
        })
        .collect();
    (rig, consumers)
}

fn suspect(stream: StreamState) -> State<'static> {
    State::new(stream, DataState::Suspect, 0, b"trouble")
}

fn expect(rig: &mut Rig, consumers: &[usize], states: [StreamState; 4]) {
    for (&at, expected) in consumers.iter().zip(states) {
        let received = rig.one(at);
        let state = received.state().unwrap();
        assert_eq!(
            (state.stream, state.data, received.stream()),
            (expected, DataState::Suspect, 5),
            "consumer {at}"
        );
    }
}

/// Consumers whose stream has ended get no more messages, the others do.
fn expect_left(rig: &mut Rig, consumers: &[usize], states: [StreamState; 4]) {
    for (&at, state) in consumers.iter().zip(states) {
        assert_eq!(rig.received(at).len(), usize::from(state == StreamState::Open), "consumer {at}");
    }
}

#[test]
fn item_status_follows_the_table() {
    use StreamState::{Closed, ClosedRecover as Recover, Open};
    for (upstream, expected) in [
        (Open, [Open, Open, Open, Recover]),
        (Recover, [Open, Open, Recover, Recover]),
        (Closed, [Closed, Closed, Closed, Closed]),
    ] {
        let (mut rig, consumers) = rig();
        for &at in &consumers {
            rig.open(at, 5, "A");
        }
        let item = rig.hub.item("A");
        rig.push_message(item, &status(Domain::MARKET_PRICE, suspect(upstream)));
        expect(&mut rig, &consumers, expected);
        rig.push_message(item, &update(Domain::MARKET_PRICE));
        expect_left(&mut rig, &consumers, expected);
        assert_eq!(rig.hub.closes, usize::from(upstream == Closed), "the last stream gives the item back");
    }
}

#[test]
fn suspect_image_follows_the_table() {
    use StreamState::{ClosedRecover as Recover, Open};
    let (mut rig, consumers) = rig();
    rig.hub.answers_at_once = false;
    for &at in &consumers {
        rig.request(at, 5, "A");
    }
    let item = rig.hub.item("A");
    let spec = rig.hub.items[item.index()].as_ref().unwrap().spec.clone();
    let mut batch = Batch::default();
    for (token, item, _) in std::mem::take(&mut rig.hub.waiting) {
        batch.push(Kind::Image, SIDE, item, token, &image(&spec, Open, DataState::Suspect));
    }
    rig.apply(&batch);
    expect(&mut rig, &consumers, [Open, Open, Open, Recover]);
    rig.push_message(item, &image(&spec, Open, DataState::Suspect));
    for &at in &consumers[..3] {
        assert_eq!(rig.one(at).refresh().state.data, DataState::Suspect);
    }
    rig.push_message(item, &image(&spec, Open, DataState::Ok));
    for &at in &consumers[..3] {
        assert_eq!(rig.one(at).refresh().state.data, DataState::Ok);
    }
    assert_eq!(rig.received(consumers[3]), []);
}

#[test]
fn closed_recover_image_follows_the_table() {
    use StreamState::{ClosedRecover as Recover, Open};
    let (mut rig, consumers) = rig();
    for &at in &consumers {
        rig.open(at, 5, "A");
    }
    let item = rig.hub.item("A");
    let spec = rig.hub.items[item.index()].as_ref().unwrap().spec.clone();
    let expected = [Open, Open, Recover, Recover];
    rig.push_message(item, &image(&spec, Recover, DataState::Suspect));
    expect(&mut rig, &consumers, expected);
    rig.push_message(item, &update(Domain::MARKET_PRICE));
    expect_left(&mut rig, &consumers, expected);
    rig.push_message(item, &image(&spec, Open, DataState::Ok));
    for &at in &consumers[..2] {
        assert_eq!(rig.one(at).refresh().state.data, DataState::Ok);
    }
}

#[test]
fn request_while_the_service_is_down_follows_the_table() {
    use StreamState::{ClosedRecover as Recover, Open};
    let (mut rig, consumers) = rig();
    rig.hub.answers_at_once = false;
    rig.services[0].state.as_mut().unwrap().up = false;
    rig.show_services();
    for &at in &consumers {
        rig.request(at, 5, "A");
    }
    assert_eq!(rig.hub.opens, 2, "consumers without single open have to retry");
    let mut batch = Batch::default();
    for (token, item, _) in rig.hub.waiting.clone() {
        batch.push(Kind::Notice, SIDE, item, token, &status(Domain::MARKET_PRICE, suspect(Open)));
    }
    rig.apply(&batch);
    expect(&mut rig, &consumers, [Open, Open, Recover, Recover]);
    // The service comes back, and the items with it.
    rig.services[0].state.as_mut().unwrap().up = true;
    rig.show_services();
    rig.answer();
    for &at in &consumers[..2] {
        assert_eq!(rig.one(at).refresh().state.data, DataState::Ok);
    }
}

#[test]
fn service_lost_before_the_answer_follows_the_table() {
    use StreamState::{ClosedRecover as Recover, Open};
    let (mut rig, consumers) = rig();
    rig.hub.answers_at_once = false;
    for &at in &consumers {
        rig.request(at, 5, "A");
    }
    rig.services[0].state.as_mut().unwrap().up = false;
    rig.show_services();
    let mut batch = Batch::default();
    for (token, item, _) in rig.hub.waiting.clone() {
        batch.push(Kind::Notice, SIDE, item, token, &status(Domain::MARKET_PRICE, suspect(Open)));
    }
    rig.apply(&batch);
    expect(&mut rig, &consumers, [Open, Open, Recover, Recover]);
}

#[test]
fn refused_requests_and_ended_items_end_their_streams() {
    let mut rig = Rig::new();
    rig.hub.answers_at_once = false;
    let at = rig.login();
    rig.request(at, 5, "A");
    rig.request(at, 6, "B");
    let (token, _, _) = rig.hub.waiting[0];
    let mut batch = Batch::default();
    let state = State::closed(1, b"No such item");
    batch.push(Kind::Refused, SIDE, ItemId::NONE, token, &status(Domain::MARKET_PRICE, state));
    rig.apply(&batch);
    let received = rig.one(at);
    assert_eq!((received.stream(), received.status().state), (5, Some(state)));
    let item = rig.hub.item("B");
    batch.clear();
    batch.push_bare(Kind::Gone, SIDE, item, 0);
    rig.apply(&batch);
    let received = rig.one(at);
    assert_eq!(
        (received.stream(), received.state().unwrap().is_final()),
        (6, true),
        "the stream ends with its item"
    );
    assert_eq!(rig.hub.items[item.index()].as_ref().map(|item| item.holds), None);
}

#[test]
fn good_status_reaches_all_consumers() {
    let (mut rig, consumers) = rig();
    for &at in &consumers {
        rig.open(at, 5, "A");
    }
    let item = rig.hub.item("A");
    let state = State::new(StreamState::Open, DataState::Ok, 10, b"failover completed");
    rig.push_message(item, &status(Domain::MARKET_PRICE, state));
    for &at in &consumers {
        assert_eq!(rig.one(at).status().state, Some(state));
    }
}
