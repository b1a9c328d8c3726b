//! The topology server: subscriptions, and the events that wait for each connection. It does not access sockets:
//! requests and changes are passed in, events are polled. It reads the binding table only for the first events of a
//! subscription, in parts ([`super::initial`]). Spec: tipc.md §10.2.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thiserror::Error;

use super::announcements::{Announcements, Ended, Freed, Party, Subscriptions};
use super::initial::Initial;
use super::interests::{Entry, Interests, SubscriptionId};
use super::waiting::Waiting;
use super::{
    CLOSE_VISITS, FREE_VISITS, MAX_ALL_WAITING_EVENTS, MAX_CONNECTION_SUBSCRIPTIONS, MAX_CONNECTIONS,
    MAX_SUBSCRIPTIONS, MAX_WAITING_EVENTS, TIMEOUTS_PER_CALL,
};
use crate::addr::PortId;
use crate::names::NameTable;
use crate::quota::UserId;
use crate::time::Time;
use crate::wire::{ByteOrder, EVENT_LEN, EventKind, FOREVER, Filter, SUBSCRIPTION_LEN, Subscription};

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
    /// Subscriptions, with those of connections that have ended and that are not freed yet.
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

#[derive(Debug)]
pub(super) struct Connection {
    /// Whose it is. All that was left to do for it before has to be done before anything else of the connection.
    pub(super) party: Party,
    /// How many more subscriptions its user may have.
    room: u64,
    /// Older subscriptions are of an earlier connection with the same number.
    since: SubscriptionId,
    /// Its subscriptions, by their request: a cancellation repeats it.
    subscriptions: Subscriptions,
    events: VecDeque<[u8; EVENT_LEN]>,
    /// The newest subscription, while its first events are being prepared; all later events wait in it.
    pub(super) initial: Option<Box<Initial>>,
}

impl Connection {
    /// Events that wait, and other items that take as much memory.
    pub(super) fn waiting(&self) -> usize {
        self.events.len() + self.initial.as_ref().map_or(0, |initial| initial.waiting())
    }
}

/// All connections to the topology server of a node. The owner chooses the numbers of connections: the ports of the
/// sockets that serve them.
///
/// Calls that may have to visit many subscriptions have a budget of visits, which they reduce. What they leave is done
/// by [`TopologyServer::catch_up`], in the order in which it came: for each party that [`TopologyServer::poll_behind`]
/// reports, call it until the party has caught up.
#[derive(Debug, Default)]
pub struct TopologyServer {
    pub(super) connections: BTreeMap<u32, Connection>,
    pub(super) interests: Interests,
    pub(super) announcements: Announcements,
    /// Subscriptions by time of their end, with their party and service type.
    timers: BTreeMap<(Time, SubscriptionId), (Party, u32)>,
    ready: VecDeque<u32>,
    closed: VecDeque<(u32, Close)>,
    next_id: SubscriptionId,
    /// Subscriptions that began, less those that ended, of each user since [`TopologyServer::take_charges`].
    charges: BTreeMap<UserId, i64>,
    waiting: Waiting,
    stats: TopologyStats,
}

impl TopologyServer {
    /// A server without connections.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the connection of a subscriber; does nothing if it is known. The user of its party is charged for its
    /// subscriptions.
    ///
    /// # Errors
    /// [`Close::TooManyConnections`]: the caller must refuse the connection.
    pub fn connect(&mut self, connection: u32, party: Party) -> Result<(), Close> {
        if self.connections.len() >= MAX_CONNECTIONS && !self.connections.contains_key(&connection) {
            self.stats.closed_at_limit += 1;
            return Err(Close::TooManyConnections);
        }
        self.connections.entry(connection).or_insert(Connection {
            party,
            room: u64::MAX,
            since: self.next_id,
            subscriptions: Subscriptions::new(),
            events: VecDeque::new(),
            initial: None,
        });
        Ok(())
    }

