//! The switch: the part of a node between sockets and bearers. Only it uses discovery, links, broadcast and
//! names; these interact only through the values they return to it. Spec: tipc.md §6.

mod admin;
mod announcement;
mod barrier;
mod bearers;
mod bindings;
mod collecting;
mod connections;
mod contact;
mod deferral;
mod deliver;
mod delivery;
mod discovery;
mod encryption;
mod hold;
mod info;
mod manage;
mod methods;
mod monitoring;
mod names;
mod peers;
mod receive;
mod senders;
mod spread;
mod timers;
mod transmit;
mod waiters;
mod work;

use std::collections::VecDeque;

use bearers::Bearers;
use bindings::Bindings;
use connections::Connections;
use delivery::Delivery;
use methods::Methods;
use peers::Peers;
use senders::Senders;

pub(crate) use announcement::{ANNOUNCEMENT_MEMORY, Announcement, Told};
pub(crate) use collecting::Collecting;
pub(crate) use spread::{Copy, STEP as SPREAD_STEP};
pub(crate) use waiters::{Room, Waits};

pub use barrier::Barrier;

pub use admin::{BearerProperty, BroadcastInfo, Joined, MonitorInfo, PeerError};
pub use info::{BearerInfo, LinkInfo, PeerInfo, SwitchStats};
pub use manage::{LinkProperty, PropertyError};
pub use spread::Origin;

use crate::addr::{NodeAddr, NodeId};
use crate::broadcast::{BroadcastConfig, BroadcastReceiver, BroadcastSender};
use crate::config::{BearerConfig, BearerError, StackConfig};
use crate::crypto::Encryption;
use crate::discovery::{Discoverer, DiscovererConfig, OwnAddress};
use crate::event::Event;
use crate::link::{DownReason, Parts};
use crate::names::replica::{Memory, NoMemory};
use crate::names::{Bulk, NameReceiver, NameTable};
use crate::node::peer::Peer;
use crate::outbox::{BearerId, FrameBatch};
use crate::pool::Pool;
use crate::rng::Rng;
use crate::time::Time;
use crate::wire::{MediaAddr, Method};

/// Maximum number of events waiting to be read; the oldest are dropped if they are not read.
const MAX_EVENTS: usize = 4096;

/// A peer node, with the state that other modules keep for it.
#[derive(Debug)]
struct PeerEntry {
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
    next_unsent: [u64; 2],
    /// What is left of the bulk for it.
    bulk: Option<Bulk>,
}

impl PeerEntry {
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
            next_unsent: [0; 2],
            bulk: None,
        }
    }
}

/// A node without its sockets.
#[derive(Debug)]
pub(crate) struct Switch {
    config: StackConfig,
    rng: Rng,
    own: Option<OwnAddress>,
    bearers: Bearers,
    peers: Peers,
    bcast: BroadcastSender,
    methods: Methods,
    pub(crate) bindings: Bindings,
    connections: Connections,
    pub(crate) delivery: Delivery,
    /// Multicasts that take several steps, and what waits behind them.
    pub(crate) spreads: spread::Spreads,
    pub(crate) senders: Senders,
    draining: hold::Draining,
    pub(crate) work: work::Work,
    deferral: deferral::Deferral,
    pub(crate) frames: FrameBatch,
    encryption: Encryption,
    /// Time of the last call that received it.
    now: Time,
    pub(crate) pool: Pool,
    events: VecDeque<Event>,
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
            bindings: Bindings::new(legacy, first_name_seqno),
            config,
            rng,
            own,
            bearers: Bearers::default(),
            peers: Peers::default(),
            methods: Methods::default(),
            connections: Connections::default(),
            delivery: Delivery::default(),
            spreads: spread::Spreads::default(),
            senders: Senders::default(),
            draining: hold::Draining::default(),
            work: work::Work::default(),
            deferral: deferral::Deferral::default(),
            frames: FrameBatch::default(),
            encryption,
            now,
            pool: Pool::default(),
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

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next node to which contact was lost, for groups.
    pub(crate) fn next_lost(&mut self) -> Option<NodeAddr> {
        self.peers.next_lost()
    }

    pub(crate) fn enable_bearer(&mut self, now: Time, config: BearerConfig) -> Result<BearerId, BearerError> {
        config.check()?;
        let (id, config) = self.bearers.admit(config)?;
        let own = self.own.get_or_insert_with(|| {
            let identity = OwnAddress::identity_of_bearer(&config.address);
            OwnAddress::from_identity(identity, self.config.cluster, &mut self.rng)
        });
        let mut outputs = Vec::new();
        let discovery = DiscovererConfig { media: config.address, domain: config.domain };
        let discoverer = Discoverer::new(now, discovery, own, &mut outputs);
        self.bearers.insert(id, config, discoverer, self.own_node());
        self.act_on_discovery(now, id, outputs);
        Ok(id)
    }

    pub(crate) fn disable_bearer(&mut self, now: Time, id: BearerId) {
        let peers: Vec<NodeAddr> = self.peers.keys().copied().collect();
        for addr in peers {
            self.with_peer(now, addr, |peer, ctx| peer.remove_link(id, DownReason::Administrator, ctx));
        }
        self.bearers.remove(id);
    }

    pub(crate) fn informed_peers(&self) -> usize {
        self.peers.values().filter(|entry| entry.peer.is_up() && entry.names.is_open()).count()
    }

    /// The medium of a bearer reports that the node with this address on it is gone.
    pub(crate) fn lose_neighbour(&mut self, now: Time, id: BearerId, address: MediaAddr) {
        let has_left = |entry: &PeerEntry| entry.peer.slot(id).is_some_and(|slot| slot.media == address);
        let gone = self.peers.iter().find(|(_, entry)| has_left(entry)).map(|(addr, _)| *addr);
        if let Some(addr) = gone {
            self.with_peer(now, addr, |peer, ctx| peer.remove_link(id, DownReason::PeerLeft, ctx));
        }
    }

    /// Allocates a free port number.
    pub(crate) fn open_port(&mut self) -> u32 {
        self.delivery.open(&mut self.rng)
    }

    /// Releases a port: messages for it are rejected from now on.
    pub(crate) fn close_port(&mut self, now: Time, port: u32) {
        self.forget_bindings(now, port);
        self.delivery.close(port);
        self.methods.forget(port);
        self.connections.remove(port);
    }

    pub(crate) fn share_names(&mut self, memory: Box<dyn Memory>) -> Result<(), NoMemory> {
        self.bindings.table_mut().share(memory)
    }

    pub(crate) fn set_binding_limit(&mut self, limit: usize) {
        self.bindings.table_mut().set_limit(limit);
    }

    pub(crate) fn table(&self) -> &NameTable {
        self.bindings.table()
    }

    pub(crate) fn force_method(&mut self, port: u32, method: Option<Method>) {
        self.methods.force(port, method);
    }

    pub(crate) fn next_random(&mut self) -> u64 {
        self.rng.next_u64()
    }
}
