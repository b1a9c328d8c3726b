//! Whole nodes on a perfect network, in virtual time.

use super::*;
use crate::addr::{NodeId, Scope, ServiceRange};
use crate::config::{BearerConfig, StackConfig};
use crate::outbox::Target;
use crate::socket::{Destination, RecvOptions, SocketKind};
use crate::wire::MediaAddr;

/// Some nodes on one network without delay.
struct Lan {
    now: Time,
    nodes: Vec<Stack>,
    events: Vec<Vec<Event>>,
    /// Nodes whose frames are lost, both ways.
    cut: Vec<bool>,
    frames: usize,
}

fn media(node: usize) -> MediaAddr {
    MediaAddr::Udp(format!("127.0.0.{}:6118", node + 1).parse().unwrap())
}

impl Lan {
    fn new(count: usize) -> Self {
        let now = Time::from_millis(1000);
        let nodes = (0..count).map(|i| {
            let config = StackConfig {
                identity: Some(NodeId::from_text(&format!("node{i}"))),
                seed: i as u64 + 1,
                ..StackConfig::default()
            };
            Stack::new(now, config)
        });
        let mut lan = Self {
            now,
            nodes: nodes.collect(),
            events: vec![Vec::new(); count],
            cut: vec![false; count],
            frames: 0,
        };
        for i in 0..count {
            lan.nodes[i].enable_bearer(now, BearerConfig::new("udp:U", media(i), 1472)).unwrap();
        }
        lan
    }

    fn exchange(&mut self) {
        loop {
            let mut moved = false;
            for from in 0..self.nodes.len() {
                let batch = core::mem::take(self.nodes[from].frames());
                for frame in batch.frames() {
                    moved = true;
                    self.frames += 1;
                    for to in 0..self.nodes.len() {
                        let wanted = match frame.to {
                            Target::Broadcast => to != from,
                            Target::Unicast(at) => at == media(to),
                        };
                        if wanted && !self.cut[from] && !self.cut[to] {
                            self.nodes[to].receive(self.now, 0, batch.frame(frame));
                        }
                    }
                }
                while let Some(event) = self.nodes[from].poll_event() {
                    self.events[from].push(event);
                }
                while self.nodes[from].poll_ready().is_some() {}
            }
            if !moved {
                return;
            }
        }
    }

    fn run(&mut self, millis: u64) {
        let end = self.now.plus_millis(millis);
        loop {
            self.exchange();
            let next = self.nodes.iter().filter_map(Stack::deadline).min();
            let Some(next) = next.filter(|n| *n <= end) else { break };
            self.now = self.now.max(next);
            for node in &mut self.nodes {
                if node.deadline().is_some_and(|d| d <= self.now) {
                    node.handle_timeout(self.now);
                }
            }
        }
        self.now = end;
    }

    fn up(&self, node: usize) -> usize {
        self.nodes[node].nodes().iter().filter(|n| n.up).count()
    }

    fn recv(&mut self, node: usize, port: u32) -> Vec<u8> {
        let mut buffer = vec![0; 66_000];
        let got = self.nodes[node].recv(self.now, port, &mut buffer, RecvOptions::default()).unwrap();
        buffer.truncate(got.len);
        buffer
    }
}

const RANGE: ServiceRange = ServiceRange::new(18888, 17, 17);

#[test]
fn two_nodes_meet() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    assert_eq!((lan.up(0), lan.up(1)), (1, 1), "{:?}", lan.events);
    lan.run(60_000);
    let downs =
        lan.events.iter().flatten().filter(|e| matches!(e, Event::LinkDown { .. } | Event::Dropped { .. }));
    assert_eq!(downs.collect::<Vec<_>>(), Vec::<&Event>::new());
}

#[test]
fn datagrams_of_all_sizes_cross() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let now = lan.now;
    let server = lan.nodes[0].open(now, SocketKind::Rdm).unwrap();
    lan.nodes[0].bind(now, server, RANGE, Scope::Cluster).unwrap();
    lan.run(10);
    let client = lan.nodes[1].open(lan.now, SocketKind::Rdm).unwrap();
    for size in [1, 1400, 1500, 20_000, 66_000] {
        let data: Vec<u8> = (0..size).map(|i| (i * 7) as u8).collect();
        lan.nodes[1].send(lan.now, client, &data, Some(Destination::service(18888, 17))).unwrap();
        lan.run(100);
        assert!(lan.recv(0, server) == data, "{size} bytes");
    }
}

#[test]
fn connections_cross_both_ways_and_break_with_the_node() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let listener = lan.nodes[0].open(lan.now, SocketKind::SeqPacket).unwrap();
    lan.nodes[0].bind(lan.now, listener, RANGE, Scope::Cluster).unwrap();
    lan.nodes[0].listen(lan.now, listener).unwrap();
    lan.run(10);
    let client = lan.nodes[1].open(lan.now, SocketKind::SeqPacket).unwrap();
    lan.nodes[1].connect(lan.now, client, Some(Destination::service(18888, 17))).unwrap();
    lan.run(10);
    let (server, _) = lan.nodes[0].accept(lan.now, listener).unwrap();
    lan.run(10);
    lan.nodes[1].send(lan.now, client, b"ping", None).unwrap();
    lan.run(10);
    assert_eq!(lan.recv(0, server), b"ping");
    lan.nodes[0].send(lan.now, server, b"pong", None).unwrap();
    lan.run(10);
    assert_eq!(lan.recv(1, client), b"pong");
    lan.cut[0] = true;
    lan.run(5000);
    assert_eq!((lan.up(0), lan.up(1)), (0, 0));
    for (node, port) in [(0, server), (1, client)] {
        assert!(lan.nodes[node].endpoint(port).unwrap().readiness().hung_up, "node {node}");
    }
    assert_eq!(lan.nodes[1].bindings().iter().filter(|b| b.range == RANGE).count(), 0);
    lan.cut[0] = false;
    lan.run(5000);
    assert_eq!((lan.up(0), lan.up(1)), (1, 1), "{:?}", lan.events);
    assert_eq!(lan.nodes[1].bindings().iter().filter(|b| b.range == RANGE).count(), 1);
}

#[test]
fn a_multicast_reaches_everybody_once() {
    let mut lan = Lan::new(4);
    lan.run(3000);
    let mut ports = Vec::new();
    for node in 0..4 {
        let port = lan.nodes[node].open(lan.now, SocketKind::Rdm).unwrap();
        lan.nodes[node].bind(lan.now, port, ServiceRange::new(1000, 0, 99), Scope::Cluster).unwrap();
        ports.push(port);
    }
    lan.run(100);
    let sender = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
    for (number, size) in [(0u8, 10usize), (1, 3000), (2, 10)] {
        let to = Destination::Range(ServiceRange::new(1000, 50, 50));
        lan.nodes[0].send(lan.now, sender, &vec![number; size], Some(to)).unwrap();
    }
    lan.run(2000);
    for node in 0..4 {
        for (number, size) in [(0u8, 10usize), (1, 3000), (2, 10)] {
            let got = lan.recv(node, ports[node]);
            assert!(
                got == vec![number; size],
                "node {node}: {} bytes of {:?}, not {number}",
                got.len(),
                got.first()
            );
        }
    }
}
