use super::host::{Holder, Probe, Process, Route, probe};
use super::*;
use crate::operate::snapshot::{Bearer, Daemon};

fn healthy() -> Host {
    Host {
        is_root: true,
        memory: Some((1 << 34, 1 << 33)),
        daemon: Some(Process { pid: 7, open_files: Some(65_536), ..Process::default() }),
        ..Host::default()
    }
}

fn node() -> Snapshot {
    Snapshot {
        daemon: Some(Daemon { pid: 7, ..Daemon::default() }),
        bearers: vec![Bearer {
            name: "udp:U".to_owned(),
            local: Some("10.0.0.1:6118".to_owned()),
            ..Bearer::default()
        }],
        ..Snapshot::default()
    }
}

fn holder(address: &str, pid: Option<u32>) -> Holder {
    Holder { address: address.parse().unwrap(), process: pid.map(|pid| (pid, "other".to_owned())) }
}

/// The findings of a changed host that are wrong.
fn wrong(change: impl FnOnce(&mut Host)) -> Vec<(&'static str, Level)> {
    found(change, false).into_iter().filter(|(_, level)| level.is_wrong()).collect()
}

/// The findings of a changed host that are not `ok`.
fn found(change: impl FnOnce(&mut Host), ethernet: bool) -> Vec<(&'static str, Level)> {
    let mut host = healthy();
    change(&mut host);
    let findings = checks::all(&host, Some(&node()), ethernet).into_iter();
    { findings }
        .filter(|found| found.level != Level::Ok)
        .map(|found| {
            assert!(!found.remedy.is_empty() && !found.text.is_empty(), "{found:?}");
            (found.check, found.level)
        })
        .collect()
}

#[test]
fn nothing_is_wrong_with_a_healthy_host() {
    assert_eq!(wrong(|_| {}), []);
    assert_eq!(wrong(|host| host.holders.push(holder("10.0.0.1:6118", Some(7)))), []);
}

#[test]
fn every_check_of_the_host_finds_its_problem() {
    use Level::{Error, Note, Warning};
    assert_eq!(wrong(|host| host.memory_refused = Some("EPERM".to_owned())), [("shared-memory", Error)]);
    assert_eq!(wrong(|host| host.memory = Some((1 << 34, 1 << 28))), [("shared-memory", Warning)]);
    let locked = |host: &mut Host, limit| {
        let process = host.daemon.as_mut().unwrap();
        (process.locked, process.memlock) = (4096, Some(limit));
    };
    assert_eq!(wrong(|host| locked(host, 65_536)), [("memlock", Warning)]);
    assert!(found(|host| locked(host, u64::MAX), false).contains(&("memlock", Note)));
    assert_eq!(
        wrong(|host| host.daemon.as_mut().unwrap().open_files = Some(1024)),
        [("open-files", Warning)]
    );
    assert_eq!(found(|_| {}, false), [("cap-net-raw", Note)]);
    assert_eq!(found(|_| {}, true), [("cap-net-raw", Error)]);
    assert_eq!(found(|host| host.daemon.as_mut().unwrap().has_net_raw = true, true), []);
    let failed = Probe {
        bearer: "udp:U".to_owned(),
        group: "228.0.18.103".to_owned(),
        failed: Some("no answer".to_owned()),
    };
    assert_eq!(wrong(|host| host.probes.push(failed)), [("multicast", Error)]);
    assert_eq!(wrong(|host| host.holders.push(holder("0.0.0.0:6118", Some(9)))), [("port-6118", Warning)]);
    assert!(
        found(|host| host.holders.push(holder("10.0.0.9:6118", Some(9))), false)
            .contains(&("port-6118", Note))
    );
    let module = |host: &mut Host| {
        host.has_module = true;
        host.holders.push(holder("10.0.0.9:6118", None));
    };
    assert_eq!(wrong(module), [("kernel-module", Warning)]);
    assert!(found(|host| host.has_module = true, false).contains(&("kernel-module", Note)));
    let route = Route { link: "a-b".to_owned(), mtu: 1400, needed: 1500 };
    assert_eq!(wrong(|host| host.routes.push(route)), [("path-mtu", Warning)]);
    assert_eq!(wrong(|host| host.daemon.as_mut().unwrap().is_replaced = true), [("version-skew", Warning)]);
    assert_eq!(permission(true).level, Note);
}

#[test]
fn port_is_wanted_free_without_a_daemon() {
    let mut host = Host { holders: vec![holder("10.0.0.9:6118", None)], ..Host::default() };
    let level = |host: &Host| {
        let findings = checks::all(host, None, false);
        findings.iter().find(|found| found.check == "port-6118").unwrap().level
    };
    assert_eq!(level(&host), Level::Warning);
    host.holders.clear();
    assert_eq!(level(&host), Level::Ok);
}

#[test]
fn multicast_is_probed_on_loopback() {
    let group = "228.0.99.7".parse().unwrap();
    let patience = std::time::Duration::from_secs(30);
    probe("127.0.0.1".parse().unwrap(), group, patience).unwrap();
    let why = probe("192.0.2.1".parse().unwrap(), group, patience).unwrap_err();
    assert!(why.starts_with("cannot use the bearer's address"), "{why}");
}

#[test]
fn this_host_can_be_looked_at() {
    let host = Host::look();
    assert_eq!(host.memory_refused, None);
    assert!(host.memory.is_some());
}

#[test]
fn holder_of_the_port_is_named() {
    // An address of this process alone.
    let own = std::net::Ipv4Addr::from(0x7fc0_0000 | std::process::id() & 0x3f_ffff);
    let held = std::net::UdpSocket::bind((own, super::host::PORT)).unwrap();
    let host = Host::look();
    let found = host.holders.iter().find(|holder| holder.address == held.local_addr().unwrap()).unwrap();
    assert_eq!(found.process.as_ref().map(|(pid, _)| *pid), Some(std::process::id()));
}

#[test]
fn multicast_fails_without_interfaces() {
    let tried = std::thread::spawn(|| {
        // Not every user may make a network namespace.
        utipc_netns::unshare().ok()?;
        Some(probe(
            "127.0.0.1".parse().unwrap(),
            "228.0.99.8".parse().unwrap(),
            std::time::Duration::from_secs(1),
        ))
    });
    if let Some(result) = tried.join().unwrap() {
        assert!(result.is_err());
    }
}
