//! Nodes whose interfaces allow larger packets than the network carries.

use super::*;
use crate::socket::{OptionValue, SocketOption};

/// Nodes with interfaces for jumbo frames.
fn wide(count: usize) -> Lan {
    Lan::of(count, 1, |config| BearerConfig {
        mtu: 8972,
        max_receive: 65_507,
        base_mtu: crate::limits::BASE_PACKET,
        ..config
    })
}

/// Node 0 sends messages of several sizes to a socket of each other node, and to all; returns what a node expects.
fn send_some(lan: &mut Lan, from: u32, to: &[u32]) -> Vec<Vec<u8>> {
    let sizes = [100, 1400, 5000, 8000, 66_000, 20];
    let all: Vec<Vec<u8>> = sizes.iter().map(|len| vec![*len as u8; *len]).collect();
    for (node, port) in (1..).zip(to) {
        let to = Destination::Port(PortId { port: *port, node: lan.nodes[node].own_node() });
        for data in &all {
            lan.nodes[0].send(lan.now, from, data, Some(to)).unwrap();
        }
    }
    for data in &all {
        lan.nodes[0].send(lan.now, from, data, Some(Destination::Range(RANGE))).unwrap();
    }
    all
}

fn received(lan: &mut Lan, node: usize, port: u32) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 66_000];
    while let Ok(got) = lan.nodes[node].recv(lan.now, port, &mut buffer, RecvOptions::default()) {
        all.push(buffer[..got.len].to_vec());
    }
    all.sort();
    all
}

fn check(lan: &mut Lan, expected: &[Vec<u8>], ports: &[u32]) {
    let mut expected = [expected, expected].concat();
    expected.sort();
    for (node, port) in (1..).zip(ports) {
        let got = received(lan, node, *port);
        let lengths = |all: &[Vec<u8>]| all.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths(&got), lengths(&expected), "node {node}");
        assert!(got == expected);
    }
}

fn reports(lan: &Lan, node: usize) -> Vec<(u16, u16)> {
    let sizes = lan.events[node].iter().filter_map(|event| match event {
        Event::PathSize { mtu, limit, .. } => Some((*mtu, *limit)),
        _ => None,
    });
    sizes.collect()
}

#[test]
fn unicasts_and_multicasts_pass_a_narrow_network_and_one_that_becomes_narrow() {
    for is_narrow_from_the_start in [true, false] {
        let mut lan = wide(3);
        if is_narrow_from_the_start {
            lan.width = 1472;
        }
        lan.run(2500);
        assert_eq!(lan.up(0), 2);
        let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
        let ports: Vec<u32> = (1..3)
            .map(|node| {
                let port = lan.nodes[node].open(lan.now, SocketKind::Rdm).unwrap();
                lan.nodes[node].bind(lan.now, port, RANGE, Scope::Cluster).unwrap();
                port
            })
            .collect();
        lan.run(10);
        let sent = send_some(&mut lan, sender, &ports);
        // Packets of the old size have their numbers.
        lan.width = 1472;
        lan.run(if is_narrow_from_the_start { 1000 } else { 8000 });
        check(&mut lan, &sent, &ports);
        lan.run(10_000);
        let links = lan.nodes[0].links();
        assert!(links.iter().all(|link| (link.mtu, link.mtu_limit) == (1472, 8972)), "{links:?}");
        assert_eq!(reports(&lan, 0), [(1472, 8972); 2], "once for each peer");
        let sent = send_some(&mut lan, sender, &ports);
        lan.run(1000);
        check(&mut lan, &sent, &ports);
        lan.width = usize::MAX;
        lan.run(601_000);
        assert_eq!(reports(&lan, 0)[2..], [(8972, 8972); 2], "it is wide again");
        let sent = send_some(&mut lan, sender, &ports);
        lan.run(1000);
        check(&mut lan, &sent, &ports);
        let downs = lan.events.iter().flatten().filter(|e| matches!(e, Event::LinkDown { .. }));
        assert_eq!(downs.count(), 0);
    }
}

/// Only broadcasts are lost: no packet of a link shows that the path has become narrow.
#[test]
fn broadcasts_alone_show_a_network_that_becomes_narrow() {
    let mut lan = wide(2);
    lan.run(2500);
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    let port = lan.nodes[1].open(lan.now, SocketKind::Rdm).unwrap();
    lan.nodes[1].bind(lan.now, port, RANGE, Scope::Cluster).unwrap();
    lan.run(10);
    let now = lan.now;
    lan.nodes[0].set_option(now, sender, SocketOption::MulticastBroadcast, OptionValue::None).unwrap();
    lan.width = 1472;
    lan.nodes[0].send(lan.now, sender, &[7; 20_000], Some(Destination::Range(RANGE))).unwrap();
    lan.run(8000);
    assert_eq!(received(&mut lan, 1, port), [[7; 20_000]]);
    assert!(!lan.events.iter().flatten().any(|e| matches!(e, Event::LinkDown { .. })));
}
