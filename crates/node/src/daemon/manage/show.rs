//! Lists: the state of the node as entries of the family.

use utipc_core::BearerId;
use utipc_core::addr::{Binding, NodeAddr, NodeId};
use utipc_core::broadcast::{MulticastPolicy, ReceiverStats, SenderStats};
use utipc_core::limits::{LINK_STATE, MAX_BEARERS};
use utipc_core::socket::{Endpoint, SocketKind, State, WaitReason};
use utipc_core::wire::Method;
use utipc_core::{LinkInfo, MonitorInfo};
use utipc_manage::family::{BROADCAST_LINK, stats};
use utipc_manage::{
    Connection, Contact, Domain, Down, Entry, Errno, Link, Monitor, MonitorPeer, Net, Node, Path, Process,
    Properties, Publication, Refusal, Socket, Stats, Wide,
};
use utipc_os::fdpass::own_user;

use super::{Access, AttachmentId, LIST_ITEMS, Part, Positions, change, invalid};
use crate::observe::LinkEnd;

/// Place of a peer's broadcast link among its links, which are at the numbers of their bearers.
const BEHIND_LINKS: u8 = MAX_BEARERS as u8;

impl Access<'_> {
    pub(super) fn show_sockets(&self, from: u64) -> Part {
        let Ok(first) = u32::try_from(from) else { return Part::new() };
        let own = self.driver.stack.own_node();
        let all = self.driver.stack.endpoints_from(first).take(LIST_ITEMS);
        all.map(|(port, endpoint)| {
            let connected = endpoint.state() == State::Established;
            let connection = endpoint.peer().filter(|_| connected).map(|peer| Connection {
                node: peer.node.or(own).0,
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
                process: Some(self.process(port, endpoint)),
            });
            (u64::from(port) + 1, entry)
        })
        .collect()
    }

    pub(super) fn process(&self, port: u32, endpoint: &Endpoint) -> Process {
        let stats = endpoint.stats();
        let owner = self.holders.owner(port);
        let peer = owner.and_then(|owner| self.attachments.peer(owner));
        let program = owner.and_then(|owner| self.attachments.program(owner));
        Process {
            pid: peer.map_or(0, |peer| peer.pid),
            uid: peer.map_or_else(own_user, |peer| peer.uid),
            program: program.unwrap_or("utipcd").to_owned(),
            counters: [
                stats.sent_messages,
                stats.sent_bytes,
                stats.received_messages,
                stats.received_bytes,
                stats.returned_to_us,
                stats.rejected + stats.dropped,
            ],
            wait: endpoint
                .wait_reason()
                .filter(|reason| *reason != WaitReason::NothingReceived)
                .map(|reason| reason.to_string()),
            unread: endpoint.available() as u64,
            lanes: self.lanes.bytes_of(port),
        }
    }

    /// The bindings of a socket, the newest first, as the kernel lists them. A position counts down from the newest
    /// age.
    pub(super) fn show_bindings(&self, port: u32, from: u64) -> Result<Part, Refusal> {
        let stack = &self.driver.stack;
        if stack.endpoint(port).is_none() && stack.endpoints_from(port).next().is_none_or(|(p, _)| p != port)
        {
            return Err(invalid(format!("there is no socket {port}")));
        }
        if from == u64::MAX {
            return Ok(Part::new());
        }
        let all = stack.bindings_up_to(port, u64::MAX - from).take(LIST_ITEMS);
        let after = |age: u64| (u64::MAX - age).saturating_add(1);
        Ok(all.map(|(age, b)| (after(age), Entry::Binding(publication(&b)))).collect())
    }

    /// All bindings. A position does not fit a number: it is kept for the attachment.
    pub(super) fn show_names(
        &self,
        positions: &mut Positions,
        id: AttachmentId,
        from: u64,
    ) -> Result<Part, Refusal> {
        let own = self.driver.stack.own_node();
        let entry = |b: &Binding| {
            let mut publication = publication(b);
            if b.port.node.is_none() {
                publication.node = own.0;
            }
            // Here the port of a link-state binding is the number of the link; the kernel shows 0.
            publication.port = if b.range.service == LINK_STATE { 0 } else { publication.port };
            Entry::Name(publication)
        };
        let after = match from {
            0 => None,
            _ => match positions.get(id, from) {
                Some(at) => Some(at),
                None => return Err(invalid("the list was not continued in time")),
            },
        };
        let number = positions.next_number();
        let mut part = Part::new();
        for (at, binding) in self.driver.stack.list_bindings(after).take(LIST_ITEMS) {
            part.push((number, entry(&binding)));
            if part.len() == LIST_ITEMS {
                // These entries are so small that they always fit one part.
                positions.put(id, number, at);
            }
        }
        Ok(part)
    }

    pub(super) fn show_nodes(&self, from: u64) -> Part {
        let Ok(first) = u32::try_from(from) else { return Part::new() };
        let all = self.driver.stack.nodes_from(NodeAddr(first)).take(LIST_ITEMS);
        all.map(|n| {
            let contact = Contact { state: n.state.number().into(), capabilities: n.capabilities.into() };
            let (identity, contact) = (Some(n.id.0), Some(contact));
            (u64::from(n.addr.0) + 1, Entry::Node(Node { address: n.addr.0, up: n.up, identity, contact }))
        })
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
    /// links. A position is the peer's address and the bearer.
    pub(super) fn show_links(&self, broadcast: bool, from: u64) -> Part {
        let Ok(peer) = u32::try_from(from >> 8) else { return Part::new() };
        let (first, place) = (NodeAddr(peer), from as u8);
        let after = |peer: NodeAddr, place: u8| (u64::from(peer.0) << 8 | u64::from(place)) + 1;
        let stack = &self.driver.stack;
        let links = stack.links_from((first, place)).map(|link| {
            let entry = Entry::Link(self.link(&link));
            (link.peer, (after(link.peer, link.bearer), entry))
        });
        let head = (from == 0).then(|| (1, self.show_broadcast_link()));
        if !broadcast {
            return head.into_iter().chain(links.map(|(_, entry)| entry)).take(LIST_ITEMS).collect();
        }
        let mut links = links.peekable();
        let mut part: Part = head.into_iter().collect();
        for (peer, id, received) in stack.broadcasts_from(first) {
            while part.len() < LIST_ITEMS
                && let Some((_, entry)) = links.next_if(|(of, _)| *of == peer)
            {
                part.push(entry);
            }
            if part.len() < LIST_ITEMS && (peer > first || place <= BEHIND_LINKS) {
                part.push((after(peer, BEHIND_LINKS), self.show_broadcasts_of(id, &received)));
            }
            if part.len() == LIST_ITEMS {
                break;
            }
        }
        part
    }

    /// The link with this name; also a broadcast link.
    pub(super) fn show_link(&self, name: &str) -> Option<Entry> {
        let stack = &self.driver.stack;
        if name == BROADCAST_LINK {
            return Some(self.show_broadcast_link());
        }
        if let Some(identity) = name.strip_prefix(BROADCAST_LINK).and_then(|rest| rest.strip_prefix(':')) {
            let mut all = stack.broadcasts_from(NodeAddr::NONE);
            let (_, id, received) = all.find(|(_, id, _)| id.to_string() == identity)?;
            return Some(self.show_broadcasts_of(id, &received));
        }
        stack.link_named(name).map(|link| Entry::Link(self.link(&link)))
    }

    fn show_broadcast_link(&self) -> Entry {
        let info = self.driver.stack.broadcast();
        let count = |to: &mut Stats| sent(&info.sent, to);
        Entry::Link(broadcast_link(BROADCAST_LINK.to_owned(), info.window, info.policy, count))
    }

    fn show_broadcasts_of(&self, peer: NodeId, received: &ReceiverStats) -> Entry {
        let info = self.driver.stack.broadcast();
        let name = format!("{BROADCAST_LINK}:{peer}");
        Entry::Link(broadcast_link(name, info.window, info.policy, |to| arrived(received, to)))
    }

    fn link(&self, link: &LinkInfo) -> Link {
        let own = self.driver.stack.own_node();
        let is_of_link = |end: &&LinkEnd| end.peer == link.peer && end.link == link.name;
        let last = self.driver.observer.history().iter().rev().find(is_of_link);
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
            up_since: self.driver.observer.up_since(&link.name).filter(|_| link.up),
            path: Some(self.path(link)),
            wide: Some(wide(link)),
            ..Link::default()
        }
    }

    fn path(&self, link: &LinkInfo) -> Path {
        let media = self.driver.stack.link_media(link.peer, link.bearer);
        let bearer = self.driver.bearer(link.bearer).map(|bearer| bearer.name().to_owned());
        Path {
            peer: link.peer.0,
            media: media.map(|media| media.to_string()).unwrap_or_default(),
            bearer: bearer.unwrap_or_default(),
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
                nodes: u32::try_from(m.nodes).unwrap_or(u32::MAX),
                generation: m.generation,
            })
        };
        self.driver.stack.monitors().into_iter().map(entry).collect()
    }

    /// The nodes of a bearer's monitor. A position is the distance of an address from the node's own.
    pub(super) fn show_monitor_peers(&self, bearer: u32, from: u64) -> Result<Part, Refusal> {
        let Ok(first) = u32::try_from(from) else { return Ok(Part::new()) };
        let stack = &self.driver.stack;
        let own = stack.own_node();
        let after = |node: NodeAddr| u64::from(node.0.wrapping_sub(own.0)) + 1;
        let bearer = BearerId::try_from(bearer).map_err(|_| Errno::INVALID)?;
        let nodes = stack.monitor_nodes(bearer, first).ok_or(Errno::INVALID)?;
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
        Ok(nodes.take(LIST_ITEMS).map(|node| (after(node.addr), entry(node))).collect())
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

fn wide(link: &LinkInfo) -> Wide {
    let stats = &link.stats;
    Wide {
        bearer: link.bearer.into(),
        mtu_limit: link.mtu_limit.into(),
        received: stats.rx_packets,
        sent: stats.tx_packets,
        malformed: stats.refused,
        queue_sum: stats.queue_sum,
        queue_samples: stats.queue_samples,
    }
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
