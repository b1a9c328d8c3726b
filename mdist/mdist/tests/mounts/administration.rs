//! Login, directory, dictionary.

use mdist::mounts::{AllowAll, Config, Denial, Permissions, Reason};
use rssl::dictionary::{Dictionary, Fields};
use rssl::rdm::directory::{self, Action, Service};
use rssl::rdm::login;
use rssl::rwf::{
    Close, DataState, DataType, Domain, Key, Message, Refresh, RefreshFlags, Request, RequestFlags,
    StreamState, UpdateFlags, code,
};
use rssl::transport::ServerOptions;
use rssl::wire::to_vec;

use crate::support::*;

const STREAMING: RequestFlags = RequestFlags::STREAMING;

#[test]
fn login_reply_has_its_attributes_and_the_servers_features() {
    let mut rig = Rig::new();
    let at = rig.connect();
    rig.send(at, &login_request("joe", &[("SingleOpen", 0), ("AllowSuspectData", 1)]));
    let received = rig.one(at);
    let refresh = received.refresh();
    assert!(refresh.flags.contains(RefreshFlags::SOLICITED | RefreshFlags::COMPLETE));
    assert_eq!(
        (refresh.stream, refresh.state.stream, refresh.state.data),
        (1, StreamState::Open, DataState::Ok)
    );
    let reply = login::Reply::decode(&refresh).unwrap();
    assert_eq!((reply.user, reply.attributes.application_id), (&b"joe"[..], Some(&b"256"[..])));
    assert_eq!((reply.attributes.single_open, reply.attributes.allow_suspect), (false, true));
    assert_eq!((reply.support_batch, reply.support_post, reply.support_view), (7, true, true));
    assert!(
        reply.support_pause
            && reply.support_optimized_pause
            && reply.support_symbol_list
            && !reply.support_standby
    );
    let stats = rig.worker.stats(rig.consumers[at].mount).unwrap();
    assert_eq!(stats.user, "joe");
}

#[test]
fn login_reply_names_the_server_and_repeats_no_secret() {
    let mut rig = Rig::new();
    let request = login::Request {
        user: b"secret",
        name_type: rssl::rwf::name_type::TOKEN,
        attributes: login::Attributes {
            application_name: Some(b"client"),
            position: Some(b"here"),
            password: Some(b"secret"),
            authentication_token: Some(b"secret"),
            authentication_extended: Some(b"secret"),
            instance_id: Some(b"instance"),
            ..login::Attributes::default()
        },
    };
    let at = rig.connect();
    // The login, and its reissue.
    for _ in 0..2 {
        rig.send(at, &to_vec(|w| request.encode(1, w)).unwrap());
        let received = rig.one(at);
        assert!(!received.0.windows(6).any(|part| part == b"secret"), "{}", received.0.escape_ascii());
        let reply = login::Reply::decode(&received.refresh()).unwrap();
        let expected = login::Attributes {
            application_name: Some(b"p2ps"),
            position: Some(b"here"),
            ..login::Attributes::default()
        };
        assert_eq!(reply.attributes, expected);
    }
    let stats = rig.worker.stats(rig.consumers[at].mount).unwrap();
    assert_eq!((stats.user.as_str(), stats.application.as_str()), ("", "client"), "a token is no name");
}

#[test]
fn requests_before_login_and_a_second_login_are_refused() {
    let mut rig = Rig::new();
    let at = rig.connect();
    rig.request(at, 5, "A");
    let received = rig.one(at);
    assert_eq!(
        received.status().state.map(|state| (state.stream, state.code)),
        Some((StreamState::Closed, code::USAGE_ERROR))
    );
    rig.send(at, &login_request("user", &[]));
    rig.received(at);
    rig.send(at, &login_request_on(9, STREAMING, "user", &[]));
    let received = rig.one(at);
    assert_eq!((received.stream(), received.status().state.unwrap().code), (9, code::USAGE_ERROR));
    rig.request(at, 5, "A");
    assert_eq!(rig.one(at).refresh().stream, 5, "the first login stands");
}

struct OnlyJoe;

impl Permissions for OnlyJoe {
    fn login(&mut self, user: &[u8], _position: &[u8], peer: &str) -> Result<(), Denial> {
        assert_eq!(peer, "192.0.2.1:4000");
        if user == b"joe" { Ok(()) } else { Err(Denial::not_entitled("only joe may")) }
    }

    fn item(&mut self, user: &[u8], service: &str, domain: u8, name: &[u8]) -> Result<(), Denial> {
        assert_eq!((user, service, domain), (&b"joe"[..], "DIRECT_FEED", 6));
        if name == b"SECRET" { Err(Denial::not_entitled("not for joe")) } else { Ok(()) }
    }
}

