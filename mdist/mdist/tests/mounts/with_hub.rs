//! Mounts and the real hub, with a provider that answers every request.

use std::collections::HashMap;
use std::time::Duration;

use mdist::cache::FieldTypes;
use mdist::hub::{Batch, Hub, Now, Options, UpstreamId};
use rssl::rdm::directory::Action;
use rssl::rwf::{
    Ack, DataState, DataType, Domain, Message, Post, Refresh, RefreshFlags, RequestFlags, State, StreamState,
};

use crate::support::*;

const UP: UpstreamId = UpstreamId(0);

/// A hub and its one provider.
pub(crate) struct RealHub {
    pub(crate) hub: Hub,
    /// The provider's streams, by item name.
    streams: HashMap<Vec<u8>, i32>,
    requests: usize,
    /// Messages of the provider that the hub has not got yet.
    messages: Vec<Vec<u8>>,
    /// Events of the provider that the hub has not got yet.
    connecting: bool,
    disconnecting: bool,
}

impl RealHub {
    fn new(cache: bool) -> Self {
        let options = Options { cache, ..Options::default() };
        let hub = Hub::new(options, FieldTypes::default());
        Self {
            hub,
            streams: HashMap::new(),
            requests: 0,
            messages: Vec::new(),
            connecting: true,
            disconnecting: false,
        }
    }

    /// Passes events and messages between provider and hub until none is left.
    pub(crate) fn turn(&mut self, now: Now, out: &mut Batch) {
        if std::mem::take(&mut self.disconnecting) {
            self.streams.clear();
            self.hub.upstream_down(now, UP, "the provider is gone", out);
        }
        if std::mem::take(&mut self.connecting) {
            self.hub.upstream_up(now, UP, false, out);
            let services = vec![(Action::Add, service(9, "DIRECT_FEED"))];
            self.hub.upstream_services(now, UP, services, true, out);
        }
        loop {
            let outgoing: Vec<_> = self.hub.outgoing().collect();
            for (_, message) in &outgoing {
                self.answer(message);
            }
            let messages = std::mem::take(&mut self.messages);
            for message in &messages {
                self.hub.message(now, UP, message, out).unwrap();
            }
            if outgoing.is_empty() && messages.is_empty() {
                break;
            }
        }
        self.hub.tick(now, out);
    }

    fn answer(&mut self, message: &[u8]) {
        match Message::decode(message).unwrap() {
            Message::Request(request) => {
                self.requests += 1;
                let name = request.key.name.unwrap().to_vec();
                assert_eq!(request.key.service, Some(9), "the provider's own id of the service");
                if name == b"NONE" {
                    let state = State::closed(1, b"No such item");
                    let mut message = status(request.domain, state);
                    rssl::rwf::set_stream(&mut message, request.stream).unwrap();
                    self.messages.push(message);
                    return;
                }
                self.streams.insert(name, request.stream);
                let streaming = request.flags.contains(RequestFlags::STREAMING);
                let refresh = Refresh {
                    flags: RefreshFlags::REPLY,
                    state: State {
                        stream: if streaming { StreamState::Open } else { StreamState::NonStreaming },
                        ..State::OK
                    },
                    key: Some(request.key),
                    ..Refresh::new(request.domain, request.stream, DataType::FIELD_LIST, &FIELDS)
                };
                self.messages.push(refresh.to_vec().unwrap());
            }
            Message::Post(Post { domain, stream, post_id: Some(id), .. }) => {
                let ack = Ack { domain, stream, ack_id: id, ..Ack::default() };
                self.messages.push(ack.to_vec().unwrap());
            }
            _ => {}
        }
    }
}

fn rig(cache: bool) -> Rig {
    let mut rig = Rig::new();
    rig.real = Some(RealHub::new(cache));
    rig.run();
    rig
}

impl Rig {
    fn real(&mut self) -> &mut RealHub {
        self.real.as_mut().unwrap()
    }

    fn tick(&mut self, name: &str) {
        let stream = self.real().streams[name.as_bytes()];
        let mut message = update(Domain::MARKET_PRICE);
        rssl::rwf::set_stream(&mut message, stream).unwrap();
        self.real().messages.push(message);
        self.run();
    }
}

