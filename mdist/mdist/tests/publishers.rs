//! Non-interactive publishers, a source distributor, a point-to-point server and consumers, in one process.

mod client_common;

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use mdist::backbone::memory::Memory;
use mdist::config::Config;
use mdist::metrics::Metrics;
use mdist::server::{Backbone, Running, p2ps, src_dist};
use rssl::rdm::directory::{self, Action, Info, Service, ServiceState};
use rssl::rdm::login;
use rssl::rwf::{
    DataState, DataType, Domain, Key, Message, Refresh, RefreshFlags, Request, State, StreamState, Update,
};
use rssl::wire::{Writer, to_vec};

use client_common::Client;

/// A field list: field 22 is the text `PRICE`.
const PRICE: &[u8] = &[0x08, 0, 1, 0, 22, 5, b'P', b'R', b'I', b'C', b'E'];

/// The peer of a distributor or server.
struct Peer {
    client: Client,
    got: VecDeque<Vec<u8>>,
}

impl Peer {
    fn connect(to: SocketAddr, role: u64) -> Self {
        let mut client = Client::open(TcpStream::connect(to).unwrap(), Duration::from_secs(60)).unwrap();
        client.login(b"test", role).unwrap();
        Self { client, got: VecDeque::new() }
    }

    fn say(&mut self, f: impl FnMut(&mut Writer<'_>) -> rssl::Result<()>) {
        self.client.say(f).unwrap();
    }

    /// The first value that `f` returns for a message from here on.
    fn until<T>(&mut self, mut f: impl FnMut(&Message<'_>) -> Option<T>) -> T {
        loop {
            while let Some(message) = self.got.pop_front() {
                if let Some(found) = f(&Message::decode(&message).unwrap()) {
                    return found;
                }
            }
            self.got.extend(self.client.read().expect("an answer in time"));
        }
    }
}

/// A publisher that offers these services, with the ids 7, 8 and so on.
fn publisher(to: SocketAddr, services: &[&str]) -> Peer {
    let mut peer = Peer::connect(to, login::PROVIDER);
    let services: Vec<_> = (7..)
        .zip(services)
        .map(|(id, name)| Service {
            id,
            info: Some(Info { name: (*name).into(), capabilities: vec![6], ..Info::default() }),
            // As stock publishers set it: it means that they accept no requests themselves.
            state: Some(ServiceState { up: true, accepting: false, status: None }),
            ..Service::default()
        })
        .collect();
    let payload = to_vec(|w| directory::encode_all(w, directory::filter::ALL, &services)).unwrap();
    let refresh = Refresh {
        flags: RefreshFlags::COMPLETE | RefreshFlags::CLEAR_CACHE,
        state: State::OK,
        ..Refresh::new(Domain::DIRECTORY, -1, DataType::MAP, &payload)
    };
    peer.say(|w| refresh.encode(w));
    peer
}

fn publish(peer: &mut Peer, service: u16, stream: i32, name: &[u8]) {
    let refresh = Refresh {
        flags: RefreshFlags::COMPLETE | RefreshFlags::CLEAR_CACHE,
        state: State::OK,
        key: Some(Key::item(service, name)),
        ..Refresh::new(Domain::MARKET_PRICE, stream, DataType::FIELD_LIST, PRICE)
    };
    peer.say(|w| refresh.encode(w));
    let update = Update::new(Domain::MARKET_PRICE, stream, DataType::FIELD_LIST, PRICE);
    peer.say(|w| update.encode(w));
}

/// A consumer with the directory open; also returns the service names so far and the id of `service`, once it is up.
fn consumer(to: SocketAddr, service: &str) -> (Peer, Vec<String>, u16) {
    let mut peer = Peer::connect(to, login::CONSUMER);
    let request = Request::streaming(
        Domain::DIRECTORY,
        2,
        Key { filter: Some(directory::filter::ALL), ..Key::default() },
    );
    peer.say(|w| request.encode(w));
    let mut names = Vec::new();
    let id = peer.until(|message| {
        let payload = match message {
            Message::Refresh(r) if r.domain == Domain::DIRECTORY => r.payload,
            Message::Update(u) if u.domain == Domain::DIRECTORY => u.payload,
            _ => return None,
        };
        let services = directory::decode(payload).unwrap();
        let services = services.into_iter().filter(|(action, _)| *action != Action::Delete);
        services.fold(None, |found, (_, listed)| {
            let name = listed.info.map(|info| info.name).unwrap_or_default();
            names.push(name.clone());
            let usable = listed.state.is_some_and(|s| s.up && s.accepting);
            found.or((name == service && usable).then_some(listed.id))
        })
    });
    (peer, names, id)
}

fn ask(peer: &mut Peer, service: u16, stream: i32, name: &[u8]) {
    let request = Request::streaming(Domain::MARKET_PRICE, stream, Key::item(service, name));
    peer.say(|w| request.encode(w));
}

/// The next status of a stream.
fn status(peer: &mut Peer, stream: i32) -> (StreamState, DataState, String) {
    peer.until(|message| match message {
        Message::Status(s) if s.stream == stream => {
            s.state.map(|s| (s.stream, s.data, String::from_utf8_lossy(s.text).into_owned()))
        }
        Message::Refresh(r) if r.stream == stream => panic!("an image: {r:?}"),
        _ => None,
    })
}

/// The next state that the directory announces for all items of a service.
fn announced(peer: &mut Peer) -> DataState {
    peer.until(|message| match message {
        Message::Update(update) if update.domain == Domain::DIRECTORY => {
            let services = rssl::rdm::directory::decode(update.payload).unwrap();
            let mut states = services.into_iter().filter_map(|(_, service)| service.state?.status);
            states.next().map(|status| status.data)
        }
        _ => None,
    })
}

/// Waits for a good image of a stream, then for an update. The stream must not be closed before.
fn served(peer: &mut Peer, stream: i32) {
    peer.until(|message| match message {
        Message::Status(s) if s.stream == stream => {
            assert_eq!(s.state.unwrap().stream, StreamState::Open, "{s:?}");
            None
        }
        Message::Refresh(r) if r.stream == stream && r.state.data == DataState::Ok => {
            assert_eq!((r.state.stream, r.payload), (StreamState::Open, PRICE));
            Some(())
        }
        _ => None,
    });
    peer.until(|message| matches!(message, Message::Update(u) if u.stream == stream).then_some(()));
}

/// Starts a server and a distributor; also returns the addresses for publishers and for consumers.
fn chain(services: &[&str]) -> (Running, Running, SocketAddr, SocketAddr) {
    let mut config = Config::default();
    config.p2ps.listen = vec!["127.0.0.1:0".into()];
    config.p2ps.services = services.iter().map(|&name| name.into()).collect();
    config.src_dist.listen = vec!["127.0.0.1:0".into()];
    let backbone = Backbone::on(Memory::new());
    let metrics = Metrics::new("test");
    let distributor = src_dist::start(&config, &metrics, &backbone).unwrap();
    let server = p2ps::start(&config, &metrics, &backbone).unwrap();
    let (above, below) = (distributor.addresses[0], server.addresses[0]);
    (server, distributor, above, below)
}

#[test]
fn waiting_consumers_get_the_item_when_it_is_published() {
    let (_server, _distributor, above, below) = chain(&[]);
    let mut source = publisher(above, &["QUOTES"]);
    let (mut one, _, id) = consumer(below, "QUOTES");
    let (mut two, _, _) = consumer(below, "QUOTES");
    for peer in [&mut one, &mut two] {
        ask(peer, id, 5, b"A");
        let (stream, data, text) = status(peer, 5);
        assert_eq!((stream, data), (StreamState::Open, DataState::Suspect));
        assert!(text.contains("published"), "{text}");
    }
    publish(&mut source, 7, -6, b"A");
    served(&mut one, 5);
    served(&mut two, 5);
}

#[test]
fn open_and_waiting_items_recover_when_the_publisher_returns() {
    let (_server, _distributor, above, below) = chain(&[]);
    let mut source = publisher(above, &["QUOTES"]);
    publish(&mut source, 7, -6, b"A");
    let (mut one, _, id) = consumer(below, "QUOTES");
    ask(&mut one, id, 5, b"A");
    one.until(|m| matches!(m, Message::Refresh(r) if r.stream == 5).then_some(()));
    ask(&mut one, id, 6, b"B");
    assert_eq!(status(&mut one, 6).0, StreamState::Open);
    drop(source);
    assert_eq!(announced(&mut one), DataState::Suspect);
    let mut source = publisher(above, &["QUOTES"]);
    publish(&mut source, 7, -3, b"A");
    publish(&mut source, 7, -4, b"B");
    // In either order.
    let mut left = vec![5, 6];
    one.until(|message| {
        if let Message::Status(s) = message {
            assert_ne!(s.state.map(|s| s.stream), Some(StreamState::Closed), "{s:?}");
        }
        if let Message::Refresh(r) = message
            && r.state.data == DataState::Ok
        {
            left.retain(|stream| *stream != r.stream);
        }
        left.is_empty().then_some(())
    });
}

#[test]
fn server_accepts_only_configured_services() {
    let (_server, _distributor, above, below) = chain(&["QUOTES"]);
    let mut source = publisher(above, &["OTHER", "QUOTES"]);
    publish(&mut source, 8, -6, b"A");
    let (mut one, names, id) = consumer(below, "QUOTES");
    ask(&mut one, id, 5, b"A");
    one.until(|m| matches!(m, Message::Refresh(r) if r.stream == 5).then_some(()));
    assert!(!names.contains(&"OTHER".to_owned()), "{names:?}");
    let (_, names, _) = consumer(below, "QUOTES");
    assert_eq!(names, ["QUOTES"]);
}
