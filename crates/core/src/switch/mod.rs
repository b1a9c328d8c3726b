//! The switch: the part of a node between sockets and bearers. Only it uses discovery, links, broadcast and
//! names; these interact only through the values they return to it. Spec: tipc.md §6.
//!
//! | What | Where |
//! |---|---|
//! | from frames to messages; to a peer or a socket | `receive.rs`, `deliver.rs`; `transmit.rs` |
//! | neighbours, links, contacts; bindings | `contact.rs`; `names.rs` |
//! | each component, with what it owns | the other files |

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
mod full;
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
mod transmit;
mod work;

use std::collections::VecDeque;

use bearers::Bearers;
use bindings::Bindings;
use deferral::Deferral;
use delivery::Delivery;
use hold::Holds;
use manage::check;
use methods::Methods;
use peers::{PeerEntry, Peers};
use senders::Senders;
use spread::Spreads;
use work::Work;

pub(crate) use announcement::{ANNOUNCEMENT_MEMORY, Announcement, Told};
pub(crate) use collecting::Collecting;
pub(crate) use full::{Room, Waits};
pub(crate) use spread::{Copy, STEP as SPREAD_STEP};

pub use barrier::Barrier;
pub use info::{BearerInfo, BroadcastInfo, LinkInfo, MonitorInfo, PeerInfo, SwitchStats};
pub use manage::{BearerProperty, Joined, LinkProperty, PeerError, PropertyError};
pub use spread::Origin;

use crate::addr::{ClusterId, NodeAddr, NodeId};
use crate::broadcast::{BroadcastConfig, BroadcastSender, SMALLEST_WINDOW};
use crate::config::{BearerConfig, BearerError, StackConfig};
use crate::crypto::{Encryption, Own};
use crate::discovery::{Discoverer, DiscovererConfig, OwnAddress};
use crate::event::Event;
use crate::limits::MAX_WINDOW;
use crate::link::DownReason;
use crate::names::NameTable;
use crate::node::state::State;
use crate::outbox::{BearerId, FrameBatch};
use crate::pool::Pool;
use crate::rng::Rng;
use crate::time::Time;
use crate::timers::{Timer, Timers};
use crate::wire::MediaAddr;

/// Maximum number of events waiting to be read; the oldest are dropped if they are not read.
const MAX_EVENTS: usize = 4096;

const TIMERS: Timers<Switch> = Timers(&[
    Timer {
        due: |switch, _| switch.encryption.rekey_at().unwrap_or(Time::NEVER),
        handle: Switch::rekey_timeout,
    },
    Timer { due: |switch, _| switch.pool.trim_due(), handle: |switch, now| switch.pool.trim_timeout(now) },
    Timer { due: |switch, _| switch.bearers.discovery_deadline(), handle: Switch::discovery_timeouts },
    Timer {
        due: |switch, _| if switch.bindings.has_work() { Time::ZERO } else { Time::NEVER },
        handle: Switch::continue_bindings,
    },
    Timer { due: |switch, _| switch.peers.next_tick(), handle: Switch::tick_peers },
]);

