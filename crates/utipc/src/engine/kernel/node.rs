//! The kernel's node, which the system's own tools configure; here it is only queried.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use utipc_core::PropertyError;
use utipc_core::addr::{NodeId, Scope};
use utipc_core::link::LinkStats;
use utipc_core::node::state::State as ContactState;
use utipc_manage::{Entry, Link, Properties, Publication, Request, Stats};
use utipc_os::af_tipc;

use super::{Socket, TipcNetlink};
use crate::{
    Binding, Engine, Error, LinkInfo, LinkProperty, NodeAddr, PeerInfo, PortId, Result, ServiceAddress,
    ServiceRange, SocketKind,
};

/// Service type of the bindings that stand for nodes. Spec: tipc.md §10.2.
const NODES: u32 = 0;

/// A handle on the kernel's node of the current network namespace.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// An open socket to query the kernel with.
    probe: Arc<Socket>,
}

impl Node {
    pub(crate) fn open() -> Result<Self> {
        let probe = Socket::open(SocketKind::Rdm).map_err(|_| absent())?;
        Ok(Self { probe: Arc::new(probe) })
    }

    pub(crate) fn open_socket(&self, kind: SocketKind) -> Result<Socket> {
        let opened = Socket::open(kind);
        opened.map_err(|error| {
            Error::System(utipc_os::OsError::new("open", "a socket of the kernel's TIPC", error))
        })
    }

    /// The node's own address; [`NodeAddr::NONE`] while the kernel's node has neither bearer nor identity.
    pub(crate) fn address(&self) -> NodeAddr {
        self.probe.local().node
    }

    pub(crate) fn barrier(&self, _limit: Duration) -> Result<Vec<NodeAddr>> {
        Err(Error::Engine {
            engine: Engine::Kernel,
            why: "the kernel does not tell which nodes have this node's bindings (use a daemon or an embedded node)"
                .into(),
        })
    }

    // Queries have no error of their own, as with the other engines.

    pub(crate) fn peers(&self) -> Vec<PeerInfo> {
        let own = self.address();
        let nodes = self.bindings().into_iter().filter(|b| b.range.service == NODES);
        let others = nodes.map(|b| NodeAddr(b.range.lower)).filter(|addr| *addr != own);
        let peer = |addr: NodeAddr| PeerInfo {
            addr,
            id: af_tipc::node_identity(self.probe.kernel(), addr.0).map_or(NodeId::default(), NodeId),
            up: true,
            state: ContactState::SelfUpPeerUp,
            capabilities: 0,
        };
        others.map(peer).collect()
    }

    pub(crate) fn links(&self) -> Vec<LinkInfo> {
        let entries = query(&Request::Links { broadcast: false }).unwrap_or_default();
        let link = |entry| match entry {
            Entry::Link(link) if !link.broadcast => Some(link_info(link)),
            _ => None,
        };
        entries.into_iter().filter_map(link).collect()
    }

    pub(crate) fn bindings(&self) -> Vec<Binding> {
        let entries = query(&Request::Names).unwrap_or_default();
        let binding = |entry| match entry {
            Entry::Name(publication) => Some(binding(&publication)),
            _ => None,
        };
        entries.into_iter().filter_map(binding).collect()
    }

    /// One of the bound sockets, not always the next receiver: the kernel does not report its round-robin order.
    pub(crate) fn lookup(&self, service: ServiceAddress) -> Option<PortId> {
        let own = self.address();
        let bound = |b: &Binding| {
            b.range.service == service.service && (b.range.lower..=b.range.upper).contains(&service.instance)
        };
        let mut found: Vec<PortId> = self.bindings().iter().filter(|b| bound(b)).map(|b| b.port).collect();
        // Sockets of this node come first, as in the kernel's own lookup.
        found.sort_by_key(|port| port.node != own);
        found.first().copied()
    }

    pub(crate) fn set_link(&self, name: &str, property: LinkProperty) -> Result<()> {
        if let Err(PropertyError::Range { what, range }) = property.check() {
            return Err(Error::OutOfRange { what, remedy: range });
        }
        if !self.links().iter().any(|link| link.name == name) {
            return Err(Error::NoSuchLink(name.to_owned()));
        }
        let mut properties = Properties::default();
        match property {
            LinkProperty::Priority(value) => properties.priority = Some(value.into()),
            LinkProperty::ToleranceMs(value) => properties.tolerance = Some(value),
            LinkProperty::Window(value) => properties.window = Some(value.into()),
        }
        let request = Request::LinkSet { name: name.to_owned(), properties };
        query(&request).map(drop).map_err(|error| refused(name, error))
    }
}

/// Sends a management request to the kernel; returns the entries of the reply.
fn query(request: &Request) -> io::Result<Vec<Entry>> {
    TipcNetlink::open()?.entries(request)
}

fn refused(name: &str, error: io::Error) -> Error {
    let error = utipc_os::OsError::new("change the kernel's link", name, error);
    Error::System(error.with_remedy("CAP_NET_ADMIN is required"))
}

/// The error of a host whose kernel has no TIPC.
fn absent() -> Error {
    let why =
        "this kernel has no AF_TIPC (`modprobe tipc` if the module exists, else use embedded or daemon)";
    Error::Engine { engine: Engine::Kernel, why: why.to_owned() }
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
    LinkInfo {
        peer: NodeAddr(link.destination),
        bearer: 0,
        up: link.up,
        active: link.active,
        mtu: short(link.mtu),
        mtu_limit: short(link.mtu),
        priority: u8::try_from(priority.unwrap_or_default()).unwrap_or(u8::MAX),
        tolerance_ms: tolerance.unwrap_or_default(),
        window: short(window.unwrap_or_default()),
        stats: stats(&link.stats),
        name: link.name,
    }
}

/// Names the kernel's counters, which come in the order of its enumeration.
fn stats(stats: &Stats) -> LinkStats {
    let counters: [u64; 32] = std::array::from_fn(|index| stats.get(index as u16 + 1).into());
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
