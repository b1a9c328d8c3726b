//! A complete node in one value: the switch, its sockets, and the topology server that answers on {1,1}.
//!
//! The driver of a node passes the time to every call. After every call it sends [`Stack::frames`] and clears it, then
//! drains [`Stack::poll_event`] and [`Stack::poll_ready`]; and it calls [`Stack::handle_timeout`] when
//! [`Stack::deadline`] has passed. Time must never run backwards.
//!
//! ```
//! use utipc_core::{Destination, Scope, ServiceRange, SocketKind, Stack, StackConfig, Time};
//! let now = Time::ZERO;
//! let mut node = Stack::new(now, StackConfig::default());
//! let server = node.open(now, SocketKind::Rdm).unwrap();
//! node.bind(now, server, ServiceRange::new(18888, 17, 17), Scope::Cluster).unwrap();
//! let client = node.open(now, SocketKind::Rdm).unwrap();
//! node.send(now, client, b"hello", Some(Destination::service(18888, 17))).unwrap();
//! let mut buffer = [0; 100];
//! let got = node.recv(now, server, &mut buffer, Default::default()).unwrap();
//! assert_eq!((&buffer[..got.len], got.source.port), (&b"hello"[..], client));
//! ```

mod announcements;
mod anycast;
mod full;
mod groups;
mod keys;
mod lanes;
mod manage;
mod quotas;
mod services;
mod sockets;
mod spread;
mod subscribers;
#[cfg(test)]
mod tests;
mod uplink;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thiserror::Error;

use crate::addr::{Binding, Importance, NodeAddr, NodeId, PortId, ServiceAddr};
use crate::broadcast::MulticastPolicy;
use crate::config::{BearerConfig, BearerError, StackConfig};
use crate::event::Event;
use crate::names::replica::{Memory, NoMemory};
use crate::outbox::{BearerId, FrameBatch};
use crate::quota::Ledger;
use crate::socket::Endpoint;
use crate::switch::{
    Barrier, BearerInfo, LinkInfo, LinkProperty, PeerInfo, PropertyError, Switch, SwitchStats,
};
use crate::time::Time;
use crate::timers::{Timer, Timers};
use crate::wire::MediaAddr;
use groups::GroupSockets;
pub use services::RefusedSubscriber;
use services::Services;
pub use subscribers::SubscriberWork;

/// The timers of a node.
const TIMERS: Timers<Stack> = Timers(&[
    Timer { due: |stack, _| stack.switch.deadline(), handle: |stack, now| stack.switch.handle_timeout(now) },
    Timer { due: |stack, _| stack.services_deadline(), handle: Stack::services_timeout },
    Timer { due: |stack, _| stack.switch.senders.waiters.deadline(), handle: Stack::waiters_timeout },
    Timer {
        due: |stack, _| stack.deadlines.first().map_or(Time::NEVER, |(at, _)| *at),
        handle: Stack::sockets_timeout,
    },
]);

/// Maximum number of sockets on one node. Ours: bounds memory; above any known use.
pub const MAX_SOCKETS: usize = 1 << 20;

/// Sockets whose timers one call of [`Stack::handle_timeout`] handles. Ours: about a millisecond.
const TIMERS_PER_CALL: usize = 1024;

/// A socket could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The node has reached its limit of sockets.
    #[error("the node has {MAX_SOCKETS} sockets (close some)")]
    TooMany,
}

/// A complete TIPC node without clock and media.
#[derive(Debug)]
pub struct Stack {
    switch: Switch,
    endpoints: BTreeMap<u32, Endpoint>,
    /// Deadlines of the sockets, in order.
    deadlines: BTreeSet<(Time, u32)>,
    due: BTreeMap<u32, Time>,
    ready: VecDeque<u32>,
    ready_ports: BTreeSet<u32>,
    services: Services,
    groups: GroupSockets,
    /// The sockets whose groups have gained or lost members since a caller took them; `None` if no caller does.
    changed_groups: Option<BTreeSet<u32>>,
    /// What the sockets of each user use.
    ledger: Ledger,
}

impl Stack {
    /// A node without bearers: its sockets can reach one another.
    #[must_use]
    pub fn new(now: Time, config: StackConfig) -> Self {
        let mut stack = Self {
            switch: Switch::new(now, config),
            endpoints: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            due: BTreeMap::new(),
            ready: VecDeque::new(),
            ready_ports: BTreeSet::new(),
            services: Services::default(),
            groups: GroupSockets::default(),
            changed_groups: None,
            ledger: Ledger::default(),
        };
        stack.start_services(now);
        stack.process_pending(now);
        stack
    }

