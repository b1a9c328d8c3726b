//! The server's side. It sees neither sockets nor the binding table: requests and changes are handed to it, events
//! are fetched from it. Spec: tipc.md §10.2.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thiserror::Error;

use super::{
    MAX_ALL_WAITING_EVENTS, MAX_CONNECTION_SUBSCRIPTIONS, MAX_CONNECTIONS, MAX_SUBSCRIPTIONS,
    MAX_WAITING_EVENTS,
};
use crate::addr::{Binding, PortId, Scope, ServiceRange};
use crate::planted::{self, Fault};
use crate::time::Time;
use crate::wire::{
    ByteOrder, EVENT_LEN, EventKind, FOREVER, Filter, SUBSCRIPTION_LEN, Subscription, encode_event,
};

/// Why the server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[non_exhaustive]
pub enum Close {
    /// A request that is shorter than a subscription.
    #[error("a request of {0} bytes instead of 28")]
    Size(usize),
    /// PORTS and SERVICE together, or the upper end below the lower one.
    #[error("a subscription that contradicts itself")]
    Contradiction,
    /// The node has as many subscriptions as it may have.
    #[error("{MAX_SUBSCRIPTIONS} subscriptions on this node are the limit")]
    NodeFull,
    /// The connection has as many subscriptions as it may have.
    #[error("{MAX_CONNECTION_SUBSCRIPTIONS} subscriptions on one connection are the limit")]
    ConnectionFull,
    /// There are as many connections as there may be.
    #[error("{MAX_CONNECTIONS} connections are the limit")]
    TooManyConnections,
    /// The subscriber does not fetch its events.
    #[error("the subscriber leaves too many events unread")]
    Overflow,
}

/// Counters of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopologyStats {
    /// Connections now.
    pub connections: usize,
    /// Subscriptions now.
    pub subscriptions: usize,
    /// Events now waiting to be fetched.
    pub waiting_events: usize,
    /// Connections ended because of a bad request.
    pub closed_bad_request: u64,
    /// Connections refused or ended at a limit.
    pub closed_at_limit: u64,
    /// Connections ended because events stayed unread.
    pub closed_overflow: u64,
}

/// Counts up: a higher one is newer.
type SubscriptionId = u64;

#[derive(Debug)]
struct Entry {
    connection: u32,
    raw: [u8; SUBSCRIPTION_LEN],
    order: ByteOrder,
    range: ServiceRange,
    filter: Filter,
    expires: Time,
}

impl Entry {
    fn wants(&self, binding: &Binding, edge: bool) -> bool {
        let scope_fits = match binding.scope {
            Scope::Node => !self.filter.has(Filter::CLUSTER_SCOPE),
            Scope::Cluster => !self.filter.has(Filter::NODE_SCOPE),
        };
        scope_fits && (edge || self.filter.has(Filter::PORTS)) && self.range.overlaps(&binding.range)
    }
}

#[derive(Debug, Default)]
struct Connection {
    subscriptions: BTreeSet<SubscriptionId>,
    events: VecDeque<[u8; EVENT_LEN]>,
}

/// All connections to the topology server of a node. A connection is named by a number that the owner chose: the
/// port of the socket that serves it.
#[derive(Debug, Default)]
pub struct TopologyServer {
    connections: BTreeMap<u32, Connection>,
    subscriptions: BTreeMap<SubscriptionId, Entry>,
    services: BTreeMap<u32, BTreeSet<SubscriptionId>>,
    timers: BTreeSet<(Time, SubscriptionId)>,
    ready: VecDeque<u32>,
    closed: VecDeque<(u32, Close)>,
    next_id: SubscriptionId,
    stats: TopologyStats,
}

impl TopologyServer {
    /// A server without connections.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A subscriber has connected. Nothing happens if the connection is known.
    ///
    /// # Errors
    /// [`Close::TooManyConnections`]: the caller refuses it.
    pub fn connect(&mut self, connection: u32) -> Result<(), Close> {
        if self.connections.len() >= MAX_CONNECTIONS && !self.connections.contains_key(&connection) {
            self.stats.closed_at_limit += 1;
            return Err(Close::TooManyConnections);
        }
        self.connections.entry(connection).or_default();
        Ok(())
    }

    /// A connection was not let in: its node has [`super::MAX_NODE_CONNECTIONS`].
    pub fn refused(&mut self) {
        self.stats.closed_at_limit += 1;
    }