/// As `Rig::request`, for the hub's id of the service.
fn request_with(rig: &mut Rig, at: usize, stream: i32, name: &str) {
    assert_eq!(rig.services.len(), 1);
    let id = rig.services[0].id;
    rig.send(
        at,
        &rssl::rwf::Request::streaming(
            Domain::MARKET_PRICE,
            stream,
            rssl::rwf::Key::item(id, name.as_bytes()),
        )
        .to_vec()
        .unwrap(),
    );
}

#[test]
fn images_and_updates_arrive_with_and_without_cache() {
    for (cache, requests) in [(false, 2), (true, 1)] {
        let mut rig = rig(cache);
        let (first, second) = (rig.login(), rig.login());
        for at in [first, second] {
            request_with(&mut rig, at, 5, "A");
            let received = rig.one(at);
            let refresh = received.refresh();
            assert_eq!(
                (refresh.stream, refresh.payload, refresh.state.data),
                (5, &FIELDS[..], DataState::Ok)
            );
            assert!(refresh.flags.contains(RefreshFlags::SOLICITED));
            assert_eq!(refresh.key.unwrap().service, Some(rig.services[0].id));
        }
        assert_eq!(rig.real().requests, requests, "cache {cache}");
        rig.tick("A");
        for at in [first, second] {
            assert_eq!(rig.one(at).update().payload, FIELDS);
            rig.close(at, 5);
        }
        assert_eq!(rig.real().hub.items(), 1, "held for a while");
        rig.now += Duration::from_secs(6);
        rig.run();
        assert_eq!(rig.real().hub.items(), 0);
    }
}

#[test]
fn items_recover_after_a_loss_of_the_provider() {
    for cache in [false, true] {
        let mut rig = rig(cache);
        let waits = rig.login();
        let own = rig.login_as(&[("SingleOpen", 0), ("AllowSuspectData", 0)]);
        for at in [waits, own] {
            request_with(&mut rig, at, 5, "A");
            rig.one(at);
        }
        rig.real().disconnecting = true;
        rig.run();
        for (at, stream) in [(waits, StreamState::Open), (own, StreamState::ClosedRecover)] {
            let received = rig.received(at);
            assert!(!received.is_empty());
            for received in received {
                let state = received.state().unwrap();
                assert_eq!((state.stream, state.data), (stream, DataState::Suspect), "cache {cache}");
            }
        }
        // New requests meanwhile.
        request_with(&mut rig, own, 6, "B");
        assert_eq!(rig.one(own).state().unwrap().stream, StreamState::ClosedRecover);
        request_with(&mut rig, waits, 6, "B");
        let received = rig.one(waits);
        let state = received.state().unwrap();
        assert_eq!((state.stream, state.data), (StreamState::Open, DataState::Suspect));
        rig.real().connecting = true;
        rig.run();
        rig.now += Duration::from_secs(2);
        rig.run();
        let received = rig.received(waits);
        for stream in [5, 6] {
            let last = received.iter().rfind(|received| received.stream() == stream).unwrap();
            assert_eq!(
                (last.refresh().state.stream, last.refresh().state.data),
                (StreamState::Open, DataState::Ok)
            );
        }
        rig.tick("A");
        assert_eq!(rig.one(waits).stream(), 5);
        assert_eq!(rig.received(own), []);
    }
}

#[test]
fn unknown_item_is_refused() {
    let mut rig = rig(false);
    let at = rig.login();
    request_with(&mut rig, at, 5, "NONE");
    let received = rig.one(at);
    assert_eq!(received.state().map(|state| (state.stream, state.code)), Some((StreamState::Closed, 1)));
    request_with(&mut rig, at, 5, "A");
    assert_eq!(rig.one(at).refresh().stream, 5);
    let stats = rig.worker.stats(rig.consumers[at].mount).unwrap();
    assert_eq!(stats.streams, 2);
}

#[test]
fn post_is_acknowledged() {
    let mut rig = rig(false);
    let at = rig.login();
    request_with(&mut rig, at, 5, "A");
    rig.received(at);
    rig.send(at, &post_on_5(77));
    let received = rig.one(at);
    assert!(
        matches!(received.message(), Message::Ack(Ack { ack_id: 77, stream: 5, nak: None, .. })),
        "{received:?}"
    );
}
