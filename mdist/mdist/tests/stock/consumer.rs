//! A consumer that behaves as the SDK's with a dictionary by channel: it requests the dictionaries of the service if
//! that lists their domain, on streams that stay open, and then an item.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rssl::rdm::directory;
use rssl::rdm::login;
use rssl::rwf::{DataState, Domain, Key, Message, RefreshFlags, Request, State, StreamState, peek};

use crate::client_common::Client;

/// Far above what the loopback needs.
const LONG: Duration = Duration::from_secs(60);

const DIRECTORY: i32 = 2;
pub(crate) const FIELDS: i32 = 3;
pub(crate) const ENUMS: i32 = 4;
const ITEM: i32 = 5;

pub(crate) struct StockConsumer {
    client: Client,
    /// Messages that were read and not taken.
    inbox: Vec<Vec<u8>>,
    /// Id of the service, once it is known.
    service: Option<u16>,
}

impl StockConsumer {
    /// Connects and logs in.
    pub(crate) fn log_in(to: SocketAddr) -> Self {
        let mut client = Client::open(TcpStream::connect(to).unwrap(), LONG).unwrap();
        client.login(b"user", login::CONSUMER).unwrap();
        let mut consumer = Self { client, inbox: Vec::new(), service: None };
        consumer.request(Domain::DIRECTORY, DIRECTORY, Key { filter: Some(0x3f), ..Key::default() });
        consumer
    }

    fn request(&mut self, domain: Domain, stream: i32, key: Key<'_>) {
        let request = Request::streaming(domain, stream, key);
        self.client.say(|w| request.encode(w)).unwrap();
    }

    /// The next message on a stream.
    fn next(&mut self, stream: i32) -> Vec<u8> {
        loop {
            let at = self.inbox.iter().position(|message| peek(message).unwrap().stream == stream);
            if let Some(at) = at {
                return self.inbox.remove(at);
            }
            self.inbox.extend(self.client.read().unwrap());
        }
    }

    /// Waits until the directory has a service; it has to list the domain of dictionaries.
    fn find_service(&mut self) -> u16 {
        while self.service.is_none() {
            let message = self.next(DIRECTORY);
            let changes = directory::decode(Message::decode(&message).unwrap().payload()).unwrap();
            let Some((_, service)) = changes.into_iter().find(|(_, service)| service.info.is_some()) else {
                continue;
            };
            let info = service.info.unwrap();
            assert_eq!(info.dictionaries_provided, ["RWFFld", "RWFEnum"]);
            assert!(info.capabilities.contains(&Domain::DICTIONARY.0), "{:?}", info.capabilities);
            self.service = Some(service.id);
        }
        self.service.unwrap()
    }

    /// Requests a dictionary on its stream; returns its parts.
    pub(crate) fn dictionary(&mut self, stream: i32) -> Vec<Vec<u8>> {
        let service = Some(self.find_service());
        let name = Some(if stream == FIELDS { &b"RWFFld"[..] } else { b"RWFEnum" });
        self.request(Domain::DICTIONARY, stream, Key { service, name, filter: Some(15), ..Key::default() });
        let mut parts = Vec::new();
        loop {
            let part = self.next(stream);
            let Message::Refresh(refresh) = Message::decode(&part).unwrap() else { continue };
            let complete = refresh.flags.contains(RefreshFlags::COMPLETE);
            parts.push(part);
            if complete {
                return parts;
            }
        }
    }

    /// Requests an item; returns when its image is there.
    pub(crate) fn image(&mut self) {
        let service = self.find_service();
        self.request(Domain::MARKET_PRICE, ITEM, Key::item(service, b"TRI"));
        loop {
            let message = self.next(ITEM);
            match Message::decode(&message).unwrap() {
                Message::Refresh(refresh) if refresh.state.data == DataState::Ok => return,
                Message::Status(status) => assert!(!is_closed(status.state), "{status:?}"),
                _ => {}
            }
        }
    }

    /// The next state of the items of the service that is not good, with its text: this consumer watches the states of
    /// services, so it gets it by the directory.
    pub(crate) fn trouble(&mut self) -> String {
        loop {
            let message = self.next(DIRECTORY);
            let changes = directory::decode(Message::decode(&message).unwrap().payload()).unwrap();
            let states = changes.into_iter().filter_map(|(_, service)| service.state?.status);
            let mut texts = states.filter(|state| state.data == DataState::Suspect).map(|state| state.text);
            if let Some(text) = texts.next() {
                return String::from_utf8_lossy(&text).into_owned();
            }
        }
    }

    /// Waits until the server says that the dictionary on this stream has changed.
    pub(crate) fn dictionary_change(&mut self, stream: i32) {
        let message = self.next(stream);
        let Message::Status(status) = Message::decode(&message).unwrap() else { panic!("a status") };
        let state = status.state.unwrap();
        assert_eq!((state.stream, state.data), (StreamState::Open, DataState::Suspect));
    }
}

fn is_closed(state: Option<State<'_>>) -> bool {
    state.is_some_and(|state| matches!(state.stream, StreamState::Closed | StreamState::ClosedRecover))
}
