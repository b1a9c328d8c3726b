//! Slow and fast readers: buffers, cuts, pacing, silence.

use std::time::Duration;

use mdist::mounts::{AllowAll, Config, Limits, Reason};
use rssl::rwf::{Domain, Message};
use rssl::transport::{ClientOptions, Compression, ServerOptions};

use crate::support::*;

fn small(guaranteed: usize, max: usize) -> Config {
    Config { output: Limits { guaranteed, max }, ..Config::default() }
}

#[test]
fn one_slow_mount_is_cut_alone_and_with_figures() {
    let mut room = Room::with(small(1, 3), 2, Box::new(AllowAll));
    let (slow, fast) = (room.login(), room.login());
    for at in [slow, fast] {
        room.request(at, 5, "A");
        room.heard(at);
    }
    room.clients[slow].reads = false;
    let item = room.hub.item("A");
    let mut sent = 0;
    while room.cuts.is_empty() {
        room.tell(item, &update(Domain::MARKET_PRICE));
        sent += 1;
        assert!(sent < 10_000, "the slow one is never cut");
    }
    let size = update(Domain::MARKET_PRICE).len() + 3;
    assert_eq!(sent, 3 * 6144 / size + 1, "three buffers, then the end");
    assert_eq!(room.heard(fast).len(), sent);
    let (mount, reason) = room.cut();
    assert_eq!(mount, room.clients[slow].mount);
    let Reason::Overflow(overflow) = &reason else { panic!("{reason}") };
    assert_eq!((overflow.used, overflow.max, overflow.pool_free), (4, 3, 0));
    let farewell = room.worker.closed(mount, Reason::PeerClosed).unwrap();
    assert_eq!(farewell.reason, reason, "the first reason counts");
    assert_eq!((farewell.stats.buffers_high_water, farewell.stats.user.as_str()), (3, "user"));
    assert_eq!(room.shared.pool.free(), 2);
    room.tell(item, &update(Domain::MARKET_PRICE));
    assert_eq!(room.heard(fast).len(), 1);
    assert_eq!(room.worker.closed(mount, Reason::PeerClosed), None);
}

#[test]
fn a_burst_of_requests_never_overflows_who_reads() {
    let mut room = Room::with(small(4, 8), 0, Box::new(AllowAll));
    let at = room.login();
    room.clients[at].reads = false;
    let items = 5000;
    let mut burst = Vec::new();
    for n in 0..items {
        let message = request(n + 5, &format!("ITEM{n}"), rssl::rwf::RequestFlags::STREAMING);
        burst.extend_from_slice(&rssl::transport::frame_header(message.len()));
        burst.extend_from_slice(&message);
    }
    room.bytes(at, &burst);
    assert_eq!(room.cuts, []);
    let first = room.hub.opens;
    assert!((1..400).contains(&first), "{first} asked before the client has read anything");
    let mut images = 0;
    let mut turns = 0;
    while images < items as usize {
        // Every item that is there ticks meanwhile.
        for at in (0..room.hub.items.len()).step_by(97) {
            room.tell(mdist::hub::ItemId(at as u32), &update(Domain::MARKET_PRICE));
        }
        room.read(at);
        room.run();
        let heard = room.heard(at);
        images += heard.iter().filter(|heard| matches!(heard.message(), Message::Refresh(_))).count();
        turns += 1;
        assert!(turns < 2000 && room.cuts.is_empty(), "{turns} turns, {images} images, {:?}", room.cuts);
    }
    assert_eq!((room.hub.opens, images), (items as usize, items as usize));
}

#[test]
fn what_is_closed_while_it_waits_is_never_asked() {
    let mut room = Room::with(small(1, 2), 0, Box::new(AllowAll));
    let at = room.login();
    room.clients[at].reads = false;
    for round in 0..200 {
        for n in 0..50 {
            room.request(at, 5 + n, &format!("ITEM{round}-{n}"));
        }
        for n in 0..50 {
            room.close(at, 5 + n);
        }
        let stats = room.worker.stats(room.clients[at].mount).unwrap();
        assert!(stats.requests_waiting < 200, "{}", stats.requests_waiting);
    }
    assert_eq!(room.cuts, []);
    room.read(at);
    room.run();
    assert_eq!(room.hub.items.iter().flatten().count(), 0);
}