    /// How many more subscriptions a connection may have from now on.
    pub fn set_room(&mut self, connection: u32, room: u64) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.room = room;
        }
    }

    /// The change in the number of subscriptions of each user since the last call.
    pub fn take_charges(&mut self) -> BTreeMap<UserId, i64> {
        core::mem::take(&mut self.charges)
    }

    fn charge(&mut self, party: Party, change: i64) {
        if let Some(user) = party.user {
            *self.charges.entry(user).or_default() += change;
        }
    }

    /// Counts a connection that was refused because its node has [`super::MAX_NODE_CONNECTIONS`].
    pub fn refused(&mut self) {
        self.stats.closed_at_limit += 1;
    }

    /// Removes a connection with its events, and frees its subscriptions as far as the budget allows. Its user is
    /// charged until they are freed.
    pub fn disconnect(&mut self, connection: u32, budget: &mut usize) {
        let Some(gone) = self.connections.remove(&connection) else { return };
        self.waiting.change(connection, gone.waiting(), 0);
        let Connection { party, subscriptions, initial, .. } = gone;
        let mut ranges = BTreeSet::new();
        if let Some(initial) = initial {
            self.interests.remove_finding(party, initial.service(), connection);
            ranges = initial.into_ranges();
        }
        let mut ended = Ended::new(subscriptions, ranges);
        while *budget > 0
            && let Some(freed) = ended.free()
        {
            self.free(party, freed, budget);
        }
        if !ended.is_empty() {
            self.announcements.add_ended(party, ended);
        }
    }

    /// Frees what a connection has left.
    pub(super) fn free(&mut self, party: Party, freed: Freed, budget: &mut usize) {
        *budget = budget.saturating_sub(FREE_VISITS);
        if let Freed::Subscription { service, id } = freed {
            self.forget(party, service, id);
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
            self.disconnect(connection, budget);
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
        // The events of one subscription are prepared at a time, behind all earlier changes.
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
        if self.interests.len() >= MAX_SUBSCRIPTIONS {
            return Err(Close::NodeFull);
        }
        let Some(owner) = self.connections.get_mut(&connection) else { return Ok(()) };
        if owner.subscriptions.len() >= MAX_CONNECTION_SUBSCRIPTIONS {
            return Err(Close::ConnectionFull);
        }
        owner.room = owner.room.checked_sub(1).ok_or(Close::UserFull)?;
        let (id, party, service) = (self.next_id, owner.party, wish.range.service);
        self.next_id += 1;
        owner.subscriptions.insert((*raw, id), service);
        self.charge(party, 1);
        let forever = wish.timeout_ms == FOREVER;
        let expires = if forever { Time::NEVER } else { now.plus_millis(u64::from(wish.timeout_ms)) };
        if !forever {
            self.timers.insert((expires, id), (party, service));
        }
        let entry = Entry { connection, raw: *raw, order, range: wish.range, filter: wish.filter, expires };
        self.interests.add(party, id, entry);
        if !wish.filter.has(Filter::NO_INITIAL_STATE)
            && let Some(owner) = self.connections.get_mut(&connection)
        {
            owner.initial = Some(Box::new(Initial::new(entry, table)));
            self.interests.add_finding(party, service, connection);
        }
        Ok(())
    }

    /// Whether earlier changes are being announced to the connection's party, or the first events of a subscription
    /// are being prepared. All later events of the connection wait for them.
    #[must_use]
    pub fn is_preparing(&self, connection: u32) -> bool {
        let owner = self.connections.get(&connection);
        owner.is_some_and(|owner| owner.initial.is_some() || self.announcements.contains(owner.party))
    }

    /// Catches up with earlier changes, and prepares more of the first events of the connection's newest subscription:
    /// at most `budget` visits, bindings and events, which is reduced by those. False if no more are left. All changes
    /// of the table must have been announced.
    pub fn prepare(&mut self, connection: u32, table: &NameTable, budget: &mut usize) -> bool {
        let party = self.connections.get(&connection).map(|owner| owner.party);
        if party.is_some_and(|party| self.catch_up(party, budget)) {
            return self.is_preparing(connection);
        }
        let Some(owner) = self.connections.get_mut(&connection) else { return false };
        let before = owner.waiting();
        let Some(initial) = &mut owner.initial else { return false };
        if !initial.has_found_all() && initial.find(table, budget) {
            self.interests.remove_finding(owner.party, initial.service(), connection);
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
        self.update_waiting(connection, before, budget);
        self.is_preparing(connection)
    }

    /// Counts what waits for a connection after a change, and closes those with too much.
    pub(super) fn update_waiting(&mut self, connection: u32, before: usize, budget: &mut usize) {
        let Some(after) = self.connections.get(&connection).map(Connection::waiting) else { return };
        self.waiting.change(connection, before, after);
        if after > MAX_WAITING_EVENTS {
            self.close(connection, Close::Overflow, budget);
        }
        if self.waiting.total() > MAX_ALL_WAITING_EVENTS {
            self.close_slowest(budget);
        }
    }

    /// Cancels the newest subscription of the connection with the same bytes, if there is one.
    fn cancel(&mut self, connection: u32, raw: &[u8; SUBSCRIPTION_LEN]) {
        let Some(owner) = self.connections.get_mut(&connection) else { return };
        let same = owner.subscriptions.range((*raw, 0)..=(*raw, SubscriptionId::MAX));
        if let Some((key, service)) = same.map(|(key, service)| (*key, *service)).next_back() {
            let party = owner.party;
            owner.subscriptions.remove(&key);
            self.forget(party, service, key.1);
        }
    }

    fn forget(&mut self, party: Party, service: u32, id: SubscriptionId) -> Option<Entry> {
        let entry = self.interests.remove(party, service, id)?;
        self.timers.remove(&(entry.expires, id));
        self.charge(party, -1);
        Some(entry)
    }

    /// The connection of a subscription; not another one with its number.
    fn owner_of(&mut self, connection: u32, id: SubscriptionId) -> Option<&mut Connection> {
        self.connections.get_mut(&connection).filter(|owner| id >= owner.since)
    }

    /// Queues an event for the connection of a subscription.
    fn queue(
        &mut self,
        (connection, id): (u32, SubscriptionId),
        event: [u8; EVENT_LEN],
        budget: &mut usize,
    ) -> Result<(), Close> {
        if self.waiting.total() >= MAX_ALL_WAITING_EVENTS {
            self.close_slowest(budget);
        }
        let Some(owner) = self.owner_of(connection, id) else { return Ok(()) };
        let before = owner.waiting();
        if before >= MAX_WAITING_EVENTS {
            return Err(Close::Overflow);
        }
        if let Some(initial) = &mut owner.initial {
            initial.add_behind(event);
        } else {
            let was_empty = owner.events.is_empty();
            owner.events.push_back(event);
            if was_empty {
                self.ready.push_back(connection);
            }
        }
        self.waiting.change(connection, before, before + 1);
        Ok(())
    }

    pub(super) fn queue_or_close(
        &mut self,
        of: (u32, SubscriptionId),
        event: [u8; EVENT_LEN],
        budget: &mut usize,
    ) {
        if let Err(reason) = self.queue(of, event, budget) {
            self.close(of.0, reason, budget);
        }
    }

    /// Too many events are waiting: closes the connection with the most waiting events.
    fn close_slowest(&mut self, budget: &mut usize) {
        if let Some(slowest) = self.waiting.slowest() {
            self.close(slowest, Close::Overflow, budget);
        }
    }

    pub(super) fn close(&mut self, connection: u32, reason: Close, budget: &mut usize) {
        *budget = budget.saturating_sub(CLOSE_VISITS);
        self.stats.closed_overflow += 1;
        self.disconnect(connection, budget);
        self.closed.push_back((connection, reason));
    }

    /// Time when [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Ends subscriptions that have timed out, with an event for each: as many as one call may. If more are due,
    /// [`Self::deadline`] stays in the past.
    pub fn handle_timeout(&mut self, now: Time) {
        let mut budget = TIMEOUTS_PER_CALL;
        for _ in 0..TIMEOUTS_PER_CALL {
            let Some(first) = self.timers.first_entry().filter(|first| first.key().0 <= now) else { return };
            let ((_, id), (party, service)) = first.remove_entry();
            if self.announcements.contains(party) {
                self.announcements.add_timeout(party, service, id);
            } else {
                self.time_out(party, service, id, &mut budget);
            }
        }
    }

    /// Ends a subscription with an event.
    pub(super) fn time_out(&mut self, party: Party, service: u32, id: SubscriptionId, budget: &mut usize) {
        let Some(entry) = self.forget(party, service, id) else { return };
        let Some(owner) = self.owner_of(entry.connection, id) else { return };
        owner.subscriptions.remove(&(entry.raw, id));
        let event = entry.event(EventKind::Timeout, entry.range, PortId::default());
        self.queue_or_close((entry.connection, id), event, budget);
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
            let waiting = owner.waiting();
            self.waiting.change(connection, waiting + 1, waiting);
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
            subscriptions: self.interests.len(),
            waiting_events: self.waiting.total(),
            ..self.stats
        }
    }
}
