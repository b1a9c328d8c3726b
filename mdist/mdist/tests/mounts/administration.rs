//! Login, directory, dictionary.

use mdist::mounts::{AllowAll, Config, Denial, Permissions, Reason};
use rssl::dictionary::{Dictionary, Fields};
use rssl::rdm::directory::{self, Action, Service};
use rssl::rdm::login;
use rssl::rwf::{
    Close, DataState, DataType, Domain, Key, Message, Refresh, RefreshFlags, Request, RequestFlags,
    StreamState, UpdateFlags, code,
};
use rssl::wire::to_vec;

use crate::support::*;

const STREAMING: RequestFlags = RequestFlags::STREAMING;

#[test]
fn a_login_is_accepted_with_what_it_told_and_what_the_server_can() {
    let mut room = Room::new();
    let at = room.connect();
    room.send(at, &login_request("joe", &[("SingleOpen", 0), ("AllowSuspectData", 1)]));
    let heard = room.one(at);
    let refresh = heard.refresh();
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
    let stats = room.worker.stats(room.clients[at].mount).unwrap();
    assert_eq!(stats.user, "joe");
}

#[test]
fn nothing_before_the_login_and_one_login() {
    let mut room = Room::new();
    let at = room.connect();
    room.request(at, 5, "A");
    let heard = room.one(at);
    assert_eq!(
        heard.status().state.map(|state| (state.stream, state.code)),
        Some((StreamState::Closed, code::USAGE_ERROR))
    );
    room.send(at, &login_request("user", &[]));
    room.heard(at);
    room.send(at, &login_request_on(9, STREAMING, "user", &[]));
    let heard = room.one(at);
    assert_eq!((heard.stream(), heard.status().state.unwrap().code), (9, code::USAGE_ERROR));
    room.request(at, 5, "A");
    assert_eq!(room.one(at).refresh().stream, 5, "the first login stands");
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
    let mut room = Room::with(Config::default(), 100, Box::new(OnlyJoe));
    let (joe, ann) = (room.connect(), room.connect());
    room.send(ann, &login_request("ann", &[]));
    let heard = room.one(ann);
    let state = heard.status().state.unwrap();
    assert_eq!(
        (state.stream, state.code, state.text),
        (StreamState::Closed, code::NOT_ENTITLED, &b"only joe may"[..])
    );
    assert_eq!(room.cut(), (room.clients[ann].mount, Reason::LoginRefused("only joe may".into())));
    room.send(joe, &login_request("joe", &[]));
    room.one(joe);
    room.request(joe, 5, "SECRET");
    assert_eq!(room.one(joe).status().state.unwrap().code, code::NOT_ENTITLED);
    room.request(joe, 5, "A");
    assert_eq!(room.one(joe).refresh().stream, 5);
}

#[test]
fn so_many_mounts_for_a_user() {
    let config = Config { mounts_per_user: Some(2), ..Config::default() };
    let mut room = Room::with(config, 100, Box::new(AllowAll));
    let (first, _) = (room.login(), room.login());
    let third = room.connect();
    room.send(third, &login_request("user", &[]));
    let heard = room.one(third);
    let state = heard.status().state.unwrap();
    assert_eq!((state.stream, state.code), (StreamState::ClosedRecover, code::EXCEEDED_MAX_MOUNTS_PER_USER));
    assert!(matches!(room.cut().1, Reason::LoginRefused(_)));
    room.worker.closed(room.clients[third].mount, Reason::PeerClosed).unwrap();
    room.worker.closed(room.clients[first].mount, Reason::PeerClosed).unwrap();
    room.login();
}

#[test]
fn publishers_are_sent_to_their_own_port() {
    let mut room = Room::new();
    let at = room.connect();
    room.send(at, &login_request("user", &[("Role", 1)]));
    assert_eq!(room.one(at).status().state.unwrap().stream, StreamState::Closed);
    assert!(room.cut().1.to_string().contains("publisher"));
    let at = room.login();
    let refresh = Refresh {
        domain: Domain::MARKET_PRICE,
        stream: -1,
        container: DataType::NO_DATA,
        ..Refresh::default()
    };
    room.send(at, &to_vec(|w| refresh.encode(w)).unwrap());
    assert!(room.cut().1.to_string().contains("publisher"));
}

