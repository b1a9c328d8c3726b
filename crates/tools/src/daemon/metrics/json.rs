//! The JSON of the page. Reference: docs/operating/web-page.md.

use std::sync::Arc;

use serde_json::{Value, json};
use utipc::{NodeAddr, NodeId};
use utipc_manage::family::stats;
use utipc_manage::{Bearer, Link, Node, Publication, Quota, Socket};

use super::history::Event;
use super::snapshot::{Snapshot, millis};

/// The program that serves the page, and its views.
pub(super) fn about() -> Value {
    json!({ "program": "utipcd", "version": env!("CARGO_PKG_VERSION"), "views": ["node"] })
}

/// The state of the node.
pub(super) fn state(snapshot: &Snapshot) -> Value {
    let net = snapshot.net.as_ref();
    json!({
        "time_ms": snapshot.taken.map(millis),
        "started_ms": snapshot.started.map(millis),
        "is_current": snapshot.is_current,
        "node": {
            "address": NodeAddr(snapshot.own()).to_string(),
            "identity": net.map(|net| NodeId(net.identity).to_string()),
            "cluster": net.map(|net| net.id),
        },
        "nodes": all(&snapshot.nodes.entries, node),
        "links": all(&snapshot.links.entries, |entry| link(snapshot, entry)),
        "bearers": all(&snapshot.bearers.entries, |entry| bearer(snapshot, entry)),
        "services": all(&snapshot.names.entries, service),
        "sockets": all(&snapshot.sockets.entries, socket),
        "quotas": all(&snapshot.quotas.entries, quota),
        "daemon": snapshot.counters,
        "is_complete": {
            "nodes": snapshot.nodes.is_complete,
            "links": snapshot.links.is_complete,
            "services": snapshot.names.is_complete,
            "sockets": snapshot.sockets.is_complete,
        },
    })
}

fn all<T>(entries: &[T], one: impl Fn(&T) -> Value) -> Vec<Value> {
    entries.iter().map(one).collect()
}

fn node(node: &Node) -> Value {
    let identity = node.identity.map(|identity| NodeId(identity).to_string());
    json!({ "address": NodeAddr(node.address).to_string(), "identity": identity, "up": node.up })
}

fn link(snapshot: &Snapshot, link: &Link) -> Value {
    let count = |which| link.stats.wide(which);
    // The broadcast link has no more than the counters.
    let (sent, received) = link.wide.map_or((count(stats::TX_INFO), 0), |wide| (wide.sent, wide.received));
    json!({
        "name": link.name,
        "peer": snapshot.peer_of(&link.name).map(|peer| NodeAddr(peer).to_string()),
        "broadcast": link.broadcast,
        "up": link.up,
        "active": link.up && link.active,
        "mtu": link.mtu,
        "priority": link.properties.priority,
        "tolerance_ms": link.properties.tolerance,
        "window": link.properties.window,
        "sent": sent,
        "received": received,
        "retransmitted": count(stats::RETRANSMITTED),
        "duplicates": count(stats::DUPLICATES),
        "congestions": count(stats::LINK_CONGS),
        "queue_max": count(stats::MAX_QUEUE),
        "queue_average": count(stats::AVG_QUEUE),
        "down": link.down.as_ref().map(|down| json!({ "reason": down.reason, "time_ms": down.time })),
    })
}

fn bearer(snapshot: &Snapshot, bearer: &Bearer) -> Value {
    let counters = snapshot.counters.node.bearers.iter().find(|(name, _)| *name == bearer.name);
    json!({
        "name": bearer.name,
        "local": bearer.udp.map(|udp| udp.local.to_string()),
        "remote": bearer.udp.map(|udp| udp.remote.to_string()),
        "counters": counters.map(|(_, counters)| counters),
    })
}

fn service(p: &Publication) -> Value {
    json!({
        "type": p.service,
        "lower": p.lower,
        "upper": p.upper,
        "scope": if p.scope == 3 { "node" } else { "cluster" },
        "node": NodeAddr(p.node).to_string(),
        "port": p.port,
    })
}

fn socket(socket: &Socket) -> Value {
    let kind = match socket.kind {
        Some(1) => "stream",
        Some(2) => "dgram",
        Some(4) => "rdm",
        Some(5) => "seqpacket",
        _ => "",
    };
    let process = socket.process.as_ref();
    let [sent, sent_bytes, received, received_bytes, returned, refused] =
        process.map(|process| process.counters).unwrap_or_default();
    let connection = socket.connection.map(|connection| {
        let service = connection.service.map(|(service, instance)| json!([service, instance]));
        json!({ "node": NodeAddr(connection.node).to_string(), "port": connection.port, "service": service })
    });
    json!({
        "port": socket.port,
        "kind": kind,
        "bound": socket.bound,
        "connection": connection,
        "program": process.map(|process| &process.program),
        "pid": process.map(|process| process.pid),
        "uid": process.map(|process| process.uid),
        "sent": sent,
        "sent_bytes": sent_bytes,
        "received": received,
        "received_bytes": received_bytes,
        "returned": returned,
        "refused": refused,
    })
}

fn quota(quota: &Quota) -> Value {
    let resources: Vec<_> = quota
        .resources
        .iter()
        .map(|resource| {
            // The largest number means no limit.
            let limit = Some(resource.limit).filter(|limit| *limit < u64::MAX);
            json!({ "name": resource.name, "used": resource.used, "limit": limit, "refused": resource.refused })
        })
        .collect();
    json!({ "user": quota.user, "resources": resources })
}

/// Events, oldest first.
pub(super) fn events(events: &[Arc<Event>]) -> Value {
    let one = |event: &Arc<Event>| {
        json!({
            "number": event.number,
            "time_ms": event.time,
            "kind": event.kind,
            "node": NodeAddr(event.node).to_string(),
            "what": event.what,
            "reason": event.reason,
        })
    };
    events.iter().map(one).collect()
}
