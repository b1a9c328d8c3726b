//! The metrics, made from a snapshot for each request. Reference: docs/operating/metrics.md.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use utipc::{NodeAddr, NodeId};
use utipc_manage::family::stats;
use utipc_manage::{Link, Quota, ResourceUse};

use super::snapshot::Snapshot;

/// Names and values of labels.
type Labels = Vec<(&'static str, String)>;

/// One value of a metric.
type Sample = (Labels, f64);

/// One metric.
struct Family {
    /// Name without the prefix `utipc_` and, for a counter, without `_total`.
    name: &'static str,
    is_counter: bool,
    help: &'static str,
    values: fn(&Snapshot) -> Vec<Sample>,
}

const fn gauge(name: &'static str, help: &'static str, values: fn(&Snapshot) -> Vec<Sample>) -> Family {
    Family { name, is_counter: false, help, values }
}

const fn counter(name: &'static str, help: &'static str, values: fn(&Snapshot) -> Vec<Sample>) -> Family {
    Family { name, is_counter: true, help, values }
}

/// A metric without labels.
macro_rules! one {
    ($kind:ident $name:literal, $help:literal, $value:expr) => {
        $kind($name, $help, |snapshot: &Snapshot| {
            let value: fn(&Snapshot) -> f64 = $value;
            vec![(Vec::new(), value(snapshot))]
        })
    };
}

/// A metric of each link.
macro_rules! link {
    ($kind:ident $name:literal, $help:literal, $value:expr) => {
        $kind($name, $help, |snapshot: &Snapshot| {
            let value: fn(&Link) -> Option<f64> = $value;
            links(snapshot, value)
        })
    };
}

/// A metric of each bearer.
macro_rules! bearer {
    ($name:literal, $help:literal, $field:ident) => {
        counter($name, $help, |snapshot: &Snapshot| {
            let all = snapshot.counters.node.bearers.iter();
            all.map(|(name, counters)| (vec![("bearer", name.clone())], counters.$field as f64)).collect()
        })
    };
}

/// A metric of each resource with a quota: for all users together, and for each user.
macro_rules! quota {
    ($kind:ident $name:literal, $help:literal, all, $value:expr) => {
        $kind($name, $help, |snapshot: &Snapshot| quotas(snapshot, false, $value))
    };
    ($kind:ident $name:literal, $help:literal, user, $value:expr) => {
        $kind($name, $help, |snapshot: &Snapshot| quotas(snapshot, true, $value))
    };
}

const FAMILIES: &[Family] = &[
    one!(gauge "up", "1 while the daemon's event loop answers, 0 while it does not", |s| flag(s.is_current)),
    one!(gauge "snapshot_age_seconds", "Age of the values", |s| s.age().map_or(f64::NAN, |age| age.as_secs_f64())),
    gauge("node_info", "Always 1; the labels name the node", node_info),
    // Nodes and links.
    gauge("node_up", "1 while there is contact with this node", nodes),
    one!(counter "nodes_found", "Times that a node came into contact", |s| s.counters.node.nodes_up as f64),
    one!(counter "nodes_lost", "Times that contact with a node was lost", |s| s.counters.node.nodes_down as f64),
    link!(gauge "link_up", "1 while the link can carry traffic", |l| peer(l, flag(l.up))),
    link!(gauge "link_active", "1 while the link carries traffic; a second link of lower priority does not",
        |l| peer(l, flag(l.up && l.active))),
    one!(counter "links_established", "Times that a link came up", |s| s.counters.node.links_up as f64),
    counter("link_resets", "Times that a link went down, by reason", |s| reasons(&s.counters.node.resets)),
    link!(counter "link_packets_received", "Packets received in order",
        |l| peer(l, l.wide.map_or(0.0, |wide| wide.received as f64))),
    link!(counter "link_packets_sent", "Packets sent for the first time", |l| {
        Some(l.wide.map_or(l.stats.wide(stats::TX_INFO), |wide| wide.sent) as f64)
    }),
    link!(counter "link_retransmissions", "Packets sent again", |l| stat(l, stats::RETRANSMITTED)),
    link!(counter "link_duplicates", "Packets received twice or outside the window",
        |l| peer(l, l.stats.wide(stats::DUPLICATES) as f64)),
    link!(counter "link_deferred", "Packets received before earlier ones",
        |l| peer(l, l.stats.wide(stats::RX_DEFERRED) as f64)),
    link!(counter "link_gaps_reported", "Gaps that this node reported to the peer",
        |l| peer(l, l.stats.wide(stats::TX_NACKS) as f64)),
    link!(counter "link_congestions", "Messages for which the send queue was full: their senders waited",
        |l| stat(l, stats::LINK_CONGS)),
    link!(gauge "link_queue_max_packets", "Longest send queue since the start of the link",
        |l| peer(l, l.stats.wide(stats::MAX_QUEUE) as f64)),
    link!(gauge "link_queue_average_packets", "Mean length of the send queue since the start of the link",
        |l| peer(l, l.stats.wide(stats::AVG_QUEUE) as f64)),
    link!(gauge "link_window_packets", "Packets that may be sent before an acknowledgement",
        |l| l.properties.window.map(f64::from)),
    link!(gauge "link_tolerance_seconds", "Time after which a silent peer counts as down",
        |l| l.properties.tolerance.map(|ms| f64::from(ms) / 1e3).and_then(|s| peer(l, s))),
    link!(gauge "link_mtu_bytes", "Largest packet", |l| peer(l, f64::from(l.mtu))),
    // Bearers.
    bearer!("bearer_sent_frames", "Frames sent; each copy of a broadcast counts", tx_frames),
    bearer!("bearer_sent_bytes", "Bytes of frames sent", tx_bytes),
    bearer!("bearer_send_dropped", "Frames that the system did not accept", tx_dropped),
    bearer!("bearer_send_refused", "Frames not sent: too long, empty, or for another medium", tx_refused),
    bearer!("bearer_received_frames", "Frames received", rx_frames),
    bearer!("bearer_received_bytes", "Bytes of frames received", rx_bytes),
    bearer!("bearer_receive_truncated", "Datagrams that are too long for a frame", rx_truncated),
    bearer!("bearer_receive_unreachable", "Reports that a frame did not reach its node", rx_unreachable),
    bearer!("bearer_receive_errors", "Errors while receiving, as of an interface that is down", rx_errors),
    counter("frames_dropped", "Frames that were not accepted, by reason", |s| {
        reasons(&s.counters.node.dropped)
    }),
    // Programs.
    one!(gauge "attachments", "Programs attached now",
        |s| s.counters.attached as f64),
    one!(counter "attachments_accepted", "Programs that have attached", |s| s.counters.attached_ever as f64),
    counter("attachments_ended", "Attachments that have ended or were refused, by reason", |s| {
        reasons(&s.counters.ended)
    }),
    one!(counter "requests", "Requests of programs answered", |s| s.counters.requests as f64),
    one!(counter "bindings_refused", "Bindings that the policy did not allow",
        |s| s.counters.bindings_refused as f64),
    one!(gauge "sockets", "Sockets of programs now", |s| s.counters.sockets as f64),
    one!(gauge "descriptors", "Sockets that programs poll now, each with a descriptor of the daemon",
        |s| s.counters.descriptors as f64),
    one!(gauge "descriptors_closing", "Descriptors that programs have passed and that are not closed yet",
        |s| s.counters.closing as f64),
    one!(gauge "lanes", "Lanes now", |s| s.counters.lanes as f64),
    one!(gauge "lane_pairs", "Pairs of programs that share memory now", |s| s.counters.pairs as f64),
    one!(counter "lanes_corrupt", "Times that the memory of a lane was malformed", |s| s.counters.lanes_corrupt as f64),
    gauge(
        "publications",
        "Entries of the binding table by scope; none while the table is too long to be listed",
        publications,
    ),
    // Quotas.
    quota!(gauge "quota_used", "What all users together use of a resource; memory in bytes", all, |r| r.used),
    quota!(gauge "quota_limit", "What all users together may use of a resource; memory in bytes", all, |r| r.limit),
    quota!(counter "quota_refusals", "Requests refused because of a limit, of all users", all, |r| r.refused),
    quota!(gauge "user_quota_used", "What a user uses of a resource; memory in bytes", user, |r| r.used),
    quota!(gauge "user_quota_limit", "What a user may use of a resource; root and the daemon's user have no limit",
        user, |r| r.limit),
    quota!(counter "user_quota_refusals", "Requests, lanes and messages of a user refused because of a limit",
        user, |r| r.refused),
    // Event loop.
    one!(counter "turns", "Turns of the event loop", |s| s.counters.turns.turns as f64),
    one!(counter "turns_long", "Turns of more than 20 ms, in which all programs and links waited",
        |s| s.counters.turns.long as f64),
    one!(counter "turns_cut", "Turns that left work to the next one because a budget was used up",
        |s| s.counters.turns.cut as f64),
    gauge("longest_turn_seconds", "The longest turn since the start, and what took most of it", |s| {
        let longest = &s.counters.turns.longest;
        vec![(vec![("handler", longest.handler.to_owned())], longest.micros as f64 / 1e6)]
    }),
    one!(counter "process_cpu_seconds", "Processor time of all threads", |_| cpu_seconds()),
    one!(gauge "process_resident_bytes", "Resident memory", |_| resident_bytes()),
];

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// A value that the broadcast link does not have.
fn peer(link: &Link, value: f64) -> Option<f64> {
    (!link.broadcast).then_some(value)
}

fn stat(link: &Link, which: u16) -> Option<f64> {
    Some(link.stats.wide(which) as f64)
}

fn links(snapshot: &Snapshot, value: fn(&Link) -> Option<f64>) -> Vec<Sample> {
    let labels = |link: &Link| {
        let peer = snapshot.peer_of(&link.name).map(|peer| NodeAddr(peer).to_string());
        vec![("link", link.name.clone()), ("peer", peer.unwrap_or_default())]
    };
    let all = snapshot.links.entries.iter();
    all.filter_map(|link| Some((labels(link), value(link)?))).collect()
}

fn reasons<K: ToString>(counts: &std::collections::BTreeMap<K, u64>) -> Vec<Sample> {
    counts.iter().map(|(reason, count)| (vec![("reason", reason.to_string())], *count as f64)).collect()
}

fn node_info(snapshot: &Snapshot) -> Vec<Sample> {
    let Some(net) = &snapshot.net else { return Vec::new() };
    let labels = vec![
        ("address", NodeAddr(snapshot.own()).to_string()),
        ("identity", NodeId(net.identity).to_string()),
        ("cluster", net.id.to_string()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    vec![(labels, 1.0)]
}

fn nodes(snapshot: &Snapshot) -> Vec<Sample> {
    let identity = |node: &utipc_manage::Node| NodeId(node.identity.unwrap_or_default()).to_string();
    let labels = |node: &utipc_manage::Node| {
        vec![("node", NodeAddr(node.address).to_string()), ("identity", identity(node))]
    };
    snapshot.nodes.entries.iter().map(|node| (labels(node), flag(node.up))).collect()
}

/// Scopes of bindings by the protocol's number.
const SCOPES: [(&str, u32); 2] = [("cluster", 2), ("node", 3)];

fn publications(snapshot: &Snapshot) -> Vec<Sample> {
    if !snapshot.names.is_complete {
        return Vec::new();
    }
    let count = |scope| snapshot.names.entries.iter().filter(|name| name.scope == scope).count() as f64;
    SCOPES.map(|(name, scope)| (vec![("scope", name.to_owned())], count(scope))).to_vec()
}

fn quotas(snapshot: &Snapshot, of_users: bool, value: fn(&ResourceUse) -> u64) -> Vec<Sample> {
    let labels = |quota: &Quota, resource: &ResourceUse| {
        let user = quota.user.map(|user| ("user", user.to_string()));
        user.into_iter().chain([("resource", resource.name.clone())]).collect()
    };
    let all = snapshot.quotas.entries.iter().filter(|quota| quota.user.is_some() == of_users);
    let samples = all.flat_map(|quota| {
        let limited = quota.resources.iter().map(|resource| (resource, value(resource)));
        // The largest number means no limit.
        limited
            .filter(|(_, value)| *value < u64::MAX)
            .map(|(resource, value)| (labels(quota, resource), value as f64))
    });
    samples.collect()
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn resident_bytes() -> f64 {
    let memory = procfs::process::Process::myself().and_then(|process| process.statm());
    memory.map_or(f64::NAN, |memory| (memory.resident * procfs::page_size()) as f64)
}

/// The metrics of a snapshot, in the OpenMetrics text format.
pub(super) fn text(snapshot: &Arc<Snapshot>) -> String {
    let mut registry = Registry::with_prefix("utipc");
    registry.register_collector(Box::new(Values(Arc::clone(snapshot))));
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
        Ok(()) => text,
        Err(why) => format!("# cannot encode the metrics: {why}\n# EOF\n"),
    }
}

#[derive(Debug)]
struct Values(Arc<Snapshot>);

impl Collector for Values {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for family in FAMILIES {
            let kind = if family.is_counter { MetricType::Counter } else { MetricType::Gauge };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for (labels, value) in (family.values)(&self.0) {
                if labels.is_empty() {
                    put(&mut metric, family.is_counter, value)?;
                } else {
                    put(&mut metric.encode_family(&labels)?, family.is_counter, value)?;
                }
            }
        }
        Ok(())
    }
}

/// Writes whole numbers without a fraction.
fn put(
    metric: &mut prometheus_client::encoding::MetricEncoder<'_>,
    is_counter: bool,
    value: f64,
) -> Result<(), std::fmt::Error> {
    /// The largest number up to which all whole numbers are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = (value.fract() == 0.0 && (0.0..EXACT).contains(&value)).then_some(value as u64);
    match (is_counter, whole) {
        (true, Some(value)) => metric.encode_counter::<NoLabelSet, u64, f64>(&value, None),
        (true, None) => metric.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        (false, Some(value)) => metric.encode_gauge(&value),
        (false, None) => metric.encode_gauge(&value),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The tables of the manual: name, kind, labels, meaning.
    fn documented() -> BTreeSet<(String, String, String)> {
        let manual = include_str!("../../../../../docs/operating/metrics.md");
        let rows = manual.lines().filter(|line| line.starts_with("| `utipc_"));
        rows.map(|row| {
            let mut cells = row.trim_matches('|').split(" | ").map(|cell| cell.trim().replace('`', ""));
            let mut next = || cells.next().unwrap_or_default();
            (next(), next(), next())
        })
        .collect()
    }

    /// A snapshot with every label.
    fn full() -> Snapshot {
        use super::super::snapshot::List;
        use utipc_manage::{Net, Node, Properties, Publication};

        let mut snapshot = Snapshot {
            net: Some(Net { id: 4711, identity: [0; 16], address: Some(0x1001) }),
            peers: [("b".to_owned(), 0x1002)].into(),
            ..Snapshot::default()
        };
        let properties = Properties { window: Some(50), tolerance: Some(1500), ..Properties::default() };
        let link =
            |name: &str, broadcast| Link { name: name.to_owned(), broadcast, properties, ..Link::default() };
        let of = |user| Quota {
            user,
            resources: vec![ResourceUse { name: "lanes".to_owned(), used: 1, limit: 9, refused: 2 }],
        };
        snapshot.nodes.entries = vec![Node { address: 0x1002, up: true, identity: None, contact: None }];
        snapshot.links.entries = vec![link("broadcast-link", true), link("a:x-b:y", false)];
        snapshot.names = List { entries: vec![Publication::default()], is_complete: true };
        snapshot.quotas.entries = vec![of(None), of(Some(1000))];
        let node = &mut snapshot.counters.node;
        node.resets = [("silence".into(), 3)].into();
        node.dropped = [("malformed".into(), 1)].into();
        node.bearers = vec![("udp:UDP".to_owned(), utipc::bearers::Counters::default())];
        snapshot.counters.ended = [("closed", 1)].into();
        snapshot
    }

    #[test]
    fn manual_lists_every_metric_with_kind_and_labels() {
        let snapshot = full();
        let served: BTreeSet<_> = FAMILIES
            .iter()
            .map(|family| {
                let end = if family.is_counter { "_total" } else { "" };
                let kind = if family.is_counter { "counter" } else { "gauge" };
                let samples = (family.values)(&snapshot);
                let labels: Vec<_> =
                    samples.first().expect(family.name).0.iter().map(|(name, _)| *name).collect();
                (format!("utipc_{}{end}", family.name), kind.to_owned(), labels.join(", "))
            })
            .collect();
        let documented = documented();
        let missing: Vec<_> = served.difference(&documented).collect();
        let unknown: Vec<_> = documented.difference(&served).collect();
        assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:#?}, unknown {unknown:#?}");
    }

    #[test]
    fn values_are_written_with_their_labels() {
        let text = text(&Arc::new(full()));
        for line in [
            "utipc_up 0",
            "utipc_node_up{node=\"1002\",identity=\"\"} 1",
            "utipc_link_up{link=\"a:x-b:y\",peer=\"1002\"} 0",
            "utipc_link_tolerance_seconds{link=\"a:x-b:y\",peer=\"1002\"} 1.5",
            "utipc_link_retransmissions_total{link=\"broadcast-link\",peer=\"\"} 0",
            "utipc_link_resets_total{reason=\"silence\"} 3",
            "utipc_quota_used{resource=\"lanes\"} 1",
            "utipc_user_quota_refusals_total{user=\"1000\",resource=\"lanes\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
        }
        assert!(!text.contains("utipc_link_up{link=\"broadcast-link\""), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn hostile_names_are_escaped() {
        let mut snapshot = full();
        snapshot.links.entries[1].name = "a\"} 1\nevil{x=\"\\".to_owned();
        let text = text(&Arc::new(snapshot));
        assert!(!text.lines().any(|line| line.starts_with("evil")), "{text}");
    }
}
