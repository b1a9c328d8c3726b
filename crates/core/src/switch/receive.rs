//! Incoming frames: checks and dispatch. Spec: tipc.md §6.1.

use super::Switch;
use super::encryption::Carried;
use crate::addr::NodeAddr;
use crate::broadcast::{self, BroadcastIo};
use crate::discovery::{KnownNodes, Refusal};
use crate::error::WireError;
use crate::event::{Drop, Event};
use crate::link::{DownReason, Link};
use crate::node::state::State;
use crate::outbox::BearerId;
use crate::time::Time;
use crate::wire::{Encrypted, EncryptedSource, LinkProtocolType, MessageType, User, View};

impl Switch {
    /// Processes a frame. Returns false if nothing in the node can have changed but the state of its link.
    pub(crate) fn receive(&mut self, now: Time, bearer: BearerId, frame: &[u8]) -> bool {
        self.stats.frames_received += 1;
        self.work.begin_call();
        self.now = now;
        match self.try_receive(now, bearer, frame) {
            Ok(has_effects) => has_effects,
            Err(reason) => {
                self.stats.frames_dropped += 1;
                let peer = self.sender(frame);
                self.event(Event::Dropped { bearer, peer, reason });
                true
            }
        }
    }

    fn try_receive(&mut self, now: Time, bearer: BearerId, frame: &[u8]) -> Result<bool, Drop> {
        if Encrypted::is_encrypted(frame) {
            return self.receive_encrypted(now, bearer, frame);
        }
        if self.encryption.refuses_clear_text() {
            return Err(self.refuse_clear_text(frame));
        }
        let view = View::parse(frame).map_err(Drop::Malformed)?;
        self.process(now, bearer, view, Carried::Clear)
    }

    /// Processes a packet that arrived in clear text, or that was decrypted. The result is that of [`Self::receive`].
    fn process(
        &mut self,
        now: Time,
        bearer: BearerId,
        view: View<'_>,
        carried: Carried,
    ) -> Result<bool, Drop> {
        if self.take_middle(bearer, view) {
            return Ok(false);
        }
        check_user(view, carried)?;
        match (view.user(), view.non_sequenced()) {
            (User::LinkConfig, true) => self.receive_discovery(now, bearer, view)?,
            (_, true) => self.receive_broadcast(now, bearer, view)?,
            (_, false) if is_part(view) => self.receive_part(now, bearer, view, carried)?,
            (_, false) => self.receive_unicast(now, bearer, view)?,
        }
        Ok(true)
    }

    /// Takes a fragment from the middle of a large message, as most packets are when much data arrives. Only its link
    /// has to know of it. False if it has to be processed as any other packet.
    fn take_middle(&mut self, bearer: BearerId, view: View<'_>) -> bool {
        let own = self.own_node();
        let is_fragment = view.user() == User::Fragmenter && !view.non_sequenced();
        if !is_fragment || own.is_none() || view.dest_node() != Some(own) || self.holds.is_draining() {
            return false;
        }
        let addr = view.prev_node();
        self.bcast.acked(addr) == Some(view.bcast_ack())
            && self.peers.get_mut(&addr).is_some_and(|entry| entry.peer.take_middle(view, bearer))
    }

    /// Keeps a part of a packet of a peer in contact, and processes the packet when it is complete. Spec: tipc.md §4.7.
    fn receive_part(
        &mut self,
        now: Time,
        bearer: BearerId,
        view: View<'_>,
        carried: Carried,
    ) -> Result<(), Drop> {
        let (own, addr) = (self.own_node(), view.prev_node());
        if addr == own {
            return Ok(()); // many media return a broadcast to its sender
        }
        if view.dest_node().is_some_and(|dest| dest != own && !dest.is_none()) {
            return Err(Drop::NotForUs);
        }
        let entry = self.peers.get_mut(&addr).ok_or(Drop::UnknownPeer)?;
        if !entry.peer.is_up() {
            return Err(Drop::State);
        }
        let room = self.deferral.room(&entry.deferred);
        let packet = entry.parts.take(view, room);
        self.account_deferred(addr);
        match packet {
            // Parts have no parts: otherwise one frame would nest as many as fit.
            Some(packet) if is_part(packet.view()) => Err(Drop::State),
            Some(packet) => self.process(now, bearer, packet.view(), carried).map(|_| ()),
            None => Ok(()),
        }
    }

