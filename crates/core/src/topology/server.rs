//! The topology server: subscriptions, and the events that wait for each connection. It does not access sockets:
//! requests and changes are passed in, events are polled. It reads the binding table only for the first events of a
//! subscription, in parts ([`super::initial`]). Spec: tipc.md §10.2.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thiserror::Error;

use super::initial::Initial;
use super::{
    MAX_ALL_WAITING_EVENTS, MAX_CONNECTION_SUBSCRIPTIONS, MAX_CONNECTIONS, MAX_SUBSCRIPTIONS,
    MAX_WAITING_EVENTS, TIMEOUTS_PER_CALL,
};
use crate::addr::{Binding, PortId, Scope, ServiceRange};
use crate::names::{Change, NameTable};
use crate::planted::{self, Fault};
use crate::quota::UserId;
use crate::time::Time;
use crate::wire::{
    ByteOrder, EVENT_LEN, EventKind, FOREVER, Filter, SUBSCRIPTION_LEN, Subscription, encode_event,
};

/// Reason why the server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[non_exhaustive]
pub enum Close {
    /// A request is shorter than a subscription.
    #[error("request of {0} bytes (a subscription has 28)")]
    Size(usize),
    /// PORTS and SERVICE are combined, or the upper end is below the lower one.
    #[error("inconsistent subscription (PORTS and SERVICE together, or upper below lower)")]
    Contradiction,
    /// The node has reached its limit of subscriptions.
    #[error("the node has {MAX_SUBSCRIPTIONS} subscriptions, the limit (cancel some)")]
    NodeFull,
    /// The connection has reached its limit of subscriptions.
    #[error("the connection has {MAX_CONNECTION_SUBSCRIPTIONS} subscriptions, the limit (cancel some)")]
    ConnectionFull,
    /// The user of the connection has reached its quota of subscriptions.
    #[error("its user has no subscriptions left (cancel some, or raise the quota)")]
    UserFull,
    /// The limit of connections is reached.
    #[error("the server has {MAX_CONNECTIONS} connections, the limit (close some)")]
    TooManyConnections,
    /// The subscriber does not read its events.
    #[error("too many unread events (read them faster)")]
    Overflow,
}

/// Counters of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopologyStats {
    /// Open connections.
    pub connections: usize,
    /// Open subscriptions.
    pub subscriptions: usize,
    /// Events waiting to be read.
    pub waiting_events: usize,
    /// Connections closed because of an invalid request.
    pub closed_bad_request: u64,
    /// Connections refused or closed because of a limit.
    pub closed_at_limit: u64,
    /// Connections closed because events were not read.
    pub closed_overflow: u64,
}

/// Ascending: a higher id is newer.
type SubscriptionId = u64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    connection: u32,
    raw: [u8; SUBSCRIPTION_LEN],
    order: ByteOrder,
    pub(super) range: ServiceRange,
    pub(super) filter: Filter,
    expires: Time,
}

impl Entry {
    /// An event for this subscription.
    pub(super) fn event(&self, kind: EventKind, found: ServiceRange, port: PortId) -> [u8; EVENT_LEN] {
        encode_event(kind, found, port, &self.raw, self.order)
    }

    pub(super) fn wants(&self, binding: &Binding, edge: bool) -> bool {
        let scope_fits = match binding.scope {
            Scope::Node => !self.filter.has(Filter::CLUSTER_SCOPE),
            Scope::Cluster => !self.filter.has(Filter::NODE_SCOPE),
        };
        scope_fits && (edge || self.filter.has(Filter::PORTS)) && self.range.overlaps(&binding.range)
    }
}

#[derive(Debug, Default)]
struct Connection {
    /// The user that its subscriptions are charged to, and how many more it may have.
    user: Option<(UserId, u64)>,
    /// Its subscriptions, by their request: a cancellation repeats it.
    subscriptions: BTreeSet<([u8; SUBSCRIPTION_LEN], SubscriptionId)>,
    events: VecDeque<[u8; EVENT_LEN]>,
    /// The newest subscription, while its first events are being prepared; all later events wait in it.
    initial: Option<Box<Initial>>,
}

