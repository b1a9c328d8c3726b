//! The dictionaries of a publisher reach consumers through servers that have no files.

mod client_common;
mod stock {
    pub(crate) mod consumer;
    pub(crate) mod provider;
}

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use mdist::backbone::memory::Memory;
use mdist::config::{Config, Provider as Source, Upstream, UpstreamKind};
use mdist::dictionaries::Half;
use mdist::metrics::Metrics;
use mdist::net::now;
use mdist::server::{Backbone, Running, p2ps, src_dist};
use mdist::upstream::{Consumer, Event, Login, Session as _};
use mdist_load::msgdata::built_in;
use mdist_load::provider::{Provider, ProviderOptions};
use rssl::dictionary::{Dictionary, EnumTable, EnumValue, Enums, FieldDef, Fields};
use rssl::rwf::DataType;
use rssl::transport::{ClientOptions, MAX_FRAGMENT};
use stock::consumer::{ENUMS, FIELDS, StockConsumer};
use stock::provider::{self, StockProvider, fields_of};

/// A dictionary with one field besides those of the load tools, long enough for several parts.
fn dictionary(version: &str, id: i16, name: &str) -> Arc<Dictionary> {
    let mut fields = Fields::default();
    fields.edition.version = version.into();
    for def in Dictionary::small().fields.iter() {
        fields.insert(def.clone());
    }
    for filler in 20_000..20_200_i16 {
        fields.insert(field(filler, &format!("FILLER_{filler}")));
    }
    fields.insert(field(id, name));
    let mut enums = Enums::default();
    enums.edition.dt_version = version.into();
    let value = EnumValue { value: 7, display: b"SEVEN".to_vec(), meaning: "seven".into() };
    enums.insert(EnumTable { fields: vec![id], values: vec![value] });
    Arc::new(Dictionary { fields, enums })
}

fn field(id: i16, name: &str) -> FieldDef {
    FieldDef { id, name: name.into(), data_type: DataType::ENUM, ..FieldDef::default() }
}

fn publisher(dictionary: Arc<Dictionary>, service: &str) -> Provider {
    let options = ProviderOptions::new(built_in().unwrap());
    Provider::start(ProviderOptions { rate: 0, dictionary, service: service.into(), ..options }).unwrap()
}

/// What a consumer that has just connected gets: the dictionaries that arrive before the services.
fn received(server: SocketAddr) -> (Fields, Enums) {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let login = Login { user: "test".into(), ..Login::default() };
    let mut session = Consumer::new(ClientOptions::default(), login, now());
    let mut buffer = vec![0; 65_536];
    let (mut fields, mut enums, mut services) = (None, None, 0);
    while fields.is_none() || enums.is_none() || services == 0 {
        stream.write_all(session.output()).unwrap();
        session.output().clear();
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the server closed the connection");
        let on = |event: Event<'_>| {
            if let Event::Services { changes, .. } = event {
                services += changes.len();
            }
            Ok(())
        };
        session.input(&buffer[..count], now(), on).unwrap();
        let (halves, failures) = session.take_dictionaries();
        assert_eq!(failures, Vec::<String>::new());
        for half in halves {
            match half {
                Half::Fields(half) => fields = Some(half),
                Half::Enums(half) => enums = Some(half),
            }
        }
    }
    (fields.unwrap(), enums.unwrap())
}

fn settings(sources: &[&Provider]) -> Config {
    let mut config = Config::default();
    config.p2ps.listen = vec!["127.0.0.1:0".into()];
    config.src_dist.listen.clear();
    for source in sources {
        let hosts = vec![source.address().unwrap().to_string()];
        config.src_dist.provider.push(Source { hosts, services: Vec::new() });
    }
    config
}

/// Settings for one provider at `hosts`, for `p2ps` alone or behind `src_dist`.
fn behind(provider: SocketAddr, direct: bool) -> Config {
    let mut config = settings(&[]);
    let (hosts, services) = (vec![provider.to_string()], Vec::new());
    if direct {
        config.p2ps.upstream = vec![Upstream { kind: UpstreamKind::Provider, hosts, services }];
    } else {
        config.src_dist.provider = vec![Source { hosts, services }];
    }
    config
}

fn chain(config: &Config) -> (Running, Running) {
    let backbone = Backbone::on(Memory::new());
    let distributor = src_dist::start(config, &Metrics::new("src_dist"), &backbone).unwrap();
    (distributor, p2ps::start(config, &Metrics::new("p2ps"), &backbone).unwrap())
}

