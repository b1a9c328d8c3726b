//! The switch: the part of a node between sockets and bearers. Only it uses discovery, links, broadcast and
//! names; these interact only through the values they return to it. Spec: tipc.md §6.

mod admin;
mod announcement;
mod barrier;
mod collecting;
mod contact;
mod crowd;
mod deferral;
mod deliver;
mod discovery;
mod encryption;
mod hold;
mod info;
mod manage;
mod members;
mod monitoring;
mod names;
mod receive;
mod spread;
mod timers;
mod transmit;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use members::Members;

pub(crate) use announcement::{ANNOUNCEMENT_MEMORY, Announcement, Told};
pub(crate) use collecting::Collecting;
pub(crate) use crowd::{Room, Waits};
pub(crate) use spread::{Copy, STEP as SPREAD_STEP};

pub use barrier::Barrier;

pub use admin::{BearerProperty, BroadcastInfo, Joined, MonitorInfo, PeerError};
pub use info::{BearerInfo, LinkInfo, PeerInfo, SwitchStats};
pub use manage::{LinkProperty, PropertyError};
pub use spread::Origin;

use crate::addr::{NodeAddr, NodeId, PortId};
use crate::broadcast::{BroadcastConfig, BroadcastReceiver, BroadcastSender, MulticastPolicy, SocketMethods};
use crate::config::{BearerConfig, BearerError, StackConfig};
use crate::crypto::Encryption;
use crate::discovery::{Discoverer, DiscovererConfig, OwnAddress};
use crate::event::Event;
use crate::limits::MAX_BEARERS;
use crate::link::{DownReason, Parts};
use crate::monitor::{DEFAULT_THRESHOLD, Monitor};
use crate::names::replica::{Memory, NoMemory};
use crate::names::{Bulk, Change, Distributor, NameReceiver, NameTable, Recent, Withdrawals};
use crate::node::peer::Peer;
use crate::outbox::{BearerId, FrameBatch};
use crate::pool::Pool;
use crate::rng::Rng;
use crate::time::Time;
use crate::wire::{MediaAddr, Message, Method};

/// Maximum number of events waiting to be read; the oldest are dropped if they are not read.
const MAX_EVENTS: usize = 4096;

/// A bearer, and discovery on it.
#[derive(Debug)]
struct Bearer {
    config: BearerConfig,
    discoverer: Discoverer,
    monitor: Monitor,
}

/// A peer node, with the state that other modules keep for it.
#[derive(Debug)]
struct Member {
    peer: Peer,
    /// Receives its broadcasts.
    receiver: BroadcastReceiver,
    /// Receives its bindings and applies them to the table.
    names: NameReceiver,
    /// Its number among the peers that have never had a link.
    stranger: Option<u64>,
    /// Its packets that arrive in parts.
    parts: Parts,
    /// Its delivered messages are being dispatched.
    dispatching: bool,
    /// Congested levels last reported for it; see [`Peer::congestion`].
    congestion: u8,
    /// Whether its messages wait for a full receiver.
    hold: hold::Hold,
    /// Memory of its early packets.
    deferred: deferral::Deferred,
    /// Number of the present or last contact.
    contact: u64,
    /// By link selector: number of the next update that was not sent on that link.
    told: [u64; 2],
    /// What is left of the bulk for it.
    bulk: Option<Bulk>,
}

impl Member {
    fn new(peer: Peer, own: NodeAddr) -> Self {
        Self {
            receiver: BroadcastReceiver::new(own, peer.capabilities),
            peer,
            names: NameReceiver::new(),
            stranger: None,
            parts: Parts::default(),
            dispatching: false,
            congestion: 0,
            hold: hold::Hold::default(),
            deferred: deferral::Deferred::default(),
            contact: 0,
            told: [0; 2],
            bulk: None,
        }
    }
}

/// Congestion of the links.
#[derive(Debug, Default)]
pub(crate) struct Congestion {
    /// The congested nodes and their levels; see [`Peer::congestion`].
    pub(crate) nodes: BTreeMap<NodeAddr, u8>,
    /// True if they have changed since the last query.
    pub(crate) changed: bool,
}

impl Congestion {
    fn note(&mut self, node: NodeAddr, levels: u8) {
        self.changed = true;
        match levels {
            0 => self.nodes.remove(&node),
            _ => self.nodes.insert(node, levels),
        };
    }
}

