//! The lists of a daemon and of the kernel: entries of the management family as values of this crate.

use utipc_core::addr::{NodeId, Scope};
use utipc_core::link::LinkStats;
use utipc_core::node::state::State as ContactState;
use utipc_manage::{Contact, Entry, Link, Node, Properties, Publication, Request, Stats};

use crate::{Binding, LinkInfo, LinkProperty, NodeAddr, PeerInfo, PortId, ServiceRange};

/// The peers in a list of nodes.
pub(super) fn peers(entries: Vec<Entry>) -> Vec<PeerInfo> {
    let peer = |entry| match entry {
        Entry::Node(node) => Some(peer_info(node)),
        _ => None,
    };
    entries.into_iter().filter_map(peer).collect()
}

/// The links to other nodes in a list of links.
pub(super) fn links(entries: Vec<Entry>) -> Vec<LinkInfo> {
    let link = |entry| match entry {
        Entry::Link(link) if !link.broadcast => Some(link_info(link)),
        _ => None,
    };
    entries.into_iter().filter_map(link).collect()
}

/// The bindings in a list of names, by their ranges.
pub(super) fn bindings(entries: Vec<Entry>) -> Vec<Binding> {
    let binding = |entry| match entry {
        Entry::Name(publication) => Some(binding(&publication)),
        _ => None,
    };
    let mut all: Vec<Binding> = entries.into_iter().filter_map(binding).collect();
    all.sort_by_key(|binding| binding.range);
    all
}

/// The request that changes a property of a link.
pub(super) fn set_link(name: &str, property: LinkProperty) -> Request {
    let mut properties = Properties::default();
    match property {
        LinkProperty::Priority(value) => properties.priority = Some(value.into()),
        LinkProperty::ToleranceMs(value) => properties.tolerance = Some(value),
        LinkProperty::Window(value) => properties.window = Some(value.into()),
    }
    Request::LinkSet { name: name.to_owned(), properties }
}

fn peer_info(node: Node) -> PeerInfo {
    let Node { address, up, identity, contact } = node;
    let Contact { state, capabilities } = contact.unwrap_or(Contact { state: 0, capabilities: 0 });
    PeerInfo {
        addr: NodeAddr(address),
        id: NodeId(identity.unwrap_or_default()),
        up,
        state: ContactState::from_number(state).unwrap_or(ContactState::SelfDownPeerDown),
        capabilities: u16::try_from(capabilities).unwrap_or(u16::MAX),
    }
}

fn binding(publication: &Publication) -> Binding {
    let Publication { service, lower, upper, scope, node, port, key } = *publication;
    Binding {
        range: ServiceRange { service, lower, upper },
        scope: u8::try_from(scope).ok().and_then(Scope::from_number).unwrap_or_default(),
        port: PortId { port, node: NodeAddr(node) },
        key,
    }
}

fn link_info(link: Link) -> LinkInfo {
    let Properties { priority, tolerance, window, .. } = link.properties;
    let short = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
    // The kernel reports neither the peer nor more than the counters.
    let mut stats = stats(&link.stats);
    if let Some(wide) = link.wide {
        stats.rx_packets = wide.received;
        stats.tx_packets = wide.sent;
        stats.refused = wide.malformed;
        stats.queue_sum = wide.queue_sum;
        stats.queue_samples = wide.queue_samples;
    }
    LinkInfo {
        peer: NodeAddr(link.path.map_or(link.destination, |path| path.peer)),
        bearer: link.wide.map_or(0, |wide| u8::try_from(wide.bearer).unwrap_or(u8::MAX)),
        up: link.up,
        // A link that has gone down stays marked as active.
        active: link.up && link.active,
        mtu: short(link.mtu),
        mtu_limit: short(link.wide.map_or(link.mtu, |wide| wide.mtu_limit)),
        priority: u8::try_from(priority.unwrap_or_default()).unwrap_or(u8::MAX),
        tolerance_ms: tolerance.unwrap_or_default(),
        window: short(window.unwrap_or_default()),
        stats,
        name: link.name,
    }
}

/// Names the counters, which come in the order of the kernel's enumeration.
fn stats(stats: &Stats) -> LinkStats {
    let counters: [u64; 32] = std::array::from_fn(|index| stats.wide(index as u16 + 1));
    let [rx_packets, rx_fragments, rx_fragmented, rx_bundles, rx_bundled, rest @ ..] = counters;
    let [tx_packets, tx_fragments, tx_fragmented, tx_bundles, tx_bundled, rest @ ..] = rest;
    let [_, profile_samples, profile_octets, rest @ ..] = rest;
    let [p0, p1, p2, p3, p4, p5, p6, rest @ ..] = rest;
    let [rx_states, rx_probes, rx_nacks, rx_deferred, tx_states, tx_probes, tx_nacks, tx_acks, rest @ ..] =
        rest;
    let [retransmitted, rx_duplicates, congestions, queue_max] = rest;
    LinkStats {
        rx_packets,
        rx_fragments,
        rx_fragmented,
        rx_bundles,
        rx_bundled,
        tx_packets,
        tx_fragments,
        tx_fragmented,
        tx_bundles,
        tx_bundled,
        profile_samples,
        profile_octets,
        profile: [p0, p1, p2, p3, p4, p5, p6],
        rx_states,
        rx_probes,
        rx_nacks,
        rx_deferred,
        rx_duplicates,
        tx_states,
        tx_probes,
        tx_nacks,
        tx_acks,
        retransmitted,
        congestions,
        queue_max,
        ..LinkStats::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_counters_map_to_link_stats() {
        let mut counters = Stats::default();
        for number in 1..=32 {
            counters.set(number, number.into());
        }
        let stats = stats(&counters);
        // As TIPC_NLA_STATS_* in linux/tipc_netlink.h.
        assert_eq!((stats.rx_packets, stats.tx_packets, stats.profile_octets), (1, 6, 13));
        assert_eq!((stats.profile[6], stats.rx_states, stats.tx_acks), (20, 21, 28));
        assert_eq!((stats.retransmitted, stats.rx_duplicates, stats.congestions), (29, 30, 31));
    }
}
