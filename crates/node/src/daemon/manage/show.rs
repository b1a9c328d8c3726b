//! Lists: the state of the node as entries of the family.

use utipc_core::addr::{Binding, NodeAddr};
use utipc_core::broadcast::{MulticastPolicy, ReceiverStats, SenderStats};
use utipc_core::limits::LINK_STATE;
use utipc_core::socket::{EndpointStats, SocketKind, State};
use utipc_core::wire::Method;
use utipc_core::{LinkInfo, MonitorInfo};
use utipc_manage::family::{BROADCAST_LINK, stats};
use utipc_manage::{
    Connection, Domain, Down, Entry, Errno, Link, Monitor, MonitorPeer, Net, Node, Process, Properties,
    Publication, Refusal, Socket, Stats,
};

use super::{Access, Part, change};
use crate::observe::LinkEnd;

/// Sockets of one part: their entries are bounded by their program's name.
const SOCKETS_PART: usize = 1024;

/// Chains of the kernel's binding table: it lists service types by the number of their chain.
const CHAINS: u32 = 1024;

impl Access<'_> {
    pub(super) fn show_sockets(&self, from: u64) -> Part {
        let Ok(first) = u32::try_from(from) else { return Part::new() };
        let own = self.driver.stack.own_node();
        let all = self.driver.stack.endpoints_from(first).take(SOCKETS_PART);
        all.map(|(port, endpoint)| {
            let connected = endpoint.state() == State::Established;
            let connection = endpoint.peer().filter(|_| connected).map(|peer| Connection {
                node: if peer.node.is_none() { own.0 } else { peer.node.0 },
                port: peer.port,
                service: endpoint.connected_service().map(|s| (s.service, s.instance)),
            });
            let bound = connection.is_none() && self.driver.stack.bindings_of(port).next().is_some();
            let entry = Entry::Socket(Socket {
                port,
                node: own.0,
                connection,
                bound,
                kind: Some(kind(endpoint.kind())),
                process: Some(self.process(port, &endpoint.stats())),
            });
            (u64::from(port) + 1, entry)
        })
        .collect()
    }

    fn process(&self, port: u32, stats: &EndpointStats) -> Process {
        let owner = self.sockets.owner(port);
        let peer = owner.and_then(|owner| self.attachments.peer(owner));
        let program = owner.and_then(|owner| self.attachments.program(owner));
        Process {
            pid: peer.map_or(0, |peer| peer.pid),
            uid: peer.map_or(self.rules.own_user(), |peer| peer.uid),
            program: program.unwrap_or("utipcd").to_owned(),
            counters: [
                stats.sent_messages,
                stats.sent_bytes,
                stats.received_messages,
                stats.received_bytes,
                stats.returned_to_us,
                stats.rejected + stats.dropped,
            ],
        }
    }

    pub(super) fn show_bindings(&self, port: u32) -> Result<Vec<Entry>, Refusal> {
        let stack = &self.driver.stack;
        if stack.endpoint(port).is_none() && stack.endpoints_from(port).next().is_none_or(|(p, _)| p != port)
        {
            return Err(Refusal::new(Errno::INVALID, format!("there is no socket {port}")));
        }
        let mut all: Vec<Binding> = stack.bindings_of(port).collect();
        // The kernel lists the newest first; keys rise.
        all.sort_unstable_by_key(|b| std::cmp::Reverse(b.key));
        Ok(all.iter().map(|b| Entry::Binding(publication(b))).collect())
    }

    pub(super) fn show_names(&self) -> Vec<Entry> {
        let own = self.driver.stack.own_node();
        let mut all = self.driver.stack.bindings();
        all.sort_by_key(|b| (b.range.service % CHAINS, b.range.service, b.range.lower, b.range.upper));
        let entry = |b: &Binding| {
            let mut publication = publication(b);
            if b.port.node.is_none() {
                publication.node = own.0;
            }
            // Here the port of a link-state binding is the number of the link; the kernel shows 0.
            publication.port = if b.range.service == LINK_STATE { 0 } else { publication.port };
            Entry::Name(publication)
        };
        all.iter().map(entry).collect()
    }

    pub(super) fn show_nodes(&self) -> Vec<Entry> {
        let all = self.driver.stack.nodes();
        all.iter()
            .map(|n| Entry::Node(Node { address: n.addr.0, up: n.up, identity: Some(n.id.0) }))
            .collect()
    }

    pub(super) fn show_net(&self) -> Entry {
        let stack = &self.driver.stack;
        Entry::Net(Net {
            id: stack.cluster().0,
            identity: stack.identity().unwrap_or_default().0,
            address: Some(stack.own_node().0),
        })
    }

    /// The broadcast link, then the links by peer; with `broadcast` also the broadcast link of each peer, behind its
    /// links.
    pub(super) fn show_links(&self, broadcast: bool) -> Vec<Entry> {
        let info = self.driver.stack.broadcast();
        let own = self.driver.stack.own_node();
        let mut all =
            vec![Entry::Link(broadcast_link(BROADCAST_LINK.to_owned(), info.window, info.policy, |s| {
                sent(&info.sent, s);
            }))];
        let links = self.driver.stack.links();
        let of = |peer: NodeAddr| links.iter().filter(move |link| link.peer == peer);
        for (peer, id, received) in &info.received {
            all.extend(of(*peer).map(|link| Entry::Link(self.link(link, own))));
            if broadcast {
                let name = format!("{BROADCAST_LINK}:{id}");
                all.push(Entry::Link(broadcast_link(name, info.window, info.policy, |s| {
                    arrived(received, s)
                })));
            }
        }
        all
    }

    fn link(&self, link: &LinkInfo, own: NodeAddr) -> Link {
        let last = self.driver.observer.history().iter().rev().find(|end| end.link == link.name);
        let mut stats = Stats::default();
        counted(link, &mut stats);
        Link {
            name: link.name.clone(),
            destination: own.0 & 0xffff_f000,
            mtu: link.mtu.into(),
            up: link.up,
            // The kernel leaves a link that has gone down marked as active.
            active: link.active || !link.up && last.is_some(),
            properties: Properties {
                priority: Some(link.priority.into()),
                tolerance: Some(link.tolerance_ms),
                window: Some(link.window.into()),
                ..Properties::default()
            },
            stats,
            received: link.stats.rx_packets as u32,
            sent: link.stats.tx_packets as u32,
            down: last.map(down),
            ..Link::default()
        }
    }

    pub(super) fn show_history(&self) -> Vec<Entry> {
        let entry = |end: &LinkEnd| {
            Entry::History(Link {
                name: end.link.clone(),
                destination: end.peer.0,
                down: Some(down(end)),
                ..Link::default()
            })
        };
        self.driver.observer.history().iter().map(entry).collect()
    }

    pub(super) fn show_monitors(&self) -> Vec<Entry> {
        let entry = |m: MonitorInfo| {
            Entry::Monitor(Monitor {
                bearer: m.bearer.into(),
                name: m.name,
                active: m.active,
                nodes: u32::try_from(m.nodes.len()).unwrap_or(u32::MAX),
                generation: m.generation,
            })
        };
        self.driver.stack.monitors().into_iter().map(entry).collect()
    }

    pub(super) fn show_monitor_peers(&self, bearer: u32) -> Result<Vec<Entry>, Refusal> {
        let mut all = self.driver.stack.monitors().into_iter();
        let found = all.find(|m| u32::from(m.bearer) == bearer).ok_or(Errno::INVALID)?;
        let entry = |n: utipc_core::monitor::MonitorNode| {
            Entry::MonitorPeer(MonitorPeer {
                address: n.addr.0,
                applied: u32::try_from(n.applied).unwrap_or(0),
                up: n.up,
                head: n.head,
                local: n.local,
                domain: n.record.map(|r| Domain {
                    generation: r.generation.into(),
                    up: r.up,
                    members: r.members.iter().map(|m| m.0).collect(),
                }),
            })
        };
        Ok(found.nodes.into_iter().map(entry).collect())
    }
}

