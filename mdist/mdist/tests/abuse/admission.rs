//! Connections that do not log in, and hosts that may not connect, with real sockets.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use mdist::backbone::memory::Memory;
use mdist::config::{Config, Upstream, UpstreamKind};
use mdist::metrics::Metrics;
use mdist::server::{Backbone, p2ps, src_dist};
use rssl::rdm::login;

use crate::attack::{Client, address, affordable, connect_from};
use crate::load_common::until;

/// Connections that only connect.
const IDLE: usize = 5_000;

/// The value of a metric, over all threads.
pub(crate) fn metric(metrics: &Metrics, name: &str) -> u64 {
    let page = metrics.text();
    let lines = page.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Opens idle connections, 100 from each address.
fn idle(to: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map(|number| connect_from(address(number / 100), to).unwrap()).collect()
}

#[test]
fn consumers_and_publishers_log_in_beside_thousands_of_idle_connections() {
    let mut config = Config::default();
    config.p2ps.listen = vec!["127.0.0.1:0".into()];
    config.p2ps.workers = 2;
    config.src_dist.listen = vec!["127.0.0.1:0".into()];
    // Longer than the test: the timeout alone must not help.
    (config.p2ps.admission.login_timeout_s, config.src_dist.admission.login_timeout_s) = (255, 255);
    let backbone = Backbone::on(Memory::new());
    let idle_count = affordable(2 * IDLE) / 2;
    for (role, name) in [(login::CONSUMER, "mdist_mounts"), (login::PROVIDER, "mdist_hub_publishers")] {
        let metrics = Metrics::new("test");
        let mut server = if role == login::CONSUMER {
            p2ps::start(&config, &metrics, &backbone).unwrap()
        } else {
            src_dist::start(&config, &metrics, &backbone).unwrap()
        };
        let to = server.addresses[0];
        let early = Client::log_in(Ipv4Addr::LOCALHOST, to, role).unwrap();
        let sockets = idle(to, idle_count);
        let clients: Vec<_> =
            (0..20).map(|_| Client::log_in(Ipv4Addr::LOCALHOST, to, role).unwrap()).collect();
        until("all but the newest idle connections to be closed", || {
            let pending = metric(&metrics, &format!("{name}_pending"));
            let crowded = metric(&metrics, &format!("{name}_crowded_out_total"));
            let text = format!("{pending} pending, {crowded} crowded out of {idle_count}");
            let most = u64::from(config.p2ps.admission.max_pending);
            let right = (1..=most).contains(&pending) && crowded + most >= idle_count as u64;
            if right { Ok(()) } else { Err(text) }
        });
        // The oldest sees its end; those that have logged in do not.
        let mut oldest = &sockets[0];
        assert!(matches!(oldest.read(&mut [0; 1]), Ok(0) | Err(_)), "it is open");
        drop((early, clients, sockets));
        server.stop();
    }
}

/// Logs in until refused; returns the clients and the refusal.
fn flood(
    to: SocketAddr,
    role: u64,
    mut next: impl FnMut(usize) -> (Vec<u8>, Ipv4Addr),
) -> (Vec<Client>, String) {
    let mut clients = Vec::new();
    loop {
        let (user, from) = next(clients.len());
        match Client::log_in_as(&user, from, to, role) {
            Ok(client) => clients.push(client),
            Err(why) => return (clients, why.to_string()),
        }
        assert!(clients.len() < 2_000, "never refused");
    }
}

#[test]
fn client_that_logs_in_without_end_keeps_nobody_out() {
    let mut config = Config::default();
    config.p2ps.listen = vec!["127.0.0.1:0".into()];
    config.p2ps.max_mounts = 400;
    config.src_dist.listen = vec!["127.0.0.1:0".into()];
    let backbone = Backbone::on(Memory::new());
    let consumers = p2ps::start(&config, &Metrics::new("p2ps"), &backbone).unwrap();
    let publishers = src_dist::start(&config, &Metrics::new("src_dist"), &backbone).unwrap();
    let (here, there) = (Ipv4Addr::LOCALHOST, address(1));
    for (to, role, most) in
        [(consumers.addresses[0], login::CONSUMER, 400), (publishers.addresses[0], login::PROVIDER, 1_024)]
    {
        assert_eq!(affordable(most), most);
        let (clients, why) = flood(to, role, |_| (b"user".to_vec(), here));
        assert_eq!(clients.len(), most / 4, "{why}");
        for (user, from) in [(&b"other"[..], here), (b"user", there), (b"other", there)] {
            let start = std::time::Instant::now();
            Client::log_in_as(user, from, to, role).unwrap();
            println!("{} at {from} logged in within {:?}", user.escape_ascii(), start.elapsed());
        }
        drop(clients);
        until("its places to be free", || match Client::log_in(here, to, role) {
            Ok(_) => Ok(()),
            Err(why) => Err(why.to_string()),
        });
        // The same with a name for each login.
        let mut clients = Vec::new();
        until("half of all places", || {
            let (more, why) =
                flood(to, role, |number| (format!("{}-{number}", clients.len()).into_bytes(), here));
            clients.extend(more);
            if clients.len() == most / 2 { Ok(()) } else { Err(format!("{} logins: {why}", clients.len())) }
        });
        Client::log_in_as(b"other", there, to, role).unwrap();
    }
}

#[test]
fn only_hosts_of_allowed_networks_may_connect() {
    let mut config = Config::default();
    config.p2ps.listen = vec!["127.0.0.1:0".into()];
    config.p2ps.admission.allow = vec!["127.0.0.0/24".into(), "10.0.0.0/8".into()];
    config.p2ps.upstream = vec![Upstream {
        kind: UpstreamKind::Provider,
        hosts: vec!["127.0.0.1:1".into()],
        services: Vec::new(),
    }];
    let metrics = Metrics::new("p2ps");
    let server = p2ps::start(&config, &metrics, &Backbone::on(Memory::new())).unwrap();
    let to = server.addresses[0];
    for number in 0..3 {
        let mut denied = connect_from(address(number), to).unwrap();
        let _ = denied.write_all(b"hello");
        assert!(matches!(denied.read(&mut [0; 1]), Ok(0) | Err(_)), "a host of no allowed network");
    }
    Client::log_in(Ipv4Addr::LOCALHOST, to, login::CONSUMER).unwrap();
    until("the count", || match metric(&metrics, "mdist_hub_connections_denied_total") {
        3 => Ok(()),
        other => Err(format!("{other} denied")),
    });
}

#[test]
fn programs_listen_on_loopback_unless_configured() {
    let config = Config::default();
    for listen in [&config.p2ps.listen, &config.src_dist.listen] {
        let at: Vec<SocketAddr> = listen.iter().map(|at| at.parse().unwrap()).collect();
        assert!(at.iter().all(|at| at.ip().is_loopback()), "{listen:?}");
    }
}