#[test]
fn dictionary_of_the_provider_reaches_consumers_of_a_server() {
    let provider = publisher(dictionary("9.1", 215, "PROD_PERM"), "ONE");
    let mut config = settings(&[]);
    let hosts = vec![provider.address().unwrap().to_string()];
    config.p2ps.upstream = vec![Upstream { kind: UpstreamKind::Provider, hosts, services: Vec::new() }];
    let server = p2ps::start(&config, &Metrics::new("p2ps"), &Backbone::on(Memory::new())).unwrap();
    let (fields, enums) = received(server.addresses[0]);
    assert_eq!(fields.edition.version, "9.1");
    assert_eq!(fields.named("PROD_PERM").unwrap().id, 215);
    let values = &enums.table(215).unwrap().values;
    assert_eq!((values[0].display.as_slice(), values[0].meaning.as_str()), (&b"SEVEN"[..], "seven"));
}

#[test]
fn dictionaries_of_two_providers_are_merged_and_reach_consumers_over_the_backbone() {
    let one = publisher(dictionary("9.1", 215, "PROD_PERM"), "ONE");
    let two = publisher(dictionary("9.10", 216, "OTHER"), "TWO");
    let config = settings(&[&one, &two]);
    let (_distributor, server) = chain(&config);
    // The second provider's may arrive after the first consumer has come.
    let start = std::time::Instant::now();
    loop {
        let (fields, enums) = received(server.addresses[0]);
        assert!(fields.named("PROD_PERM").is_some() || fields.named("OTHER").is_some());
        let both = fields.named("PROD_PERM").is_some() && fields.named("OTHER").is_some();
        if both && enums.table(215).is_some() && enums.table(216).is_some() {
            assert_eq!(fields.edition.version, "9.10");
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the dictionaries were not merged");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn dictionary_in_parts_without_numbers_reaches_consumers_whole() {
    let any = "127.0.0.1:0".parse().unwrap();
    let provider = StockProvider::start(any, provider::dictionary("4.20.45"), None);
    for direct in [true, false] {
        let config = behind(provider.address(), direct);
        let (_distributor, server) = chain(&config);
        // Until the services are there, and with them the dictionaries.
        StockConsumer::log_in(server.addresses[0]).image();
        let start = std::time::Instant::now();
        let mut consumer = StockConsumer::log_in(server.addresses[0]);
        let parts = consumer.dictionary(FIELDS);
        consumer.dictionary(ENUMS);
        consumer.image();
        println!("direct {direct}: {} parts, image after {:?}", parts.len(), start.elapsed());
        let fields = fields_of(&parts);
        assert_eq!((fields.len(), fields.edition.version.as_str()), (provider::FIELDS, "4.20.45"));
        let longest = parts.iter().map(Vec::len).max().unwrap();
        assert!(longest <= usize::from(MAX_FRAGMENT), "a part of {longest} bytes takes two frames");
    }
}

#[test]
fn provider_that_returns_with_a_newer_dictionary_is_announced_on_open_streams() {
    for direct in [true, false] {
        let any = "127.0.0.1:0".parse().unwrap();
        let first = StockProvider::start(any, provider::dictionary("4.20.45"), None);
        let address = first.address();
        let config = behind(address, direct);
        let (_distributor, server) = chain(&config);
        let mut consumer = StockConsumer::log_in(server.addresses[0]);
        consumer.image();
        assert_eq!(fields_of(&consumer.dictionary(FIELDS)).edition.version, "4.20.45");
        consumer.dictionary(ENUMS);
        // A server below this one keeps its dictionary current by the same means.
        let mut config = behind(server.addresses[0], true);
        config.p2ps.upstream[0].kind = UpstreamKind::P2ps;
        let (_unused, below) = chain(&config);
        let mut last = StockConsumer::log_in(below.addresses[0]);
        last.image();
        assert_eq!(fields_of(&last.dictionary(FIELDS)).edition.version, "4.20.45");
        drop(first);
        let _second = StockProvider::start(address, provider::dictionary("4.21.0"), None);
        for consumer in [&mut consumer, &mut last] {
            consumer.dictionary_change(FIELDS);
            assert_eq!(fields_of(&consumer.dictionary(FIELDS)).edition.version, "4.21.0");
        }
    }
}

#[test]
fn login_text_of_a_provider_stays_in_the_log() {
    let any = "127.0.0.1:0".parse().unwrap();
    let provider = StockProvider::start(any, Dictionary::small(), Some("user secret of host secret expired"));
    let (_distributor, server) = chain(&behind(provider.address(), true));
    let mut consumer = StockConsumer::log_in(server.addresses[0]);
    consumer.image();
    assert_eq!(consumer.trouble(), "Source lost: the login was refused");
}
