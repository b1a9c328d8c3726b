//! A server with several threads, each with its own mounts: all consumers get all messages, a slow consumer is
//! disconnected alone, and the number of mounts is limited.

mod load_common;

use std::sync::Arc;
use std::time::Duration;

use mdist::backbone::memory::Memory;
use mdist::config::{Config, Upstream, UpstreamKind};
use mdist::metrics::Metrics;
use mdist::server::{Backbone, Running, p2ps};
use mdist_load::consumer::{Consumer, ConsumerOptions};
use mdist_load::items::{Shares, generated};
use mdist_load::provider::Provider;

use load_common::{LONG, more_updates, publisher, sets, settled, until, until_seen};

/// Starts a server with two threads; `change` adapts its configuration.
fn server(provider: &Provider, metrics: &Metrics, change: impl FnOnce(&mut Config)) -> Running {
    let mut config = Config::default();
    config.p2ps.listen = vec!["127.0.0.1:0".into()];
    config.p2ps.workers = 2;
    config.p2ps.upstream = vec![Upstream {
        kind: UpstreamKind::Provider,
        hosts: vec![provider.address().unwrap().to_string()],
        services: Vec::new(),
    }];
    change(&mut config);
    p2ps::start(&config, metrics, &Backbone::on(Memory::new())).unwrap()
}

/// Starts mounts that share half of their items, and compare all fields.
fn client(
    server: &Running,
    mounts: usize,
    own: usize,
    change: impl FnOnce(&mut ConsumerOptions),
) -> Consumer {
    let mut options = ConsumerOptions::new(server.addresses[0], 0, Arc::new(sets()));
    options.shares = Shares::half(mounts, own);
    options.items = Arc::new(generated(options.shares.distinct()));
    (options.mounts, options.compare, options.reconnect) = (mounts, true, None);
    change(&mut options);
    Consumer::start(options).unwrap()
}

#[test]
fn mounts_of_all_threads_get_all_messages() {
    for (timed, busy, cache) in [(false, false, true), (true, true, false)] {
        let provider = publisher(20_000);
        let metrics = Metrics::new("p2ps");
        let mut server = server(&provider, &metrics, |config| {
            (config.p2ps.timed_writes, config.p2ps.cache) = (timed, cache);
            config.threads.mounts =
                vec![mdist::net::ThreadSettings { busy_poll: busy, ..Default::default() }];
        });
        let consumer = client(&server, 7, 20, |_| ());
        consumer.loaded(LONG).unwrap();
        more_updates(&consumer, 60_000);
        for worker in 0..2 {
            let accepted = format!("mdist_mounts_accepted_total{{program=\"p2ps\",worker=\"{worker}\"}} ");
            until("half of the mounts are with each thread", || {
                let page = metrics.text();
                let half = page.split_once(&accepted).is_some_and(|(_, rest)| rest.starts_with(['3', '4']));
                if half { Ok(()) } else { Err(page) }
            });
        }
        settled(&provider, &consumer);
        let seen = consumer.stop().unwrap();
        assert!(seen.counts.is_clean(), "timed {timed}: {:?}", seen.counts);
        server.stop();
    }
}

#[test]
fn slow_consumers_of_each_thread_are_disconnected_alone() {
    let provider = publisher(5_000);
    let metrics = Metrics::new("p2ps");
    let mut server = server(&provider, &metrics, |config| {
        let p2ps = &mut config.p2ps;
        (p2ps.guaranteed_output_buffers, p2ps.max_output_buffers, p2ps.pool_size) = (50, 400, 2_000);
        p2ps.send_buffer_kib = Some(64);
    });
    let good = client(&server, 4, 50, |_| ());
    good.loaded(LONG).unwrap();
    // Each thread gets one of the next two mounts.
    let slow = client(&server, 2, 100, |options| options.slow = Some(10_000));
    until_seen(&slow, "both slow consumers are disconnected", |seen| seen.counts.cuts == 2);
    more_updates(&good, 10_000);
    settled(&provider, &good);
    let seen = good.stop().unwrap();
    assert!(seen.counts.is_clean(), "{:?}", seen.counts);
    server.stop();
    let page = metrics.text();
    assert!(page.contains("reason=\"overflow\"} 2"), "{page}");
}

#[test]
fn mounts_above_the_limit_are_refused() {
    let provider = publisher(1_000);
    let metrics = Metrics::new("p2ps");
    let mut server = server(&provider, &metrics, |config| {
        config.p2ps.max_mounts = 3;
        (config.p2ps.mounts_per_user, config.p2ps.mounts_per_address) = (Some(3), Some(3));
    });
    let good = client(&server, 3, 5, |_| ());
    good.loaded(LONG).unwrap();
    let late = client(&server, 2, 5, |_| ());
    until("refused", || {
        let why = late.disconnect_reasons();
        let text = format!("{why:?}");
        if text.contains("3 connections, the most it takes") { Ok(()) } else { Err(text) }
    });
    drop(late);
    more_updates(&good, 2_000);
    let seen = good.stop().unwrap();
    assert!(seen.counts.is_clean(), "{:?}", seen.counts);
    // Closed mounts make way for others.
    let next = client(&server, 3, 5, |options| {
        options.reconnect = Some((Duration::from_millis(10), Duration::from_millis(100)));
    });
    next.loaded(LONG).unwrap();
    settled(&provider, &next);
    next.stop().unwrap();
    server.stop();
    let page = metrics.text();
    assert!(page.contains("reason=\"too_many_mounts\"}"), "{page}");
}