    /// The connection has ended: its subscriptions and events are dropped.
    pub fn disconnect(&mut self, connection: u32) {
        let Some(gone) = self.connections.remove(&connection) else { return };
        self.stats.waiting_events -= gone.events.len();
        for id in gone.subscriptions {
            self.forget(id);
        }
    }

    /// Handles one message of a subscriber. `snapshot` gives the bindings that a new subscription is told first: all
    /// that overlap the range (`true`), or the oldest of each distinct range (`false`), oldest first.
    ///
    /// # Errors
    /// [`Close`]: the caller ends the connection; the server has forgotten it.
    pub fn request(
        &mut self,
        now: Time,
        connection: u32,
        bytes: &[u8],
        snapshot: impl FnOnce(ServiceRange, bool) -> Vec<Binding>,
    ) -> Result<(), Close> {
        let result = self.try_request(now, connection, bytes, snapshot);
        if let Err(why) = result {
            match why {
                Close::Size(_) | Close::Contradiction => self.stats.closed_bad_request += 1,
                Close::Overflow => self.stats.closed_overflow += 1,
                _ => self.stats.closed_at_limit += 1,
            }
            self.disconnect(connection);
        }
        result
    }

    fn try_request(
        &mut self,
        now: Time,
        connection: u32,
        bytes: &[u8],
        snapshot: impl FnOnce(ServiceRange, bool) -> Vec<Binding>,
    ) -> Result<(), Close> {
        // What is longer is cut, as Linux does.
        let raw: &[u8; SUBSCRIPTION_LEN] = bytes.first_chunk().ok_or(Close::Size(bytes.len()))?;
        let native = Subscription::from_bytes(raw, ByteOrder::NATIVE);
        let foreign = !native.filter.has(Filter::ORDER_MARK);
        let order = if foreign { ByteOrder::NATIVE.swapped() } else { ByteOrder::NATIVE };
        let wish = if foreign { Subscription::from_bytes(raw, order) } else { native };
        if wish.filter.has(Filter::CANCEL) {
            let original = Subscription { filter: wish.filter.without(Filter::CANCEL), ..wish };
            self.cancel(connection, &original.to_bytes(order));
            return Ok(());
        }
        let both = wish.filter.has(Filter::PORTS) && wish.filter.has(Filter::SERVICE);
        if both || !wish.range.is_valid() {
            return Err(Close::Contradiction);
        }
        if self.subscriptions.len() >= MAX_SUBSCRIPTIONS {
            return Err(Close::NodeFull);
        }
        let Some(owner) = self.connections.get_mut(&connection) else { return Ok(()) };
        if owner.subscriptions.len() >= MAX_CONNECTION_SUBSCRIPTIONS {
            return Err(Close::ConnectionFull);
        }
        let id = self.next_id;
        self.next_id += 1;
        owner.subscriptions.insert(id);
        let forever = wish.timeout_ms == FOREVER;
        let expires = if forever { Time::NEVER } else { now.plus_millis(u64::from(wish.timeout_ms)) };
        if !forever {
            self.timers.insert((expires, id));
        }
        self.services.entry(wish.range.service).or_default().insert(id);
        let entry = Entry { connection, raw: *raw, order, range: wish.range, filter: wish.filter, expires };
        let events = if wish.filter.has(Filter::NO_INITIAL_STATE) {
            Vec::new()
        } else {
            let found = snapshot(wish.range, wish.filter.has(Filter::PORTS));
            let wanted = found.iter().filter(|b| entry.wants(b, true));
            wanted.map(|b| encode_event(EventKind::Published, b.range, b.port, raw, order)).collect()
        };
        self.subscriptions.insert(id, entry);
        for event in events {
            self.queue(connection, event)?;
        }
        Ok(())
    }

    /// Ends the newest subscription of the connection with these bytes, if there is one.
    fn cancel(&mut self, connection: u32, raw: &[u8; SUBSCRIPTION_LEN]) {
        let Some(owner) = self.connections.get_mut(&connection) else { return };
        let is_it = |id: &&SubscriptionId| self.subscriptions.get(*id).is_some_and(|e| e.raw == *raw);
        if let Some(id) = owner.subscriptions.iter().rev().find(is_it).copied() {
            owner.subscriptions.remove(&id);
            self.forget(id);
        }
    }

