//! Replies of one text: the binding table, sockets and the counters of a link.

use core::fmt::Write as _;

use super::{Ask, Record};
use crate::entry::{Entry, Link, Publication, Socket};
use crate::errno::{Errno, Refusal};
use crate::family::stats;
use crate::request::Request;

/// The entries of the binding table that a request selects, and the columns to show.
pub(super) struct NameQuery {
    /// Number of columns, 1 to 4, and the bit for all types.
    depth: u32,
    service: u32,
    lower: u32,
    upper: u32,
}

impl NameQuery {
    const ALL_TYPES: u32 = 0x8000_0000;

    pub(super) fn read(record: Record<'_>) -> Result<Self, Errno> {
        let [depth, service, lower, upper] = [0, 1, 2, 3].map(|index| record.number(index));
        Ok(Self { depth: depth?, service: service?, lower: lower?, upper: upper? })
    }

    fn selects(&self, name: &Publication) -> bool {
        (self.depth & Self::ALL_TYPES != 0 || self.service == name.service)
            && (self.lower == 0 || self.lower <= name.upper)
            && (self.upper == 0 || self.upper >= name.lower)
    }

    pub(super) fn text(&self, entries: &[Entry]) -> String {
        let heads =
            ["Type       ", "Lower      Upper      ", "Port Identity              ", "Publication Scope"];
        let columns = if self.depth > 4 { heads.len() } else { self.depth as usize };
        let mut text = heads.get(..columns).unwrap_or_default().concat();
        text.push('\n');
        for entry in entries {
            if let Entry::Name(name) = entry
                && self.selects(name)
            {
                row(&mut text, name, columns);
            }
        }
        text
    }
}

/// A line of the binding table. Writing to a string does not fail.
fn row(text: &mut String, name: &Publication, columns: usize) {
    let _ = write!(text, "{:<10} ", name.service);
    if columns > 1 {
        let _ = write!(text, "{:<10} {:<10} ", name.lower, name.upper);
    }
    if columns > 2 {
        let port = format!("<{}:{}>", zone_cluster_node(name.node), name.port);
        let _ = write!(text, "{port:<26} ");
    }
    if columns > 3 {
        let scopes = ["", " zone", " cluster", " node"];
        let scope = scopes.get(name.scope as usize).copied().unwrap_or_default();
        let _ = write!(text, "{:<10} {scope}", name.key);
    }
    text.push('\n');
}

fn zone_cluster_node(address: u32) -> String {
    format!("{}.{}.{}", address >> 24, address >> 12 & 0xfff, address & 0xfff)
}

/// A line for each socket: its connection, or its bindings.
pub(super) fn ports(ask: Ask<'_>) -> Result<String, Refusal> {
    let mut text = String::new();
    for entry in ask(&Request::Sockets)? {
        let Entry::Socket(Socket { port, connection, bound, .. }) = entry else { continue };
        let _ = write!(text, "{port}:");
        if let Some(peer) = connection {
            let _ = write!(text, "  connected to <{}:{}>", zone_cluster_node(peer.node), peer.port);
            if let Some((service, instance)) = peer.service {
                let _ = write!(text, " via {{{service},{instance}}}");
            }
            text.push('\n');
        } else if bound {
            text.push_str(" bound to");
            // The socket may have been closed since.
            for entry in ask(&Request::Bindings { port }).unwrap_or_default() {
                let Entry::Binding(Publication { service, lower, upper, .. }) = entry else { continue };
                let _ = match lower == upper {
                    true => write!(text, " {{{service},{lower}}}"),
                    false => write!(text, " {{{service},{lower},{upper}}}"),
                };
            }
        }
        text.push('\n');
    }
    Ok(text)
}

/// The counters of a link.
pub(super) fn link(link: &Link) -> String {
    let count = |which| link.stats.get(which);
    let pair = |which| format!("{}/{}", count(which), count(which + 1));
    let mut text = format!("\nLink <{}>\n", link.name);
    let window = link.properties.window.unwrap_or(0);
    if link.broadcast {
        let _ = writeln!(text, "  Window:{window} packets");
    } else {
        let state = match (link.active, link.up) {
            (true, _) => "ACTIVE",
            (false, true) => "STANDBY",
            (false, false) => "DEFUNCT",
        };
        let priority = link.properties.priority.unwrap_or(0);
        let tolerance = link.properties.tolerance.unwrap_or(0);
        let _ = write!(text, "  {state}  MTU:{}  Priority:{priority}", link.mtu);
        let _ = writeln!(text, "  Tolerance:{tolerance} ms  Window:{window} packets");
    }
    let (received, sent) = match link.broadcast {
        true => (count(stats::RX_INFO), count(stats::TX_INFO)),
        false => {
            (link.received.wrapping_sub(count(stats::RX_INFO)), link.sent.wrapping_sub(count(stats::TX_INFO)))
        }
    };
    let (fragments, bundles) = (pair(stats::RX_FRAGMENTS), pair(stats::RX_BUNDLES));
    let _ = writeln!(text, "  RX packets:{received} fragments:{fragments} bundles:{bundles}");
    let (fragments, bundles) = (pair(stats::TX_FRAGMENTS), pair(stats::TX_BUNDLES));
    let _ = writeln!(text, "  TX packets:{sent} fragments:{fragments} bundles:{bundles}");
    let (mut rx, mut tx) = (String::new(), String::new());
    if !link.broadcast {
        profile(&mut text, link);
        rx = format!("states:{} probes:{} ", count(stats::RX_STATES), count(stats::RX_PROBES));
        tx = format!("states:{} probes:{} ", count(stats::TX_STATES), count(stats::TX_PROBES));
    }
    let (naks, deferred) = (count(stats::RX_NACKS), count(stats::RX_DEFERRED));
    let _ = writeln!(text, "  RX {rx}naks:{naks} defs:{deferred} dups:{}", count(stats::DUPLICATES));
    let (naks, acks) = (count(stats::TX_NACKS), count(stats::TX_ACKS));
    let _ = writeln!(text, "  TX {tx}naks:{naks} acks:{acks} dups:{}", count(stats::RETRANSMITTED));
    let (longest, average) = (count(stats::MAX_QUEUE), count(stats::AVG_QUEUE));
    let congestions = count(stats::LINK_CONGS);
    let _ = write!(text, "  Congestion link:{congestions}  Send queue max:{longest} avg:{average}");
    text
}

/// How long the messages sent were.
fn profile(text: &mut String, link: &Link) {
    let count = |which| link.stats.get(which);
    let total = count(stats::MSG_PROF_TOT).max(1);
    let (samples, average) = (count(stats::MSG_LEN_CNT), count(stats::MSG_LEN_TOT) / total);
    let _ = writeln!(text, "  TX profile sample:{samples} packets  average:{average} octets");
    let percent = |class: u16| {
        let messages = u64::from(count(stats::MSG_LEN_P0 + class));
        (messages * 100 + u64::from(total / 2)) / u64::from(total)
    };
    let limits = ["0-64", "-256", "-1024", "-4096", "-16384", "-32768", "-66000"];
    let classes: Vec<String> =
        (0..).zip(limits).map(|(class, limit)| format!("{limit}:{}%", percent(class))).collect();
    let _ = writeln!(text, "  {}", classes.join(" "));
}
