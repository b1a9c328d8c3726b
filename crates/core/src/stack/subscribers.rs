//! Work for the subscribers of the topology server, in steps: reading requests, preparing the first events of new
//! subscriptions, announcing changes of bindings, sending events. The owner of a node with limited turns goes on in the
//! subscriber's turns.

use super::Stack;
use crate::quota::{Exceeded, Resource, UserId};
use crate::socket::{RecvError, RecvOptions, SendError};
use crate::time::Time;
use crate::topology::{Close, Party, SUBSCRIPTION_LEN, TopologyServer};

/// Maximum number of bytes of a request that are read: one more than a subscription, to detect a longer one.
const REQUEST_BUFFER: usize = SUBSCRIPTION_LEN + 1;

/// Requests, and bindings and events of new subscriptions, of one step. Ours: less than 0.1 ms.
pub(super) const STEP_ITEMS: usize = 256;
/// Items that a request counts as.
const REQUEST_ITEMS: usize = 8;
/// Events that one step sends. Ours: as long as that.
pub(super) const STEP_EVENTS: usize = 64;

/// Subscriptions that a step for a party visits. Ours: less than 0.1 ms, also if each one gets an event.
pub(super) const STEP_VISITS: usize = 1024;
/// Visits that an event sent at once counts as.
const EVENT_VISITS: usize = 16;

/// Work at the topology server that takes more than one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubscriberWork {
    /// For a connection, by its port there.
    Connection(u32),
    /// For all subscriptions of a user or another node.
    Party(Party),
}

impl Stack {
    /// Work for subscribers that takes more than one step, and its user: the caller goes on with
    /// [`Self::continue_subscriber`]. Only if turns are limited ([`Self::begin_turn`]).
    pub fn take_subscriber(&mut self) -> Option<(UserId, SubscriberWork)> {
        let work = self.services.unreported.pop_front()?;
        let user = match work {
            SubscriberWork::Connection(port) => self.services.connections.get(&port).and_then(|s| s.user),
            SubscriberWork::Party(party) => party.user,
        };
        Some((user.unwrap_or(UserId::NETWORK), work))
    }

    /// Does one step of work for subscribers; false if there is nothing left to do.
    pub fn continue_subscriber(&mut self, now: Time, work: SubscriberWork) -> bool {
        // The server must know all changes of the binding table.
        self.process_pending(now);
        if !self.services.unfinished.contains(&work) {
            return false;
        }
        let has_more = match work {
            SubscriberWork::Connection(port) => self.step_subscriber(now, port),
            SubscriberWork::Party(party) => {
                let has_more = self.services.topology.catch_up(party, &mut STEP_VISITS.clone());
                self.settle_subscriptions();
                has_more
            }
        };
        if !has_more {
            self.services.unfinished.remove(&work);
        }
        self.process_pending(now);
        has_more
    }

    /// Leaves work for further steps.
    fn defer(&mut self, work: SubscriberWork) {
        if self.services.unfinished.insert(work) {
            self.services.unreported.push_back(work);
        }
    }

    /// Does the first step for a connection, or all if turns are not limited.
    pub(super) fn serve_subscriber(&mut self, now: Time, port: u32) {
        let work = SubscriberWork::Connection(port);
        if self.services.unfinished.contains(&work) {
            return;
        }
        while self.step_subscriber(now, port) {
            if self.switch.work.is_limited() {
                return self.defer(work);
            }
        }
    }

    /// A party has to catch up with changes: does so at once if turns are not limited.
    pub(super) fn serve_party(&mut self, party: Party) {
        if self.switch.work.is_limited() {
            return self.defer(SubscriberWork::Party(party));
        }
        while self.services.topology.catch_up(party, &mut usize::MAX.clone()) {}
        self.settle_subscriptions();
    }

    /// Runs a call of the server that may visit many subscriptions: at once as many as the turn allows.
    pub(super) fn with_visits(&mut self, call: impl FnOnce(&mut TopologyServer, &mut usize)) {
        let visits = self.switch.work.visits();
        let mut left = visits;
        call(&mut self.services.topology, &mut left);
        self.switch.work.charge_visits(visits - left);
        self.settle_subscriptions();
    }

