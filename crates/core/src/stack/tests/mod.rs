//! Whole nodes on a perfect network, in virtual time.

mod anycast;
mod bulk;
mod collecting;
mod contact;
mod fairness;
mod floods;
mod group;
mod lanes;
mod path;
mod publications;
mod slow_members;
mod spread;
mod subscribers;

use super::*;
use crate::addr::{NodeId, PortId, Scope, ServiceAddr, ServiceRange};
use crate::config::{BearerConfig, StackConfig};
use crate::outbox::Target;
use crate::socket::{Destination, RecvError, RecvOptions, SendError, SocketKind};
use crate::switch::LinkProperty;
use crate::wire::MediaAddr;

/// Some nodes on one network without delay.
struct Lan {
    now: Time,
    nodes: Vec<Stack>,
    events: Vec<Vec<Event>>,
    /// (node, network) whose frames are lost, in both directions.
    cut: Vec<(usize, u8)>,
    /// Longest frame that passes, bytes.
    width: usize,
    /// Sockets of each node whose readiness may have changed, in the order of the reports.
    ready: Vec<Vec<u32>>,
}

fn media(node: usize, net: u8) -> MediaAddr {
    MediaAddr::Udp(format!("127.0.{net}.{}:6118", node + 1).parse().unwrap())
}

impl Lan {
    fn new(count: usize) -> Self {
        Self::with_networks(count, 1)
    }

    fn with_networks(count: usize, networks: u8) -> Self {
        Self::of(count, networks, |config| config)
    }

