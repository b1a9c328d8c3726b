//! What the page of a running server shows.

use mdist::backbone::memory::Memory;
use mdist::config::Config;
use mdist::metrics::{Metrics, Server};
use mdist::server::Bus;
use mdist::server::demo::Chain;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn get(server: &Server, path: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Asks until the page says so; counters are published once a second.
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
fn a_server_shows_its_mounts_and_why_they_left() {
    let mut config = Config::default();
    config.p2ps.listen = vec!["127.0.0.1:0".into()];
    let metrics = Metrics::new("p2ps");
    let bus = Bus::Memory(Memory::new());
    let chain = Chain::start(&config, &metrics, &bus, &bus, 10).unwrap();
    let server = Server::start("127.0.0.1:0", &metrics).unwrap();
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
