//! Slow and fast consumers: buffers, disconnects, request windows, silence.

use std::time::Duration;

use mdist::mounts::{AllowAll, Config, Limits, Reason};
use rssl::rwf::{Domain, Message};
use rssl::transport::{ClientOptions, Compression, ServerOptions};

use crate::support::*;

fn small(guaranteed: usize, max: usize) -> Config {
    Config { output: Limits { guaranteed, max }, ..Config::default() }
}

#[test]
fn slow_consumer_is_disconnected_alone_and_with_figures() {
    let mut rig = Rig::with(small(1, 3), 2, Box::new(AllowAll));
    let (slow, fast) = (rig.login(), rig.login());
    for at in [slow, fast] {
        rig.open(at, 5, "A");
    }
    rig.consumers[slow].reads = false;
    let item = rig.hub.item("A");
    let mut sent = 0;
    while rig.disconnects.is_empty() {
        rig.push_message(item, &update(Domain::MARKET_PRICE));
        sent += 1;
        assert!(sent < 10_000, "the slow consumer is not disconnected");
    }
    let size = update(Domain::MARKET_PRICE).len() + 3;
    assert_eq!(sent, 3 * 6144 / size + 1, "it is disconnected after three buffers");
    assert_eq!(rig.received(fast).len(), sent);
    let (mount, reason) = rig.only_disconnect();
    assert_eq!(mount, rig.consumers[slow].mount);
    let Reason::Overflow(overflow) = &reason else { panic!("{reason}") };
    assert_eq!((overflow.used, overflow.max, overflow.pool_free), (4, 3, 0));
    let closed = rig.worker.closed(mount, Reason::PeerClosed).unwrap();
    assert_eq!(closed.reason, reason, "the first reason counts");
    assert_eq!((closed.stats.buffers_high_water, closed.stats.user.as_str()), (3, "user"));
    assert_eq!(rig.shared.pool.free(), 2);
    rig.push_message(item, &update(Domain::MARKET_PRICE));
    assert_eq!(rig.received(fast).len(), 1);
    assert_eq!(rig.worker.closed(mount, Reason::PeerClosed), None);
}

#[test]
fn burst_of_requests_does_not_overflow_a_reading_consumer() {
    let mut rig = Rig::with(small(4, 8), 0, Box::new(AllowAll));
    let at = rig.login();
    rig.consumers[at].reads = false;
    let items = 5000;
    let mut burst = Vec::new();
    for n in 0..items {
        let message = request(n + 5, &format!("ITEM{n}"), rssl::rwf::RequestFlags::STREAMING);
        burst.extend_from_slice(&rssl::transport::frame_header(message.len()));
        burst.extend_from_slice(&message);
    }
    rig.bytes(at, &burst);
    assert_eq!(rig.disconnects, []);
    let first = rig.hub.opens;
    assert!((1..400).contains(&first), "{first} requests at the hub before the consumer has read anything");
    let mut images = 0;
    let mut turns = 0;
    while images < items as usize {
        // Some open items have updates meanwhile.
        for at in (0..rig.hub.items.len()).step_by(97) {
            rig.push_message(mdist::hub::ItemId(at as u32), &update(Domain::MARKET_PRICE));
        }
        rig.read(at);
        rig.run();
        let received = rig.received(at);
        images +=
            received.iter().filter(|received| matches!(received.message(), Message::Refresh(_))).count();
        turns += 1;
        assert!(
            turns < 2000 && rig.disconnects.is_empty(),
            "{turns} turns, {images} images, {:?}",
            rig.disconnects
        );
    }
    assert_eq!((rig.hub.opens, images), (items as usize, items as usize));
}

#[test]
fn images_arrive_while_updates_fill_the_output() {
    // Images stop at half of four buffers; updates keep more than that unread at all times.
    let mut rig = Rig::with(small(4, 64), 100, Box::new(AllowAll));
    let at = rig.login();
    rig.open(at, 5, "A");
    rig.consumers[at].reads = false;
    let item = rig.hub.item("A");
    let fill = |rig: &mut Rig| {
        while rig.worker.waiting(rig.consumers[at].mount) < 4 * 6144 {
            rig.push_message(item, &update(Domain::MARKET_PRICE));
            assert!(rig.disconnects.is_empty(), "{:?}", rig.disconnects);
        }
    };
    fill(&mut rig);
    let items = 200;
    let opens = rig.hub.opens;
    for n in 0..items {
        rig.request(at, 100 + n, &format!("ITEM{n}"));
    }
    assert_eq!(rig.hub.opens, opens, "no image is requested before the consumer reads");
    let mut read = 0;
    while rig.hub.opens - opens < items as usize {
        read += rig.take(at, 6144).len();
        rig.run();
        fill(&mut rig);
        assert!(rig.disconnects.is_empty(), "{:?}", rig.disconnects);
        let images = rig.hub.opens - opens;
        assert!(read < 64 << 20, "{images} images requested after {read} bytes");
    }
    assert!(read > 2 * 6144, "images took more than their share: {read} bytes");
}

