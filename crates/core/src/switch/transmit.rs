//! Outgoing messages: to a local socket, over a link, or over the broadcast link.

use super::Switch;
use super::collecting::{Collecting, Reach};
use crate::addr::{Importance, NodeAddr, ServiceAddr, ServiceRange};
use crate::broadcast::{self, ClusterView, start_switch};
use crate::crypto::{Key, KeyUse, SetKeyError};
use crate::discovery::KnownNodes;
use crate::limits::{CAPABILITIES, MAX_MESSAGE, capability};
use crate::link::{Accepted, SendFault};
use crate::outbox::FrameBatch;
use crate::socket::{Resolved, SubmitError, Submitted};
use crate::time::Time;
use crate::wire::{Message, Method};

impl Switch {
    pub(crate) fn resolve(&mut self, to: ServiceAddr, domain: NodeAddr) -> Option<Resolved> {
        let found = self.bindings.table_mut().lookup(to, domain)?;
        Some(Resolved { port: found.port, node: found.node, scope: found.scope })
    }

    pub(crate) fn capabilities(&self, node: NodeAddr) -> u16 {
        match self.peers.get(&node) {
            Some(entry) => entry.peer.capabilities,
            None if self.is_self(node) => CAPABILITIES,
            None => 0,
        }
    }

    pub(crate) fn mss(&self, node: NodeAddr) -> usize {
        self.peers.get(&node).and_then(|m| m.peer.mss(0)).unwrap_or(MAX_MESSAGE)
    }

    pub(crate) fn is_reachable(&self, node: NodeAddr) -> bool {
        self.is_self(node) || self.peers.get(&node).is_some_and(|m| m.peer.is_up())
    }

    /// True if a queue to a node would take a message of this importance beyond its limit only. Of a multicast: one of
    /// the queues to any node.
    pub(crate) fn is_congested(&self, node: NodeAddr, importance: Importance) -> bool {
        match self.peers.get(&node) {
            Some(entry) => entry.congestion >> importance as u8 & 0x11 != 0,
            None if node.is_none() => self.bcast.is_congested(importance) || self.senders.has_congestion(),
            None => false,
        }
    }

    /// Sends a message of a local socket.
    pub(crate) fn submit(
        &mut self,
        now: Time,
        to: NodeAddr,
        message: Message,
    ) -> Result<Submitted, SubmitError> {
        let selector = message.link_selector();
        self.route(now, message, to, selector)
    }

    pub(super) fn route(
        &mut self,
        now: Time,
        message: Message,
        to: NodeAddr,
        selector: u32,
    ) -> Result<Submitted, SubmitError> {
        if self.is_self(to) {
            self.deliver(now, message);
            return Ok(Submitted::Done);
        }
        self.send_to_peer(now, to, message, selector)
    }

    pub(super) fn send_to_peer(
        &mut self,
        now: Time,
        to: NodeAddr,
        message: Message,
        selector: u32,
    ) -> Result<Submitted, SubmitError> {
        if !self.bindings.recent().is_empty() && message.is_data() {
            self.send_updates_first(now, to, selector);
        }
        let sent = self.with_peer(now, to, |peer, ctx| {
            let sent = peer.send(message, selector, ctx);
            (sent, peer.has_backlog(selector))
        });
        let (sent, waits) = sent.unwrap_or((None, false));
        self.senders.note_backlog(waits);
        match sent {
            None => Err(SubmitError::Unreachable),
            Some(Ok(Accepted::Sent)) => Ok(Submitted::Done),
            Some(Ok(Accepted::Congested)) => Ok(Submitted::Congested(to)),
            Some(Err(fault)) => Err(submit_error(fault)),
        }
    }

    /// Sends a multicast to every node with a socket in its range, including this one.
    pub(crate) fn submit_multicast(&mut self, now: Time, message: Message) -> Result<Submitted, SubmitError> {
        let Some((local, remote)) = self.destinations(&message, Reach::Everywhere) else {
            let range = message.service_range();
            self.begin_collecting(message, range, Reach::Everywhere);
            return Ok(Submitted::Done);
        };
        if !local && remote.is_empty() {
            return Err(SubmitError::Unreachable);
        }
        let mut result = Ok(Submitted::Done);
        if !remote.is_empty() {
            result = self.multicast_remote(now, &message, &remote);
        }
        if local && result.is_ok() {
            self.deliver(now, message);
        }
        result
    }

