//! The load tools through a server, and through distributor, backbone and server: no message is lost, and all fields of
//! all items equal the publisher's, also after a part was replaced.

mod load_common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mdist::backbone::memory::Memory;
use mdist::config::{Config, OwnNode, Provider as Source, Upstream, UpstreamKind};
use mdist::metrics::Metrics;
use mdist::server::{Backbone, Running, p2ps, src_dist};
use mdist_load::consumer::{Consumer, ConsumerOptions, Snapshot};
use mdist_load::items::{Shares, generated};
use mdist_load::provider::{Provider, ProviderOptions};

use load_common::{LONG, more_updates, publisher, sets, settled, until, until_seen};

fn publisher_at(at: SocketAddr, rate: u64) -> Provider {
    Provider::start(ProviderOptions { rate, listen: Some(at), ..ProviderOptions::new(sets()) }).unwrap()
}

fn config(source: SocketAddr, at: Option<SocketAddr>, cache: bool) -> Config {
    let mut config = Config::default();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    config.p2ps.listen = vec![at.unwrap_or(any).to_string()];
    config.p2ps.cache = cache;
    config.p2ps.upstream = vec![Upstream {
        kind: UpstreamKind::Provider,
        hosts: vec![source.to_string()],
        services: Vec::new(),
    }];
    config.src_dist.listen = vec![any.to_string()];
    config.src_dist.provider = vec![Source { hosts: vec![source.to_string()], services: Vec::new() }];
    config.src_dist.defaults.cache = cache;
    config
}

fn server(source: SocketAddr, at: Option<SocketAddr>, cache: bool) -> Running {
    p2ps::start(&config(source, at, cache), &Metrics::new("p2ps"), &Backbone::on(Memory::new())).unwrap()
}

fn client(to: SocketAddr, mounts: usize, own: usize) -> Consumer {
    let mut options = ConsumerOptions::new(to, 0, Arc::new(sets()));
    options.shares = if mounts == 1 { Shares::one(own) } else { Shares::half(mounts, own) };
    options.items = Arc::new(generated(options.shares.distinct()));
    (options.mounts, options.compare) = (mounts, true);
    options.reconnect = Some((Duration::from_millis(10), Duration::from_millis(200)));
    Consumer::start(options).unwrap()
}

/// Checks that all images and many updates arrive, and that all fields equal the publisher's in the end.
fn served(provider: &Provider, consumer: Consumer, cache: bool) -> Snapshot {
    consumer.loaded(LONG).unwrap();
    more_updates(&consumer, 20_000);
    settled(provider, &consumer);
    let seen = consumer.stop().unwrap();
    assert!(seen.counts.is_clean(), "cache {cache}: {:?}", seen.counts);
    seen
}

#[test]
fn server_delivers_all_messages_to_all_consumers() {
    for cache in [false, true] {
        let provider = publisher(20_000);
        let mut server = server(provider.address().unwrap(), None, cache);
        let consumer = client(server.addresses[0], 5, 20);
        served(&provider, consumer, cache);
        server.stop();
    }
}

/// Waits for a counter on the metrics page; returns its value.
fn counted(metrics: &Metrics, name: &str) -> u64 {
    let mut seen = 0;
    until(name, || {
        let text = metrics.text();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        seen = line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or(0);
        if seen > 0 { Ok(()) } else { Err(line) }
    });
    seen
}

#[test]
fn distributor_and_backbone_deliver_all_messages() {
    for (cache, flush_ms) in [(false, 0), (true, 0), (true, 30)] {
        let (begin, provider) = (Instant::now(), publisher(20_000));
        let bus = Backbone::on(Memory::new());
        let mut settings = config(provider.address().unwrap(), None, cache);
        settings.p2ps.upstream = vec![Upstream::default()];
        settings.src_dist.defaults.flush_interval_ms = flush_ms;
        let metrics = Metrics::new("src_dist");
        let mut distributor = src_dist::start(&settings, &metrics, &bus).unwrap();
        let mut server = p2ps::start(&settings, &Metrics::new("p2ps"), &bus).unwrap();
        let consumer = client(server.addresses[0], 5, 20);
        let seen = served(&provider, consumer, cache);
        if flush_ms > 0 {
            let packets = counted(&metrics, "mdist_backbone_packets_out_total");
            let most =
                begin.elapsed().as_millis() as u64 / u64::from(flush_ms) + seen.counts.bytes / 50_000 + 10;
            assert!(packets <= most, "{packets} packets, {most} at most");
        }
        server.stop();
        distributor.stop();
    }
}

/// Distributor and server with their own nodes, linked by UDP, without utipcd.
#[test]
fn backbone_between_own_nodes_delivers_all_messages() {
    let provider = publisher(20_000);
    let node = |local: &str, remote: &str| {
        let mut settings = config(provider.address().unwrap(), None, true);
        settings.p2ps.upstream = vec![Upstream::default()];
        settings.backbone.tipc.node =
            Some(OwnNode { local: local.into(), remotes: vec![remote.into()], address: None, cluster: 4770 });
        settings.check().unwrap();
        settings
    };
    let (above, below) = (node("127.0.77.1", "127.0.77.2"), node("127.0.77.2", "127.0.77.1"));
    let mut distributor =
        src_dist::start(&above, &Metrics::new("src_dist"), &Backbone::from_config(&above)).unwrap();
    let mut server = p2ps::start(&below, &Metrics::new("p2ps"), &Backbone::from_config(&below)).unwrap();
    let consumer = client(server.addresses[0], 5, 20);
    consumer.loaded(LONG).unwrap();
    more_updates(&consumer, 20_000);
    settled(&provider, &consumer);
    let seen = consumer.stop().unwrap();
    assert!(seen.counts.is_clean(), "{:?}", seen.counts);
    server.stop();
    distributor.stop();
}

#[test]
fn fields_are_equal_after_a_server_was_replaced() {
    let provider = publisher(20_000);
    let mut first = server(provider.address().unwrap(), None, true);
    let at = first.addresses[0];
    let consumer = client(at, 5, 20);
    consumer.loaded(LONG).unwrap();
    first.stop();
    drop(first);
    until_seen(&consumer, "cut", |seen| seen.counts.cuts >= 5);
    let mut second = server(provider.address().unwrap(), Some(at), true);
    consumer.loaded(LONG).unwrap();
    more_updates(&consumer, 10_000);
    settled(&provider, &consumer);
    assert_eq!(consumer.stop().unwrap().counts.gaps, 0);
    second.stop();
}

#[test]
fn fields_are_equal_after_a_publisher_was_replaced() {
    let provider = publisher(20_000);
    let source = provider.address().unwrap();
    let mut server = server(source, None, true);
    let consumer = client(server.addresses[0], 5, 20);
    consumer.loaded(LONG).unwrap();
    more_updates(&consumer, 10_000);
    provider.stop().unwrap();
    until_seen(&consumer, "suspect", |seen| seen.counts.suspect > 0);
    let provider = publisher_at(source, 20_000);
    consumer.loaded(LONG).unwrap();
    more_updates(&consumer, 10_000);
    settled(&provider, &consumer);
    let seen = consumer.stop().unwrap();
    assert_eq!((seen.counts.cuts, seen.counts.gaps, seen.counts.closed), (0, 0, 0), "{:?}", seen.counts);
    server.stop();
}
