//! Output of the management tool: help, JSON of every command, the filter of the binding table.

use std::collections::BTreeSet;

use serde_json::Value;
use utipc::{Node, Scope, ServiceAddress, ServiceRange};

use super::mistakes::Stage;
use super::{text, utipc};

/// Commands that print something.
const COMMANDS: &[&str] = &[
    "bearer list",
    "bearer get priority media udp name UDP",
    "bearer get mtu media udp name UDP",
    "bearer get media udp name UDP localip",
    "bearer get media udp name UDP localport",
    "bearer get media udp name UDP remoteip",
    "bearer get media udp name UDP remoteport",
    "link list",
    "link list --why",
    "link get tolerance link broadcast-link",
    "link get broadcast",
    "link statistics show",
    "link monitor get threshold",
    "link monitor list",
    "link monitor summary",
    "media list",
    "media get window media udp",
    "nametable show",
    "node list",
    "node get address",
    "node get identity",
    "node get clusterid",
    "node quotas",
    "node counters",
    "socket list",
    "socket list --processes",
];

#[test]
fn every_command_prints_json() {
    let stage = Stage::new();
    let node = Node::builder().daemon_at(stage.socket()).start().unwrap();
    let socket = node.rdm().unwrap();
    socket.bind(ServiceAddress::new(1000, 17), Scope::Cluster).unwrap();
    for command in COMMANDS {
        for option in ["--json", "--json --pretty"] {
            let output = stage.run("utipc", &format!("LIVE {option} {command}"), None);
            let (said, error) = (text(&output.stdout), text(&output.stderr));
            if command.contains("broadcast-link") && !output.status.success() {
                // The broadcast link has no tolerance, as in Linux.
                continue;
            }
            assert!(output.status.success(), "{command}: {error}");
            let value: Result<Value, _> = serde_json::from_str(&said);
            assert!(value.is_ok_and(|value| value.is_array() || value.is_object()), "{command}: {said}");
        }
    }
    let json = |command: &str| -> Value {
        let output = stage.run("utipc", &format!("LIVE --json {command}"), None);
        serde_json::from_str(&text(&output.stdout)).unwrap()
    };
    assert_eq!(json("bearer list")[0]["bearer"], "udp:UDP");
    let address = json("node get address")[0]["address"].as_str().unwrap().to_owned();
    assert_eq!(address, node.address().to_string(), "the notation of all other output");
    let sockets = json("socket list --processes");
    let own =
        sockets.as_array().unwrap().iter().find(|socket| socket["bindings"][0]["type"] == 1000).unwrap();
    assert_eq!(
        (own["kind"].as_str(), own["pid"].as_u64()),
        (Some("RDM"), Some(u64::from(std::process::id())))
    );
}

#[test]
fn filter_of_the_binding_table_selects_bindings() {
    let stage = Stage::new();
    let node = Node::builder().daemon_at(stage.socket()).start().unwrap();
    let socket = node.rdm().unwrap();
    socket.bind(ServiceRange::new(1000, 10, 19), Scope::Cluster).unwrap();
    socket.bind(ServiceRange::new(1000, 30, 30), Scope::Node).unwrap();
    socket.bind(ServiceAddress::new(2000, 17), Scope::Cluster).unwrap();
    let shown = |filter: &str| -> BTreeSet<(u64, u64)> {
        let output = stage.run("utipc", &format!("LIVE --json nametable show {filter}"), None);
        assert!(output.status.success(), "{filter}: {}", text(&output.stderr));
        let all: Vec<Value> = serde_json::from_str(&text(&output.stdout)).unwrap();
        let number = |one: &Value, key: &str| one[key].as_u64().unwrap();
        all.iter()
            .map(|one| (number(one, "type"), number(one, "lower")))
            .filter(|(kind, _)| *kind >= 1000)
            .collect()
    };
    let own = node.address();
    for (filter, expected) in [
        ("type 1000", &[(1000, 10), (1000, 30)][..]),
        ("instance 17", &[(1000, 10), (2000, 17)]),
        ("type 1000 instance 17", &[(1000, 10)]),
        ("scope node type 1000", &[(1000, 30)]),
        (&format!("type 2000 node {own}"), &[(2000, 17)]),
        ("type 2000 node 1.1.1", &[]),
        ("type 2000 port 1", &[]),
        ("ty 2000 sc clu", &[]),
    ] {
        if filter.starts_with("ty ") {
            let output = stage.run("utipc", &format!("LIVE nametable show {filter}"), None);
            assert_eq!(output.status.code(), Some(2), "the value of a key is not abbreviated");
            continue;
        }
        assert_eq!(shown(filter), expected.iter().copied().collect(), "{filter}");
    }
}

#[test]
fn help_goes_to_standard_output_and_succeeds() {
    for words in [
        "--help",
        "link --help",
        "link list --help",
        "bearer -h",
        "node get --help",
        "n -h",
        "run --help",
        "daemon --help",
        "completion --help",
    ] {
        let output = utipc(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(if words == "n -h" { 2 } else { 0 }), "{words}");
        if words != "n -h" {
            assert!(text(&output.stdout).contains("Usage:") && output.stderr.is_empty(), "{words}");
        }
    }
}
