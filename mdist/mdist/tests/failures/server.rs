//! The point-to-point server dies, or is asked for everything at once.

use mdist_load::items::Shares;

use crate::chain::{Backbone, LONG, Program, clients, free_address, settled, until};
use crate::load_common::publisher;

#[test]
fn a_thousand_mounts_come_back_after_the_server_was_killed() {
    let (bus, provider, at) = (Backbone::new(), publisher(20_000), free_address());
    let upstream = provider.address().unwrap().to_string();
    let server = Program::p2ps(at, &bus, &["--provider", &upstream]);
    // 10,000 items in all: each mount has ten of them.
    let clients = clients(at, 10_000, |options| {
        options.mounts = 1_000;
        options.shares = Shares::split(1_000, 10_000, 0).unwrap();
    });
    clients.loaded(LONG).unwrap();
    until(&clients, "updates", |seen| seen.counts.updates > 20_000);
    server.kill();
    until(&clients, "all are cut", |seen| seen.counts.cuts >= 1_000);
    let _server = Program::p2ps(at, &bus, &["--provider", &upstream]);
    clients.loaded(LONG).unwrap();
    let before = clients.snapshot().counts.updates;
    until(&clients, "updates again", |seen| seen.counts.updates > before + 20_000);
    settled(&provider, &clients);
}

#[test]
fn a_hundred_thousand_items_in_one_burst() {
    let (bus, provider) = (Backbone::new(), publisher(50_000));
    let upstream = provider.address().unwrap().to_string();
    let server = Program::p2ps("127.0.0.1:0".parse().unwrap(), &bus, &["--provider", &upstream]);
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
