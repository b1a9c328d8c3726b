//! Consumers that use up what others need: connections without a login, and memory for keys.

use mdist::mounts::{AllowAll, Config, MountId, Reason};
use mdist::net::PendingLimits;
use rssl::rwf::{Attrib, DataType, Domain, Key, Message, Request, StreamState, nak};
use rssl::transport::ClientOptions;

use crate::support::*;

/// Opens connections from `address` that send nothing.
fn idle(rig: &mut Rig, address: &str, count: usize) -> Vec<MountId> {
    let ports = 1..=count;
    let mounts = ports.map(|port| rig.worker.open(rig.now, format!("{address}:{port}"))).collect();
    rig.run();
    mounts
}

#[test]
fn client_logs_in_beside_more_idle_connections_than_mounts() {
    let pending = PendingLimits { total: 30, per_address: 10 };
    let config = Config { max_mounts: 5, pending, ..Config::default() };
    let mut rig = Rig::with(config, 1000, Box::new(AllowAll));
    let mut opened = Vec::new();
    for host in 1..=50 {
        opened.extend(idle(&mut rig, &format!("198.51.100.{host}"), 100));
        assert!(rig.worker.pending() <= 30);
    }
    let crowded =
        rig.disconnects.iter().filter(|disconnect| matches!(disconnect.reason, Reason::Evicted { .. }));
    assert_eq!(crowded.count(), 5_000 - 30);
    // The oldest of each address went first.
    let (gone, kept) = opened.split_at(5_000 - 100);
    assert!(
        gone[gone.len() - 10..].iter().all(|mount| rig.disconnects.iter().all(|cut| cut.mount != *mount))
    );
    assert!(kept[..90].iter().all(|mount| rig.disconnects.iter().any(|cut| cut.mount == *mount)));
    rig.disconnects.clear();
    for _ in 0..5 {
        rig.login();
    }
    assert_eq!(
        (rig.disconnects.len(), rig.worker.pending()),
        (1, 29),
        "the first took the place of the oldest"
    );
}

#[test]
fn connections_of_one_address_crowd_out_only_each_other() {
    let pending = PendingLimits { total: 100, per_address: 3 };
    let mut rig = Rig::with(Config { pending, ..Config::default() }, 1000, Box::new(AllowAll));
    let slow = rig.connect_with(ClientOptions::default());
    idle(&mut rig, "198.51.100.1", 1_000);
    assert_eq!((rig.disconnects.len(), rig.worker.pending()), (997, 4));
    rig.send(slow, &login_request("user", &[]));
    assert_eq!(rig.one(slow).refresh().state.stream, StreamState::Open);
    assert_eq!(rig.worker.pending(), 3);
}

#[test]
fn mounts_count_from_their_login_to_their_logout() {
    let mut rig = Rig::with(Config { max_mounts: 1, ..Config::default() }, 1000, Box::new(AllowAll));
    let (first, second) = (rig.connect(), rig.connect());
    rig.send(first, &login_request("user", &[]));
    assert_eq!(rig.one(first).refresh().state.stream, StreamState::Open);
    rig.send(second, &login_request("user", &[]));
    let refused = rig.one(second);
    let text = String::from_utf8_lossy(refused.state().unwrap().text).into_owned();
    assert!(text.contains("1 connections") && text.contains("max-mounts"), "{text}");
    assert_eq!(rig.only_disconnect().1, Reason::TooManyMounts { most: 1 });
    // The first logs out, and may stay connected for as long as another connection without a login.
    rig.close_domain(first, 1, Domain::LOGIN);
    assert_eq!(rig.worker.pending(), 1);
    rig.login();
}

#[test]
fn mounts_per_address_are_limited() {
    let config = Config { mounts_per_address: Some(2), ..Config::default() };
    let mut rig = Rig::with(config, 1000, Box::new(AllowAll));
    let (first, _) = (rig.login(), rig.login());
    let third = rig.connect();
    rig.send(third, &login_request("user", &[]));
    let refused = rig.one(third);
    let text = String::from_utf8_lossy(refused.state().unwrap().text).into_owned();
    assert!(text.contains("mounts-per-address"), "{text}");
    let gone = rig.consumers[first].mount;
    rig.worker.closed(gone, Reason::PeerClosed);
    rig.login();
}

/// A request with a key of about `bytes` bytes.
fn large(stream: i32, bytes: usize) -> Vec<u8> {
    let name = format!("ITEM{stream}");
    let data = vec![0; bytes];
    let attrib = Some(Attrib { container: DataType::OPAQUE, data: &data });
    Request::streaming(Domain::MARKET_PRICE, stream, Key { attrib, ..Key::item(1, name.as_bytes()) })
        .to_vec()
        .unwrap()
}

#[test]
fn keys_of_a_mount_take_no_more_than_their_budget() {
    const KEY: usize = 30_000;
    let config = Config { open_bytes: 40 * KEY, open_bytes_total: 60 * KEY, ..Config::default() };
    let mut rig = Rig::with(config, 1000, Box::new(AllowAll));
    let (greedy, other) = (rig.login(), rig.login());
    let mut refused = 0;
    for stream in 2..1_002 {
        rig.send(greedy, &large(stream, KEY));
        for received in rig.received(greedy) {
            let Message::Status(status) = received.message() else { continue };
            let text = String::from_utf8_lossy(status.state.unwrap().text).into_owned();
            assert!(text.contains("open-kib"), "{text}");
            refused += 1;
        }
        assert!(rig.shared.open_bytes() <= 40 * KEY);
    }
    assert_eq!((rig.hub.opens, refused), (39, 961), "39 keys fit");
    rig.request(other, 2, "SMALL");
    assert_eq!(rig.one(other).refresh().state.stream, StreamState::Open);
    // What all mounts may take together.
    for stream in 3..103 {
        rig.send(other, &large(stream, KEY));
    }
    let last = rig.received(other).pop().unwrap();
    let text = String::from_utf8_lossy(last.state().unwrap().text).into_owned();
    assert!(text.contains("open-total-mib"), "{text}");
    assert!(rig.shared.open_bytes() <= 60 * KEY);
    // Closing gives it back.
    (2..1_002).for_each(|stream| rig.close(greedy, stream));
    rig.send(other, &large(500, KEY));
    assert_eq!(rig.received(other).pop().unwrap().refresh().state.stream, StreamState::Open);
    for at in [greedy, other] {
        let mount = rig.consumers[at].mount;
        rig.worker.closed(mount, Reason::PeerClosed);
    }
    assert_eq!(rig.shared.open_bytes(), 0);
}

#[test]
fn posts_are_refused_by_default_with_the_setting_that_accepts_them() {
    let mut rig = Rig::with(Config::default(), 1000, Box::new(AllowAll));
    let at = rig.login();
    rig.open(at, 5, "A");
    rig.send(at, &post_on_5(7));
    let received = rig.one(at);
    let Message::Ack(ack) = received.message() else { panic!("{received:?}") };
    assert_eq!((ack.ack_id, ack.nak), (7, Some(nak::ACCESS_DENIED)));
    assert!(String::from_utf8_lossy(ack.text.unwrap()).contains("p2ps.posts"), "{ack:?}");
    assert_eq!(rig.hub.sent_upstream.len(), 0);
}