    /// Sends a multicast to every other node with a socket in its range.
    pub(crate) fn submit_multicast_elsewhere(
        &mut self,
        now: Time,
        message: Message,
    ) -> Result<Submitted, SubmitError> {
        match self.destinations(&message, Reach::Elsewhere) {
            Some((_, remote)) if remote.is_empty() => Err(SubmitError::Unreachable),
            Some((_, remote)) => self.multicast_remote(now, &message, &remote),
            None => {
                let range = message.service_range();
                self.begin_collecting(message, range, Reach::Elsewhere);
                Ok(Submitted::Done)
            }
        }
    }

    /// Whether this node has a socket in the range of a multicast, and the other nodes that have one. `None` if that
    /// takes several steps.
    fn destinations(&self, message: &Message, reach: Reach) -> Option<(bool, Vec<NodeAddr>)> {
        let range = message.service_range();
        let found = match self.work.is_limited() {
            true => self.bindings.table().few_destination_nodes(range, reach.holders())?,
            false => self.bindings.table().destination_nodes(range),
        };
        let reachable = found.remote.into_iter().filter(|node| self.is_reachable(*node));
        Some((found.local, reachable.collect()))
    }

    /// Sends a message to the members of a group, on this node if `local`, and on other nodes. No member gets it if the
    /// queue to one of them is full: its order would have a gap.
    pub(crate) fn submit_group(
        &mut self,
        now: Time,
        mut message: Message,
        local: bool,
        nodes: &[NodeAddr],
        replicast: bool,
    ) -> Result<Submitted, SubmitError> {
        let remote: Vec<NodeAddr> = nodes.iter().copied().filter(|node| self.is_reachable(*node)).collect();
        let mut result = Ok(Submitted::Done);
        if !remote.is_empty() {
            let cluster = self.cluster_view();
            let (port, range) = (message.origin_port(), message.service_range());
            let mut choice = self.methods.choose(now, port, range, remote.len(), &cluster);
            if replicast {
                choice.method = Method::Replicast;
            }
            let selector = message.link_selector();
            let is_full =
                |node: &NodeAddr| self.peers.get(node).is_some_and(|entry| !entry.peer.takes(selector));
            if choice.method == Method::Replicast && remote.iter().any(is_full) {
                return Err(SubmitError::NoBuffers);
            }
            // The order of a group makes the announcement of a change unnecessary.
            let _ = start_switch(&mut message, choice, &cluster);
            result = self.multicast_by(now, message.clone(), &remote, choice.method);
        }
        if local && result.is_ok() {
            self.deliver(now, message);
        }
        result
    }

    /// Passes one copy of a multicast to a socket of this node.
    pub(crate) fn submit_copy(&mut self, mut message: Message, port: u32) -> Result<Submitted, SubmitError> {
        if !self.delivery.is_open(port) {
            return Err(SubmitError::Unreachable);
        }
        message.set_dest_port(port);
        self.queue_local(port, message);
        Ok(Submitted::Done)
    }

    pub(super) fn multicast_remote(
        &mut self,
        now: Time,
        message: &Message,
        remote: &[NodeAddr],
    ) -> Result<Submitted, SubmitError> {
        let cluster = self.cluster_view();
        let (port, range) = (message.origin_port(), message.service_range());
        let choice = self.methods.choose(now, port, range, remote.len(), &cluster);
        let mut message = message.clone();
        if let Some(dummy) = start_switch(&mut message, choice, &cluster) {
            let other = match choice.method {
                Method::Broadcast => Method::Replicast,
                Method::Replicast => Method::Broadcast,
            };
            self.multicast_by(now, dummy, remote, other).ok();
        }
        self.multicast_by(now, message, remote, choice.method)
    }

    fn multicast_by(
        &mut self,
        now: Time,
        message: Message,
        remote: &[NodeAddr],
        method: Method,
    ) -> Result<Submitted, SubmitError> {
        if method == Method::Broadcast {
            return self.send_broadcast(now, message);
        }
        let mut result = Ok(Submitted::Done);
        for node in remote {
            let mut copy = message.clone();
            copy.set_dest_node(*node);
            let selector = copy.link_selector();
            match self.send_to_peer(now, *node, copy, selector) {
                Ok(Submitted::Congested(at)) => result = Ok(Submitted::Congested(at)),
                Ok(Submitted::Done) | Err(SubmitError::Unreachable) => {}
                Err(e) => result = Err(e),
            }
        }
        result
    }

    /// The conditions on which the choice of a multicast method depends. Spec: tipc.md §7.6.
    fn cluster_view(&self) -> ClusterView {
        let capabilities = self.peers.common_capabilities();
        ClusterView {
            has_broadcast: self.bcast.has_broadcast(),
            all_replicast: capabilities & capability::BCAST_RCAST != 0,
            all_switch: capabilities & capability::MCAST_RBCTL != 0,
            peers: self.bcast.peer_count(),
            policy: self.methods.policy(),
        }
    }

