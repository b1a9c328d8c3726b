//! Distributors and publishers are killed and return.

use mdist_load::provider::{Provider, ProviderOptions};

use crate::chain::{Backbone, LONG, Program, clients, settled, until};
use crate::load_common::{publisher, sets};

const ITEMS: usize = 10_000;

#[test]
fn items_recover_when_a_killed_distributor_returns() {
    let (backbone, provider) = (Backbone::new(), publisher(20_000));
    let upstream = provider.address().unwrap();
    let server = Program::p2ps("127.0.0.1:0".parse().unwrap(), &backbone, &[]);
    let distributor = Program::src_dist(upstream, &backbone, &[]);
    let clients = clients(server.addresses[0], ITEMS, |_| {});
    clients.loaded(LONG).unwrap();
    until(&clients, "updates", |seen| seen.counts.updates > 20_000);
    distributor.kill();
    until(&clients, "all are suspect", |seen| seen.loaded == 0);
    let _distributor = Program::src_dist(upstream, &backbone, &[]);
    let seen = clients.loaded(LONG).unwrap();
    assert_eq!(seen.counts.cuts, 0, "{:?}", clients.disconnect_reasons());
    settled(&provider, &clients);
}

#[test]
fn second_distributor_takes_over() {
    let (backbone, provider) = (Backbone::new(), publisher(20_000));
    let upstream = provider.address().unwrap();
    let server = Program::p2ps("127.0.0.1:0".parse().unwrap(), &backbone, &[]);
    let first = Program::src_dist(upstream, &backbone, &[]);
    let clients = clients(server.addresses[0], ITEMS, |_| {});
    clients.loaded(LONG).unwrap();
    let second = Program::src_dist(upstream, &backbone, &[]);
    until(&clients, "updates", |seen| seen.counts.updates > 20_000);
    // The server uses either distributor; the second remains.
    first.kill();
    clients.loaded(LONG).unwrap();
    let before = clients.snapshot().counts.updates;
    until(&clients, "updates by the second", |seen| seen.counts.updates > before + 20_000);
    assert_eq!(clients.snapshot().counts.cuts, 0, "{:?}", clients.disconnect_reasons());
    settled(&provider, &clients);
    drop(second);
}

#[test]
fn items_recover_when_an_interactive_provider_returns() {
    let backbone = Backbone::new();
    let provider = publisher(20_000);
    let upstream = provider.address().unwrap();
    let _distributor = Program::src_dist(upstream, &backbone, &[]);
    let server = Program::p2ps("127.0.0.1:0".parse().unwrap(), &backbone, &[]);
    let clients = clients(server.addresses[0], ITEMS, |_| {});
    clients.loaded(LONG).unwrap();
    until(&clients, "updates", |seen| seen.counts.updates > 20_000);
    drop(provider);
    until(&clients, "all are suspect", |seen| seen.loaded == 0);
    let options = ProviderOptions { listen: Some(upstream), rate: 20_000, ..ProviderOptions::new(sets()) };
    let provider = Provider::start(options).unwrap();
    let seen = clients.loaded(LONG).unwrap();
    assert_eq!(seen.counts.cuts, 0, "{:?}", clients.disconnect_reasons());
    settled(&provider, &clients);
}

#[test]
fn items_recover_when_a_non_interactive_publisher_returns() {
    let backbone = Backbone::new();
    let distributor = Program::distributor(&backbone, &["--listen", "127.0.0.1:0"]);
    let server = Program::p2ps("127.0.0.1:0".parse().unwrap(), &backbone, &[]);
    let publish = || {
        let items = mdist_load::items::generated(1_000);
        let options = ProviderOptions {
            listen: None,
            publish: Some(distributor.addresses[0]),
            items,
            rate: 5_000,
            ..ProviderOptions::new(sets())
        };
        Provider::start(options).unwrap()
    };
    let provider = publish();
    let clients = clients(server.addresses[0], 1_000, |_| {});
    clients.loaded(LONG).unwrap();
    until(&clients, "updates", |seen| seen.counts.updates > 5_000);
    drop(provider);
    until(&clients, "all are suspect", |seen| seen.loaded == 0);
    let provider = publish();
    let seen = clients.loaded(LONG).unwrap();
    assert_eq!(seen.counts.cuts, 0, "{:?}", clients.disconnect_reasons());
    settled(&provider, &clients);
}
