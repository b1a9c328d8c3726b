//! The counters of a link, as `link statistics show` prints them. Spec: tipc.md §13.

use utipc_manage::Link;
use utipc_manage::family::stats;

use super::output::Output;

/// Upper bounds of the classes of message lengths, as keys.
const CLASSES: [&str; 7] = ["0-64", "-256", "-1024", "-4096", "-16384", "-32768", "-66000"];

/// Prints the statistics of a link to a peer.
pub(super) fn unicast(out: &mut Output, link: &Link) {
    let s = &link.stats;
    let p = &link.properties;
    out.open_object("");
    out.any("link", link.name.as_str(), &format!("Link <{}>\n", link.name));
    let state = match (link.active, link.up) {
        (true, _) => "ACTIVE",
        (false, true) => "STANDBY",
        (false, false) => "DEFUNCT",
    };
    out.array("state", |out| out.any("", state, &format!("  {state}")));
    let number = |value: Option<u32>| value.unwrap_or(0);
    out.any("mtu", link.mtu, &format!("  MTU:{}", link.mtu));
    let (priority, tolerance, window) = (number(p.priority), number(p.tolerance), number(p.window));
    out.any("priority", priority, &format!("  Priority:{priority}"));
    out.any("tolerance", tolerance, &format!("  Tolerance:{tolerance} ms"));
    out.any("window", window, &format!("  Window:{window} packets\n"));
    packets(
        out,
        link,
        link.received.wrapping_sub(s.get(stats::RX_INFO)),
        link.sent.wrapping_sub(s.get(stats::TX_INFO)),
    );

    let total = s.get(stats::MSG_PROF_TOT).max(1);
    let count = s.get(stats::MSG_LEN_CNT);
    let average = s.get(stats::MSG_LEN_TOT) / total;
    out.any("tx profile sample", count, &format!("  TX profile sample:{count}"));
    out.any("packets average", average, &format!(" packets average:{average} octets\n"));
    for ((which, class), at) in (stats::MSG_LEN_P0..).zip(CLASSES).zip(1..) {
        let percent = (u64::from(s.get(which)) * 100 + u64::from(total / 2)) / u64::from(total);
        let (before, after) = (if at == 1 { "  " } else { " " }, if at == CLASSES.len() { "\n" } else { "" });
        out.any(class, percent as u32, &format!("{before}{class}:{percent}%{after}"));
    }
    out.object("rx states", |out| {
        first(out, "rx states", "RX states", s.get(stats::RX_STATES));
        next(out, "probes", s.get(stats::RX_PROBES));
        next(out, "naks", s.get(stats::RX_NACKS));
        next(out, "defs", s.get(stats::RX_DEFERRED));
        last(out, "dups", s.get(stats::DUPLICATES));
    });
    out.object("tx states", |out| {
        first(out, "tx states", "TX states", s.get(stats::TX_STATES));
        next(out, "probes", s.get(stats::TX_PROBES));
        next(out, "naks", s.get(stats::TX_NACKS));
        next(out, "acks", s.get(stats::TX_ACKS));
        last(out, "retrans", s.get(stats::RETRANSMITTED));
    });
    congestion(out, link);
    out.close_object();
}

/// Prints the statistics of one direction of the broadcast link.
pub(super) fn broadcast(out: &mut Output, link: &Link) {
    let s = &link.stats;
    let window = link.properties.window.unwrap_or(0);
    out.open_object("");
    out.any("link", link.name.as_str(), &format!("Link <{}>\n", link.name));
    out.any("window", window, &format!("  Window:{window} packets\n"));
    packets(out, link, s.get(stats::RX_INFO), s.get(stats::TX_INFO));
    out.object("rx naks", |out| {
        first(out, "rx naks", "RX naks", s.get(stats::RX_NACKS));
        next(out, "defs", s.get(stats::RX_DEFERRED));
        last(out, "dups", s.get(stats::DUPLICATES));
    });
    out.object("tx naks", |out| {
        first(out, "tx naks", "TX naks", s.get(stats::TX_NACKS));
        next(out, "acks", s.get(stats::TX_ACKS));
        last(out, "retrans", s.get(stats::RETRANSMITTED));
    });
    congestion(out, link);
    out.close_object();
}

fn packets(out: &mut Output, link: &Link, received: u32, sent: u32) {
    let s = &link.stats;
    let both = [
        ("rx packets", "RX packets", received, stats::RX_FRAGMENTS),
        ("tx packets", "TX packets", sent, stats::TX_FRAGMENTS),
    ];
    for (key, label, count, fragments) in both {
        out.object(key, |out| {
            first(out, key, label, count);
            next(out, "fragments", s.get(fragments));
            out.any("fragmented", s.get(fragments + 1), &format!("/{}", s.get(fragments + 1)));
            next(out, "bundles", s.get(fragments + 2));
            out.any("bundled", s.get(fragments + 3), &format!("/{}\n", s.get(fragments + 3)));
        });
    }
}

fn congestion(out: &mut Output, link: &Link) {
    let s = &link.stats;
    first(out, "congestion link", "Congestion link", s.get(stats::LINK_CONGS));
    first(out, "send queue max", "Send queue max", s.get(stats::MAX_QUEUE));
    let average = s.get(stats::AVG_QUEUE);
    out.any("avg", average, &format!(" avg:{average}\n\n"));
}

fn first(out: &mut Output, key: &str, label: &str, value: u32) {
    out.any(key, value, &format!("  {label}:{value}"));
}

fn next(out: &mut Output, key: &str, value: u32) {
    out.any(key, value, &format!(" {key}:{value}"));
}

fn last(out: &mut Output, key: &str, value: u32) {
    out.any(key, value, &format!(" {key}:{value}\n"));
}