#[test]
fn permissions_decide_logins_and_items() {
    let mut rig = Rig::with(Config::default(), 100, Box::new(OnlyJoe));
    let (joe, ann) = (rig.connect(), rig.connect());
    rig.send(ann, &login_request("ann", &[]));
    let received = rig.one(ann);
    let state = received.status().state.unwrap();
    assert_eq!(
        (state.stream, state.code, state.text),
        (StreamState::Closed, code::NOT_ENTITLED, &b"only joe may"[..])
    );
    assert_eq!(
        rig.only_disconnect(),
        (rig.consumers[ann].mount, Reason::LoginRefused("only joe may".into()))
    );
    rig.send(joe, &login_request("joe", &[]));
    rig.one(joe);
    rig.request(joe, 5, "SECRET");
    assert_eq!(rig.one(joe).status().state.unwrap().code, code::NOT_ENTITLED);
    rig.request(joe, 5, "A");
    assert_eq!(rig.one(joe).refresh().stream, 5);
}

#[test]
fn mounts_per_user_are_limited() {
    let config = Config { mounts_per_user: Some(2), ..Config::default() };
    let mut rig = Rig::with(config, 100, Box::new(AllowAll));
    let (first, _) = (rig.login(), rig.login());
    let third = rig.connect();
    rig.send(third, &login_request("user", &[]));
    let received = rig.one(third);
    let state = received.status().state.unwrap();
    assert_eq!((state.stream, state.code), (StreamState::ClosedRecover, code::EXCEEDED_MAX_MOUNTS_PER_USER));
    assert!(matches!(rig.only_disconnect().1, Reason::LoginRefused(_)));
    rig.worker.closed(rig.consumers[third].mount, Reason::PeerClosed).unwrap();
    rig.worker.closed(rig.consumers[first].mount, Reason::PeerClosed).unwrap();
    rig.login();
}

#[test]
fn publishers_are_refused_on_the_consumer_port() {
    let mut rig = Rig::new();
    let at = rig.connect();
    rig.send(at, &login_request("user", &[("Role", 1)]));
    assert_eq!(rig.one(at).status().state.unwrap().stream, StreamState::Closed);
    assert!(rig.only_disconnect().1.to_string().contains("publisher"));
    let at = rig.login();
    let refresh = Refresh {
        domain: Domain::MARKET_PRICE,
        stream: -1,
        container: DataType::NO_DATA,
        ..Refresh::default()
    };
    rig.send(at, &refresh.to_vec().unwrap());
    assert!(rig.only_disconnect().1.to_string().contains("publisher"));
}

#[test]
fn closing_the_login_ends_all_streams_silently() {
    let (mut rig, at) = Rig::logged_in();
    rig.open(at, 5, "A");
    rig.open(at, 6, "B");
    rig.send(at, &Close::new(Domain::LOGIN, 1).to_vec().unwrap());
    assert_eq!((rig.received(at), rig.hub.closes, rig.hub.items.iter().flatten().count()), (vec![], 2, 0));
    rig.send(at, &login_request("user", &[]));
    rig.one(at);
    rig.request(at, 5, "A");
    assert_eq!(rig.one(at).refresh().stream, 5);
}

#[test]
fn consumer_that_logged_out_keeps_its_name() {
    let (mut rig, at) = Rig::logged_in();
    let mount = rig.consumers[at].mount;
    let before = rig.worker.stats(mount).unwrap();
    rig.send(at, &Close::new(Domain::LOGIN, 1).to_vec().unwrap());
    let closed = rig.worker.closed(mount, Reason::PeerClosed).unwrap();
    let who = |stats: &mdist::mounts::MountStats| {
        (stats.user.clone(), stats.application.clone(), stats.position.clone())
    };
    assert_eq!(who(&closed.stats), who(&before));
    assert_eq!(closed.stats.user, "user");
}

#[test]
fn login_reissue_leaves_items_open() {
    let (mut rig, at) = Rig::logged_in();
    rig.open(at, 5, "A");
    rig.send(at, &login_request("user", &[("SingleOpen", 1)]));
    assert_eq!(rig.one(at).refresh().domain, Domain::LOGIN);
    rig.push_update("A");
    assert_eq!(rig.one(at).stream(), 5);
}

#[test]
fn forced_logout_sends_a_status() {
    let mut rig = Rig::new();
    let (at, other) = (rig.login(), rig.login());
    for (consumer, reason, state) in [
        (at, Reason::Forced("operator".into()), StreamState::Closed),
        (other, Reason::ShutDown, StreamState::ClosedRecover),
    ] {
        let mount = rig.consumers[consumer].mount;
        rig.worker.log_out_and_disconnect(mount, reason.clone());
        rig.run();
        let received = rig.one(consumer);
        assert_eq!(
            (received.message().head().domain, received.status().state.unwrap().stream),
            (Domain::LOGIN, state)
        );
        assert_eq!(rig.only_disconnect(), (mount, reason));
    }
}