    /// Sends events to a connection that had none. There may be more of them than one step sends, or the turn may have
    /// sent enough.
    pub(super) fn send_first_events(&mut self, now: Time, port: u32) {
        let work = SubscriberWork::Connection(port);
        if self.services.unfinished.contains(&work) {
            return;
        }
        if self.switch.work.visits() == 0 {
            return self.defer(work);
        }
        let sent = self.send_events(now, port);
        self.switch.work.charge_visits(sent * EVENT_VISITS);
        self.services.touched.remove(&port);
        if sent == STEP_EVENTS {
            self.serve_subscriber(now, port);
        }
    }

    /// Reads requests, prepares events and sends some; true if it has stopped because that is enough for one step.
    fn step_subscriber(&mut self, now: Time, port: u32) -> bool {
        let mut budget = STEP_ITEMS;
        self.services.topology.prepare(port, self.switch.table(), &mut budget);
        while budget > 0 && !self.services.topology.is_preparing(port) {
            if !self.read_request(now, port, &mut budget) {
                break;
            }
        }
        self.settle_subscriptions();
        let is_preparing = self.services.topology.is_preparing(port);
        if is_preparing && self.has_hung_up(port) {
            self.drop_subscriber(now, port);
            return false;
        }
        let sent = self.send_events(now, port);
        self.services.touched.remove(&port);
        // A turn that reads requests of other nodes does less of its other work.
        self.switch.work.charge_copies(STEP_ITEMS - budget);
        let is_open = self.services.connections.contains_key(&port);
        is_open && (is_preparing || budget == 0 || sent == STEP_EVENTS)
    }

    /// Reads and handles one request; false if there is none, or the connection ends.
    fn read_request(&mut self, now: Time, port: u32, budget: &mut usize) -> bool {
        let mut buffer = [0; REQUEST_BUFFER];
        let received = self.with_endpoint(now, port, |endpoint, uplink| {
            endpoint.recv(now, &mut buffer, RecvOptions::default(), uplink)
        });
        let request = match received {
            Some(Ok(got)) if got.len > 0 => buffer.get(..got.len).unwrap_or_default(),
            Some(Err(RecvError::WouldBlock)) => return false,
            _ => {
                self.drop_subscriber(now, port);
                return false;
            }
        };
        let full = self.limit_subscriptions(port);
        let result = self.services.topology.request(now, port, request, self.switch.table(), budget);
        *budget = budget.saturating_sub(REQUEST_ITEMS);
        self.settle_subscriptions();
        let Err(reason) = result else { return true };
        if let Some(quota) = full.filter(|_| reason == Close::UserFull) {
            self.explain(port, quota);
        }
        self.drop_subscriber(now, port);
        false
    }

    /// Whether the connection of a subscriber has ended.
    fn has_hung_up(&self, port: u32) -> bool {
        self.endpoint(port).is_none_or(|endpoint| endpoint.readiness().hung_up)
    }

    /// Tells the server how many subscriptions the user of a connection may still have; if none, returns the quota.
    fn limit_subscriptions(&mut self, port: u32) -> Option<Exceeded> {
        let user = self.services.connections.get(&port).and_then(|subscriber| subscriber.user)?;
        let room = self.ledger.room(user, Resource::Subscriptions);
        self.services.topology.set_room(port, room);
        self.ledger.exceeded(user, Resource::Subscriptions, 1)
    }

    /// Notes the quota for which the server has closed a connection.
    fn explain(&mut self, port: u32, quota: Exceeded) {
        self.ledger.refuse(quota.user, quota.resource, 1);
        if let Some(subscriber) = self.services.connections.get(&port)
            && quota.user != UserId::NETWORK
        {
            self.note_refused(subscriber.peer.port, quota);
        }
    }

    /// Sends the events of one step; returns their number.
    fn send_events(&mut self, now: Time, port: u32) -> usize {
        for sent in 0..STEP_EVENTS {
            let Some(event) = self.services.topology.next_event(port).copied() else { return sent };
            let result =
                self.with_endpoint(now, port, |endpoint, uplink| endpoint.send(now, &event, None, uplink));
            match result {
                Some(Ok(_)) => self.services.topology.event_sent(port),
                Some(Err(SendError::WouldBlock)) => return sent,
                _ => {
                    self.drop_subscriber(now, port);
                    return sent;
                }
            }
        }
        STEP_EVENTS
    }
}