    pub(super) fn send_broadcast(&mut self, now: Time, message: Message) -> Result<Submitted, SubmitError> {
        match self.bcast.send(now, message, &mut self.frames) {
            Ok(broadcast::Accepted::Sent) => Ok(Submitted::Done),
            Ok(broadcast::Accepted::Congested) => Ok(Submitted::Congested(NodeAddr::NONE)),
            Err(_) => Err(SubmitError::NoBuffers),
        }
    }

    /// Begins to collect the receivers of a multicast.
    pub(super) fn begin_collecting(&mut self, message: Message, range: ServiceRange, reach: Reach) {
        let origin = self.origin(&message);
        self.spreads.add_collecting(origin, Collecting::new(message, range, reach));
    }

    /// Collects some receivers; true if all are known.
    pub(crate) fn collect(&self, collecting: &mut Collecting) -> bool {
        let is_own = self.is_self(collecting.message.origin_node());
        collecting.step(self.bindings.table(), &self.delivery, is_own)
    }

    /// All receivers are known: sends the message to those on other nodes.
    pub(crate) fn send_collected(
        &mut self,
        now: Time,
        collected: &Collecting,
    ) -> Result<Submitted, SubmitError> {
        let message = &collected.message;
        let remote: Vec<NodeAddr> = collected.nodes().filter(|node| self.is_reachable(*node)).collect();
        if !remote.is_empty() {
            let sent = self.multicast_remote(now, message, &remote);
            if !self.delivery.is_open(message.origin_port()) {
                // Its socket has been closed.
                self.methods.forget(message.origin_port());
            }
            return sent;
        }
        if collected.is_unreachable() { Err(SubmitError::Unreachable) } else { Ok(Submitted::Done) }
    }

    /// The frames to send, encrypted if the node has a key.
    pub(crate) fn outgoing(&mut self) -> &mut FrameBatch {
        let (own, now) = (self.own(), self.now);
        let peers = &self.peers;
        self.encryption.outgoing(now, own, &mut self.frames, |addr| peers.identity_of(addr))
    }

    /// Sets a key, and hands it to the peers if this node sends with it.
    pub(crate) fn set_key(&mut self, now: Time, key_use: KeyUse, key: Key) -> Result<(), SetKeyError> {
        self.now = now;
        let is_own = self.encryption.set_key(now, self.identity(), key_use, key)?;
        self.apply_overhead();
        if is_own {
            self.distribute_key(now);
        }
        Ok(())
    }

    /// Removes all keys.
    pub(crate) fn flush_keys(&mut self) {
        self.encryption.flush();
        self.apply_overhead();
    }

    /// Makes a new session key and hands it to the peers.
    pub(crate) fn rekey(&mut self, now: Time) -> Result<(), SetKeyError> {
        self.now = now;
        self.encryption.rekey(now)?;
        self.distribute_key(now);
        Ok(())
    }

    pub(super) fn rekey_timeout(&mut self, now: Time) {
        if self.encryption.rekey_at().is_some_and(|at| at <= now) {
            self.rekey(now).ok(); // an unfinished change of keys comes first
        }
    }

    /// Packets become smaller or larger by what encryption adds.
    fn apply_overhead(&mut self) {
        let bytes = self.encryption.overhead();
        self.bcast.set_overhead(bytes);
        for entry in self.peers.values_mut() {
            entry.peer.set_overhead(bytes as u16);
        }
    }

    fn distribute_key(&mut self, now: Time) {
        let peers = self.peers.iter().filter(|(_, entry)| entry.peer.is_up());
        for addr in peers.map(|(addr, _)| *addr).collect::<Vec<_>>() {
            self.send_key(now, addr);
        }
    }

    fn send_key(&mut self, now: Time, to: NodeAddr) {
        if let Some(message) = self.encryption.distribution(self.own_node(), to) {
            self.send_to_peer(now, to, message, 0).ok(); // a peer without contact asks when it is back
        }
    }

    /// Handles the passing of time for the keys of a peer.
    pub(super) fn tick_keys(&mut self, now: Time, addr: NodeAddr) {
        let Some(id) = self.peers.identity_of(addr).filter(|_| self.encryption.is_on()) else { return };
        if self.encryption.tick(now, &id) {
            self.send_key(now, addr);
        }
        if self.encryption.introduce_waiting(now) {
            self.distribute_key(now);
        }
    }
}

fn submit_error(fault: SendFault) -> SubmitError {
    match fault {
        SendFault::TooLarge { .. } => SubmitError::TooLarge,
        _ => SubmitError::NoBuffers,
    }
}
