//! Mounts and the hub together, below them a provider that answers every request.

use std::collections::HashMap;
use std::time::Duration;

use mdist::cache::FieldTypes;
use mdist::hub::{Batch, Hub, Now, Options, UpstreamId};
use rssl::rdm::directory::Action;
use rssl::rwf::{
    Ack, DataState, DataType, Domain, Message, Post, PostFlags, Refresh, RefreshFlags, RequestFlags, State,
    StreamState,
};
use rssl::wire::to_vec;

use crate::support::*;

const UP: UpstreamId = UpstreamId(0);

/// A hub and its one provider.
pub(crate) struct Real {
    pub(crate) engine: Hub,
    /// The provider's streams, by item name.
    streams: HashMap<Vec<u8>, i32>,
    requests: usize,
    /// Said by the provider, not yet with the hub.
    said: Vec<Vec<u8>>,
    /// What happened to the provider, not yet with the hub.
    came: bool,
    went: bool,
}

impl Real {
    fn new(cache: bool) -> Self {
        let options = Options { cache, ..Options::default() };
        let engine = Hub::new(options, FieldTypes::default());
        Self { engine, streams: HashMap::new(), requests: 0, said: Vec::new(), came: true, went: false }
    }

    /// Everything that has happened, until nothing more does.
    pub(crate) fn turn(&mut self, now: Now, out: &mut Batch) {
        if std::mem::take(&mut self.went) {
            self.streams.clear();
            self.engine.upstream_down(now, UP, "the provider is gone", out);
        }
        if std::mem::take(&mut self.came) {
            self.engine.upstream_up(now, UP, false, out);
            let services = vec![(Action::Add, service(9, "DIRECT_FEED"))];
            self.engine.upstream_services(now, UP, services, true, out);
        }
        loop {
            let orders: Vec<_> = self.engine.outgoing().collect();
            for (_, order) in &orders {
                self.answer(order);
            }
            let said = std::mem::take(&mut self.said);
            for message in &said {
                self.engine.message(now, UP, message, out).unwrap();
            }
            if orders.is_empty() && said.is_empty() {
                break;
            }
        }
        self.engine.tick(now, out);
    }

    fn answer(&mut self, order: &[u8]) {
        match Message::decode(order).unwrap() {
            Message::Request(request) => {
                self.requests += 1;
                let name = request.key.name.unwrap().to_vec();
                assert_eq!(request.key.service, Some(9), "the provider's own id of the service");
                if name == b"NONE" {
                    let state = State::new(StreamState::Closed, DataState::Suspect, 1, b"No such item");
                    let mut message = status(request.domain, state);
                    rssl::rwf::set_stream(&mut message, request.stream).unwrap();
                    self.said.push(message);
                    return;
                }
                self.streams.insert(name, request.stream);
                let streaming = request.flags.contains(RequestFlags::STREAMING);
                let refresh = Refresh {
                    domain: request.domain,
                    stream: request.stream,
                    flags: RefreshFlags::SOLICITED | RefreshFlags::COMPLETE | RefreshFlags::CLEAR_CACHE,
                    container: DataType::FIELD_LIST,
                    state: State {
                        stream: if streaming { StreamState::Open } else { StreamState::NonStreaming },
                        ..State::OK
                    },
                    key: Some(request.key),
                    payload: &FIELDS,
                    ..Refresh::default()
                };
                self.said.push(to_vec(|w| refresh.encode(w)).unwrap());
            }
            Message::Post(Post { domain, stream, post_id: Some(id), .. }) => {
                let ack = Ack { domain, stream, ack_id: id, ..Ack::default() };
                self.said.push(to_vec(|w| ack.encode(w)).unwrap());
            }
            _ => {}
        }
    }
}

fn room(cache: bool) -> Room {
    let mut room = Room::new();
    room.real = Some(Real::new(cache));
    room.run();
    room
}

impl Room {
    fn real(&mut self) -> &mut Real {
        self.real.as_mut().unwrap()
    }

    fn tick(&mut self, name: &str) {
        let stream = self.real().streams[name.as_bytes()];
        let mut message = update(Domain::MARKET_PRICE);
        rssl::rwf::set_stream(&mut message, stream).unwrap();
        self.real().said.push(message);
        self.run();
    }
}

