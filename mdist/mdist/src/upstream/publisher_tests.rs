//! Publisher sessions against a peer with the client role of the transport.

use super::*;
use rssl::rdm::directory::{Action, Info, Service, ServiceState};
use rssl::rwf::{Close, DataType, Key, Post, Refresh, Request, Update};
use rssl::transport::{ClientOptions, Pulled};

fn dictionaries() -> Arc<Dictionaries> {
    Arc::new(Dictionaries::of(&rssl::dictionary::Dictionary::small(), 4000).unwrap())
}

const T0: Now = Now::from_secs(100);

/// The peer: writes messages, and reads those of the session.
struct Peer {
    channel: Channel,
    out: Vec<u8>,
    received: Vec<Vec<u8>>,
}

impl Peer {
    fn new() -> Self {
        let mut channel = Channel::client(ClientOptions::default());
        let mut out = Vec::new();
        channel.take_output(&mut out);
        Self { channel, out, received: Vec::new() }
    }

    fn send(&mut self, f: impl Fn(&mut rssl::wire::Writer<'_>) -> rssl::Result<()>) {
        let message = to_vec(f).unwrap();
        self.channel.write(&message, &mut self.out).unwrap();
    }

    fn read(&mut self, mut input: &[u8]) {
        loop {
            let (used, pulled) = self.channel.pull(input).unwrap();
            match pulled {
                Pulled::NeedMore => return,
                Pulled::Message(message) => self.received.push(message.to_vec()),
                _ => {}
            }
            input = &input[used..];
            self.channel.take_output(&mut self.out);
        }
    }
}

/// Exchanges all waiting bytes in pieces; returns the session's events as text.
fn exchange(peer: &mut Peer, session: &mut Publisher, piece: usize) -> Result<Vec<String>, SessionError> {
    let mut events = Vec::new();
    while !peer.out.is_empty() || !session.output().is_empty() {
        let bytes = std::mem::take(&mut peer.out);
        for piece in bytes.chunks(piece) {
            session.input(piece, T0, |event| {
                events.push(match event {
                    Event::Up => "up".to_owned(),
                    Event::Services { changes, replaces } => {
                        format!("{} services, replaces {replaces}", changes.len())
                    }
                    Event::Message(m) => {
                        format!("{:?} on {}", peek(m).unwrap().class, peek(m).unwrap().stream)
                    }
                });
                Ok(())
            })?;
        }
        let bytes = std::mem::take(session.output());
        peer.read(&bytes);
    }
    Ok(events)
}

fn login(peer: &mut Peer, stream: i32, role: u64) {
    let attributes = login::Attributes { role, single_open: false, ..login::Attributes::default() };
    peer.send(|w| {
        login::Request { user: b"nip", name_type: 1, attributes: attributes.clone() }.encode(stream, w)
    });
}

fn opened(piece: usize, stream: i32) -> (Peer, Publisher) {
    let mut peer = Peer::new();
    let mut session = Publisher::new(ServerOptions::default(), dictionaries(), T0);
    exchange(&mut peer, &mut session, piece).unwrap();
    login(&mut peer, stream, login::PROVIDER);
    assert_eq!(exchange(&mut peer, &mut session, piece).unwrap(), ["up"]);
    (peer, session)
}

fn directory_refresh(peer: &mut Peer) {
    let service = Service {
        id: 1,
        info: Some(Info { name: "NI".into(), ..Info::default() }),
        state: Some(ServiceState { up: true, ..ServiceState::default() }),
        ..Service::default()
    };
    let payload =
        to_vec(|w| directory::encode(w, directory::filter::ALL, &[(Action::Add, service.clone())])).unwrap();
    let refresh = Refresh {
        flags: RefreshFlags::COMPLETE | RefreshFlags::CLEAR_CACHE,
        state: State::OK,
        ..Refresh::new(Domain::DIRECTORY, -1, DataType::MAP, &payload)
    };
    peer.send(|w| refresh.encode(w));
}

#[test]
fn publisher_logs_in_announces_and_publishes() {
    for piece in [1, 7, 100_000] {
        let (mut peer, mut session) = opened(piece, 1);
        assert_eq!(session.identity().user, "nip");
        let Ok(Message::Refresh(reply)) = Message::decode(&peer.received[0]) else { panic!("a refresh") };
        let reply = login::Reply::decode(&reply).unwrap();
        assert!(reply.solicited && reply.support_post && !reply.attributes.single_open);
        assert!(reply.attributes.dictionary_download, "the server has a dictionary");
        directory_refresh(&mut peer);
        let key = Some(Key::item(1, b"A"));
        let image =
            Refresh { domain: Domain::MARKET_PRICE, stream: -6, key, state: State::OK, ..Refresh::default() };
        peer.send(|w| image.encode(w));
        peer.send(|w| Update { domain: Domain::MARKET_PRICE, stream: -6, ..Update::default() }.encode(w));
        peer.send(|w| Close::new(Domain::DIRECTORY, -1).encode(w));
        let events = exchange(&mut peer, &mut session, piece).unwrap();
        assert_eq!(
            events,
            ["1 services, replaces true", "Refresh on -6", "Update on -6", "0 services, replaces true"]
        );
    }
}

#[test]
fn login_reply_names_the_server_and_repeats_no_secret() {
    let mut peer = Peer::new();
    let mut session = Publisher::new(ServerOptions::default(), dictionaries(), T0);
    let attributes = login::Attributes {
        role: login::PROVIDER,
        application_name: Some(b"client"),
        password: Some(b"secret"),
        authentication_token: Some(b"secret"),
        ..login::Attributes::default()
    };
    exchange(&mut peer, &mut session, 100_000).unwrap();
    peer.send(|w| login::Request { user: b"nip", name_type: 1, attributes: attributes.clone() }.encode(1, w));
    exchange(&mut peer, &mut session, 100_000).unwrap();
    let [reply] = &peer.received[..] else { panic!("{} replies", peer.received.len()) };
    assert!(!reply.windows(6).any(|part| part == b"secret"), "{}", reply.escape_ascii());
    let Ok(Message::Refresh(reply)) = Message::decode(reply) else { panic!("a refresh") };
    let reply = login::Reply::decode(&reply).unwrap();
    assert_eq!((reply.user, reply.attributes.application_name), (&b"nip"[..], Some(&b"src_dist"[..])));
}

#[test]
fn open_streams_are_told_of_a_changed_dictionary() {
    let mut peer = Peer::new();
    let known = dictionaries();
    let mut session = Publisher::new(ServerOptions::default(), known.clone(), T0);
    exchange(&mut peer, &mut session, 100_000).unwrap();
    login(&mut peer, 1, login::PROVIDER);
    let key = Key { name: Some(b"RWFFld"), filter: Some(15), ..Key::default() };
    let domain = Domain::DICTIONARY;
    // More streams than a publisher may have open, one of which it closes.
    for stream in 3..=20 {
        let flags = RequestFlags::STREAMING;
        peer.send(|w| Request::new(domain, stream, flags, key).encode(w));
    }
    peer.send(|w| Close::new(domain, 4).encode(w));
    exchange(&mut peer, &mut session, 100_000).unwrap();
    let statuses = |peer: &mut Peer| {
        let all = peer.received.drain(..).collect::<Vec<_>>();
        let status = |message: &Vec<u8>| match Message::decode(message).unwrap() {
            Message::Status(status) => Some((status.stream, status.state.unwrap().stream)),
            _ => None,
        };
        all.iter().filter_map(status).collect::<Vec<_>>()
    };
    assert_eq!(statuses(&mut peer), [(19, StreamState::Closed), (20, StreamState::Closed)]);
    let mut changed = rssl::dictionary::Dictionary::small();
    changed.fields.edition.version = "99.1".into();
    known.replace(&changed).unwrap();
    for _ in 0..2 {
        session.tick(T0).unwrap();
        exchange(&mut peer, &mut session, 100_000).unwrap();
    }
    let told: Vec<_> = (3..19).filter(|stream| *stream != 4).map(|n| (n, StreamState::Open)).collect();
    assert_eq!(statuses(&mut peer), told);
}

#[test]
fn posts_are_sent_on_the_publishers_login_stream() {
    let (mut peer, mut session) = opened(100, 9);
    let post = Post { domain: Domain::MARKET_PRICE, stream: 1, ..Post::default() }.to_vec().unwrap();
    session.send(&post).unwrap();
    exchange(&mut peer, &mut session, 100).unwrap();
    assert_eq!(peek(&peer.received[1]).unwrap().stream, 9);
}

#[test]
fn consumer_logins_are_refused() {
    let mut peer = Peer::new();
    let mut session = Publisher::new(ServerOptions::default(), dictionaries(), T0);
    exchange(&mut peer, &mut session, 100).unwrap();
    login(&mut peer, 1, login::CONSUMER);
    let why = exchange(&mut peer, &mut session, 100).unwrap_err();
    assert!(matches!(why, SessionError::Login { for_good: true, .. }), "{why}");
    let bytes = std::mem::take(session.output());
    peer.read(&bytes);
    let Ok(Message::Status(status)) = Message::decode(&peer.received[0]) else { panic!("a status") };
    assert_eq!(status.state.unwrap().stream, StreamState::Closed);
}

#[test]
fn requests_for_other_domains_are_refused() {
    let (mut peer, mut session) = opened(100, 1);
    for (domain, stream) in [(Domain::DICTIONARY, 3), (Domain::DIRECTORY, 4)] {
        let key = Key::item(1, b"NONE");
        peer.send(|w| Request::new(domain, stream, RequestFlags::NONE, key).encode(w));
    }
    exchange(&mut peer, &mut session, 100).unwrap();
    for (n, stream) in [(1, 3), (2, 4)] {
        let Ok(Message::Status(status)) = Message::decode(&peer.received[n]) else { panic!("a status") };
        assert_eq!((status.stream, status.state.unwrap().stream), (stream, StreamState::Closed));
    }
}

#[test]
fn publisher_downloads_the_dictionaries() {
    let (mut peer, mut session) = opened(100, 1);
    let names = [(3, rssl::dictionary::FIELD_DICTIONARY), (4, rssl::dictionary::ENUM_DICTIONARY)];
    for (stream, name) in names {
        let key = Key { filter: Some(15), ..Key::item(1, name.as_bytes()) };
        peer.send(|w| Request::new(Domain::DICTIONARY, stream, RequestFlags::NONE, key).encode(w));
    }
    exchange(&mut peer, &mut session, 100_000).unwrap();
    let mut got = rssl::dictionary::Dictionary::default();
    for message in &peer.received[1..] {
        let Ok(Message::Refresh(refresh)) = Message::decode(message) else { panic!("a refresh") };
        assert_eq!(refresh.state.stream, StreamState::NonStreaming);
        match refresh.stream {
            3 => got.fields.take_part(refresh.payload).map(drop).unwrap(),
            _ => got.enums.take_part(refresh.payload).map(drop).unwrap(),
        }
    }
    let small = rssl::dictionary::Dictionary::small();
    assert_eq!(got.fields.parts(15, 4000).unwrap(), small.fields.parts(15, 4000).unwrap());
    assert_eq!(got.enums.parts(15, 4000).unwrap(), small.enums.parts(15, 4000).unwrap());
}

#[test]
fn malformed_message_ends_the_session_with_a_reason() {
    let (mut peer, mut session) = opened(100, 1);
    peer.channel.write(&[0, 9, 2, 4, 0], &mut peer.out).unwrap();
    let why = exchange(&mut peer, &mut session, 100).unwrap_err();
    assert!(matches!(why, SessionError::Protocol(_)), "{why}");
    session.end_login(&why);
    let bytes = std::mem::take(session.output());
    peer.read(&bytes);
    assert_eq!(peek(peer.received.last().unwrap()).unwrap().domain, Domain::LOGIN);

    let mut early = Peer::new();
    let mut session = Publisher::new(ServerOptions::default(), dictionaries(), T0);
    exchange(&mut early, &mut session, 100).unwrap();
    directory_refresh(&mut early);
    let why = exchange(&mut early, &mut session, 100).unwrap_err();
    assert!(why.to_string().contains("before the login"), "{why}");
}

#[test]
fn silent_publisher_times_out() {
    let (_, mut session) = opened(100, 1);
    let timeout = session.connection.channel.opened().unwrap().ping_timeout;
    session.written(T0);
    assert!(session.tick(T0).is_ok());
    assert!(session.tick(T0 + timeout / 2).is_ok());
    assert!(!session.output().is_empty(), "a ping");
    assert!(matches!(session.tick(T0 + timeout + Now::from_secs(1)), Err(SessionError::Silent(_))));
    let mut silent = Publisher::new(ServerOptions::default(), dictionaries(), T0);
    silent.connection.channel.received(T0 + Now::from_secs(46));
    let slow = |seconds| Err(SessionError::Slow { what: "login", seconds });
    assert_eq!(silent.tick(T0 + Now::from_secs(46)), slow(45));
    let mut limited = silent.with_login_timeout(Now::from_secs(10));
    assert_eq!(limited.tick(T0 + Now::from_secs(10)), Ok(()));
    assert_eq!(limited.deadline(), Some(T0 + Now::from_secs(10)));
    assert_eq!(limited.tick(T0 + Now::from_secs(11)), slow(10));
}
