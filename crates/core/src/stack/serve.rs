//! Work of the node's own service, the topology server, in steps: accepting connections, reading requests, preparing
//! the first events of new subscriptions, announcing changes of bindings, sending events. The owner of a node with
//! limited turns goes on in the subscriber's turns. Spec: tipc.md §10.1.

use super::Stack;
use super::services::{RefusedSubscriber, SubscriberWork};
use crate::addr::{Scope, ServiceAddr};
use crate::limits::TOPOLOGY_SERVER;
use crate::quota::UserId;
use crate::socket::{OptionValue, RecvError, RecvOptions, SendError, SocketKind, SocketOption};
use crate::time::Time;
use crate::topology::{Party, SUBSCRIPTION_LEN, TopologyServer, TopologyStats};

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

impl Stack {
    pub(super) fn start_services(&mut self, now: Time) {
        let Ok(port) = self.open(now, SocketKind::SeqPacket) else { return };
        self.services.set_listener(port);
        let range = ServiceAddr { service: TOPOLOGY_SERVER, instance: TOPOLOGY_SERVER }.into();
        self.with_endpoint(now, port, |endpoint, uplink| {
            let critical = OptionValue::Number(3);
            endpoint.set_option(SocketOption::Importance, critical, uplink).ok();
            endpoint.bind(range, Scope::Node, uplink).ok();
            endpoint.listen().ok()
        });
    }

    /// Counters of the topology server.
    #[must_use]
    pub fn topology_stats(&self) -> TopologyStats {
        self.services.topology.stats()
    }

    /// The sockets whose connection to the topology server ended because of a quota, since the last call.
    pub fn take_refused_subscribers(&mut self) -> Vec<RefusedSubscriber> {
        self.services.take_refused()
    }

    /// Work for subscribers that takes more than one step, and its user: the caller goes on with
    /// [`Self::continue_subscriber`]. Only if turns are limited ([`Self::begin_turn`]).
    pub fn take_subscriber(&mut self) -> Option<(UserId, SubscriberWork)> {
        self.services.next_unreported()
    }

    /// Does one step of work for subscribers; false if there is nothing left to do.
    pub fn continue_subscriber(&mut self, now: Time, work: SubscriberWork) -> bool {
        // The server must know all changes of the binding table.
        self.process_pending(now);
        if !self.services.is_unfinished(work) {
            return false;
        }
        let has_more = match work {
            SubscriberWork::Connection(port) => self.step_subscriber(now, port),
            SubscriberWork::Party(party) => {
                let has_more = self.services.topology.catch_up(party, &mut STEP_VISITS.clone());
                self.services.settle(&mut self.ledger);
                has_more
            }
        };
        if !has_more {
            self.services.finish(work);
        }
        self.process_pending(now);
        has_more
    }

    pub(super) fn services_timeout(&mut self, now: Time) {
        self.services.topology.handle_timeout(now);
        self.services.settle(&mut self.ledger);
    }

    /// Does one step of the node's own services; false if there was nothing to do.
    pub(super) fn serve(&mut self, now: Time) -> bool {
        if let Some(node) = self.switch.peers.next_lost() {
            self.tell_groups_of_loss(now, node);
        } else if let Some(change) = self.switch.bindings.next_change() {
            self.with_visits(|topology, visits| topology.announce(&change, visits));
            self.tell_group(now, &change);
        } else if let Some(port) = self.services.next_touched() {
            if self.services.is_listener(port) {
                self.accept_subscribers(now, port);
            } else {
                self.serve_subscriber(now, port);
            }
        } else if let Some(party) = self.services.topology.poll_behind() {
            self.serve_party(party);
        } else if let Some((port, _)) = self.services.topology.poll_closed() {
            self.drop_subscriber(now, port);
        } else if let Some(port) = self.services.topology.poll_ready() {
            self.send_first_events(now, port);
        } else {
            return false;
        }
        true
    }

    fn accept_subscribers(&mut self, now: Time, listener: u32) {
        while let Ok((port, peer)) = self.accept_quietly(now, listener) {
            let is_here = peer.node.is_none() || peer.node == self.own_node();
            let user = if is_here { self.user_of(peer.port) } else { Some(UserId::NETWORK) };
            if !self.services.connect(port, peer, user, is_here, &mut self.ledger) {
                self.drop_subscriber(now, port);
            }
        }
    }

    fn drop_subscriber(&mut self, now: Time, port: u32) {
        self.with_visits(|topology, visits| topology.disconnect(port, visits));
        self.with_endpoint(now, port, |endpoint, uplink| {
            endpoint.shutdown(now, uplink).ok();
            endpoint.close(now, uplink);
        });
        self.services.disconnect(port, &mut self.ledger);
    }

    /// Does the first step for a connection, or all if turns are not limited.
    fn serve_subscriber(&mut self, now: Time, port: u32) {
        let work = SubscriberWork::Connection(port);
        if self.services.is_unfinished(work) {
            return;
        }
        while self.step_subscriber(now, port) {
            if self.switch.work.is_limited() {
                return self.services.defer(work);
            }
        }
    }

    /// A party has to catch up with changes: does so at once if turns are not limited.
    fn serve_party(&mut self, party: Party) {
        if self.switch.work.is_limited() {
            return self.services.defer(SubscriberWork::Party(party));
        }
        while self.services.topology.catch_up(party, &mut usize::MAX.clone()) {}
        self.services.settle(&mut self.ledger);
    }

    /// Runs a call of the server that may visit many subscriptions: at once as many as the turn allows.
    fn with_visits(&mut self, call: impl FnOnce(&mut TopologyServer, &mut usize)) {
        let visits = self.switch.work.visits();
        let mut left = visits;
        call(&mut self.services.topology, &mut left);
        self.switch.work.charge_visits(visits - left);
        self.services.settle(&mut self.ledger);
    }

    /// Sends events to a connection that had none. There may be more of them than one step sends, or the turn may have
    /// sent enough.
    fn send_first_events(&mut self, now: Time, port: u32) {
        let work = SubscriberWork::Connection(port);
        if self.services.is_unfinished(work) {
            return;
        }
        if self.switch.work.visits() == 0 {
            return self.services.defer(work);
        }
        let sent = self.send_events(now, port);
        self.switch.work.charge_visits(sent * EVENT_VISITS);
        self.services.untouch(port);
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
        self.services.settle(&mut self.ledger);
        let is_preparing = self.services.topology.is_preparing(port);
        if is_preparing && self.has_hung_up(port) {
            self.drop_subscriber(now, port);
            return false;
        }
        let sent = self.send_events(now, port);
        self.services.untouch(port);
        // A turn that reads requests of other nodes does less of its other work.
        self.switch.work.charge_copies(STEP_ITEMS - budget);
        let is_open = self.services.is_connected(port);
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
        let full = self.services.limit(port, &self.ledger);
        let result = self.services.topology.request(now, port, request, self.switch.table(), budget);
        *budget = budget.saturating_sub(REQUEST_ITEMS);
        self.services.settle(&mut self.ledger);
        let Err(reason) = result else { return true };
        self.services.explain(port, reason, full, &mut self.ledger);
        self.drop_subscriber(now, port);
        false
    }

    /// Whether the connection of a subscriber has ended.
    fn has_hung_up(&self, port: u32) -> bool {
        self.endpoint(port).is_none_or(|endpoint| endpoint.readiness().hung_up)
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