/// A node without its sockets.
#[derive(Debug)]
pub(crate) struct Switch {
    config: StackConfig,
    rng: Rng,
    own: Option<OwnAddress>,
    bearers: [Option<Bearer>; MAX_BEARERS],
    members: Members,
    /// Deadlines of the peers' timers.
    ticks: BTreeSet<(Time, NodeAddr)>,
    bcast: BroadcastSender,
    policy: MulticastPolicy,
    monitor_threshold: usize,
    table: NameTable,
    distributor: Distributor,
    recent: Recent,
    /// Contacts with peers since the start.
    contacts: u64,
    ports: BTreeSet<u32>,
    connections: BTreeMap<u32, PortId>,
    connected_to: BTreeSet<(NodeAddr, u32)>,
    methods: BTreeMap<u32, SocketMethods>,
    port_buffer: Vec<u32>,
    /// Messages for local sockets.
    pub(crate) local: VecDeque<(u32, Message)>,
    /// Multicasts that take several steps, and what waits behind them.
    pub(crate) spreads: spread::Spreads,
    /// Pairs of local sockets with a lane: messages of the first to the second do not go through the switch.
    pub(crate) lanes: BTreeSet<(u32, u32)>,
    /// Local receivers that the current message must reach over a lane.
    pub(crate) diverted: Vec<u32>,
    /// Local sockets that may send to a node again.
    pub(crate) woken: VecDeque<(u32, NodeAddr)>,
    /// Local senders that take turns at a receiver.
    pub(crate) crowds: crowd::Crowds,
    /// Peers whose messages have waited, for a full receiver or for this turn, and are dispatched now.
    draining: BTreeSet<NodeAddr>,
    /// The last of them that was served.
    drained: NodeAddr,
    pub(crate) work: work::Work,
    deferral: deferral::Deferral,
    /// Lost nodes whose bindings are not all withdrawn yet.
    leaving: BTreeSet<NodeAddr>,
    /// Peers that have not got the whole bulk, in turn.
    bulks: VecDeque<NodeAddr>,
    /// Withdrawals that these have not got.
    withdrawals: Withdrawals,
    /// Changes of the binding table, for the topology server and for groups.
    pub(crate) changes: VecDeque<Change>,
    /// Nodes to which contact was lost, for groups.
    pub(crate) lost: VecDeque<NodeAddr>,
    pub(crate) frames: FrameBatch,
    encryption: Encryption,
    /// Time of the last call that received it.
    now: Time,
    pub(crate) pool: Pool,
    trim_at: Time,
    pub(crate) congestion: Congestion,
    /// A message was queued behind a link's window since the last query.
    pub(crate) backlogged: bool,
    pub(crate) events: VecDeque<Event>,
    stats: SwitchStats,
}

impl Switch {
    pub(crate) fn new(now: Time, config: StackConfig) -> Self {
        let mut rng = Rng::new(config.seed);
        let legacy = config.address.is_some();
        let own = match (config.address, config.identity) {
            (Some(addr), _) => Some(OwnAddress::explicit(addr, config.cluster, &mut rng)),
            (None, Some(id)) if config.address_is_assigned => {
                Some(OwnAddress::with_final_address(id, config.cluster, &mut rng))
            }
            (None, Some(id)) => Some(OwnAddress::from_identity(id, config.cluster, &mut rng)),
            (None, None) => None,
        };
        let (first_seqno, first_name_seqno) = (config.first_seqno, config.first_name_seqno);
        let encryption = Encryption::new(&config.encryption, rng.clone().next_u64());
        let bcast = BroadcastConfig { first_seqno, ..BroadcastConfig::new(NodeAddr::NONE, config.cluster) };
        let mut switch = Self {
            bcast: BroadcastSender::new(bcast),
            policy: MulticastPolicy::default(),
            monitor_threshold: DEFAULT_THRESHOLD,
            config,
            rng,
            own,
            bearers: Default::default(),
            members: Members::default(),
            ticks: BTreeSet::new(),
            table: NameTable::new(NodeAddr::NONE, legacy),
            distributor: Distributor::new(first_name_seqno),
            recent: Recent::default(),
            contacts: 0,
            ports: BTreeSet::new(),
            connections: BTreeMap::new(),
            connected_to: BTreeSet::new(),
            methods: BTreeMap::new(),
            port_buffer: Vec::new(),
            local: VecDeque::new(),
            spreads: spread::Spreads::default(),
            lanes: BTreeSet::new(),
            diverted: Vec::new(),
            woken: VecDeque::new(),
            crowds: crowd::Crowds::default(),
            draining: BTreeSet::new(),
            drained: NodeAddr::NONE,
            work: work::Work::default(),
            deferral: deferral::Deferral::default(),
            leaving: BTreeSet::new(),
            bulks: VecDeque::new(),
            withdrawals: Withdrawals::default(),
            changes: VecDeque::new(),
            lost: VecDeque::new(),
            frames: FrameBatch::default(),
            encryption,
            now,
            pool: Pool::default(),
            trim_at: now,
            congestion: Congestion::default(),
            backlogged: false,
            events: VecDeque::new(),
            stats: SwitchStats::default(),
        };
        if switch.is_final() {
            switch.address_final(now);
        }
        switch
    }