    /// Enables a bearer; discovery starts at once.
    ///
    /// # Errors
    /// [`BearerError`] names the property that is out of range, or the limit reached.
    pub fn enable_bearer(&mut self, now: Time, config: BearerConfig) -> Result<BearerId, BearerError> {
        let id = self.switch.enable_bearer(now, config)?;
        self.process_pending(now);
        Ok(id)
    }

    /// Disables a bearer: its links go down, which is reported to the peers.
    pub fn disable_bearer(&mut self, now: Time, id: BearerId) {
        self.switch.disable_bearer(now, id);
        self.process_pending(now);
    }

    /// Number of peers with contact whose bindings have all arrived.
    #[must_use]
    pub fn informed_peers(&self) -> usize {
        self.switch.informed_peers()
    }

    /// Begins to wait until every peer in contact has the bindings of cluster scope that this node has now.
    #[must_use]
    pub fn begin_barrier(&self, now: Time) -> Barrier {
        self.switch.begin_barrier(now)
    }

    /// The peers that do not have these bindings yet, as far as this node knows, in order; empty when the barrier is
    /// reached. Asks them for their acknowledgements, at most every 10 ms: call it again when frames have arrived, and
    /// in such intervals. A peer that goes down does not count any more; one that comes up meanwhile does.
    pub fn awaited(&mut self, now: Time, barrier: &mut Barrier) -> Vec<NodeAddr> {
        let awaited = self.switch.awaited(now, barrier);
        self.process_pending(now);
        awaited
    }

    /// Takes down the link to the peer that had this address on a bearer: its medium reports that the peer is gone. The
    /// link comes back if the peer does.
    pub fn lose_neighbour(&mut self, now: Time, bearer: BearerId, address: MediaAddr) {
        self.switch.lose_neighbour(now, bearer, address);
        self.process_pending(now);
    }

    /// Processes a frame that arrived on a bearer.
    pub fn receive(&mut self, now: Time, bearer: BearerId, frame: &[u8]) {
        if self.switch.receive(now, bearer, frame) {
            self.process_pending(now);
        }
    }

    /// Begins a turn that does at most `work` for peers, in messages to one socket (a binding costs 256), and goes on
    /// with what earlier turns have left, for half as much. While [`Self::has_work`], the next turn is due at once.
    /// Without this call, a node does all work at once.
    pub fn begin_turn(&mut self, now: Time, work: usize) {
        self.switch.work.begin_turn(work);
        self.process_pending(now);
    }