#[test]
fn requests_closed_in_the_queue_do_not_reach_the_hub() {
    let mut rig = Rig::with(small(1, 2), 0, Box::new(AllowAll));
    let at = rig.login();
    rig.consumers[at].reads = false;
    for round in 0..200 {
        for n in 0..50 {
            rig.request(at, 5 + n, &format!("ITEM{round}-{n}"));
        }
        for n in 0..50 {
            rig.close(at, 5 + n);
        }
        let stats = rig.worker.stats(rig.consumers[at].mount).unwrap();
        assert!(stats.requests_waiting < 200, "{}", stats.requests_waiting);
    }
    assert_eq!(rig.disconnects, []);
    rig.read(at);
    rig.run();
    assert_eq!(rig.hub.items.iter().flatten().count(), 0);
}

#[test]
fn silent_and_late_consumers_are_disconnected() {
    let mut rig = Rig::new();
    let talks = rig.login();
    let silent = rig.login();
    let late = rig.connect();
    let timeout = 60;
    for second in 0..timeout + 2 {
        rig.now += Duration::from_secs(1);
        rig.bytes(talks, &rssl::transport::PING_FRAME);
        assert!(rig.worker.deadline().is_some_and(|at| at <= rig.now), "second {second}");
        rig.worker.tick(rig.now);
        let bytes = rig.take(talks, usize::MAX);
        if second == 19 {
            assert_eq!(
                bytes,
                rssl::transport::PING_FRAME,
                "a ping after a third of the time-out without output"
            );
        }
        rig.run();
    }
    let disconnects: Vec<_> =
        rig.disconnects.drain(..).map(|disconnect| (disconnect.mount, disconnect.reason)).collect();
    let consumers = &rig.consumers;
    assert_eq!(
        disconnects,
        [
            (consumers[late].mount, Reason::NoLogin { seconds: 10 }),
            (consumers[silent].mount, Reason::Silent { seconds: timeout }),
        ]
    );
}

#[test]
fn compressed_and_plain_mounts_get_the_same_messages() {
    let transport = ServerOptions { compression: vec![Compression::Zlib], ..ServerOptions::default() };
    let mut rig = Rig::with(Config { transport, ..Config::default() }, 100, Box::new(AllowAll));
    let plain = rig.login();
    let zlib =
        rig.connect_with(ClientOptions { compression: vec![Compression::Zlib], ..ClientOptions::default() });
    rig.send(zlib, &login_request("user", &[]));
    rig.received(zlib);
    for at in [plain, zlib] {
        rig.open(at, 5, "A");
    }
    let item = rig.hub.item("A");
    let long = rssl::rwf::Update::new(Domain::MARKET_PRICE, 1, rssl::rwf::DataType::OPAQUE, &[7; 100]);
    let long = long.to_vec().unwrap();
    for _ in 0..100 {
        rig.push_message(item, &long);
    }
    let (a, b) = (rig.received(plain), rig.received(zlib));
    assert_eq!((a.len(), a), (100, b));
    let bytes = |at: usize| rig.worker.stats(rig.consumers[at].mount).unwrap().bytes_out;
    assert!(bytes(zlib) < bytes(plain), "{} {}", bytes(zlib), bytes(plain));
}

#[test]
fn messages_longer_than_a_frame_are_delivered() {
    let mut rig = Rig::new();
    let (first, second) = (rig.login(), rig.login());
    for at in [first, second] {
        rig.open(at, 5, "A");
    }
    let item = rig.hub.item("A");
    let mut payload = vec![8, 0, 1, 0, 22, 0xfe, 0x4e, 0x20];
    payload.resize(payload.len() + 20_000, 7);
    let update = rssl::rwf::Update::new(Domain::MARKET_PRICE, 1, rssl::rwf::DataType::FIELD_LIST, &payload);
    let message = update.to_vec().unwrap();
    rig.push_message(item, &message);
    for at in [first, second] {
        assert_eq!(rig.one(at).update().payload, payload);
    }
}

#[test]
fn stats_of_a_mount_are_counted() {
    let (mut rig, at) = Rig::logged_in();
    rig.request(at, 5, "A");
    rig.consumers[at].reads = false;
    rig.push_update("A");
    let stats = rig.worker.stats(rig.consumers[at].mount).unwrap();
    assert_eq!((stats.messages_in, stats.messages_out, stats.streams, stats.buffers), (2, 3, 2, 1));
    assert_eq!(stats.bytes_waiting, update(Domain::MARKET_PRICE).len() + 3);
    assert_eq!((stats.peer.as_str(), stats.application.as_str()), ("192.0.2.1:4000", "(256)"));
    assert_eq!(rig.worker.mounts().count(), 1);
}