    fn forget(&mut self, id: SubscriptionId) {
        let Some(entry) = self.subscriptions.remove(&id) else { return };
        self.timers.remove(&(entry.expires, id));
        if let Some(same_type) = self.services.get_mut(&entry.range.service) {
            same_type.remove(&id);
            if same_type.is_empty() {
                self.services.remove(&entry.range.service);
            }
        }
    }

    /// Adds an event for a connection.
    fn queue(&mut self, connection: u32, event: [u8; EVENT_LEN]) -> Result<(), Close> {
        if self.stats.waiting_events >= MAX_ALL_WAITING_EVENTS {
            self.close_slowest();
        }
        let Some(owner) = self.connections.get_mut(&connection) else { return Ok(()) };
        if owner.events.len() >= MAX_WAITING_EVENTS {
            return Err(Close::Overflow);
        }
        if owner.events.is_empty() {
            self.ready.push_back(connection);
        }
        owner.events.push_back(event);
        self.stats.waiting_events += 1;
        Ok(())
    }

    /// All events together are too many: ends the connection to which most are owed, whoever asks for room.
    fn close_slowest(&mut self) {
        let slowest = self.connections.iter().max_by_key(|(_, c)| c.events.len()).map(|(port, _)| *port);
        if let Some(slowest) = slowest {
            self.close(slowest, Close::Overflow);
        }
    }

    fn close(&mut self, connection: u32, why: Close) {
        self.stats.closed_overflow += 1;
        self.disconnect(connection);
        self.closed.push_back((connection, why));
    }

    /// A binding came (`up`) or went. `edge`: it is the first of exactly its range, or was the last. Subscriptions of
    /// one connection are told newest first.
    pub fn announce(&mut self, binding: &Binding, up: bool, edge: bool) {
        let Some(same_type) = self.services.get(&binding.range.service) else { return };
        let kind = if up { EventKind::Published } else { EventKind::Withdrawn };
        let told = same_type.iter().rev().filter_map(|id| self.subscriptions.get(id));
        let silent = planted::active(Fault::SilentWithdrawal) && !up && !edge;
        let told = told.filter(|e| !silent && e.wants(binding, edge));
        let events: Vec<_> = told
            .map(|e| (e.connection, encode_event(kind, binding.range, binding.port, &e.raw, e.order)))
            .collect();
        for (connection, event) in events {
            self.queue_or_close(connection, event);
        }
    }

    fn queue_or_close(&mut self, connection: u32, event: [u8; EVENT_LEN]) {
        if let Err(why) = self.queue(connection, event) {
            self.close(connection, why);
        }
    }

    /// When [`Self::handle_timeout`] must be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Ends the subscriptions whose time has come, with an event each.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((at, id)) = self.timers.first().copied()
            && at <= now
        {
            let Some(entry) = self.subscriptions.get(&id) else { return };
            let connection = entry.connection;
            let event =
                encode_event(EventKind::Timeout, entry.range, PortId::default(), &entry.raw, entry.order);
            if let Some(owner) = self.connections.get_mut(&connection) {
                owner.subscriptions.remove(&id);
            }
            self.forget(id);
            self.queue_or_close(connection, event);
        }
    }

    /// A connection whose event queue is no longer empty; each is named once until its queue was empty again.
    pub fn poll_ready(&mut self) -> Option<u32> {
        while let Some(connection) = self.ready.pop_front() {
            if self.next_event(connection).is_some() {
                return Some(connection);
            }
        }
        None
    }

    /// A connection that the server has ended by itself, and why: the caller shuts its socket down.
    pub fn poll_closed(&mut self) -> Option<(u32, Close)> {
        self.closed.pop_front()
    }

    /// The oldest event for a connection.
    #[must_use]
    pub fn next_event(&self, connection: u32) -> Option<&[u8; EVENT_LEN]> {
        self.connections.get(&connection)?.events.front()
    }

    /// The oldest event was handed to the socket.
    pub fn event_sent(&mut self, connection: u32) {
        if let Some(owner) = self.connections.get_mut(&connection)
            && owner.events.pop_front().is_some()
        {
            self.stats.waiting_events -= 1;
            if owner.events.is_empty() && owner.events.capacity() > 1024 {
                owner.events.shrink_to(16); // a burst must not stay as memory of an idle subscriber
            }
        }
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> TopologyStats {
        TopologyStats {
            connections: self.connections.len(),
            subscriptions: self.subscriptions.len(),
            ..self.stats
        }
    }
}