impl Connection {
    /// Events that wait, and other items that take as much memory.
    fn waiting(&self) -> usize {
        self.events.len() + self.initial.as_ref().map_or(0, |initial| initial.waiting())
    }
}

/// All connections to the topology server of a node. The owner chooses the numbers of connections: the ports of the
/// sockets that serve them.
#[derive(Debug, Default)]
pub struct TopologyServer {
    connections: BTreeMap<u32, Connection>,
    subscriptions: BTreeMap<SubscriptionId, Entry>,
    services: BTreeMap<u32, BTreeSet<SubscriptionId>>,
    /// Connections whose newest subscription has not found all of its first bindings, by service type.
    finding: BTreeSet<(u32, u32)>,
    timers: BTreeSet<(Time, SubscriptionId)>,
    ready: VecDeque<u32>,
    closed: VecDeque<(u32, Close)>,
    next_id: SubscriptionId,
    /// Subscriptions that began, less those that ended, of each user since [`TopologyServer::take_charges`].
    charges: BTreeMap<UserId, i64>,
    stats: TopologyStats,
}

impl TopologyServer {
    /// A server without connections.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the connection of a subscriber; does nothing if it is known.
    ///
    /// # Errors
    /// [`Close::TooManyConnections`]: the caller must refuse the connection.
    pub fn connect(&mut self, connection: u32) -> Result<(), Close> {
        if self.connections.len() >= MAX_CONNECTIONS && !self.connections.contains_key(&connection) {
            self.stats.closed_at_limit += 1;
            return Err(Close::TooManyConnections);
        }
        self.connections.entry(connection).or_default();
        Ok(())
    }