#[test]
fn closing_the_login_closes_everything_silently() {
    let mut room = Room::new();
    let at = room.login();
    room.request(at, 5, "A");
    room.request(at, 6, "B");
    room.heard(at);
    room.send(
        at,
        &to_vec(|w| Close { domain: Domain::LOGIN, stream: 1, ..Close::default() }.encode(w)).unwrap(),
    );
    assert_eq!((room.heard(at), room.hub.closes, room.hub.items.iter().flatten().count()), (vec![], 2, 0));
    room.send(at, &login_request("user", &[]));
    room.one(at);
    room.request(at, 5, "A");
    assert_eq!(room.one(at).refresh().stream, 5);
}

#[test]
fn a_login_again_disturbs_no_item() {
    let mut room = Room::new();
    let at = room.login();
    room.request(at, 5, "A");
    room.heard(at);
    room.send(at, &login_request("user", &[("SingleOpen", 1)]));
    assert_eq!(room.one(at).refresh().domain, Domain::LOGIN);
    let item = room.hub.item("A");
    room.tell(item, &update(Domain::MARKET_PRICE));
    assert_eq!(room.one(at).stream(), 5);
}

#[test]
fn a_forced_logout_is_told() {
    let mut room = Room::new();
    let (at, other) = (room.login(), room.login());
    for (client, reason, state) in [
        (at, Reason::Forced("operator".into()), StreamState::Closed),
        (other, Reason::ShutDown, StreamState::ClosedRecover),
    ] {
        let mount = room.clients[client].mount;
        room.worker.log_out_and_disconnect(mount, reason.clone());
        room.run();
        let heard = room.one(client);
        assert_eq!(
            (heard.message().head().domain, heard.status().state.unwrap().stream),
            (Domain::LOGIN, state)
        );
        assert_eq!(room.cut(), (mount, reason));
    }
}

fn directory(stream: i32, filter: Option<u32>, service: Option<u16>, flags: RequestFlags) -> Vec<u8> {
    let request = Request {
        domain: Domain::DIRECTORY,
        stream,
        flags,
        container: DataType::NO_DATA,
        key: Key { filter, service, ..Key::default() },
        ..Request::default()
    };
    to_vec(|w| request.encode(w)).unwrap()
}

fn services(heard: &Heard) -> Vec<(Action, Service)> {
    directory::decode(heard.message().payload()).unwrap()
}

#[test]
fn the_directory_as_it_was_asked_for() {
    let mut room = Room::new();
    room.services.push(service(7, "OTHER"));
    room.show_services();
    let at = room.login();
    room.send(at, &directory(2, Some(0x3f), None, STREAMING));
    let heard = room.one(at);
    assert!(heard.0.len() < 16_000, "stock consumers decode it in so much");
    let refresh = heard.refresh();
    assert_eq!(
        (refresh.stream, refresh.state.stream, refresh.state.data),
        (2, StreamState::Open, DataState::Ok)
    );
    assert!(
        refresh.flags.contains(RefreshFlags::SOLICITED | RefreshFlags::COMPLETE | RefreshFlags::CLEAR_CACHE)
    );
    assert_eq!(refresh.key.unwrap().filter, Some(0x3f));
    let all = services(&heard);
    assert_eq!(
        all.iter().map(|(action, one)| (*action, one.id)).collect::<Vec<_>>(),
        [(Action::Add, 1), (Action::Add, 7)]
    );
    let info = all[0].1.info.as_ref().unwrap();
    assert_eq!((info.name.as_str(), &info.dictionaries_provided), ("DIRECT_FEED", &info.dictionaries_used));
    let load = all[0].1.load.as_ref().unwrap();
    assert_eq!((load.open_limit, load.open_window), (Some(1_000_000), Some(100_000)));
    // Some parts of one service.
    room.send(at, &directory(3, Some(0x3), Some(7), STREAMING));
    let some = services(&room.one(at));
    assert_eq!(
        (some.len(), some[0].1.id, some[0].1.info.is_some(), some[0].1.load.is_some()),
        (1, 7, true, false)
    );
    // A service that is not there, once.
    room.send(at, &directory(4, Some(0x3f), Some(99), RequestFlags::NONE));
    let heard = room.one(at);
    assert_eq!((heard.refresh().state.stream, services(&heard).len()), (StreamState::NonStreaming, 0));
    room.send(at, &directory(4, None, None, RequestFlags::NONE));
    assert_eq!(room.one(at).refresh().stream, 4, "the id is free again");
}

