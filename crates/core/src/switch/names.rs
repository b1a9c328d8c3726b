//! Bindings of local sockets, and their distribution. Spec: tipc.md §6.5.

use super::{Origin, Switch};
use crate::addr::{Binding, NodeAddr, PortId, Scope, ServiceRange};
use crate::broadcast::MulticastPolicy;
use crate::event::Event;
use crate::limits::{NODE_STATE, RESERVED_TYPES, capability};
use crate::link::DownReason;
use crate::names::{Change, NameReceiver, NameReport, NameTable, PublishError};
use crate::socket::BindError;
use crate::time::Time;
use crate::wire::{Message, Method};

impl Switch {
    pub(crate) fn bind(
        &mut self,
        now: Time,
        port: u32,
        range: ServiceRange,
        scope: Scope,
    ) -> Result<(), BindError> {
        if range.service < RESERVED_TYPES {
            return Err(BindError::Reserved);
        }
        self.bind_reserved(now, port, range, scope)
    }

    /// Like [`Self::bind`], for the node's own services.
    pub(crate) fn bind_reserved(
        &mut self,
        now: Time,
        port: u32,
        range: ServiceRange,
        scope: Scope,
    ) -> Result<(), BindError> {
        let change = self.bindings.table_mut().bind(port, range, scope).map_err(|e| match e {
            PublishError::Inverted(_) => BindError::InvalidRange,
            PublishError::TooMany(_) | PublishError::NoMemory => BindError::TooMany,
            PublishError::Duplicate(..) | PublishError::KeysUsedUp(_) => BindError::InUse,
        })?;
        self.announce(now, change);
        Ok(())
    }

    pub(crate) fn unbind(
        &mut self,
        now: Time,
        port: u32,
        which: Option<(ServiceRange, Scope)>,
    ) -> Result<(), BindError> {
        for change in self.bindings.table_mut().unbind(port, which).map_err(|_| BindError::NotBound)? {
            self.announce(now, change);
        }
        Ok(())
    }

    pub(super) fn forget_bindings(&mut self, now: Time, port: u32) {
        for change in self.bindings.table_mut().forget_port(port) {
            self.announce(now, change);
        }
    }

    /// Publishes a binding of the node itself.
    pub(super) fn publish_internal(&mut self, now: Time, binding: Binding) {
        if let Ok(change) = self.bindings.table_mut().publish(binding) {
            self.announce(now, change);
        }
    }

    pub(super) fn withdraw_internal(&mut self, now: Time, binding: Binding) {
        if let Some(change) = self.bindings.table_mut().withdraw(binding.range, binding.port, binding.key) {
            self.announce(now, change);
        }
    }

    /// Reports a change to local subscribers and, if it has cluster scope, to the peers.
    fn announce(&mut self, now: Time, change: Change) {
        let own = self.own_node();
        if let Some(message) = self.bindings.announce(own, change) {
            self.distribute(now, message);
        }
    }

    /// Sends to all linked peers: by broadcast if all of them number updates, otherwise a copy to each.
    fn distribute(&mut self, now: Time, message: Message) {
        let up = || self.peers.values().map(|m| &m.peer).filter(|p| p.is_up());
        let numbered = self.peers.common_capabilities() & capability::NAMED_BCAST != 0
            || up().all(|peer| peer.has(capability::NAMED_BCAST));
        if numbered && self.methods.policy() != MulticastPolicy::Forced(Method::Replicast) {
            return self.broadcast_update(now, message);
        }
        for addr in up().map(|peer| peer.addr).collect::<Vec<_>>() {
            let mut copy = message.clone();
            copy.set_dest_node(addr);
            if self.has_two_links(addr) {
                self.send_to_peer(now, addr, copy.clone(), 1).ok(); // it applies one of them
            }
            self.send_to_peer(now, addr, copy, 0).ok();
        }
    }

    /// Whether messages to a peer that numbers updates take two links.
    fn has_two_links(&self, addr: NodeAddr) -> bool {
        let peer = self.peers.get(&addr).map(|entry| &entry.peer);
        peer.is_some_and(|peer| {
            peer.has(capability::NAMED_BCAST) && peer.active_bearer(0) != peer.active_bearer(1)
        })
    }

