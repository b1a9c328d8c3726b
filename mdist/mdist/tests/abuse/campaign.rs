//! Every abuse at once, beside well-behaved consumers: these lose nothing and see no suspect data.
//!
//! `MDIST_ABUSE_SECONDS` sets the length (10 by default), `MDIST_ABUSE_RATE` the updates per second (2,000),
//! `MDIST_ABUSE_THREADS` the threads of the ten consumers (10: one each), `MDIST_ABUSE_COMMON` how many of the 400
//! items all consumers request (20). The run ends early if a consumer is disconnected.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mdist::backbone::tipc::Tipc;
use mdist::backbone::wire::{Header, encode_credit};
use mdist::backbone::{FeedId, SourceId};
use mdist::config::{Config, Provider as Source};
use mdist::metrics::Metrics;
use mdist::server::{Backbone, p2ps, src_dist};
use mdist_load::consumer::{Consumer, ConsumerOptions};
use mdist_load::items::{Shares, generated};
use rssl::rdm::login;
use rssl::rwf::{Attrib, DataType, Domain, Key, Message, Post, PostFlags, Request, RequestFlags};
use utipc::{Change, Node, ServiceRange};

use crate::admission::metric;
use crate::attack::{Attack, Client, address, affordable, connect_from};
use crate::backbone_common::{Host, LIMIT};
use crate::load_common::{LONG, more_updates, publisher, sets, settled};
use crate::witness::{Log, Rates, Threads, USER};

/// Well-behaved consumers.
const CONSUMERS: usize = 10;
/// Items of the consumers together.
const ITEMS: u64 = 400;
/// Items that all consumers request; the others have one consumer each. With these a consumer requests 58 items, so
/// that all together receive as much as the publisher sends, and two processors have time for the attackers as well:
/// to compare an update with the published one costs a consumer 4 µs.
const COMMON: u64 = 20;
/// Connections without a login.
const HALF_OPEN: usize = 10_000;
/// Private streams that one connection opens before it is closed.
const STREAMS: i32 = 500;
/// Posts that one connection sends before their answers are read.
const POSTS: u32 = 200;
/// Time between two samples of the output that waits.
const SAMPLE: Duration = Duration::from_secs(1);
/// Pause between two forged packets of 4 KiB: what is tested is their content, not the capacity of a link.
const INJECTION: Duration = Duration::from_millis(5);

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Opens connections, replaces closed ones, and lets them send half of a handshake.
fn half_open(to: SocketAddr, count: usize) -> impl FnMut(u64) -> io::Result<u64> + Send + 'static {
    let mut sockets: Vec<TcpStream> = Vec::new();
    move |round| {
        let at = round as usize % count;
        let socket = connect_from(address(at / 100), to)?;
        if round % 3 == 0 {
            io::Write::write_all(&mut &socket, &[0, 60])?;
        }
        match sockets.get_mut(at) {
            Some(old) => *old = socket,
            None => sockets.push(socket),
        }
        // The first connections as fast as possible, then as a steady flood.
        if sockets.len() == count {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(1)
    }
}

fn churn(to: SocketAddr, role: u64) -> impl FnMut(u64) -> io::Result<u64> + Send + 'static {
    move |round| {
        let client = Client::log_in(address(2_000 + round as usize % 50), to, role)?;
        drop(client);
        Ok(1)
    }
}

/// Opens private streams, every tenth with a long key.
fn private_streams(to: SocketAddr) -> impl FnMut(u64) -> io::Result<u64> + Send + 'static {
    let long = vec![0; 30_000];
    move |round| {
        let mut client = Client::log_in(address(3_000), to, login::CONSUMER)?;
        for stream in 2..2 + STREAMS {
            let name = format!("PRIVATE{round}-{stream}");
            let attrib = (stream % 10 == 0).then_some(Attrib { container: DataType::OPAQUE, data: &long });
            client.say(|w| {
                Request::new(
                    Domain::MARKET_PRICE,
                    stream,
                    RequestFlags::STREAMING | RequestFlags::PRIVATE,
                    Key { attrib, ..Key::item(1, name.as_bytes()) },
                )
                .encode(w)
            })?;
        }
        client.read()?;
        Ok(STREAMS as u64)
    }
}

/// Sends posts for other items, on the login stream; returns how many were refused.
fn posts(to: SocketAddr) -> impl FnMut(u64) -> io::Result<u64> + Send + 'static {
    move |round| {
        let mut client = Client::log_in(address(4_000), to, login::CONSUMER)?;
        for post_id in 0..POSTS {
            let name = format!("ITEM{}", u64::from(post_id) + round);
            client.say(|w| {
                Post {
                    domain: Domain::MARKET_PRICE,
                    stream: 1,
                    flags: PostFlags::COMPLETE | PostFlags::ACK,
                    container: DataType::NO_DATA,
                    post_id: Some(post_id),
                    key: Some(Key::item(1, name.as_bytes())),
                    ..Post::default()
                }
                .encode(w)
            })?;
        }
        let mut refused = 0;
        while refused < u64::from(POSTS) {
            for message in client.read()? {
                let message = Message::decode(&message).map_err(io::Error::other)?;
                refused += u64::from(matches!(message, Message::Ack(ack) if ack.nak.is_some()));
            }
        }
        Ok(refused)
    }
}

/// The first instance of a service type, and its port.
fn found(node: &Node, service: u32) -> (u32, utipc::PortId) {
    let mut topology = node.topology().unwrap();
    topology.services(ServiceRange::new(service, 0, u32::MAX)).unwrap();
    let up = topology.events(LIMIT).map(Result::unwrap).find(|event| event.change == Change::ServiceUp);
    let up = up.expect("the service");
    (up.found.lower, up.port)
}

