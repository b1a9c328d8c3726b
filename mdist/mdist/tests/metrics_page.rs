//! The metrics pages of running programs.

use mdist::backbone::memory::Memory;
use mdist::config::{Config, LatencyCalc, Provider as Source, Upstream, UpstreamKind};
use mdist::metrics::{Metrics, Server};
use mdist::server::demo::Chain;
use mdist::server::{Backbone, p2ps, src_dist};
use mdist_load::consumer::{Consumer, ConsumerOptions};
use mdist_load::msgdata::built_in;
use mdist_load::provider::{Provider, ProviderOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn get(server: &Server, path: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Requests the page until it contains `what`; counters are published once a second.
fn until(server: &Server, path: &str, what: &str) {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let page = get(server, path);
        if page.contains(what) {
            return;
        }
        assert!(Instant::now() < patience, "no `{what}` in {path}:\n{page}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn page_shows_mounts_and_reasons_of_disconnects() {
    let mut config = Config::default();
    config.p2ps.listen = vec!["127.0.0.1:0".into()];
    let metrics = Metrics::new("p2ps");
    let backbone = Backbone::on(Memory::new());
    let chain = Chain::start(&config, &metrics, &backbone, &backbone, 10).unwrap();
    let server = Server::start("127.0.0.1:0", &[], &metrics).unwrap();
    until(&server, "/metrics", "mdist_hub_services{program=\"p2ps\",hub=\"p2ps\"} 1");
    let mount = TcpStream::connect(chain.server.addresses[0]).unwrap();
    let peer = format!("\"peer\": \"{}\"", mount.local_addr().unwrap());
    until(&server, "/metrics", "mdist_mounts_accepted_total{program=\"p2ps\",worker=\"0\"} 1");
    until(&server, "/mounts", &peer);
    drop(mount);
    until(&server, "/disconnects", &peer);
    assert!(get(&server, "/disconnects").contains("\"reason\": \"peer_closed\""));
    until(&server, "/metrics", "reason=\"peer_closed\"} 1");
}

/// The value of the line that begins with `line`; `None` without such a line.
fn value(page: &str, line: &str) -> Option<f64> {
    page.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok())
}

/// Starts a chain and a consumer of `items` items.
fn chain(config: &mut Config, metrics: &Metrics, items: usize) -> (Chain, Consumer) {
    config.p2ps.listen = vec!["127.0.0.1:0".into()];
    let backbone = Backbone::on(Memory::new());
    let chain = Chain::start(config, metrics, &backbone, &backbone, 1_000).unwrap();
    let sets = Arc::new(built_in().unwrap());
    let consumer = Consumer::start(ConsumerOptions::new(chain.server.addresses[0], items, sets)).unwrap();
    consumer.loaded(Duration::from_secs(60)).unwrap();
    (chain, consumer)
}

#[test]
fn latency_is_shown_if_it_is_measured() {
    for (enabled, per_connection) in [(true, true), (true, false), (false, false)] {
        let mut config = Config::default();
        config.p2ps.latency_calc = LatencyCalc { enabled, per_connection };
        config.src_dist.latency_calc = config.p2ps.latency_calc;
        config.p2ps.workers = 2;
        let metrics = Metrics::new("p2ps");
        let server = Server::start("127.0.0.1:0", &[], &metrics).unwrap();
        let (_chain, consumer) = chain(&mut config, &metrics, 50);
        let both = ["mounts", "backbone", "mount", "server"];
        let wanted = if per_connection {
            &both[..]
        } else if enabled {
            &both[..2]
        } else {
            &[]
        };
        let patience = Instant::now() + Duration::from_secs(60);
        let sum = |page: &str, what: &str, suffix: &str| -> f64 {
            let start = format!("mdist_{what}_latency_seconds_{suffix}{{");
            let lines = page.lines().filter(|line| line.starts_with(&start));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        let page = loop {
            let page = get(&server, "/metrics");
            let shown = wanted.iter().all(|what| sum(&page, what, "count") > 20.0);
            let updates = value(&page, "mdist_hub_updates_in_total{program=\"p2ps\",hub=\"p2ps\"}");
            if shown && updates.is_some_and(|updates| updates > 500.0) {
                break page;
            }
            assert!(Instant::now() < patience, "{wanted:?} in\n{page}");
            std::thread::sleep(Duration::from_millis(100));
        };
        for what in both {
            let here = wanted.contains(&what);
            assert_eq!(page.contains(&format!("mdist_{what}_latency")), here, "{what} in\n{page}");
            // The last class counts all samples.
            let bucket = format!("mdist_{what}_latency_seconds_bucket{{");
            let last = |line: &&str| line.starts_with(&bucket) && line.contains("le=\"+Inf\"");
            let all = page.lines().filter(last);
            let all: f64 = all.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
            assert!((all - sum(&page, what, "count")).abs() < 0.5, "{what} in\n{page}");
            let mean = sum(&page, what, "sum") / all;
            assert!(!here || mean > 1e-7 && mean < 10.0, "{what}: {mean}");
        }
        assert_eq!(get(&server, "/mounts").contains("\"latency_us\""), per_connection);
        let seen = consumer.stop().unwrap();
        assert!(seen.counts.is_clean(), "{:?}", seen.counts);
        if per_connection {
            until(&server, "/disconnects", "\"latency_us\": {");
            until_not(&server, "mdist_mount_latency_seconds_count");
        }
    }
}

/// Requests the page until it no longer contains `what`.
fn until_not(server: &Server, what: &str) {
    let patience = Instant::now() + Duration::from_secs(60);
    while get(server, "/metrics").contains(what) {
        assert!(Instant::now() < patience, "`{what}` is still there");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Reads the page until `found` returns a value.
fn read<T>(metrics: &Metrics, what: &str, found: impl Fn(&str) -> Option<T>) -> T {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let page = metrics.text();
        if let Some(found) = found(&page) {
            return found;
        }
        assert!(Instant::now() < patience, "no {what} in\n{page}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn page_shows_upstreams_and_reasons_why_they_and_sinks_left() {
    let provider = |at: Option<SocketAddr>| {
        let mut sets = built_in().unwrap();
        sets.iter_mut().for_each(|set| set.running = true);
        let options = ProviderOptions { rate: 1_000, ..ProviderOptions::new(sets) };
        Provider::start(ProviderOptions { listen: at.or(options.listen), ..options }).unwrap()
    };
    let first = provider(None);
    let at = first.address().unwrap();
    let mut config = Config::default();
    config.src_dist.provider = vec![Source { hosts: vec![at.to_string()], services: Vec::new() }];
    config.src_dist.listen.clear();
    config.p2ps.listen = vec!["127.0.0.1:0".into()];
    config.p2ps.upstream = vec![Upstream { kind: UpstreamKind::Backbone, ..Upstream::default() }];
    let backbone = Backbone::on(Memory::new());
    let (above, below) = (Metrics::new("src_dist"), Metrics::new("p2ps"));
    let _distributor = src_dist::start(&config, &above, &backbone).unwrap();
    let server = p2ps::start(&config, &below, &backbone).unwrap();
    let options = ConsumerOptions::new(server.addresses[0], 50, Arc::new(built_in().unwrap()));
    let consumer = Consumer::start(options).unwrap();
    consumer.loaded(Duration::from_secs(60)).unwrap();

    let labels = format!("{{program=\"src_dist\",hub=\"src_dist\",kind=\"provider\",upstream=\"{at}\"}}");
    let is = |name: &str, wanted: fn(f64) -> bool| {
        let line = format!("mdist_upstream_{name}{labels}");
        read(&above, &line, |page| value(page, &line).filter(|value| wanted(*value)));
    };
    is("state", |state| state > 1.5);
    is("messages_in_total", |messages| messages > 500.0);
    is("bytes_in_total", |bytes| bytes > 20_000.0);
    is("reconnects_total", |reconnects| reconnects < 0.5);
    let source = "{program=\"p2ps\",hub=\"p2ps\",kind=\"backbone\",upstream=\"src_dist ";
    for (name, least) in [("state", 2.0), ("messages_in_total", 500.0), ("bytes_in_total", 20_000.0)] {
        let line = format!("mdist_upstream_{name}{source}");
        read(&below, &line, |page| {
            let lines = page.lines().filter(|l| l.starts_with(&line));
            lines.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).find(|value| *value >= least)
        });
    }

    drop(first);
    let ends = |what: &str| {
        let line = format!("mdist_disconnects_total{{program=\"src_dist\",{what}}}");
        read(&above, &line, |page| value(page, &line).filter(|value| *value > 0.5));
    };
    ends("kind=\"provider\",reason=\"ended\"");
    let _second = provider(Some(at));
    is("reconnects_total", |reconnects| reconnects > 0.5);
    is("state", |state| state > 1.5);
    drop(consumer);
    drop(server);
    ends("kind=\"sink\",reason=\"closed\"");
    let last: serde_json::Value = serde_json::from_str(&above.disconnects_json()).unwrap();
    assert_eq!(last[0]["what"]["name"], "p2ps", "{last}");
}