#[test]
fn pings_silence_and_late_logins() {
    let mut room = Room::new();
    let talks = room.login();
    let silent = room.login();
    let nobody = room.connect();
    let timeout = 60;
    for second in 0..timeout + 2 {
        room.now += Duration::from_secs(1);
        room.bytes(talks, &rssl::transport::PING_FRAME);
        assert!(room.worker.deadline().is_some_and(|at| at <= room.now), "second {second}");
        room.worker.tick(room.now);
        let bytes = room.take(talks, usize::MAX);
        if second == 19 {
            assert_eq!(bytes, rssl::transport::PING_FRAME, "a third of the time without anything to say");
        }
        room.run();
    }
    let cuts: Vec<_> = room.cuts.drain(..).map(|cut| (cut.mount, cut.reason)).collect();
    let clients = &room.clients;
    assert_eq!(
        cuts,
        [
            (clients[nobody].mount, Reason::NoLogin { seconds: 45 }),
            (clients[silent].mount, Reason::Silent { seconds: timeout }),
        ]
    );
}

#[test]
fn compressed_and_plain_mounts_side_by_side() {
    let transport = ServerOptions { compression: vec![Compression::Zlib], ..ServerOptions::default() };
    let mut room = Room::with(Config { transport, ..Config::default() }, 100, Box::new(AllowAll));
    let plain = room.login();
    let zlib =
        room.connect_with(ClientOptions { compression: vec![Compression::Zlib], ..ClientOptions::default() });
    room.send(zlib, &login_request("user", &[]));
    room.heard(zlib);
    for at in [plain, zlib] {
        room.request(at, 5, "A");
        room.heard(at);
    }
    let item = room.hub.item("A");
    let long = rssl::rwf::Update {
        domain: Domain::MARKET_PRICE,
        stream: 1,
        container: rssl::rwf::DataType::OPAQUE,
        payload: &[7; 100],
        ..rssl::rwf::Update::default()
    };
    let long = rssl::wire::to_vec(|w| long.encode(w)).unwrap();
    for _ in 0..100 {
        room.tell(item, &long);
    }
    let (a, b) = (room.heard(plain), room.heard(zlib));
    assert_eq!((a.len(), a), (100, b));
    let bytes = |at: usize| room.worker.stats(room.clients[at].mount).unwrap().bytes_out;
    assert!(bytes(zlib) < bytes(plain), "{} {}", bytes(zlib), bytes(plain));
}

#[test]
fn messages_longer_than_a_frame() {
    let mut room = Room::new();
    let (first, second) = (room.login(), room.login());
    for at in [first, second] {
        room.request(at, 5, "A");
        room.heard(at);
    }
    let item = room.hub.item("A");
    let mut payload = vec![8, 0, 1, 0, 22, 0xfe, 0x4e, 0x20];
    payload.resize(payload.len() + 20_000, 7);
    let update = rssl::rwf::Update {
        domain: Domain::MARKET_PRICE,
        stream: 1,
        container: rssl::rwf::DataType::FIELD_LIST,
        payload: &payload,
        ..rssl::rwf::Update::default()
    };
    let message = rssl::wire::to_vec(|w| update.encode(w)).unwrap();
    room.tell(item, &message);
    for at in [first, second] {
        assert_eq!(room.one(at).update().payload, payload);
    }
}

#[test]
fn figures_of_a_mount() {
    let mut room = Room::new();
    let at = room.login();
    room.request(at, 5, "A");
    room.clients[at].reads = false;
    let item = room.hub.item("A");
    room.tell(item, &update(Domain::MARKET_PRICE));
    let stats = room.worker.stats(room.clients[at].mount).unwrap();
    assert_eq!((stats.messages_in, stats.messages_out, stats.streams, stats.buffers), (2, 3, 2, 1));
    assert_eq!(stats.bytes_waiting, update(Domain::MARKET_PRICE).len() + 3);
    assert_eq!((stats.peer.as_str(), stats.application.as_str()), ("192.0.2.1:4000", "(256)"));
    assert_eq!(room.worker.mounts().count(), 1);
}