    /// Charges a user for the subscriptions of a connection, of which it may have `room` more from now on. A connection
    /// keeps its first user.
    pub fn set_user(&mut self, connection: u32, user: UserId, room: u64) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            let user = connection.user.map_or(user, |(first, _)| first);
            connection.user = Some((user, room));
        }
    }

    /// The change in the number of subscriptions of each user since the last call.
    pub fn take_charges(&mut self) -> BTreeMap<UserId, i64> {
        core::mem::take(&mut self.charges)
    }

    fn charge(&mut self, connection: u32, change: i64) {
        if let Some((user, _)) = self.connections.get(&connection).and_then(|owner| owner.user) {
            *self.charges.entry(user).or_default() += change;
        }
    }

    /// Counts a connection that was refused because its node has [`super::MAX_NODE_CONNECTIONS`].
    pub fn refused(&mut self) {
        self.stats.closed_at_limit += 1;
    }

    /// Removes a connection with its subscriptions and events.
    pub fn disconnect(&mut self, connection: u32) {
        let Some(gone) = self.connections.remove(&connection) else { return };
        self.stats.waiting_events -= gone.waiting();
        if let Some(initial) = &gone.initial {
            self.finding.remove(&(initial.service(), connection));
        }
        if let Some((user, _)) = gone.user {
            *self.charges.entry(user).or_default() -= gone.subscriptions.len() as i64;
        }
        for (_, id) in gone.subscriptions {
            self.forget(id);
        }
    }

    /// Handles one message of a subscriber. If it is a new subscription, prepares its first events, for which it visits
    /// at most `budget` bindings: while [`Self::is_preparing`], call [`Self::prepare`] instead of this.
    ///
    /// # Errors
    /// [`Close`]: the caller must close the connection; the server has removed it.
    pub fn request(
        &mut self,
        now: Time,
        connection: u32,
        bytes: &[u8],
        table: &NameTable,
        budget: &mut usize,
    ) -> Result<(), Close> {
        let result = self.try_request(now, connection, bytes, table);
        if let Err(reason) = result {
            match reason {
                Close::Size(_) | Close::Contradiction => self.stats.closed_bad_request += 1,
                Close::Overflow => self.stats.closed_overflow += 1,
                _ => self.stats.closed_at_limit += 1,
            }
            self.disconnect(connection);
        }
        self.prepare(connection, table, budget);
        result
    }

    fn try_request(
        &mut self,
        now: Time,
        connection: u32,
        bytes: &[u8],
        table: &NameTable,
    ) -> Result<(), Close> {
        // The events of one subscription are prepared at a time.
        while self.prepare(connection, table, &mut usize::MAX.clone()) {}
        // Longer requests are truncated, as in Linux.
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
        if let Some((_, room)) = &mut owner.user {
            *room = room.checked_sub(1).ok_or(Close::UserFull)?;
        }
        let id = self.next_id;
        self.next_id += 1;
        owner.subscriptions.insert((*raw, id));
        self.charge(connection, 1);
        let forever = wish.timeout_ms == FOREVER;
        let expires = if forever { Time::NEVER } else { now.plus_millis(u64::from(wish.timeout_ms)) };
        if !forever {
            self.timers.insert((expires, id));
        }
        self.services.entry(wish.range.service).or_default().insert(id);
        let entry = Entry { connection, raw: *raw, order, range: wish.range, filter: wish.filter, expires };
        self.subscriptions.insert(id, entry);
        if !wish.filter.has(Filter::NO_INITIAL_STATE)
            && let Some(owner) = self.connections.get_mut(&connection)
        {
            owner.initial = Some(Box::new(Initial::new(entry, table)));
            self.finding.insert((wish.range.service, connection));
        }
        Ok(())
    }

    /// Whether the first events of a subscription are being prepared. All later events of the connection wait for them.
    #[must_use]
    pub fn is_preparing(&self, connection: u32) -> bool {
        self.connections.get(&connection).is_some_and(|owner| owner.initial.is_some())
    }

    /// Prepares more of the first events of the connection's newest subscription: at most `budget` bindings and events,
    /// which is reduced by those. False if no more are left. All changes of the table must have been announced.
    pub fn prepare(&mut self, connection: u32, table: &NameTable, budget: &mut usize) -> bool {
        let Some(owner) = self.connections.get_mut(&connection) else { return false };
        let before = owner.waiting();
        let Some(initial) = &mut owner.initial else { return false };
        if !initial.has_found_all() && initial.find(table, budget) {
            self.finding.remove(&(initial.service(), connection));
        }
        while *budget > 0 && initial.has_found_all() {
            let Some(event) = initial.next_event() else {
                owner.initial = None;
                break;
            };
            *budget -= 1;
            if owner.events.is_empty() {
                self.ready.push_back(connection);
            }
            owner.events.push_back(event);
        }
        self.update_waiting(connection, before);
        self.is_preparing(connection)
    }

    /// Counts what waits for a connection after a change, and closes those with too much.
    fn update_waiting(&mut self, connection: u32, before: usize) {
        let after = self.connections.get(&connection).map_or(0, Connection::waiting);
        self.stats.waiting_events = self.stats.waiting_events + after - before;
        if after > MAX_WAITING_EVENTS {
            self.close(connection, Close::Overflow);
        }
        if self.stats.waiting_events > MAX_ALL_WAITING_EVENTS {
            self.close_slowest();
        }
    }

    /// Cancels the newest subscription of the connection with the same bytes, if there is one.
    fn cancel(&mut self, connection: u32, raw: &[u8; SUBSCRIPTION_LEN]) {
        let Some(owner) = self.connections.get_mut(&connection) else { return };
        let same = owner.subscriptions.range((*raw, 0)..=(*raw, SubscriptionId::MAX));
        if let Some((raw, id)) = same.copied().next_back() {
            owner.subscriptions.remove(&(raw, id));
            self.charge(connection, -1);
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

    /// Queues an event for a connection.
    fn queue(&mut self, connection: u32, event: [u8; EVENT_LEN]) -> Result<(), Close> {
        if self.stats.waiting_events >= MAX_ALL_WAITING_EVENTS {
            self.close_slowest();
        }
        let Some(owner) = self.connections.get_mut(&connection) else { return Ok(()) };
        if owner.waiting() >= MAX_WAITING_EVENTS {
            return Err(Close::Overflow);
        }
        self.stats.waiting_events += 1;
        if let Some(initial) = &mut owner.initial {
            initial.add_behind(event);
            return Ok(());
        }
        if owner.events.is_empty() {
            self.ready.push_back(connection);
        }
        owner.events.push_back(event);
        Ok(())
    }

    /// Too many events are waiting: closes the connection with the most waiting events.
    fn close_slowest(&mut self) {
        let slowest = self.connections.iter().max_by_key(|(_, c)| c.waiting()).map(|(port, _)| *port);
        if let Some(slowest) = slowest {
            self.close(slowest, Close::Overflow);
        }
    }

    fn close(&mut self, connection: u32, reason: Close) {
        self.stats.closed_overflow += 1;
        self.disconnect(connection);
        self.closed.push_back((connection, reason));
    }

    /// Reports a binding that was published or withdrawn. Within a connection, the newest subscription comes first.
    pub fn announce(&mut self, change: &Change) {
        let Change { binding, up, edge, .. } = *change;
        if !up {
            self.keep_withdrawn(change);
        }
        let Some(same_type) = self.services.get(&binding.range.service) else { return };
        let kind = if up { EventKind::Published } else { EventKind::Withdrawn };
        let matching = same_type.iter().rev().filter_map(|id| self.subscriptions.get(id));
        let silent = planted::active(Fault::SilentWithdrawal) && !up && !edge;
        let matching = matching.filter(|e| !silent && e.wants(&binding, edge));
        let events: Vec<_> =
            matching.map(|e| (e.connection, e.event(kind, binding.range, binding.port))).collect();
        for (connection, event) in events {
            self.queue_or_close(connection, event);
        }
    }

    /// Keeps a withdrawn binding for the subscriptions that have it in their first events and may not have found it.
    fn keep_withdrawn(&mut self, change: &Change) {
        let service = change.binding.range.service;
        let finding = self.finding.range((service, 0)..=(service, u32::MAX));
        for (_, connection) in finding.copied().collect::<Vec<_>>() {
            let Some(owner) = self.connections.get_mut(&connection) else { continue };
            let before = owner.waiting();
            if let Some(initial) = &mut owner.initial {
                initial.keep_withdrawn(change);
            }
            self.update_waiting(connection, before);
        }
    }

    fn queue_or_close(&mut self, connection: u32, event: [u8; EVENT_LEN]) {
        if let Err(reason) = self.queue(connection, event) {
            self.close(connection, reason);
        }
    }

    /// Time when [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Ends subscriptions that have timed out, with an event for each: as many as one call may. If more are due,
    /// [`Self::deadline`] stays in the past.
    pub fn handle_timeout(&mut self, now: Time) {
        for _ in 0..TIMEOUTS_PER_CALL {
            let Some((_, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) else { return };
            let Some(entry) = self.subscriptions.get(&id) else { return };
            let (connection, raw) = (entry.connection, entry.raw);
            let event = entry.event(EventKind::Timeout, entry.range, PortId::default());
            if let Some(owner) = self.connections.get_mut(&connection) {
                owner.subscriptions.remove(&(raw, id));
            }
            self.charge(connection, -1);
            self.forget(id);
            self.queue_or_close(connection, event);
        }
    }

    /// A connection whose event queue is no longer empty; reported once until the queue has been empty again.
    pub fn poll_ready(&mut self) -> Option<u32> {
        while let Some(connection) = self.ready.pop_front() {
            if self.next_event(connection).is_some() {
                return Some(connection);
            }
        }
        None
    }

    /// A connection that the server has closed, and the reason: the caller must shut its socket down.
    pub fn poll_closed(&mut self) -> Option<(u32, Close)> {
        self.closed.pop_front()
    }

    /// The oldest event of a connection.
    #[must_use]
    pub fn next_event(&self, connection: u32) -> Option<&[u8; EVENT_LEN]> {
        self.connections.get(&connection)?.events.front()
    }

    /// Removes the oldest event, which was passed to the socket.
    pub fn event_sent(&mut self, connection: u32) {
        if let Some(owner) = self.connections.get_mut(&connection)
            && owner.events.pop_front().is_some()
        {
            self.stats.waiting_events -= 1;
            if owner.events.is_empty() && owner.events.capacity() > 1024 {
                owner.events.shrink_to(16); // do not keep the memory of a burst for an idle subscriber
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