    /// Whether messages of peers wait for the next turn. Packets that arrive meanwhile are not acknowledged.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.switch.has_work()
    }

    /// Handles timers that are due by `now`, a bounded number of them: while more are due, [`Self::deadline`] stays in
    /// the past, and the caller calls again after it has handled frames and commands.
    pub fn handle_timeout(&mut self, now: Time) {
        TIMERS.handle(self, now);
        self.process_pending(now);
    }

    /// Time when [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let first = TIMERS.deadline(self, Time::ZERO);
        (first != Time::NEVER).then_some(first)
    }

    /// Timeouts of some sockets.
    fn sockets_timeout(&mut self, now: Time) {
        for _ in 0..TIMERS_PER_CALL {
            let Some((_, port)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) else { break };
            self.with_endpoint(now, port, |endpoint, uplink| endpoint.handle_timeout(now, uplink));
        }
    }

    /// Frames to send, oldest first; the caller clears the batch.
    pub fn frames(&mut self) -> &mut FrameBatch {
        self.switch.outgoing()
    }

    /// True if [`Self::frames`] would be a single plain acknowledgement; see [`FrameBatch::only_acknowledges`].
    #[must_use]
    pub fn only_acknowledges(&self) -> bool {
        self.switch.frames.only_acknowledges()
    }

    /// True if, since the last call, a message was queued behind a link's window, or the end of a stream was collected.
    /// Such data leaves when an acknowledgement arrives, so the driver should poll the bearers soon.
    pub fn take_backlogged(&mut self) -> bool {
        self.switch.senders.take_backlogged()
    }

    /// If congestion has changed since the last call: the congested nodes, each with its levels (see [`Stack::level`]),
    /// one bit each. Senders of other levels need not wait. A queue stays congested until half of it is free.
    pub fn take_congestion(&mut self) -> Option<&BTreeMap<NodeAddr, u8>> {
        self.switch.senders.take_congestion()
    }

    /// The level of a socket's messages in [`Self::take_congestion`]; the port decides which of two links they take.
    #[must_use]
    pub const fn level(port: u32, importance: Importance) -> u8 {
        importance as u8 | (port as u8 & 1) << 2
    }

    /// The next event for an operator.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.switch.next_event()
    }

    /// True if [`Self::poll_ready`] has a socket to report.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next socket whose readiness may have changed. A refused call that changed nothing is not reported.
    pub fn poll_ready(&mut self) -> Option<u32> {
        let port = self.ready.pop_front()?;
        self.ready_ports.remove(&port);
        Some(port)
    }

    /// Address of this node; [`NodeAddr::NONE`] before it has one.
    #[must_use]
    pub fn own_node(&self) -> NodeAddr {
        self.switch.own_node()
    }

    /// Identity of this node, configured or derived from the first bearer.
    #[must_use]
    pub fn identity(&self) -> Option<NodeId> {
        self.switch.identity()
    }

    /// True once the address is final; only then peers can link.
    #[must_use]
    pub fn address_is_final(&self) -> bool {
        self.switch.is_final()
    }

    /// The bearers.
    #[must_use]
    pub fn bearers(&self) -> Vec<BearerInfo> {
        self.switch.bearer_infos()
    }

    /// The known nodes, by address.
    #[must_use]
    pub fn nodes(&self) -> Vec<PeerInfo> {
        self.switch.peers_from(NodeAddr::NONE).collect()
    }

    /// The links, by peer and bearer.
    #[must_use]
    pub fn links(&self) -> Vec<LinkInfo> {
        self.switch.links_from((NodeAddr::NONE, 0)).collect()
    }

    /// The whole binding table.
    #[must_use]
    pub fn bindings(&self) -> Vec<Binding> {
        self.switch.table().bindings()
    }

    /// The socket that an anycast to a service address would go to now; round robin may return another one next time.
    /// Port 0 leaves the choice to the other node. Spec: tipc.md §1.4.
    pub fn lookup(&mut self, to: ServiceAddr, domain: NodeAddr) -> Option<PortId> {
        self.switch.resolve(to, domain).map(|found| PortId { port: found.port, node: found.node })
    }

    /// Moves the part of the binding table that lookups read to memory that other processes see; it must be new. From
    /// then on a binding is visible to all of them when [`Stack::bind`] returns.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing has changed.
    pub fn share_names(&mut self, memory: Box<dyn Memory>) -> Result<(), NoMemory> {
        self.switch.share_names(memory)
    }

    /// Sets the limit of user bindings of all sockets of this node; default [`crate::names::USER_BINDINGS`], at most
    /// [`crate::names::MAX_USER_BINDINGS`]. Existing bindings stay.
    pub fn set_binding_limit(&mut self, bindings: usize) {
        self.switch.set_binding_limit(bindings);
    }

    /// Changes a property of the link with this name.
    ///
    /// # Errors
    /// See [`PropertyError`].
    pub fn set_link(&mut self, now: Time, name: &str, property: LinkProperty) -> Result<(), PropertyError> {
        self.switch.set_link(now, name, property)?;
        self.process_pending(now);
        Ok(())
    }

    /// Sets the method of multicasts and name updates. Spec: tipc.md §7.6.
    ///
    /// # Errors
    /// See [`PropertyError`].
    pub fn set_multicast_policy(&mut self, policy: MulticastPolicy) -> Result<(), PropertyError> {
        self.switch.set_multicast_policy(policy)
    }

    /// Sets the window of the broadcast link, packets, 32 to 8191; default 50.
    ///
    /// # Errors
    /// See [`PropertyError`].
    pub fn set_broadcast_window(&mut self, packets: u16) -> Result<(), PropertyError> {
        self.switch.set_broadcast_window(packets)
    }

    /// Sets the number of nodes above which the overlapping-ring monitor is used, 0 to 4095; default 32. Spec: tipc.md
    /// §11.
    ///
    /// # Errors
    /// See [`PropertyError`].
    pub fn set_monitor_threshold(&mut self, nodes: usize) -> Result<(), PropertyError> {
        self.switch.set_monitor_threshold(nodes)
    }

    /// Counters of the switch.
    #[must_use]
    pub fn stats(&self) -> SwitchStats {
        self.switch.stats()
    }
}