    fn receive_unicast(&mut self, now: Time, bearer: BearerId, view: View<'_>) -> Result<(), Drop> {
        let own = self.own_node();
        if own.is_none() || view.dest_node().is_some_and(|dest| dest != own) {
            return Err(Drop::NotForUs);
        }
        let addr = view.prev_node();
        let entry = self.peers.get(&addr).ok_or(Drop::UnknownPeer)?;
        if !entry.peer.is_up() && !self.has_left(addr) {
            return Err(Drop::State);
        }
        let protocol = view.user() == User::LinkProtocol;
        if protocol {
            self.receive_broadcast_state(now, addr, bearer, view)?;
        } else if self.bcast.acked(addr) != Some(view.bcast_ack()) {
            self.with_broadcast(|bcast, io| broadcast::receive_ack(bcast, now, addr, view, io));
        }
        if protocol
            && let Some(entry) = self.peers.get_mut(&addr)
            && !self.bearers.monitor_state(&mut entry.peer, bearer, view)
        {
            self.stats.monitor_records_refused += 1;
        }
        if !protocol {
            if self.is_hold_full(addr) {
                return Err(Drop::Held);
            }
            if self.deferral.has_unproven() {
                self.make_room(now, addr, bearer, view);
            }
        }
        let passed = self.with_peer(now, addr, |peer, ctx| {
            if peer.slot(bearer).is_none() {
                return Err(Drop::NoLink);
            }
            let in_full_contact = peer.state == State::SelfUpPeerUp && view.user() != User::Tunnel;
            if !in_full_contact && !peer.admit(view, bearer, ctx) {
                return Err(Drop::State);
            }
            peer.receive(view, bearer, ctx);
            Ok(())
        });
        self.shed(now, addr);
        passed.unwrap_or(Err(Drop::UnknownPeer))
    }

    /// Processes a packet of a peer's broadcast link. Spec: tipc.md §7.2.
    fn receive_broadcast(&mut self, now: Time, bearer: BearerId, view: View<'_>) -> Result<(), Drop> {
        let addr = view.prev_node();
        let own = self.own_node();
        if addr == own {
            return Ok(()); // many media return a broadcast to its sender
        }
        let entry = self.peers.get(&addr).ok_or(Drop::UnknownPeer)?;
        if !entry.peer.is_up() {
            return Err(Drop::State);
        }
        if view.user() == User::BcastProtocol {
            self.with_broadcast(|bcast, io| broadcast::receive_legacy_nack(bcast, own, now, view, io));
            return Ok(());
        }
        if self.is_hold_full(addr) {
            return Err(Drop::Held);
        }
        if !entry.receiver.is_next(view) {
            self.evict_for(now, addr, view.size());
        }
        let Some(entry) = self.peers.get_mut(&addr) else { return Err(Drop::UnknownPeer) };
        let room = self.deferral.room(&entry.deferred);
        let state_due = entry.receiver.receive(view, self.config.cluster, room, &mut entry.peer.delivered);
        self.account_deferred(addr);
        self.dispatch_delivered(now, addr);
        self.shed(now, addr);
        if state_due.map_err(Drop::Broadcast)? {
            self.send_state(now, addr, bearer);
        }
        Ok(())
    }

    /// Sends a STATE at once, to report which of the peer's broadcasts have arrived.
    pub(super) fn send_state(&mut self, now: Time, addr: NodeAddr, bearer: BearerId) {
        self.with_peer(now, addr, |peer, ctx| peer.send_state(bearer, ctx));
        if self.link(addr, bearer).is_some_and(Link::is_up)
            && let Some(entry) = self.peers.get_mut(&addr)
        {
            entry.receiver.state_sent();
        }
    }