fn down(end: &LinkEnd) -> Down {
    Down { reason: end.reason.to_string(), time: end.time }
}

const fn kind(kind: SocketKind) -> u32 {
    match kind {
        SocketKind::Stream => 1,
        SocketKind::Dgram => 2,
        SocketKind::Rdm => 4,
        SocketKind::SeqPacket => 5,
    }
}

fn publication(b: &Binding) -> Publication {
    Publication {
        service: b.range.service,
        lower: b.range.lower,
        upper: b.range.upper,
        scope: b.scope.number().into(),
        node: b.port.node.0,
        port: b.port.port,
        key: b.key,
    }
}

fn broadcast_link(
    name: String,
    window: u16,
    policy: MulticastPolicy,
    count: impl FnOnce(&mut Stats),
) -> Link {
    let (method, ratio) = match policy {
        MulticastPolicy::Forced(Method::Broadcast) => (change::BROADCAST, None),
        MulticastPolicy::Forced(Method::Replicast) => (change::REPLICAST, None),
        MulticastPolicy::Auto { ratio } => (change::CHOSEN, Some(ratio)),
    };
    let mut counters = Stats::default();
    for which in (1..=10).chain([23, 24, 27, 28, 29, 30, 31, 32, 33]) {
        counters.set(which, 0);
    }
    count(&mut counters);
    Link {
        name,
        broadcast: true,
        up: true,
        properties: Properties {
            window: Some(window.into()),
            broadcast: Some(method),
            ratio,
            ..Properties::default()
        },
        stats: counters,
        ..Link::default()
    }
}