    pub(crate) fn own_node(&self) -> NodeAddr {
        self.own.as_ref().map_or(NodeAddr::NONE, OwnAddress::address)
    }

    pub(crate) fn identity(&self) -> Option<NodeId> {
        self.own.as_ref().map(OwnAddress::identity)
    }

    pub(crate) fn is_final(&self) -> bool {
        self.own.as_ref().is_some_and(OwnAddress::is_final)
    }

    fn is_self(&self, node: NodeAddr) -> bool {
        node.is_none() || node == self.own_node()
    }

    fn event(&mut self, event: Event) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
            self.stats.events_lost += 1;
        }
        self.events.push_back(event);
    }

    fn bearer(&self, id: BearerId) -> Option<&Bearer> {
        self.bearers.get(usize::from(id))?.as_ref()
    }

    pub(crate) fn enable_bearer(&mut self, now: Time, config: BearerConfig) -> Result<BearerId, BearerError> {
        config.check()?;
        if self.bearers.iter().flatten().any(|b| b.config.name == config.name) {
            return Err(BearerError::Exists(config.name));
        }
        let free = self.bearers.iter().position(Option::is_none).ok_or(BearerError::TooMany)?;
        let id = free as BearerId;
        let mut config = config;
        let same_priority = |b: &BearerConfig| {
            self.bearers.iter().flatten().filter(|o| o.config.priority == b.priority).count()
        };
        while same_priority(&config) >= 2 && config.priority > 0 {
            config.priority -= 1; // tipc.md §4.1: at most two bearers of one priority
        }
        let own = self.own.get_or_insert_with(|| {
            let identity = OwnAddress::identity_of_bearer(&config.address);
            OwnAddress::from_identity(identity, self.config.cluster, &mut self.rng)
        });
        let mut outputs = Vec::new();
        let discovery = DiscovererConfig { media: config.address, domain: config.domain };
        let discoverer = Discoverer::new(now, discovery, own, &mut outputs);
        let monitor = Monitor::new(self.own_node(), self.monitor_threshold);
        if let Some(place) = self.bearers.get_mut(free) {
            *place = Some(Bearer { config, discoverer, monitor });
        }
        self.act_on_discovery(now, id, outputs);
        Ok(id)
    }

    pub(crate) fn disable_bearer(&mut self, now: Time, id: BearerId) {
        let peers: Vec<NodeAddr> = self.members.keys().copied().collect();
        for addr in peers {
            self.with_peer(now, addr, |peer, ctx| peer.remove_link(id, DownReason::Administrator, ctx));
        }
        if let Some(place) = self.bearers.get_mut(usize::from(id)) {
            *place = None;
        }
    }

    pub(crate) fn informed_peers(&self) -> usize {
        self.members.values().filter(|member| member.peer.is_up() && member.names.is_open()).count()
    }

    /// The medium of a bearer reports that the node with this address on it is gone.
    pub(crate) fn lose_neighbour(&mut self, now: Time, id: BearerId, address: MediaAddr) {
        let has_left = |member: &Member| member.peer.slot(id).is_some_and(|slot| slot.media == address);
        let gone = self.members.iter().find(|(_, member)| has_left(member)).map(|(addr, _)| *addr);
        if let Some(addr) = gone {
            self.with_peer(now, addr, |peer, ctx| peer.remove_link(id, DownReason::PeerLeft, ctx));
        }
    }

    /// Allocates a free port number: a random one, or the next free one.
    pub(crate) fn open_port(&mut self) -> u32 {
        let mut port = self.rng.next_u32().max(1);
        while self.ports.contains(&port) {
            port = port.wrapping_add(1).max(1);
        }
        self.ports.insert(port);
        port
    }

    /// Releases a port: messages for it are rejected from now on.
    pub(crate) fn close_port(&mut self, now: Time, port: u32) {
        self.forget_bindings(now, port);
        self.ports.remove(&port);
        self.methods.remove(&port);
        self.unregister_connection(port);
    }

    pub(crate) fn share_names(&mut self, memory: Box<dyn Memory>) -> Result<(), NoMemory> {
        self.table.share(memory)
    }

    pub(crate) fn set_binding_limit(&mut self, limit: usize) {
        self.table.set_limit(limit);
    }

    pub(crate) fn table(&self) -> &NameTable {
        &self.table
    }

    pub(crate) fn force_method(&mut self, port: u32, method: Option<Method>) {
        self.methods.entry(port).or_default().force(method);
    }

    pub(crate) fn next_random(&mut self) -> u64 {
        self.rng.next_u64()
    }
}
