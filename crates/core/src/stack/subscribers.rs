//! Work for the subscribers of the topology server, in steps: reading requests, preparing the first events of new
//! subscriptions, sending events. The owner of a node with limited turns goes on in the subscriber's turns.

use super::Stack;
use crate::quota::{Exceeded, Resource, UserId};
use crate::socket::{RecvError, RecvOptions, SendError};
use crate::time::Time;
use crate::topology::{Close, SUBSCRIPTION_LEN};

/// Most bytes of a request that are read: one more than a subscription, to detect a longer one.
const REQUEST_BUFFER: usize = SUBSCRIPTION_LEN + 1;

/// Requests, and bindings and events of new subscriptions, of one step. Ours: less than 0.1 ms.
pub(super) const STEP_ITEMS: usize = 256;
/// Items that a request counts as.
const REQUEST_ITEMS: usize = 8;
/// Events that one step sends. Ours: as long as that.
pub(super) const STEP_EVENTS: usize = 64;

impl Stack {
    /// A connection to the topology server whose work takes more than one step, and its user: the caller goes on with
    /// [`Self::continue_subscriber`]. Only if turns are limited ([`Self::begin_turn`]).
    pub fn take_subscriber(&mut self) -> Option<(UserId, u32)> {
        let port = self.services.unreported.pop_front()?;
        let user = self.services.connections.get(&port).and_then(|subscriber| subscriber.user);
        Some((user.unwrap_or(UserId::NETWORK), port))
    }

    /// Does one step for a connection to the topology server; false if there is nothing left to do.
    pub fn continue_subscriber(&mut self, now: Time, port: u32) -> bool {
        // The server must know all changes of the binding table.
        self.process_pending(now);
        if !self.services.unfinished.contains(&port) {
            return false;
        }
        let has_more = self.step_subscriber(now, port);
        if !has_more {
            self.services.unfinished.remove(&port);
        }
        self.process_pending(now);
        has_more
    }

    /// Does the first step for a connection, or all if turns are not limited.
    pub(super) fn serve_subscriber(&mut self, now: Time, port: u32) {
        if self.services.unfinished.contains(&port) {
            return;
        }
        while self.step_subscriber(now, port) {
            if self.switch.work.is_limited() {
                self.services.unfinished.insert(port);
                self.services.unreported.push_back(port);
                return;
            }
        }
    }

    /// Sends events to a connection that had none. There may be more of them than one step sends.
    pub(super) fn send_first_events(&mut self, now: Time, port: u32) {
        if self.services.unfinished.contains(&port) {
            return;
        }
        let sent = self.send_events(now, port);
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
        self.services.topology.set_user(port, user, room);
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