fn directory(stream: i32, filter: Option<u32>, service: Option<u16>, flags: RequestFlags) -> Vec<u8> {
    Request::new(Domain::DIRECTORY, stream, flags, Key { filter, service, ..Key::default() })
        .to_vec()
        .unwrap()
}

fn services(received: &Received) -> Vec<(Action, Service)> {
    directory::decode(received.message().payload()).unwrap()
}

#[test]
fn directory_is_filtered_as_requested() {
    let mut rig = Rig::new();
    rig.services.push(service(7, "OTHER"));
    rig.show_services();
    let at = rig.login();
    rig.send(at, &directory(2, Some(0x3f), None, STREAMING));
    let received = rig.one(at);
    assert!(received.0.len() < 16_000, "stock consumers decode a directory in a buffer of this size");
    let refresh = received.refresh();
    assert_eq!(
        (refresh.stream, refresh.state.stream, refresh.state.data),
        (2, StreamState::Open, DataState::Ok)
    );
    assert!(refresh.flags.contains(RefreshFlags::REPLY));
    assert_eq!(refresh.key.unwrap().filter, Some(0x3f));
    let all = services(&received);
    assert_eq!(
        all.iter().map(|(action, one)| (*action, one.id)).collect::<Vec<_>>(),
        [(Action::Add, 1), (Action::Add, 7)]
    );
    let info = all[0].1.info.as_ref().unwrap();
    assert_eq!((info.name.as_str(), &info.dictionaries_provided), ("DIRECT_FEED", &info.dictionaries_used));
    // Stock consumers request no dictionary of a service without this domain.
    assert_eq!(info.capabilities, [6, 7, 8, 10, 200, Domain::DICTIONARY.0]);
    let load = all[0].1.load.as_ref().unwrap();
    assert_eq!((load.open_limit, load.open_window), (Some(1_000_000), Some(100_000)));
    // A filter for some parts of one service.
    rig.send(at, &directory(3, Some(0x3), Some(7), STREAMING));
    let some = services(&rig.one(at));
    assert_eq!(
        (some.len(), some[0].1.id, some[0].1.info.is_some(), some[0].1.load.is_some()),
        (1, 7, true, false)
    );
    // An unknown service, without updates.
    rig.send(at, &directory(4, Some(0x3f), Some(99), RequestFlags::NONE));
    let received = rig.one(at);
    assert_eq!((received.refresh().state.stream, services(&received).len()), (StreamState::NonStreaming, 0));
    rig.send(at, &directory(4, None, None, RequestFlags::NONE));
    assert_eq!(rig.one(at).refresh().stream, 4, "the id is free again");
}

#[test]
fn directory_updates_follow_the_filter() {
    let (mut rig, at) = Rig::logged_in();
    rig.send(at, &directory(2, Some(0x3f), None, STREAMING));
    rig.send(at, &directory(3, Some(0x1), None, STREAMING));
    rig.send(at, &directory(4, Some(0x3f), Some(7), STREAMING));
    rig.received(at);
    // The same services again.
    rig.show_services();
    assert_eq!(rig.received(at), []);
    // A new state: filters with states get that part alone.
    rig.services[0].state.as_mut().unwrap().up = false;
    rig.show_services();
    let received = rig.one(at);
    assert!(received.update().flags.contains(UpdateFlags::DO_NOT_CONFLATE));
    let changes = services(&received);
    assert_eq!((received.stream(), changes[0].0, changes[0].1.info.is_none()), (2, Action::Update, true));
    assert_eq!(changes[0].1.state.as_ref().map(|state| state.up), Some(false));
    // A service is added, then one removed.
    rig.services.push(service(7, "OTHER"));
    rig.show_services();
    let received = rig.received(at);
    assert_eq!(received.iter().map(Received::stream).collect::<Vec<_>>(), [2, 3, 4]);
    assert!(services(&received[2])[0].1.info.is_some());
    rig.services.remove(0);
    rig.show_services();
    let received = rig.received(at);
    assert_eq!(received.iter().map(Received::stream).collect::<Vec<_>>(), [2, 3]);
    assert_eq!((services(&received[0])[0].0, services(&received[0])[0].1.id), (Action::Delete, 1));
    // Another filter on an open stream.
    rig.send(at, &directory(3, Some(0x3), None, STREAMING));
    let changes = services(&rig.one(at));
    assert!(changes[0].1.state.is_some());
    // After the close of the stream.
    for stream in [2, 3, 4] {
        rig.close(at, stream);
    }
    rig.services.clear();
    rig.show_services();
    assert_eq!(rig.received(at), []);
}