/// Sends forged packets to the feed, and forged credits to its readers.
fn injected(node: &Node, config: &Config) -> impl FnMut(u64) -> io::Result<u64> + Send + 'static {
    let socket = node.rdm().unwrap();
    let tipc = &config.backbone.tipc;
    let source = SourceId(found(node, tipc.source_type).0);
    let (feed, reader) = found(node, tipc.feed_type);
    let range = ServiceRange::new(tipc.feed_type, feed, feed);
    move |round| {
        std::thread::sleep(INJECTION);
        let first = if round % 2 == 0 { 1 << 40 } else { 1 };
        let header = Header {
            count: 2_000,
            source,
            feed: FeedId(feed),
            first,
            position: 0,
            part: None,
            unordered: round % 4 < 2,
        };
        // Empty messages: an entry of two bytes each.
        let packet = [header.encode().to_vec(), vec![0; 4_000]].concat();
        socket.send_to(&packet, range).map_err(io::Error::other)?;
        socket.send_to(&encode_credit(FeedId(feed), round), reader).map_err(io::Error::other)?;
        Ok(1)
    }
}

#[test]
fn well_behaved_consumers_lose_nothing_beside_every_abuse_at_once() {
    let length = Duration::from_secs(from_environment("MDIST_ABUSE_SECONDS", 10));
    let rate = from_environment("MDIST_ABUSE_RATE", 2_000);
    let log = Log::install();
    let provider = publisher(rate);
    let host = Host::start();
    let mut config = Config::default();
    config.p2ps.listen = vec!["127.0.0.1:0".into()];
    config.p2ps.workers = 2;
    config.src_dist.listen = vec!["127.0.0.1:0".into()];
    let hosts = vec![provider.address().unwrap().to_string()];
    config.src_dist.provider = vec![Source { hosts, services: Vec::new() }];
    let (above, below) = (Metrics::new("src_dist"), Metrics::new("p2ps"));
    let backbone = || Backbone::on(Tipc::on_node(host.attach(), &config));
    let mut distributor = src_dist::start(&config, &above, &backbone()).unwrap();
    let mut server = p2ps::start(&config, &below, &backbone()).unwrap();
    let (to, publishers) = (server.addresses[0], distributor.addresses[0]);

    let mut options = ConsumerOptions::new(to, 0, Arc::new(sets()));
    let common = from_environment("MDIST_ABUSE_COMMON", COMMON).min(ITEMS);
    let streams = CONSUMERS as u64 * common + (ITEMS - common);
    let shares = Shares::split(CONSUMERS, streams as usize, common as usize).unwrap();
    options.shares = shares;
    options.items = Arc::new(generated(shares.distinct()));
    (options.mounts, options.compare, options.reconnect) = (CONSUMERS, true, None);
    options.user = USER.into();
    // A consumer is a program of its own: on a loaded machine one thread for all would get the time of one program.
    options.threads = from_environment("MDIST_ABUSE_THREADS", CONSUMERS as u64) as usize;
    let consumers = Consumer::start(options).unwrap();
    consumers.loaded(LONG).unwrap();

    let mut attack = Attack::default();
    let connections = affordable(HALF_OPEN);
    attack.start("half-open connections of consumers", half_open(to, connections * 4 / 5));
    attack.start("half-open connections of publishers", half_open(publishers, connections / 5));
    attack.start("logins of consumers", churn(to, login::CONSUMER));
    attack.start("logins of publishers", churn(publishers, login::PROVIDER));
    attack.start("private streams", private_streams(to));
    attack.start("refused posts", posts(to));
    attack.start("forged packets", injected(&host.attach(), &config));
    let start = Instant::now();
    let (threads, sent, received) = (Threads::now(), provider.counts().updates, consumers.snapshot().counts);
    let (mut waiting, mut sampled) = (0, start);
    while start.elapsed() < length && consumers.snapshot().counts.cuts == 0 {
        more_updates(&consumers, 1_000);
        if sampled.elapsed() >= SAMPLE {
            sampled = Instant::now();
            waiting = waiting.max(metric(&below, "mdist_mounts_bytes_waiting"));
        }
    }
    let time = start.elapsed();
    let rates = Rates {
        asked: rate,
        sent: provider.counts().updates - sent,
        received: consumers.snapshot().counts.since(&received).updates,
        consumers: CONSUMERS as u64,
        share: shares.streams() as f64 / (CONSUMERS * shares.distinct()) as f64,
        time,
    };
    println!("{:.0} s: {rates}", time.as_secs_f64());
    println!("at most {waiting} bytes waited for all mounts together, a sample each {SAMPLE:?}");
    println!("{}\n{}", Threads::now().since(&threads, time), log.warnings());
    let ends = log.describe(&consumers.disconnects());
    assert!(ends.is_empty(), "consumers were disconnected:\n{ends}{:?}", consumers.snapshot().counts);
    // Another well-behaved client while the attack goes on.
    Client::log_in(Ipv4Addr::LOCALHOST, to, login::CONSUMER).unwrap();
    let done = attack.stop();
    println!("{done:?}");
    more_updates(&consumers, 1_000);
    settled(&provider, &consumers);
    let ends = log.describe(&consumers.disconnects());
    assert!(ends.is_empty(), "consumers were disconnected after the attack:\n{ends}");
    let seen = consumers.stop().unwrap();
    println!("{:?}", seen.counts);
    assert!(seen.counts.is_clean(), "{:?}", seen.counts);
    for (what, count) in done {
        assert!(count > 0, "no {what}");
    }
    assert_eq!(metric(&below, "mdist_backbone_gaps_total"), 0);
    assert_eq!(metric(&below, "mdist_backbone_sources_lost_total"), 0);
    assert!(metric(&below, "mdist_backbone_foreign_packets_total") > 0);
    server.stop();
    distributor.stop();
}