fn sent(from: &SenderStats, to: &mut Stats) {
    to.set(stats::TX_INFO, from.packets);
    to.set(stats::TX_FRAGMENTS, from.fragments);
    to.set(stats::TX_FRAGMENTED, from.fragmented);
    to.set(stats::TX_BUNDLES, from.bundles);
    to.set(stats::TX_BUNDLED, from.bundled);
    to.set(stats::RX_NACKS, from.nacks);
    to.set(stats::RETRANSMITTED, from.retransmitted);
    to.set(stats::LINK_CONGS, from.congested);
}

fn arrived(from: &ReceiverStats, to: &mut Stats) {
    to.set(stats::RX_INFO, from.packets);
    to.set(stats::RX_DEFERRED, from.early);
    to.set(stats::DUPLICATES, from.duplicates);
}

fn counted(link: &LinkInfo, to: &mut Stats) {
    let s = &link.stats;
    for (which, value) in [
        (stats::RX_INFO, 0),
        (stats::RX_FRAGMENTS, s.rx_fragments),
        (stats::RX_FRAGMENTED, s.rx_fragmented),
        (stats::RX_BUNDLES, s.rx_bundles),
        (stats::RX_BUNDLED, s.rx_bundled),
        (stats::TX_INFO, 0),
        (stats::TX_FRAGMENTS, s.tx_fragments),
        (stats::TX_FRAGMENTED, s.tx_fragmented),
        (stats::TX_BUNDLES, s.tx_bundles),
        (stats::TX_BUNDLED, s.tx_bundled),
        // Readers of the statistics divide by it.
        (stats::MSG_PROF_TOT, s.profile_samples.max(1)),
        (stats::MSG_LEN_CNT, s.profile_samples),
        (stats::MSG_LEN_TOT, s.profile_octets),
        (stats::RX_STATES, s.rx_states),
        (stats::RX_PROBES, s.rx_probes),
        (stats::RX_NACKS, s.rx_nacks),
        (stats::RX_DEFERRED, s.rx_deferred),
        (stats::TX_STATES, s.tx_states),
        (stats::TX_PROBES, s.tx_probes),
        (stats::TX_NACKS, s.tx_nacks),
        (stats::TX_ACKS, s.tx_acks),
        (stats::RETRANSMITTED, s.retransmitted),
        (stats::DUPLICATES, s.rx_duplicates),
        (stats::LINK_CONGS, s.congestions),
        (stats::MAX_QUEUE, s.queue_max),
        (stats::AVG_QUEUE, s.queue_average()),
    ] {
        to.set(which, value);
    }
    for (which, value) in (stats::MSG_LEN_P0..).zip(s.profile) {
        to.set(which, value);
    }
}