/// A node without its sockets.
#[derive(Debug)]
pub(crate) struct Switch {
    config: StackConfig,
    rng: Rng,
    own: Option<OwnAddress>,
    pub(crate) bearers: Bearers,
    pub(crate) peers: Peers,
    bcast: BroadcastSender,
    pub(crate) methods: Methods,
    pub(crate) bindings: Bindings,
    pub(crate) delivery: Delivery,
    /// Multicasts that take several steps, and what waits behind them.
    pub(crate) spreads: Spreads,
    pub(crate) senders: Senders,
    holds: Holds,
    pub(crate) work: Work,
    deferral: Deferral,
    pub(crate) frames: FrameBatch,
    pub(crate) encryption: Encryption,
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
            delivery: Delivery::default(),
            spreads: Spreads::default(),
            senders: Senders::default(),
            holds: Holds::default(),
            work: Work::default(),
            deferral: Deferral::default(),
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
    }

    pub(crate) fn table(&self) -> &NameTable {
        self.bindings.table()
    }

    pub(crate) fn next_random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    fn own(&self) -> Own {
        Own { id: self.identity().unwrap_or_default(), addr: self.own_node() }
    }

    pub(crate) fn cluster(&self) -> ClusterId {
        self.own.as_ref().map_or(self.config.cluster, OwnAddress::cluster)
    }

    pub(crate) fn is_legacy(&self) -> bool {
        self.own.as_ref().is_some_and(OwnAddress::is_legacy)
    }

    pub(crate) fn deadline(&self) -> Time {
        TIMERS.deadline(self, self.now)
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        TIMERS.handle(self, now);
    }

    pub(crate) fn stats(&self) -> SwitchStats {
        SwitchStats { deferred_bytes: self.deferral.total(), ..self.stats }
    }

    pub(crate) fn begin_barrier(&self, now: Time) -> Barrier {
        Barrier::begin(now, &self.peers, &self.bcast)
    }

    /// The peers that a barrier waits for; asks them for their acknowledgements from time to time.
    pub(crate) fn awaited(&mut self, now: Time, barrier: &mut Barrier) -> Vec<NodeAddr> {
        let awaited = barrier.awaited(&self.peers, &self.bcast);
        if !awaited.is_empty() && barrier.asks(now) {
            for addr in &awaited {
                self.with_peer(now, *addr, |peer, ctx| peer.probe(ctx));
            }
        }
        awaited
    }

    /// Changes a property of the link with this name.
    pub(crate) fn set_link(
        &mut self,
        now: Time,
        name: &str,
        property: LinkProperty,
    ) -> Result<(), PropertyError> {
        property.check()?;
        let found = self.peers.find_link(name);
        let (addr, bearer) = found.ok_or_else(|| PropertyError::NoLink(name.to_owned()))?;
        self.with_peer(now, addr, |peer, ctx| {
            peer.with_link(bearer, ctx, |link, io| property.apply(link, io));
            peer.arm(ctx);
        });
        Ok(())
    }

    /// Changes a property of a bearer; false if there is no such bearer.
    pub(crate) fn set_bearer(
        &mut self,
        now: Time,
        id: BearerId,
        property: BearerProperty,
    ) -> Result<bool, PropertyError> {
        if !self.bearers.set(id, property)? {
            return Ok(false);
        }
        let peers: Vec<NodeAddr> = self.peers.keys().copied().collect();
        for addr in peers {
            self.with_peer(now, addr, |peer, ctx| {
                peer.with_link(id, ctx, |link, io| property.apply(link, io));
                peer.arm(ctx);
            });
        }
        Ok(true)
    }

    pub(crate) fn set_broadcast_window(&mut self, window: u16) -> Result<(), PropertyError> {
        let fits = (SMALLEST_WINDOW..=MAX_WINDOW).contains(&window);
        check(fits, "broadcast window", "32 to 8191 packets")?;
        self.bcast.set_window(window);
        Ok(())
    }

    pub(crate) fn broadcast_info(&self) -> BroadcastInfo {
        BroadcastInfo { window: self.bcast.window(), policy: self.methods.policy(), sent: self.bcast.stats() }
    }

    /// Clears the sending counters of the broadcast link, or with a peer the counters of its broadcasts.
    pub(crate) fn clear_broadcast_stats(&mut self, from: Option<NodeAddr>) -> bool {
        match from {
            Some(from) => self.peers.clear_broadcast_stats(from),
            None => {
                self.bcast.clear_stats();
                true
            }
        }
    }

    /// Removes a peer that is down.
    pub(crate) fn forget_peer(&mut self, addr: NodeAddr) -> Result<(), PeerError> {
        if addr == self.own_node() {
            return Err(PeerError::Own);
        }
        let entry = self.peers.get(&addr).ok_or(PeerError::Unknown)?;
        if !matches!(entry.peer.state, State::SelfDownPeerDown | State::SelfDownPeerLeaving) {
            return Err(PeerError::Up);
        }
        self.remove_peer(addr);
        Ok(())
    }

    /// Changes cluster, identity or address while no other node can know the old ones.
    pub(crate) fn rename(
        &mut self,
        now: Time,
        cluster: Option<ClusterId>,
        identity: Option<NodeId>,
        address: Option<NodeAddr>,
    ) -> Result<(), Joined> {
        if !self.bearers.is_empty() || !self.peers.is_empty() || self.delivery.has_connections() {
            return Err(Joined);
        }
        let old = self.own_node();
        if let Some(cluster) = cluster {
            self.config.cluster = cluster;
            self.bcast.set_cluster(cluster);
        }
        let (config, rng) = (&mut self.config, &mut self.rng);
        let own = match (address, identity, &self.own) {
            (Some(address), _, _) => Some(OwnAddress::explicit(address, config.cluster, rng)),
            (None, Some(identity), _) => Some(OwnAddress::with_final_address(identity, config.cluster, rng)),
            (None, None, Some(own)) => Some(own.clone().with_cluster(config.cluster)),
            (None, None, None) => None,
        };
        let Some(own) = own else { return Ok(()) };
        let legacy = own.is_legacy();
        self.own = Some(own);
        if self.own_node() != old {
            if !old.is_none() {
                self.withdraw_internal(now, names::node_binding(old));
            }
            self.bindings.table_mut().set_legacy(legacy);
            self.address_final(now);
        }
        Ok(())
    }
}
