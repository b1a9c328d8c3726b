use super::*;
use crate::operate::snapshot::{Daemon, Neighbour, OwnNode, Resource, User};

/// A healthy node, an hour after its start.
fn healthy() -> Snapshot {
    Snapshot {
        engine: "daemon",
        time: 10_000_000,
        node: OwnNode { address: "1001".to_owned(), identity: "alpha".to_owned(), cluster: 4711 },
        daemon: Some(Daemon {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            started: 6_400_000,
            ..Daemon::default()
        }),
        bearers: vec![Bearer {
            name: "udp:U".to_owned(),
            mtu: Some(1472),
            remotes: vec!["10.0.0.2:6118".to_owned()],
            rx_frames: 9,
            tx_frames: 9,
            ..Bearer::default()
        }],
        links: vec![Link {
            name: "alpha:U-beta:U".to_owned(),
            peer: "1002".to_owned(),
            peer_media: "10.0.0.2:6118".to_owned(),
            bearer: "udp:U".to_owned(),
            up: true,
            mtu: 1472,
            ..Link::default()
        }],
        neighbours: vec![Neighbour { address: "1002".to_owned(), identity: "beta".to_owned(), up: true }],
        users: vec![User {
            uid: Some(1000),
            resources: vec![Resource { name: "sockets".to_owned(), used: 1, limit: Some(100), refused: 0 }],
        }],
        ..Snapshot::default()
    }
}

fn problem(name: &str, last: u64) -> Problem {
    Problem { name: name.to_owned(), count: 3, last, detail: "cause".to_owned(), ..Problem::default() }
}

/// The findings of a changed node that are not `ok`.
fn wrong(change: impl FnOnce(&mut Snapshot)) -> Vec<(&'static str, Level)> {
    let mut shot = healthy();
    change(&mut shot);
    let findings = all(&shot).into_iter().filter(|found| found.level != Level::Ok);
    findings
        .map(|found| {
            assert!(!found.remedy.is_empty() && !found.text.is_empty(), "{found:?}");
            (found.check, found.level)
        })
        .collect()
}

#[test]
fn nothing_is_wrong_with_a_healthy_node() {
    assert_eq!(wrong(|_| {}), []);
}

#[test]
fn every_check_finds_its_problem() {
    use Level::{Error, Note, Warning};
    let first = |shot: &mut Snapshot| shot.links.remove(0);
    assert_eq!(wrong(|shot| shot.node.address = "0".to_owned()), [("address", Warning)]);
    assert_eq!(wrong(|shot| shot.bearers[0].tx_dropped = 5), [("bearers", Warning)]);
    assert_eq!(wrong(|shot| shot.bearers[0].rx_errors = 1), [("bearers", Warning)]);
    assert_eq!(wrong(|shot| shot.bearers[0].rx_unreachable = 1), [("bearers", Note)]);
    assert_eq!(
        wrong(|shot| {
            shot.links[0].up = false;
            shot.links[0].last_down = Some(shot.time - 5000);
        }),
        [("links", Warning), ("one-sided-peers", Warning)]
    );
    assert_eq!(wrong(|shot| shot.links[0].last_down = Some(shot.time - 5000)), [("links", Note)]);
    assert_eq!(
        wrong(|shot| {
            first(shot);
            shot.neighbours.clear();
        }),
        [("neighbours", Warning), ("one-sided-peers", Warning)]
    );
    assert_eq!(
        wrong(|shot| shot.links[0].peer_media = "10.0.0.3:6118".to_owned()),
        [("one-sided-peers", Warning), ("one-sided-peers", Warning)]
    );
    for (name, check, level) in [
        ("other-cluster", "foreign-cluster", Warning),
        ("duplicate-address", "duplicate-address", Error),
        ("encrypted", "undecryptable-frames", Error),
        ("wrong-key", "wrong-key", Error),
        ("clear-text", "clear-text", Warning),
        ("replayed", "replayed-frames", Warning),
        ("malformed", "malformed-frames", Warning),
    ] {
        assert_eq!(wrong(|shot| shot.problems.push(problem(name, shot.time - 1000))), [(check, level)]);
        assert_eq!(wrong(|shot| shot.problems.push(problem(name, 1000))), [(check, Note)], "long ago");
    }
    assert_eq!(wrong(|shot| shot.links[0].mtu = 1000), [("mtu", Warning)]);
    assert_eq!(wrong(|shot| shot.users[0].resources[0].used = 90), [("quotas", Warning)]);
    assert_eq!(wrong(|shot| shot.users[0].resources[0].refused = 1), [("quotas", Note)]);
    assert_eq!(wrong(|shot| shot.daemon.as_mut().unwrap().long_turns = 1), [("turns", Note)]);
    assert_eq!(
        wrong(|shot| shot.daemon.as_mut().unwrap().release = "0.0.1".to_owned()),
        [("version-skew", Warning)]
    );
}

#[test]
fn node_with_an_old_key_is_named() {
    let text = |change: &dyn Fn(&mut Snapshot)| {
        let mut shot = healthy();
        let name = shot.neighbours[0].identity.clone();
        let address = shot.neighbours[0].address.clone();
        shot.problems.push(Problem { peer: address, ..problem("wrong-key", shot.time - 1000) });
        change(&mut shot);
        let found = all(&shot).into_iter().find(|found| found.check == "wrong-key").unwrap();
        (name, found.text)
    };
    let (name, found) = text(&|shot| shot.neighbours[0].up = false);
    assert!(found.contains(&format!("{name} is out of the cluster")), "{found}");
    let (_, found) = text(&|shot| shot.neighbours.clear());
    assert!(found.contains("in the name of node"), "{found}");
    let (_, found) = text(&|_| {});
    assert!(!found.contains("out of the cluster"), "anybody can send altered frames: {found}");
}

#[test]
fn young_node_may_still_look_for_its_neighbours() {
    let found = wrong(|shot| {
        shot.daemon.as_mut().unwrap().started = shot.time - 1000;
        shot.links.clear();
        shot.neighbours.clear();
    });
    assert_eq!(found, []);
}

#[test]
fn many_findings_of_one_check_are_counted() {
    let mut shot = healthy();
    for _ in 0..1000 {
        let mut link = shot.links[0].clone();
        link.up = false;
        shot.links.push(link);
    }
    let found: Vec<Finding> = all(&shot).into_iter().filter(|found| found.check == "links").collect();
    assert_eq!(found.len(), MAX_FINDINGS);
    assert!(found.last().unwrap().text.ends_with("(and 995 more)"));
}