    /// Broadcasts an update. If the queue is full, resets the peers that block it: a missing update would leave
    /// the tables of all peers incomplete, while a reset peer gets all bindings again on contact.
    fn broadcast_update(&mut self, now: Time, message: Message) {
        if self.send_broadcast(now, message.clone()).is_err() {
            for peer in self.bcast.blocking_peers().collect::<Vec<_>>() {
                self.reset_peer(now, peer, DownReason::Broadcast);
            }
            self.send_broadcast(now, message.clone()).ok();
        }
        if self.bcast.peer_count() > 0 {
            self.note_update(message);
        }
    }

    /// Keeps an update that was broadcast until all peers have acknowledged it.
    fn note_update(&mut self, update: Message) {
        self.forget_updates();
        self.bindings.note_update(self.bcast.position(), update);
    }

    /// Forgets the updates that all peers have acknowledged.
    pub(super) fn forget_updates(&mut self) {
        let has_peers = self.bcast.peer_count() > 0;
        self.bindings.forget_updates(has_peers.then(|| self.bcast.acknowledged_by_all()));
    }

    /// Before a message of a socket: sends the updates that the peer has not acknowledged on the link of the message.
    /// It could overtake their broadcast, and its receiver may look up what it has been told. A peer that lacks more
    /// than are kept gets no copies.
    pub(super) fn send_updates_first(&mut self, now: Time, addr: NodeAddr, selector: u32) {
        let recent = self.bindings.recent();
        let (next, acknowledged) = (recent.next(), self.bcast.acknowledged_by(addr));
        if !recent.has_all_after(acknowledged) {
            return;
        }
        // One link carries both selectors.
        let link = if self.has_two_links(addr) { selector & 1 } else { 0 };
        let entry = self.peers.get(&addr).filter(|entry| entry.peer.is_up());
        let Some(told) = entry.and_then(|entry| entry.next_unsent.get(link as usize).copied()) else {
            return;
        };
        let mut refused = None;
        for (number, mut update) in self.bindings.recent().after(told, acknowledged) {
            update.set_dest_node(addr);
            if self.send_to_peer(now, addr, update, link).is_err() {
                // Later ones would wait at the peer for this one.
                refused = Some(number);
                break;
            }
        }
        if let Some(told) = self.peers.get_mut(&addr).and_then(|m| m.next_unsent.get_mut(link as usize)) {
            *told = refused.unwrap_or(next);
        }
    }

    /// Sends all bindings of this node to a new peer, some of them at once; the timer goes on with the others. A peer
    /// that applies updates as they arrive gets all at once, as do all peers if turns are not limited. Until all are
    /// sent, the peer's messages are held: no socket learns from them whom it could send a message that would overtake
    /// the rest.
    pub(super) fn begin_bulk(&mut self, now: Time, addr: NodeAddr) {
        let Some(entry) = self.peers.get_mut(&addr) else { return };
        let is_divided = self.work.is_limited() && entry.peer.has(capability::NAMED_BCAST);
        entry.bulk = Some(self.bindings.bulk(is_divided));
        entry.next_unsent = [self.bindings.recent().next(); 2];
        if self.continue_bulk(now, addr) {
            self.hold(addr);
            self.bindings.postpone_bulk(addr);
        }
    }

    /// Goes on with bindings of lost nodes and for new neighbours, which wait for nothing but the next call.
    pub(super) fn continue_bindings(&mut self, now: Time) {
        self.work.begin_timers();
        if let Some(lost) = self.bindings.first_leaving() {
            self.withdraw_some_names_of(lost);
        }
        self.continue_next_bulk(now);
    }

    /// Goes on with the next bulk.
    fn continue_next_bulk(&mut self, now: Time) {
        let Some(addr) = self.bindings.take_bulk() else { return };
        if self.continue_bulk(now, addr) {
            self.bindings.postpone_bulk(addr);
        } else if !self.spreads.contains(Origin::Node(addr)) {
            self.resume(addr);
        }
        self.forget_withdrawals();
    }

    /// Forgets the withdrawals that all bulks have.
    pub(super) fn forget_withdrawals(&mut self) {
        let oldest = self.bindings.oldest_bulk().and_then(|addr| self.peers.get(&addr));
        self.bindings.forget_withdrawals(oldest.and_then(|entry| entry.bulk.as_ref()));
    }