    /// Processes the broadcast part of a LINK_PROTOCOL message, before and independently of the link's own. Spec:
    /// tipc.md §7.3.
    fn receive_broadcast_state(
        &mut self,
        now: Time,
        addr: NodeAddr,
        bearer: BearerId,
        view: View<'_>,
    ) -> Result<(), Drop> {
        let Some(entry) = self.peers.get_mut(&addr) else { return Err(Drop::UnknownPeer) };
        let mut wakeups = Vec::new();
        let mut io = BroadcastIo { frames: &mut self.frames, wakeups: &mut wakeups };
        let state_due =
            broadcast::receive_link_protocol(&mut self.bcast, &mut entry.receiver, now, addr, view, &mut io);
        wakeups.into_iter().for_each(|wakeup| self.senders.wake(wakeup.port, NodeAddr::NONE));
        if self.bcast.take_suspicion(addr) {
            self.with_peer(now, addr, |peer, ctx| peer.distrust_paths(ctx));
        }
        if state_due.map_err(Drop::Malformed)? {
            self.send_state(now, addr, bearer);
        }
        Ok(())
    }

    /// Opens an encrypted frame and processes the packet in it. The result is that of [`Self::receive`].
    fn receive_encrypted(&mut self, now: Time, bearer: BearerId, frame: &[u8]) -> Result<bool, Drop> {
        if !self.encryption.has_keys() {
            return Err(Drop::Encrypted);
        }
        let own = self.own();
        let sender = self.peers.sender(own, bearer, frame)?;
        let id = sender.id;
        if id == own.id {
            return Ok(false); // many media return a broadcast to its sender
        }
        let (peers, mut old_reset) = (&self.peers, None);
        let opened = self.encryption.open(now, own, sender, frame, |view| {
            if view.user() == User::LinkProtocol && view.link_type() == LinkProtocolType::Reset {
                old_reset = Some(view.prev_node());
            }
            peers.judge(bearer, id, view)
        });
        if let (Err(Drop::Replayed), Some(addr)) = (&opened, old_reset) {
            // It may be of a peer that has restarted, whose answer will prove it.
            self.with_peer(now, addr, |peer, ctx| peer.tell_session(bearer, ctx));
        }
        let opened = opened?;
        let view = View::parse(&opened.0).map_err(Drop::Malformed)?;
        let processed = self.process(now, bearer, view, Carried::Encrypted);
        self.encryption.recycle(opened);
        processed
    }

    /// Why a frame in clear text is refused.
    fn refuse_clear_text(&mut self, frame: &[u8]) -> Drop {
        if let Err(error) = View::parse(frame) {
            return Drop::Malformed(error);
        }
        self.encryption.refused_clear_text();
        Drop::ClearText
    }

    /// Processes a discovery message.
    fn receive_discovery(&mut self, now: Time, id: BearerId, view: View<'_>) -> Result<(), Drop> {
        let mut outputs = Vec::new();
        let bearer = self.bearers.get_mut(id);
        let (Some(bearer), Some(own)) = (bearer, self.own.as_mut()) else { return Err(Drop::NoLink) };
        let result = bearer.discoverer.receive(now, view, own, &self.peers, &mut outputs);
        self.act_on_discovery(now, id, outputs);
        match result {
            Ok(()) | Err(Refusal::Own | Refusal::Phase) => Ok(()),
            Err(refusal) => {
                if matches!(refusal, Refusal::DuplicateAddress(_)) {
                    self.event(Event::DuplicateAddress(view.prev_node()));
                }
                Err(Drop::Discovery(refusal))
            }
        }
    }

    /// Whether a peer has no room for a packet: it sends more than its window while its messages wait for a turn.
    fn is_hold_full(&self, addr: NodeAddr) -> bool {
        self.has_work() && self.peers.get(&addr).is_some_and(|entry| entry.hold.is_full())
    }

