//! Rates: what has changed between two snapshots.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::operate::snapshot::{Link, Snapshot, Socket};

/// A socket with its rates, each by second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct SocketRate {
    pub(super) port: u32,
    pub(super) kind: &'static str,
    pub(super) pid: u32,
    pub(super) program: String,
    pub(super) peer: Option<String>,
    /// Messages through the node.
    pub(super) sent: f64,
    pub(super) received: f64,
    /// Bytes through the node, in both directions.
    pub(super) bytes: f64,
    /// Bytes of memory that its lanes carried, in both directions.
    pub(super) lane_bytes: f64,
    pub(super) unread_bytes: u64,
    /// Messages returned to it or refused.
    pub(super) returned: f64,
    pub(super) waits_for: Option<String>,
}

/// A service type with the rates of its sockets on this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct ServiceRate {
    pub(super) service: u32,
    pub(super) bindings: usize,
    pub(super) nodes: usize,
    /// Sockets on this node that are bound.
    pub(super) local: usize,
    pub(super) received: f64,
    pub(super) sent: f64,
    pub(super) bytes: f64,
    pub(super) lane_bytes: f64,
    pub(super) unread_bytes: u64,
}

/// A link with its rates.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct LinkRate {
    pub(super) name: String,
    pub(super) up: bool,
    pub(super) sent: f64,
    pub(super) received: f64,
    pub(super) retransmitted: f64,
    pub(super) congestions: f64,
    pub(super) max_queue: u32,
    pub(super) last_down_reason: Option<String>,
}

/// All rates between two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    /// Milliseconds between the snapshots.
    pub(super) interval_ms: u64,
    pub(super) sockets: Vec<SocketRate>,
    pub(super) services: Vec<ServiceRate>,
    pub(super) links: Vec<LinkRate>,
}

/// Change by second of a count that may have begun again.
fn rate(before: u64, after: u64, milliseconds: u64) -> f64 {
    if milliseconds == 0 || after < before {
        return 0.0;
    }
    (after - before) as f64 * 1000.0 / milliseconds as f64
}

/// As [`rate`], for a 32-bit count that wraps.
fn rate32(before: u32, after: u32, milliseconds: u64) -> f64 {
    rate(0, after.wrapping_sub(before).into(), milliseconds)
}

impl Rates {
    /// The rates from one snapshot to a later one. New objects count from now on.
    pub(super) fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let interval_ms = after.time.saturating_sub(before.time);
        let known: BTreeMap<u32, &Socket> =
            before.sockets.iter().map(|socket| (socket.port, socket)).collect();
        let sockets: Vec<SocketRate> = after
            .sockets
            .iter()
            .map(|now| socket(known.get(&now.port).copied().unwrap_or(now), now, interval_ms))
            .collect();
        let known: BTreeMap<&str, &Link> = before.links.iter().map(|link| (&*link.name, link)).collect();
        let links = after
            .links
            .iter()
            .map(|now| link(known.get(&*now.name).copied().unwrap_or(now), now, interval_ms))
            .collect();
        let services = services(after, &sockets);
        Self { interval_ms, sockets, services, links }
    }
}

fn socket(before: &Socket, now: &Socket, ms: u64) -> SocketRate {
    let of = |get: fn(&Socket) -> u64| rate(get(before), get(now), ms);
    SocketRate {
        port: now.port,
        kind: now.kind,
        pid: now.pid,
        program: now.program.clone(),
        peer: now.peer.clone(),
        sent: of(|s| s.sent),
        received: of(|s| s.received),
        bytes: of(|s| s.sent_bytes) + of(|s| s.received_bytes),
        lane_bytes: of(|s| s.lane_sent_bytes) + of(|s| s.lane_received_bytes),
        unread_bytes: now.unread_bytes,
        returned: of(|s| s.returned) + of(|s| s.refused),
        waits_for: now.waits_for.clone(),
    }
}

fn link(before: &Link, now: &Link, ms: u64) -> LinkRate {
    let of = |get: fn(&Link) -> u32| rate32(get(before), get(now), ms);
    LinkRate {
        name: now.name.clone(),
        up: now.up,
        sent: of(|l| l.tx_packets),
        received: of(|l| l.rx_packets),
        retransmitted: of(|l| l.retransmitted),
        congestions: of(|l| l.congestions),
        max_queue: now.max_queue,
        last_down_reason: now.last_down_reason.clone(),
    }
}

fn services(shot: &Snapshot, sockets: &[SocketRate]) -> Vec<ServiceRate> {
    let by_port: BTreeMap<u32, &SocketRate> = sockets.iter().map(|socket| (socket.port, socket)).collect();
    let mut all: BTreeMap<u32, (ServiceRate, BTreeSet<&str>, BTreeSet<u32>)> = BTreeMap::new();
    for binding in &shot.services {
        let (rate, nodes, ports) = all.entry(binding.service).or_default();
        rate.service = binding.service;
        rate.bindings += 1;
        nodes.insert(&binding.node);
        if binding.node != shot.node.address || !ports.insert(binding.port) {
            continue;
        }
        if let Some(socket) = by_port.get(&binding.port) {
            rate.local += 1;
            rate.received += socket.received;
            rate.sent += socket.sent;
            rate.bytes += socket.bytes;
            rate.lane_bytes += socket.lane_bytes;
            rate.unread_bytes += socket.unread_bytes;
        }
    }
    all.into_values().map(|(rate, nodes, _)| ServiceRate { nodes: nodes.len(), ..rate }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::snapshot::{OwnNode, Service};

    #[test]
    fn rates_are_changes_by_second() {
        let socket = |sent, lane| Socket { port: 7, sent, lane_sent_bytes: lane, ..Socket::default() };
        let link = |packets| Link { name: "a-b".to_owned(), tx_packets: packets, ..Link::default() };
        let binding = |lower| Service { service: 1000, lower, upper: lower, node: "1".to_owned(), port: 7 };
        let node = OwnNode { address: "1".to_owned(), ..OwnNode::default() };
        let before = Snapshot {
            time: 1000,
            sockets: vec![socket(10, 4096)],
            links: vec![link(u32::MAX)],
            ..Snapshot::default()
        };
        let after = Snapshot {
            time: 3000,
            node,
            // Lanes have ended, so their count begins again; a second socket is new.
            sockets: vec![socket(30, 64), Socket { port: 8, sent: 99, ..Socket::default() }],
            links: vec![link(9)],
            services: vec![binding(1), binding(2), Service { node: "2".to_owned(), ..binding(3) }],
            ..Snapshot::default()
        };
        let rates = Rates::between(&before, &after);
        assert_eq!(rates.interval_ms, 2000);
        let sent: Vec<(u32, f64, f64)> =
            rates.sockets.iter().map(|s| (s.port, s.sent, s.lane_bytes)).collect();
        assert_eq!(sent, [(7, 10.0, 0.0), (8, 0.0, 0.0)]);
        assert!((rates.links[0].sent - 5.0).abs() < 1e-9, "a count of 32 bits wraps");
        let service = &rates.services[0];
        assert_eq!((service.bindings, service.nodes, service.local), (3, 2, 1));
        assert!((service.sent - 10.0).abs() < 1e-9, "a socket with two bindings counts once");
    }
}