    /// Nodes whose bearers are changed by `tune`.
    fn of(count: usize, networks: u8, tune: impl Fn(BearerConfig) -> BearerConfig) -> Self {
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
            cut: Vec::new(),
            width: usize::MAX,
            ready: vec![Vec::new(); count],
        };
        for (i, node) in lan.nodes.iter_mut().enumerate() {
            for net in 0..networks {
                let name = ["udp:U", "udp:V"][usize::from(net)];
                node.enable_bearer(now, tune(BearerConfig::new(name, media(i, net), 1472))).unwrap();
            }
        }
        lan
    }

    fn exchange(&mut self) {
        while self.step() {}
    }

    /// Delivers the frames that the nodes have sent; false if there are none.
    fn step(&mut self) -> bool {
        let mut moved = false;
        for from in 0..self.nodes.len() {
            let batch = core::mem::take(self.nodes[from].frames());
            for frame in batch.frames() {
                moved = true;
                for to in 0..self.nodes.len() {
                    let wanted = match frame.to {
                        Target::Broadcast => to != from,
                        Target::Unicast(at) => at == media(to, frame.bearer),
                    };
                    let lost =
                        self.cut.iter().any(|(n, net)| (*n == from || *n == to) && *net == frame.bearer);
                    if wanted && !lost && frame.len() <= self.width {
                        self.nodes[to].receive(self.now, frame.bearer, &batch.frame(frame));
                    }
                }
            }
            while let Some(event) = self.nodes[from].poll_event() {
                self.events[from].push(event);
            }
            self.note_ready(from);
        }
        moved
    }

    fn note_ready(&mut self, node: usize) {
        while let Some(port) = self.nodes[node].poll_ready() {
            self.ready[node].push(port);
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

    /// A socket of node 0 that listens.
    fn listener(&mut self) -> u32 {
        let (now, node) = (self.now, &mut self.nodes[0]);
        let listener = node.open(now, SocketKind::SeqPacket).unwrap();
        node.bind(now, listener, RANGE, Scope::Cluster).unwrap();
        node.listen(now, listener).unwrap();
        self.run(10);
        listener
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
fn two_nodes_establish_contact() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    assert_eq!((lan.up(0), lan.up(1)), (1, 1), "{:?}", lan.events);
    lan.run(60_000);
    let downs =
        lan.events.iter().flatten().filter(|e| matches!(e, Event::LinkDown { .. } | Event::Dropped { .. }));
    assert_eq!(downs.collect::<Vec<_>>(), Vec::<&Event>::new());
}

#[test]
fn datagrams_of_all_sizes_arrive() {
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
fn connections_work_both_ways_and_break_with_the_node() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let listener = lan.listener();
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
    lan.cut.push((0, 0));
    lan.run(5000);
    assert_eq!((lan.up(0), lan.up(1)), (0, 0));
    for (node, port) in [(0, server), (1, client)] {
        assert!(lan.nodes[node].endpoint(port).unwrap().readiness().hung_up, "node {node}");
    }
    assert_eq!(lan.nodes[1].bindings().iter().filter(|b| b.range == RANGE).count(), 0);
    lan.cut.clear();
    lan.run(5000);
    assert_eq!((lan.up(0), lan.up(1)), (1, 1), "{:?}", lan.events);
    assert_eq!(lan.nodes[1].bindings().iter().filter(|b| b.range == RANGE).count(), 1);
}

#[test]
fn connection_request_ends_when_contact_with_its_node_is_lost() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let listener = lan.listener();
    let address = PortId { port: listener, node: lan.nodes[0].own_node() };
    for to in [Destination::service(18888, 17), address.into()] {
        let client = lan.nodes[1].open(lan.now, SocketKind::SeqPacket).unwrap();
        lan.nodes[1].connect(lan.now, client, Some(to)).unwrap();
        lan.run(10);
        assert_eq!(lan.nodes[1].take_setup(client), None, "the server has not accepted");
        lan.cut.push((0, 0));
        lan.run(3000);
        let result = lan.nodes[1].take_setup(client);
        assert_eq!(result, Some(Err(SendError::HostUnreachable.into())), "before the connect timeout");
        lan.cut.clear();
        lan.run(3000);
        assert_eq!(lan.up(1), 1);
        // The request still waits at the listener.
        lan.nodes[0].accept(lan.now, listener).unwrap();
        lan.run(100);
        lan.nodes[1].close(lan.now, client);
    }
}

#[test]
fn multicast_reaches_every_socket_once() {
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
    for (node, port) in ports.into_iter().enumerate() {
        for (number, size) in [(0u8, 10usize), (1, 3000), (2, 10)] {
            let got = lan.recv(node, port);
            assert!(
                got == vec![number; size],
                "node {node}: {} bytes of {:?}, not {number}",
                got.len(),
                got.first()
            );
        }
    }
}

#[test]
fn traffic_survives_the_loss_of_one_of_two_links() {
    let mut lan = Lan::with_networks(2, 2);
    lan.run(5000);
    let up = |lan: &Lan, node: usize| lan.nodes[node].links().iter().filter(|l| l.up && l.active).count();
    assert_eq!((up(&lan, 0), up(&lan, 1)), (2, 2), "{:?}", lan.nodes[0].links());
    let listener = lan.listener();
    let pairs: Vec<(u32, u32)> = (0..8)
        .map(|_| {
            let client = lan.nodes[1].open(lan.now, SocketKind::SeqPacket).unwrap();
            lan.nodes[1].connect(lan.now, client, Some(Destination::service(18888, 17))).unwrap();
            lan.run(10);
            (client, lan.nodes[0].accept(lan.now, listener).unwrap().0)
        })
        .collect();
    lan.run(10);
    // (sender's node and port, receiver's node and port, sent, received)
    type End = (usize, u32);
    let mut flows: Vec<(End, End, u32, u32)> =
        pairs.iter().flat_map(|(c, s)| [((1, *c), (0, *s), 0, 0), ((0, *s), (1, *c), 0, 0)]).collect();
    let mut round = |lan: &mut Lan, millis: u64| {
        for _ in 0..millis / 10 {
            for ((node, port), _, sent, _) in &mut flows {
                let data = [&sent.to_be_bytes()[..], &[7; 2000]].concat();
                match lan.nodes[*node].send(lan.now, *port, &data, None) {
                    Ok(_) => *sent += 1,
                    Err(e) => assert_eq!(e, SendError::WouldBlock),
                }
            }
            lan.run(10);
        }
        lan.run(6000);
        for (_, (node, port), sent, received) in &mut flows {
            let mut buffer = vec![0; 3000];
            while let Ok(got) = lan.nodes[*node].recv(lan.now, *port, &mut buffer, RecvOptions::default()) {
                assert_eq!(got.len, 2004, "node {node}: {:?}", got.returned);
                assert_eq!(u32::from_be_bytes(buffer[..4].try_into().unwrap()), *received, "node {node}");
                *received += 1;
            }
            assert_eq!(sent, received, "to node {node}");
        }
    };
    for (net, cut) in [(0, true), (0, false), (1, true), (1, false)] {
        lan.cut.retain(|(_, n)| *n != net);
        if cut {
            lan.cut.push((0, net));
        }
        round(&mut lan, 200);
        let links = if cut { 1 } else { 2 };
        assert_eq!((up(&lan, 0), up(&lan, 1)), (links, links), "{net} {cut} {:?}", lan.events);
        round(&mut lan, 200);
    }
    assert!(!lan.events.iter().flatten().any(|e| matches!(e, Event::NodeDown(_))), "{:?}", lan.events);
}

/// Above the threshold of the neighbour monitor, records are exchanged, and a node that vanishes is still detected.
#[test]
fn large_cluster_uses_the_monitor() {
    let mut lan = Lan::new(36);
    lan.run(20_000);
    assert!((0..36).all(|n| lan.up(n) == 35), "{:?}", (0..36).map(|n| lan.up(n)).collect::<Vec<_>>());
    lan.run(20_000);
    let noise =
        lan.events.iter().flatten().filter(|e| matches!(e, Event::LinkDown { .. } | Event::Dropped { .. }));
    assert_eq!(noise.count(), 0);
    let supervisors = |lan: &Lan| lan.nodes[0].stats().monitor_records_refused;
    assert_eq!(supervisors(&lan), 0);
    lan.cut.push((17, 0));
    lan.run(10_000);
    assert!(
        (0..36).all(|n| lan.up(n) == if n == 17 { 0 } else { 34 }),
        "{:?}",
        (0..36).map(|n| lan.up(n)).collect::<Vec<_>>()
    );
}

/// The first record of a new link is complete, also if the peer had this node's domain before the link failed.
#[test]
fn monitors_have_all_domains_again_after_a_node_was_cut_off() {
    let mut lan = Lan::new(9);
    for node in &mut lan.nodes {
        node.set_monitor_threshold(4).unwrap();
    }
    let lacking = |lan: &Lan| -> Vec<(usize, NodeAddr)> {
        let shown = |n: usize| lan.nodes[n].monitor_nodes(0, 0).into_iter().flatten().map(move |m| (n, m));
        let all = (0..9).flat_map(shown);
        all.filter(|(_, m)| !m.up || m.applied != 2).map(|(n, m)| (n, m.addr)).collect()
    };
    lan.run(20_000);
    assert_eq!(lacking(&lan), []);
    lan.cut.push((5, 0));
    lan.run(10_000);
    assert_eq!(lan.up(5), 0);
    lan.cut.clear();
    lan.run(20_000);
    assert_eq!(lacking(&lan), []);
}

#[test]
fn tolerance_set_at_one_end_applies_to_both() {
    let mut lan = Lan::new(2);
    lan.run(3000);
    let name = lan.nodes[0].links()[0].name.clone();
    let now = lan.now;
    lan.nodes[0].set_link(now, &name, LinkProperty::ToleranceMs(400)).unwrap();
    lan.run(1000);
    assert_eq!((lan.nodes[0].links()[0].tolerance_ms, lan.nodes[1].links()[0].tolerance_ms), (400, 400));
    lan.cut.push((0, 0));
    lan.run(1000);
    assert_eq!((lan.up(0), lan.up(1)), (0, 0), "the links fail within the new tolerance");
    let refused = lan.nodes[0].set_link(lan.now, &name, LinkProperty::Window(9000));
    assert!(refused.unwrap_err().to_string().contains("50 to 8191"));
    assert!(lan.nodes[0].set_link(lan.now, "x", LinkProperty::Priority(1)).is_err());
}

/// Connections of this node whose setup is under way when the node's address becomes final.
#[test]
fn connection_is_established_although_the_address_becomes_final_meanwhile() {
    for step in 0..4 {
        let mut lan = Lan::new(2);
        let settle = |lan: &mut Lan, at: usize| {
            if at == step {
                lan.run(3000);
                assert!(lan.nodes[0].address_is_final());
            }
        };
        for kind in [SocketKind::Stream, SocketKind::SeqPacket] {
            let listener = lan.nodes[0].open(lan.now, kind).unwrap();
            let client = lan.nodes[0].open(lan.now, kind).unwrap();
            lan.nodes[0].listen(lan.now, listener).unwrap();
            let to = PortId { port: listener, node: NodeAddr::NONE };
            settle(&mut lan, 0);
            lan.nodes[0].connect(lan.now, client, Some(to.into())).unwrap();
            settle(&mut lan, 1);
            let (server, _) = lan.nodes[0].accept(lan.now, listener).unwrap();
            settle(&mut lan, 2);
            lan.nodes[0].send(lan.now, client, b"ping", None).unwrap();
            assert_eq!(lan.recv(0, server), b"ping", "step {step}, {kind:?}");
            settle(&mut lan, 3);
            lan.nodes[0].send(lan.now, server, b"pong", None).unwrap();
            assert_eq!(lan.recv(0, client), b"pong", "step {step}, {kind:?}");
        }
    }
}