fn dictionary(stream: i32, name: &str, verbosity: u32, flags: RequestFlags) -> Vec<u8> {
    Request::new(
        Domain::DICTIONARY,
        stream,
        flags,
        Key { filter: Some(verbosity), ..Key::item(1, name.as_bytes()) },
    )
    .to_vec()
    .unwrap()
}

#[test]
fn dictionaries_are_sent_in_parts() {
    let transport = ServerOptions { max_fragment: 600, ..ServerOptions::default() };
    let config = Config { transport, ..Config::default() };
    let mut rig = Rig::with(config, 100, Box::new(AllowAll));
    let at = rig.login();
    for (flags, state) in [(STREAMING, StreamState::Open), (RequestFlags::NONE, StreamState::NonStreaming)] {
        rig.send(at, &dictionary(3, "RWFFld", 15, flags));
        let received = rig.received(at);
        assert!(received.len() > 2, "{} parts", received.len());
        let mut fields = Fields::default();
        for (at, part) in received.iter().enumerate() {
            let refresh = part.refresh();
            assert!(part.0.len() <= 600, "one frame");
            assert_eq!(
                (refresh.state.stream, refresh.part, refresh.container),
                (state, Some(at as u16), DataType::SERIES)
            );
            assert_eq!(refresh.flags.contains(RefreshFlags::CLEAR_CACHE), at == 0);
            assert_eq!(refresh.flags.contains(RefreshFlags::COMPLETE), at + 1 == received.len());
            assert_eq!(refresh.key.unwrap().name, Some(&b"RWFFld"[..]));
            fields.take_part(refresh.payload).unwrap();
        }
        let own = Dictionary::small();
        assert_eq!(fields.len(), own.fields.len());
        assert_eq!(fields.get(22).map(|field| &field.name), own.fields.get(22).map(|field| &field.name));
        rig.close(at, 3);
    }
    rig.send(at, &dictionary(4, "RWFEnum", 0, STREAMING));
    assert_eq!(rig.received(at).len(), 1, "information alone");
    rig.send(at, &dictionary(5, "NoSuch", 7, STREAMING));
    let received = rig.one(at);
    assert_eq!(received.status().state.unwrap().code, code::NOT_FOUND);
    assert!(matches!(received.message(), Message::Status(_)));
}

#[test]
fn open_streams_are_told_of_a_changed_dictionary() {
    let mut rig = Rig::new();
    let (one, two) = (rig.login(), rig.login());
    rig.send(one, &dictionary(3, "RWFFld", 15, STREAMING));
    rig.send(one, &dictionary(4, "RWFEnum", 15, STREAMING));
    rig.send(two, &dictionary(3, "RWFFld", 7, STREAMING));
    rig.send(two, &dictionary(5, "RWFFld", 15, RequestFlags::NONE));
    for at in [one, two] {
        rig.received(at);
    }
    let mut changed = Dictionary::small();
    changed.fields.edition.version = "99.1".into();
    rig.dictionaries.replace(&changed).unwrap();
    for _ in 0..2 {
        rig.worker.tick(rig.now);
        rig.run();
    }
    // One status, for each stream of the fields that is open.
    for at in [one, two] {
        let received = rig.one(at);
        let state = received.state().unwrap();
        assert_eq!((received.stream(), state.stream, state.data), (3, StreamState::Open, DataState::Suspect));
        // The consumer requests it again on the stream.
        rig.send(at, &dictionary(3, "RWFFld", 15, STREAMING));
        let mut fields = Fields::default();
        rig.received(at).iter().for_each(|part| fields.take_part(part.refresh().payload).unwrap());
        assert_eq!((fields.edition.version.as_str(), fields.len()), ("99.1", changed.fields.len()));
    }
    rig.close_domain(two, 3, Domain::DICTIONARY);
    changed.fields.edition.version = "99.2".into();
    rig.dictionaries.replace(&changed).unwrap();
    rig.worker.tick(rig.now);
    rig.run();
    assert_eq!((rig.received(one).len(), rig.received(two).len()), (1, 0), "closed streams hear nothing");
}

#[test]
fn lists_of_the_server_itself_are_not_requested_upstream() {
    let (mut rig, at) = Rig::logged_in();
    for name in ["_ADS_CACHE_LIST", "_SERVER_LIST"] {
        for domain in [Domain::SYMBOL_LIST, Domain::MARKET_PRICE] {
            rig.send(at, &Request::streaming(domain, 7, Key::item(1, name.as_bytes())).to_vec().unwrap());
            let received = rig.one(at);
            let state = received.status().state.unwrap();
            assert_eq!((state.stream, state.code), (StreamState::Closed, code::NOT_FOUND), "{name}");
        }
    }
    assert_eq!((rig.hub.opens, rig.hub.items.len()), (0, 0));
}
