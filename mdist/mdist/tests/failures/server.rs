//! The point-to-point server is killed, or gets a burst of requests.

use mdist_load::items::Shares;

use crate::chain::{Backbone, LONG, Program, clients, free_address, settled, until};
use crate::load_common::publisher;

#[test]
fn thousand_mounts_recover_after_the_server_is_killed() {
    let (backbone, provider, at) = (Backbone::new(), publisher(20_000), free_address());
    let upstream = provider.address().unwrap().to_string();
    let server = Program::p2ps(at, &backbone, &["--provider", &upstream]);
    // 10,000 items, ten for each mount.
    let clients = clients(at, 10_000, |options| {
        options.mounts = 1_000;
        options.shares = Shares::split(1_000, 10_000, 0).unwrap();
    });
    clients.loaded(LONG).unwrap();
    until(&clients, "updates", |seen| seen.counts.updates > 20_000);
    server.kill();
    until(&clients, "all are disconnected", |seen| seen.counts.cuts >= 1_000);
    let _server = Program::p2ps(at, &backbone, &["--provider", &upstream]);
    clients.loaded(LONG).unwrap();
    let before = clients.snapshot().counts.updates;
    until(&clients, "updates again", |seen| seen.counts.updates > before + 20_000);
    settled(&provider, &clients);
}

#[test]
fn burst_of_a_hundred_thousand_items_is_served() {
    let (backbone, provider) = (Backbone::new(), publisher(50_000));
    let upstream = provider.address().unwrap().to_string();
    let server = Program::p2ps("127.0.0.1:0".parse().unwrap(), &backbone, &["--provider", &upstream]);
    let clients = clients(server.addresses[0], 100_000, |options| {
        options.compare = false;
        options.check = true;
        options.request_rate = 100_000_000;
        options.reconnect = None;
    });
    clients.loaded(LONG).unwrap();
    let seen = until(&clients, "updates", |seen| seen.counts.updates > 100_000);
    assert!(seen.counts.is_clean(), "{:?} {:?}", seen.counts, clients.disconnect_reasons());
}
