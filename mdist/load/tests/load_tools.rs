//! Publisher and consumers of the load tools, connected directly.

#[path = "../../mdist/tests/load_common/mod.rs"]
mod load_common;

use std::sync::Arc;
use std::time::Duration;

use mdist_load::consumer::{Consumer, ConsumerOptions, Snapshot};
use mdist_load::items::Shares;
use mdist_load::provider::{Provider, ProviderOptions};

use load_common::{LONG, sets, settled, until_seen};

fn pair(rate: u64, change: impl FnOnce(&mut ConsumerOptions)) -> (Provider, Consumer) {
    let sets = sets();
    let provider = Provider::start(ProviderOptions { rate, ..ProviderOptions::new(sets.clone()) }).unwrap();
    let mut options = ConsumerOptions::new(provider.address().unwrap(), 1_000, Arc::new(sets));
    change(&mut options);
    let consumer = Consumer::start(options).unwrap();
    (provider, consumer)
}

#[test]
fn every_update_arrives_and_every_field_is_equal() {
    let (provider, consumer) = pair(50_000, |options| options.compare = true);
    consumer.loaded(LONG).unwrap();
    until_seen(&consumer, "updates", |seen| seen.counts.updates > 20_000);
    settled(&provider, &consumer);
    let seen = consumer.stop().unwrap();
    let sent = provider.stop().unwrap();
    assert_eq!((sent.updates, sent.refreshes), (seen.counts.updates, seen.counts.refreshes));
    assert_eq!((sent.stamps, sent.requests), (seen.counts.stamps, 1_000));
    assert!(seen.counts.is_clean(), "{:?}", seen.counts);
    assert!(seen.latency.points() > 0 && seen.latency.summary().impossible == 0);
}

#[test]
fn orders_are_compared_entry_by_entry() {
    let (provider, consumer) = pair(20_000, |options| {
        options.compare = true;
        let mut items = mdist_load::items::generated(100);
        items.iter_mut().for_each(|item| item.domain = rssl::rwf::Domain::MARKET_BY_ORDER);
        (options.items, options.shares) = (Arc::new(items), Shares::one(100));
    });
    consumer.loaded(LONG).unwrap();
    until_seen(&consumer, "updates", |seen| seen.counts.updates > 2_000);
    settled(&provider, &consumer);
    assert!(consumer.stop().unwrap().counts.is_clean());
}

#[test]
fn mounts_request_their_shares() {
    let (provider, consumer) = pair(0, |options| {
        options.items = Arc::new(mdist_load::items::generated(200));
        (options.shares, options.mounts, options.threads) = (Shares::half(10, 10), 10, 2);
    });
    let seen = consumer.loaded(LONG).unwrap();
    assert_eq!((seen.wanted, seen.mounts.len()), (10 * 100 + 100, 10));
    drop(consumer);
    drop(provider);
}

#[test]
fn dictionaries_are_loaded_before_items() {
    let (provider, consumer) = pair(1_000, |options| options.download = true);
    consumer.loaded(LONG).unwrap();
    let seen = consumer.stop().unwrap();
    assert!(seen.counts.dictionary_bytes > 1_000 && seen.counts.is_clean(), "{:?}", seen.counts);
    drop(provider);
}

#[test]
fn snapshot_requests_get_one_image_and_no_updates() {
    let (provider, consumer) = pair(10_000, |options| options.snapshot = true);
    consumer.loaded(LONG).unwrap();
    assert_eq!(provider.counts().items, 0);
    let seen = consumer.stop().unwrap();
    assert_eq!((seen.counts.refreshes, seen.counts.updates), (1_000, 0));
}

#[test]
fn posts_and_generic_messages_are_acknowledged_and_returned() {
    let (provider, consumer) = pair(1_000, |options| {
        let mut items = mdist_load::items::generated(20);
        items.iter_mut().take(10).for_each(|item| item.post = true);
        items.iter_mut().skip(10).for_each(|item| item.generic = true);
        (options.items, options.shares) = (Arc::new(items), Shares::one(20));
        (options.posts, options.generics) = ((1_000, 100), (1_000, 100));
    });
    consumer.loaded(LONG).unwrap();
    let done = |seen: &Snapshot| {
        let counts = &seen.counts;
        counts.acks > 100
            && counts.posts_back > 100
            && counts.generics > 100
            && seen.post_latency.points() > 3
            && seen.generic_latency.points() > 3
    };
    let seen = until_seen(&consumer, "everything comes back", done);
    assert!(seen.counts.is_clean() && seen.counts.naks == 0, "{:?}", seen.counts);
    drop(provider);
}

#[test]
fn disconnected_mounts_reconnect_and_reload() {
    let sets = sets();
    let options = ProviderOptions { rate: 10_000, ..ProviderOptions::new(sets.clone()) };
    let provider = Provider::start(options.clone()).unwrap();
    let at = provider.address().unwrap();
    let mut wanted = ConsumerOptions::new(at, 100, Arc::new(sets));
    (wanted.compare, wanted.reconnect) = (true, Some((Duration::from_millis(5), Duration::from_millis(50))));
    let consumer = Consumer::start(wanted).unwrap();
    consumer.loaded(LONG).unwrap();
    provider.stop().unwrap();
    until_seen(&consumer, "cut", |seen| seen.loaded == 0 && seen.counts.cuts > 0);
    let ends = consumer.disconnects();
    let first = ends.first().expect("a disconnect is recorded");
    assert!(
        (first.mount, first.server) == (0, at) && first.local.is_some() && !first.at.is_zero(),
        "{first:?}"
    );
    let provider = Provider::start(ProviderOptions { listen: Some(at), ..options }).unwrap();
    consumer.loaded(LONG).unwrap();
    settled(&provider, &consumer);
    let seen = consumer.stop().unwrap();
    assert_eq!((seen.counts.logins, seen.counts.gaps), (2, 0));
}

#[test]
fn client_names_the_services_that_exist_instead() {
    let (provider, _consumer) = pair(1_000, |_| {});
    let port = provider.address().unwrap().port().to_string();
    let arguments = ["--host", "127.0.0.1", "--port", &port, "--service", "NONE", "--startup-time", "2"];
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_rmdstestclient")).args(arguments).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{why}");
    let text = format!("127.0.0.1:{port} has no service 'NONE' (it has DIRECT_FEED;");
    assert_eq!(why.matches(&text).count(), 2, "once while it waits, once at the end: {why}");
}

#[test]
fn client_names_the_host_that_refuses() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let arguments = ["--host", "127.0.0.1", "--port", &free.port().to_string(), "--startup-time", "1"];
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_rmdstestclient")).args(arguments).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && why.contains(&format!("{free}: ")) && why.contains("refused"),
        "{why}"
    );
}