/// As `Room::request`, for the hub's id of the service.
fn ask(room: &mut Room, at: usize, stream: i32, name: &str) {
    assert_eq!(room.services.len(), 1);
    let id = room.services[0].id;
    let request = rssl::rwf::Request {
        domain: Domain::MARKET_PRICE,
        stream,
        flags: RequestFlags::STREAMING,
        key: rssl::rwf::Key::item(id, name.as_bytes()),
        ..rssl::rwf::Request::default()
    };
    room.send(at, &to_vec(|w| request.encode(w)).unwrap());
}

#[test]
fn images_and_updates_with_and_without_cache() {
    for (cache, requests) in [(false, 2), (true, 1)] {
        let mut room = room(cache);
        let (first, second) = (room.login(), room.login());
        for at in [first, second] {
            ask(&mut room, at, 5, "A");
            let heard = room.one(at);
            let refresh = heard.refresh();
            assert_eq!(
                (refresh.stream, refresh.payload, refresh.state.data),
                (5, &FIELDS[..], DataState::Ok)
            );
            assert!(refresh.flags.contains(RefreshFlags::SOLICITED));
            assert_eq!(refresh.key.unwrap().service, Some(room.services[0].id));
        }
        assert_eq!(room.real().requests, requests, "cache {cache}");
        room.tick("A");
        for at in [first, second] {
            assert_eq!(room.one(at).update().payload, FIELDS);
            room.close(at, 5);
        }
        assert_eq!(room.real().engine.items(), 1, "held for a while");
        room.now += Duration::from_secs(6);
        room.run();
        assert_eq!(room.real().engine.items(), 0);
    }
}

#[test]
fn the_provider_goes_and_comes_back() {
    for cache in [false, true] {
        let mut room = room(cache);
        let waits = room.login();
        let own = room.login_as(&[("SingleOpen", 0), ("AllowSuspectData", 0)]);
        for at in [waits, own] {
            ask(&mut room, at, 5, "A");
            room.one(at);
        }
        room.real().went = true;
        room.run();
        for (at, stream) in [(waits, StreamState::Open), (own, StreamState::ClosedRecover)] {
            let heard = room.heard(at);
            assert!(!heard.is_empty());
            for heard in heard {
                let state = heard.state().unwrap();
                assert_eq!((state.stream, state.data), (stream, DataState::Suspect), "cache {cache}");
            }
        }
        // New requests meanwhile.
        ask(&mut room, own, 6, "B");
        assert_eq!(room.one(own).state().unwrap().stream, StreamState::ClosedRecover);
        ask(&mut room, waits, 6, "B");
        let heard = room.one(waits);
        let state = heard.state().unwrap();
        assert_eq!((state.stream, state.data), (StreamState::Open, DataState::Suspect));
        room.real().came = true;
        room.run();
        room.now += Duration::from_secs(2);
        room.run();
        let heard = room.heard(waits);
        for stream in [5, 6] {
            let last = heard.iter().rfind(|heard| heard.stream() == stream).unwrap();
            assert_eq!(
                (last.refresh().state.stream, last.refresh().state.data),
                (StreamState::Open, DataState::Ok)
            );
        }
        room.tick("A");
        assert_eq!(room.one(waits).stream(), 5);
        assert_eq!(room.heard(own), []);
    }
}

#[test]
fn an_item_that_is_not_there() {
    let mut room = room(false);
    let at = room.login();
    ask(&mut room, at, 5, "NONE");
    let heard = room.one(at);
    assert_eq!(heard.state().map(|state| (state.stream, state.code)), Some((StreamState::Closed, 1)));
    ask(&mut room, at, 5, "A");
    assert_eq!(room.one(at).refresh().stream, 5);
    let stats = room.worker.stats(room.clients[at].mount).unwrap();
    assert_eq!(stats.streams, 2);
}

#[test]
fn a_post_is_acknowledged() {
    let mut room = room(false);
    let at = room.login();
    ask(&mut room, at, 5, "A");
    room.heard(at);
    let post = Post {
        domain: Domain::MARKET_PRICE,
        stream: 5,
        flags: PostFlags::COMPLETE | PostFlags::ACK,
        container: DataType::FIELD_LIST,
        post_id: Some(77),
        payload: &FIELDS,
        ..Post::default()
    };
    room.send(at, &to_vec(|w| post.encode(w)).unwrap());
    let heard = room.one(at);
    assert!(
        matches!(heard.message(), Message::Ack(Ack { ack_id: 77, stream: 5, nak: None, .. })),
        "{heard:?}"
    );
}