#[test]
fn the_directory_changes() {
    let mut room = Room::new();
    let at = room.login();
    room.send(at, &directory(2, Some(0x3f), None, STREAMING));
    room.send(at, &directory(3, Some(0x1), None, STREAMING));
    room.send(at, &directory(4, Some(0x3f), Some(7), STREAMING));
    room.heard(at);
    // Nothing has changed.
    room.show_services();
    assert_eq!(room.heard(at), []);
    // A state: whoever asked for states hears that part alone.
    room.services[0].state.as_mut().unwrap().up = false;
    room.show_services();
    let heard = room.one(at);
    assert!(heard.update().flags.contains(UpdateFlags::DO_NOT_CONFLATE));
    let told = services(&heard);
    assert_eq!((heard.stream(), told[0].0, told[0].1.info.is_none()), (2, Action::Update, true));
    assert_eq!(told[0].1.state.as_ref().map(|state| state.up), Some(false));
    // A service more, then one less.
    room.services.push(service(7, "OTHER"));
    room.show_services();
    let heard = room.heard(at);
    assert_eq!(heard.iter().map(Heard::stream).collect::<Vec<_>>(), [2, 3, 4]);
    assert!(services(&heard[2])[0].1.info.is_some());
    room.services.remove(0);
    room.show_services();
    let heard = room.heard(at);
    assert_eq!(heard.iter().map(Heard::stream).collect::<Vec<_>>(), [2, 3]);
    assert_eq!((services(&heard[0])[0].0, services(&heard[0])[0].1.id), (Action::Delete, 1));
    // Another filter on an open stream.
    room.send(at, &directory(3, Some(0x3), None, STREAMING));
    let told = services(&room.one(at));
    assert!(told[0].1.state.is_some());
    // After its close nothing comes.
    for stream in [2, 3, 4] {
        room.close(at, stream);
    }
    room.services.clear();
    room.show_services();
    assert_eq!(room.heard(at), []);
}

fn dictionary(stream: i32, name: &str, verbosity: u32, flags: RequestFlags) -> Vec<u8> {
    let request = Request {
        domain: Domain::DICTIONARY,
        stream,
        flags,
        container: DataType::NO_DATA,
        key: Key { filter: Some(verbosity), ..Key::item(1, name.as_bytes()) },
        ..Request::default()
    };
    to_vec(|w| request.encode(w)).unwrap()
}

#[test]
fn dictionaries_in_parts() {
    let config = Config { dictionary_part: 600, ..Config::default() };
    let mut room = Room::with(config, 100, Box::new(AllowAll));
    let at = room.login();
    for (flags, state) in [(STREAMING, StreamState::Open), (RequestFlags::NONE, StreamState::NonStreaming)] {
        room.send(at, &dictionary(3, "RWFFld", 15, flags));
        let heard = room.heard(at);
        assert!(heard.len() > 2, "{} parts", heard.len());
        let mut fields = Fields::default();
        for (at, part) in heard.iter().enumerate() {
            let refresh = part.refresh();
            assert!(refresh.payload.len() <= 600);
            assert_eq!(
                (refresh.state.stream, refresh.part, refresh.container),
                (state, Some(at as u16), DataType::SERIES)
            );
            assert_eq!(refresh.flags.contains(RefreshFlags::CLEAR_CACHE), at == 0);
            assert_eq!(refresh.flags.contains(RefreshFlags::COMPLETE), at + 1 == heard.len());
            assert_eq!(refresh.key.unwrap().name, Some(&b"RWFFld"[..]));
            fields.take_part(refresh.payload).unwrap();
        }
        let own = Dictionary::small();
        assert_eq!(fields.len(), own.fields.len());
        assert_eq!(fields.get(22).map(|field| &field.name), own.fields.get(22).map(|field| &field.name));
        room.close(at, 3);
    }
    room.send(at, &dictionary(4, "RWFEnum", 0, STREAMING));
    assert_eq!(room.heard(at).len(), 1, "information alone");
    room.send(at, &dictionary(5, "NoSuch", 7, STREAMING));
    let heard = room.one(at);
    assert_eq!(heard.status().state.unwrap().code, code::NOT_FOUND);
    assert!(matches!(heard.message(), Message::Status(_)));
}