    /// Makes room for an early packet of a proven peer: takes down the links of peers that are not proven. Dropping
    /// only their packets would stall the links, because kept packets are acknowledged by gap blocks.
    fn make_room(&mut self, now: Time, addr: NodeAddr, bearer: BearerId, view: View<'_>) {
        let is_early = self.link(addr, bearer).is_some_and(|link| link.rcv_nxt() != view.seqno());
        if is_early {
            self.evict_for(now, addr, view.size());
        }
    }

    /// Evicts peers that are not proven, the largest first, until a proven one may keep a packet of `size` bytes.
    fn evict_for(&mut self, now: Time, addr: NodeAddr, size: usize) {
        while let Some(entry) = self.peers.get(&addr)
            && let Some(victim) = self.deferral.victim(&entry.deferred, size)
        {
            self.stats.deferrals_evicted += 1;
            self.reset_peer(now, victim, DownReason::Memory);
        }
    }

    /// Takes the links of a peer down if it has begun more than it may and the node's memory is used up.
    fn shed(&mut self, now: Time, addr: NodeAddr) {
        if self.peers.get(&addr).is_some_and(|entry| self.deferral.exceeds(&entry.deferred)) {
            self.stats.deferrals_evicted += 1;
            self.reset_peer(now, addr, DownReason::Memory);
        }
    }

    /// The node that a frame names as its sender. One that is not known has the address of its identity.
    fn sender(&self, frame: &[u8]) -> NodeAddr {
        match Encrypted::parse(frame).map(|packet| packet.source) {
            Ok(EncryptedSource::Node(node)) => node,
            Ok(EncryptedSource::Identity(id)) => {
                self.peers.address_of(&id).unwrap_or_else(|| id.trial_address())
            }
            Err(_) => View::parse(frame).map_or(NodeAddr::NONE, |v| v.prev_node()),
        }
    }

    pub(super) fn reset_peer(&mut self, now: Time, addr: NodeAddr, reason: DownReason) {
        self.with_peer(now, addr, |peer, ctx| peer.take_all_down(reason, ctx));
    }
}

/// True for a part of a packet that the path does not carry whole.
fn is_part(view: View<'_>) -> bool {
    view.user() == User::LinkProtocol && view.link_type() == LinkProtocolType::Part
}

/// True for the tunnelled packet, or its first part, of a key distribution.
fn carries_key(tunnel: View<'_>) -> bool {
    tunnel.fragment_number() <= 1 && View::of_header(tunnel.payload()).user() == User::Crypto
}

/// Refuses users and types that are not accepted on this path. Spec: tipc.md §14.2.
fn check_user(view: View<'_>, carried: Carried) -> Result<(), Drop> {
    use User as U;
    let illegal = Err(Drop::IllegalUser(view.user().into()));
    if !view.header_fits() {
        return Err(Drop::Malformed(WireError::HeaderSize {
            need: view.required_header(),
            have: view.header_size(),
        }));
    }
    match (view.user(), view.non_sequenced()) {
        (U::LinkConfig, true) | (U::BcastProtocol, _) => Ok(()),
        (U::Crypto, _) if carried == Carried::Encrypted => Ok(()),
        (U::Tunnel, _) if carried == Carried::Clear && carries_key(view) => illegal,
        (U::Crypto | U::TopologyServer | U::LinkConfig | U::Other(_), _) => illegal,
        (U::Bundler | U::NameDistributor | U::Fragmenter, _) => Ok(()),
        (user, true) if user.is_data() => match view.message_type() {
            MessageType::Mcast
            | MessageType::GroupBcast
            | MessageType::GroupMcast
            | MessageType::GroupUcast => Ok(()),
            _ => illegal,
        },
        (_, true) => illegal,
        (user, false) if user.is_data() && view.message_type() == MessageType::GroupEvent => illegal,
        (_, false) => Ok(()),
    }
}