    /// Sends a portion of a bulk; false if no more are left.
    fn continue_bulk(&mut self, now: Time, addr: NodeAddr) -> bool {
        let Some(entry) = self.peers.get_mut(&addr) else { return false };
        let Some(mut bulk) = entry.bulk.take() else { return false };
        let mss = entry.peer.mss(0).unwrap_or_default();
        let (messages, is_over) = self.bindings.next_of_bulk(addr, mss, &mut bulk);
        if is_over {
            // The bulk has all updates.
            entry.next_unsent = [self.bindings.recent().next(); 2];
        } else {
            entry.bulk = Some(bulk);
        }
        for message in messages {
            self.send_to_peer(now, addr, message, 0).ok();
        }
        // A full queue ends the contact.
        self.peers.get(&addr).is_some_and(|entry| entry.bulk.is_some())
    }

    /// Withdraws bindings of a lost node, as many as the work allows, although many nodes may be lost; the timer goes
    /// on with the others.
    pub(super) fn withdraw_some_names_of(&mut self, addr: NodeAddr) {
        let gone = self.bindings.withdraw_some(addr, self.work.withdrawals());
        self.work.charge_withdrawals(gone);
    }

    /// Whether the old bindings of a lost node that is back are all withdrawn, so that its new ones do not mix with
    /// them. Withdraws some of them if not: the node repeats its setup.
    pub(super) fn has_left(&mut self, addr: NodeAddr) -> bool {
        if self.bindings.is_leaving(addr) {
            self.withdraw_some_names_of(addr);
        }
        !self.bindings.is_leaving(addr)
    }

    pub(super) fn receive_names(&mut self, now: Time, addr: NodeAddr, message: Message) {
        let Some(entry) = self.peers.get_mut(&addr) else { return };
        entry.receiver.open_legacy();
        let received = self.with_names(addr, |names, table, changes, report| {
            names.receive(addr, message, table, changes, report)
        });
        if received.is_some_and(|result| result.is_err()) {
            self.reset_peer(now, addr, DownReason::Names);
        }
        while !self.work.is_over() && self.apply_due_names(addr) {}
    }

    /// Whether updates of a peer that have waited are due: everything else of it comes after them.
    pub(super) fn has_due_names(&self, addr: NodeAddr) -> bool {
        self.peers.get(&addr).is_some_and(|entry| entry.names.has_due())
    }

    /// Applies the next of them; false if there is none.
    pub(super) fn apply_due_names(&mut self, addr: NodeAddr) -> bool {
        if !self.has_due_names(addr) {
            return false;
        }
        let applied = self
            .with_names(addr, |names, table, changes, report| names.apply_due(addr, table, changes, report));
        let Some(items) = applied.flatten() else { return false };
        self.work.charge_bindings(items);
        true
    }

    /// Calls a method of a peer's receiver of names with the table, and takes over what has changed.
    fn with_names<T>(
        &mut self,
        addr: NodeAddr,
        call: impl FnOnce(&mut NameReceiver, &mut NameTable, &mut Vec<Change>, &mut NameReport) -> T,
    ) -> Option<T> {
        let entry = self.peers.get_mut(&addr)?;
        let mut report = NameReport::default();
        let result =
            self.bindings.update(|table, changes| call(&mut entry.names, table, changes, &mut report));
        self.stats.names += report;
        self.account_deferred(addr);
        Some(result)
    }

    /// The address is final: sockets and bindings made before get it.
    pub(super) fn address_final(&mut self, now: Time) {
        let own = self.own_node();
        self.bindings.table_mut().set_own_node(own);
        self.bcast.set_own(own);
        for bearer in self.bearers.iter_mut() {
            bearer.monitor.set_own(own);
        }
        self.publish_internal(now, node_binding(own));
        self.event(Event::AddressFinal(own));
    }
}

/// The node-state binding, which shows that a node is up.
pub(super) fn node_binding(own: NodeAddr) -> Binding {
    let range = ServiceRange::new(NODE_STATE, own.0, own.0);
    let port = PortId { port: 0, node: own };
    Binding { range, scope: Scope::Cluster, port, key: own.0 }
}
