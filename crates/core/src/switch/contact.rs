//! What follows from neighbours, links and contacts that come, go or are due. Spec: tipc.md §4.5, §6.4, §6.6.

use super::Switch;
use super::peers::PeerEntry;
use crate::addr::{Binding, NodeAddr, PortId, Scope, ServiceRange};
use crate::broadcast::{BroadcastIo, BroadcastSender};
use crate::discovery::{Neighbour, Output, Relation, evaluate};
use crate::event::Event;
use crate::limits::{LINK_STATE, MAX_BEARERS};
use crate::link::{BcastStamp, DownReason, Link, LinkConfig, Parts};
use crate::node::peer::{Ctx, Notice, Peer};
use crate::outbox::{BearerId, Target};
use crate::planted::{self, Fault};
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType, SHORT_HEADER, User};

/// Peers whose timers one call handles; the deadline stays in the past while more are due. Ours: about a millisecond.
const TICKS_PER_CALL: usize = 512;

impl Switch {
    /// Runs `f` on a peer, then processes what follows from it in the rest of the switch.
    pub(super) fn with_peer<R>(
        &mut self,
        now: Time,
        addr: NodeAddr,
        f: impl FnOnce(&mut Peer, &mut Ctx<'_>) -> R,
    ) -> Option<R> {
        let entry = self.peers.get_mut(&addr)?;
        let before = entry.peer.next_tick;
        let stamp = stamp(entry, &self.bcast);
        let deferral_room = self.deferral.room(&entry.deferred);
        let mut ctx = Ctx {
            now,
            frames: &mut self.frames,
            pool: &mut self.pool,
            stamp: &stamp,
            deferral_room,
            skips_idle_ticks: !self.encryption.is_on(), // the keys of a peer follow its ticks
        };
        let result = f(&mut entry.peer, &mut ctx);
        let after = entry.peer.next_tick;
        self.peers.reschedule(addr, before, after);
        let entry = self.peers.get_mut(&addr)?;
        self.deferral.account(addr, entry);
        for wakeup in entry.peer.wakeups.drain(..) {
            self.senders.wake(wakeup.port, addr);
        }
        let congestion = entry.peer.congestion(entry.congestion);
        if congestion != entry.congestion {
            entry.congestion = congestion;
            self.senders.note_congestion(addr, congestion);
        }
        if !entry.peer.notices.is_empty() {
            for notice in core::mem::take(&mut entry.peer.notices) {
                self.act_on_notice(now, addr, notice);
            }
        }
        if self.peers.get(&addr).is_some_and(|m| !m.peer.delivered.is_empty()) {
            self.dispatch_delivered(now, addr);
        }
        Some(result)
    }

    /// Runs `f` on the broadcast link, then wakes the sockets that may send again.
    pub(super) fn with_broadcast<R>(
        &mut self,
        f: impl FnOnce(&mut BroadcastSender, &mut BroadcastIo<'_>) -> R,
    ) -> R {
        let mut wakeups = Vec::new();
        let mut io = BroadcastIo { frames: &mut self.frames, wakeups: &mut wakeups };
        let result = f(&mut self.bcast, &mut io);
        wakeups.into_iter().for_each(|wakeup| self.senders.wake(wakeup.port, NodeAddr::NONE));
        result
    }

    fn act_on_notice(&mut self, now: Time, addr: NodeAddr, notice: Notice) {
        match notice {
            Notice::LinkUp { bearer, mtu } => self.link_up(now, addr, bearer, mtu),
            Notice::LinkDown { bearer, mtu, name, reason } => {
                self.link_down(now, addr, bearer, mtu);
                self.event(Event::LinkDown { link: name, peer: addr, reason });
            }
            Notice::Mtu { bearer, from, to } => {
                let has_broadcast = self.bearers.get(bearer).is_some_and(|b| b.config.has_broadcast);
                self.bcast.link_resized(bearer, from.into(), to.into(), has_broadcast);
            }
            Notice::Path(bearer) => {
                if let Some(link) = self.link(addr, bearer) {
                    let (mtu, limit) = (link.mtu(), link.mtu_limit());
                    self.event(Event::PathSize { link: link.name(), peer: addr, mtu, limit });
                }
            }
            Notice::LinkGone(id) => self.withdraw_internal(now, link_binding(addr, id, self.own_node())),
            Notice::ContactUp => self.contact_up(now, addr),
            Notice::ContactLost => self.contact_lost(now, addr),
        }
    }

    fn link_up(&mut self, now: Time, addr: NodeAddr, bearer: BearerId, mtu: u16) {
        self.peers.has_answered(addr);
        let mut has_broadcast = false;
        if let Some(b) = self.bearers.get_mut(bearer) {
            b.discoverer.link_up();
            has_broadcast = b.config.has_broadcast;
        }
        let Some(link) = self.link(addr, bearer) else { return };
        let (name, id) = (link.name(), link.id());
        self.bcast.link_up(bearer, usize::from(mtu), has_broadcast);
        if let Some(entry) = self.peers.get_mut(&addr) {
            self.bearers.monitor_link_up(&mut entry.peer, bearer);
        }
        let binding = link_binding(addr, id, self.own_node());
        self.publish_internal(now, binding);
        self.event(Event::LinkUp { link: name, peer: addr });
    }

    fn link_down(&mut self, now: Time, addr: NodeAddr, bearer: BearerId, mtu: u16) {
        if let Some(b) = self.bearers.get_mut(bearer) {
            b.discoverer.link_down(now);
        }
        self.bcast.link_down(bearer, mtu.into());
        if let Some(entry) = self.peers.get_mut(&addr) {
            self.bearers.monitor_link_down(&mut entry.peer, bearer);
        }
    }

    /// The first link is up: BCAST_PROTOCOL is its first packet, this node's bindings follow.
    fn contact_up(&mut self, now: Time, addr: NodeAddr) {
        if !self.peers.begin_contact(addr) {
            return;
        }
        let init = self.bcast.add_peer(addr);
        self.event(Event::NodeUp(addr));
        self.send_to_peer(now, addr, init, 0).ok();
        self.begin_bulk(now, addr);
    }

    /// The last link is down: removes what was learned from the peer, and aborts connections to it.
    fn contact_lost(&mut self, now: Time, addr: NodeAddr) {
        self.with_broadcast(|bcast, io| bcast.remove_peer(now, addr, io));
        self.forget_updates();
        if let Some(entry) = self.peers.get_mut(&addr) {
            entry.receiver.reset();
            entry.names.reset();
            if entry.bulk.take().is_some() {
                self.bindings.drop_bulk(addr);
            }
            entry.parts = Parts::default();
            entry.peer.delivered.clear();
        }
        self.forget_withdrawals();
        self.account_deferred(addr);
        self.holds.forget(addr, self.peers.get_mut(&addr));
        if !planted::active(Fault::NodeBindingsStay) {
            self.withdraw_some_names_of(addr);
        }
        if !planted::active(Fault::ConnectionsStay) {
            for (port, peer) in self.delivery.connections_to(addr) {
                self.delivery.push(port, no_node(peer, port));
            }
        }
        self.peers.note_lost(addr);
        self.event(Event::NodeDown(addr));
    }

    /// Counts what a peer holds, after a call that may have changed it.
    pub(super) fn account_deferred(&mut self, addr: NodeAddr) {
        if let Some(entry) = self.peers.get_mut(&addr) {
            self.deferral.account(addr, entry);
        }
    }

    pub(super) fn act_on_discovery(&mut self, now: Time, id: BearerId, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Broadcast(message) => self.frames.push(id, Target::Broadcast, message.bytes()),
                Output::Unicast(to, message) => self.frames.push(id, Target::Unicast(to), message.bytes()),
                Output::AddressFinal(_) => self.address_final(now),
                Output::Neighbour(neighbour) => self.handle_neighbour(now, id, &neighbour),
            }
        }
    }

    /// Evaluates a neighbour: creates or changes a link, responds, or does nothing.
    fn handle_neighbour(&mut self, now: Time, id: BearerId, neighbour: &Neighbour) {
        let addr = neighbour.addr;
        if let Relation::OtherAddress(old) = neighbour.relation {
            if self.peers.get(&old).is_some_and(|m| m.peer.is_up()) {
                // two nodes with one identity, or a node that changed its address too early: the first one stays
                return;
            }
            self.remove_peer(old);
        }
        if !self.peers.contains_key(&addr) {
            if let Some(stranger) = self.peers.to_replace() {
                self.remove_peer(stranger);
            }
            let peer = Peer::new(now, addr, neighbour.id, neighbour.capabilities);
            self.peers.insert(PeerEntry::new(peer, self.own_node()));
        }
        let Some(PeerEntry { peer, .. }) = self.peers.get(&addr) else { return };
        let slot = peer.slot(id);
        let signature_same = peer.signature == Some(neighbour.signature);
        let address_same = slot.is_some_and(|s| s.media == neighbour.media);
        let link_up = slot.is_some_and(|s| s.link.is_up());
        let linked = slot.is_some();
        let verdict = evaluate(signature_same, address_same, link_up);
        if verdict.duplicate {
            return self.event(Event::DuplicateAddress(addr));
        }
        let can_link = peer.can_link();
        if verdict.store_signature {
            self.peers.renew(neighbour);
        }
        let mut respond = verdict.respond;
        if verdict.accept_address && linked {
            self.with_peer(now, addr, |peer, ctx| peer.move_link(id, neighbour.media, ctx));
        } else if verdict.accept_address && !can_link {
            respond = false; // two links are enough
        } else if verdict.accept_address {
            self.make_link(now, id, neighbour);
        }
        if respond {
            if let Some(own) = self.own.as_ref() {
                self.bearers.respond(id, own, neighbour, &mut self.frames);
            }
            self.with_peer(now, addr, |peer, ctx| peer.try_again(id, ctx));
        }
    }

    fn make_link(&mut self, now: Time, id: BearerId, neighbour: &Neighbour) {
        let random = self.rng.next_u32() as u16;
        let Some(bearer) = self.bearers.get(id) else { return };
        let link = Link::new(LinkConfig {
            session: self.config.first_session.unwrap_or(random),
            overhead: self.encryption.overhead() as u16,
            first_seqno: self.config.first_seqno,
            ..bearer.link_config(id, self.own(), neighbour)
        });
        self.with_peer(now, neighbour.addr, |peer, ctx| peer.add_link(id, link, neighbour.media, ctx));
    }

    pub(super) fn discovery_timeouts(&mut self, now: Time) {
        for id in 0..MAX_BEARERS as BearerId {
            let mut outputs = Vec::new();
            let bearer = self.bearers.get_mut(id);
            if let (Some(bearer), Some(own)) = (bearer, self.own.as_mut()) {
                bearer.discoverer.handle_timeout(now, own, &mut outputs);
            }
            self.act_on_discovery(now, id, outputs);
        }
    }

    pub(super) fn tick_peers(&mut self, now: Time) {
        for _ in 0..TICKS_PER_CALL {
            let Some(addr) = self.peers.take_tick(now) else { break };
            if self.peers.is_forgotten(now, addr) {
                self.remove_peer(addr);
            } else {
                self.tick_peer(now, addr);
            }
        }
    }

    fn tick_peer(&mut self, now: Time, addr: NodeAddr) {
        if let Some(entry) = self.peers.get_mut(&addr) {
            self.bearers.monitor_tick(&mut entry.peer, self.encryption.is_on());
        }
        self.tick_keys(now, addr);
        self.with_peer(now, addr, |peer, ctx| peer.tick(ctx));
        let Some(entry) = self.peers.get_mut(&addr) else { return };
        entry.parts.tick();
        entry.receiver.state_sent(); // the STATE of a tick acknowledges broadcasts too
        let (interval_ms, tolerance_ms) = (entry.peer.tick_ms(), entry.peer.tolerance_ms());
        if self.bcast.tick_peer(addr, interval_ms, tolerance_ms) {
            self.reset_peer(now, addr, DownReason::Broadcast);
        }
        self.account_deferred(addr);
        self.with_broadcast(|bcast, io| bcast.wake(io));
        self.forget_updates();
    }

    pub(super) fn remove_peer(&mut self, addr: NodeAddr) {
        if let Some(entry) = self.peers.remove(addr) {
            self.encryption.forget(self.now, &entry.peer.id);
            self.deferral.remove(addr, &entry.deferred);
            self.senders.note_congestion(addr, 0);
            self.bearers.monitor_forget(addr);
        }
    }

    pub(crate) fn link(&self, addr: NodeAddr, bearer: BearerId) -> Option<&Link> {
        Some(&self.peers.get(&addr)?.peer.slot(bearer)?.link)
    }
}

/// The broadcast state that links to a peer stamp into packets.
fn stamp(entry: &PeerEntry, bcast: &BroadcastSender) -> BcastStamp {
    let receiver = &entry.receiver;
    BcastStamp {
        ack: receiver.ack(),
        ack_invalid: !receiver.is_open(),
        last_sent: bcast.last_sent(),
        gap: receiver.gap(),
        gap_blocks: receiver.gap_blocks(),
        unacked: receiver.is_unacked(),
        waiting: bcast.is_waiting_for(entry.peer.addr),
    }
}

fn link_binding(peer: NodeAddr, id: u32, own: NodeAddr) -> Binding {
    let range = ServiceRange::new(LINK_STATE, peer.0, peer.0);
    Binding { range, scope: Scope::Node, port: PortId { port: id, node: own }, key: id }
}

/// The message that ends a connection when contact with the peer's node is lost.
fn no_node(peer: PortId, port: u32) -> Message {
    let mut message = Message::build(User::Critical, MessageType::Conn.into(), SHORT_HEADER, &[]);
    message.set_error_code(ErrorCode::NoNode);
    message.set_prev_node(peer.node);
    message.set_origin_port(peer.port);
    message.set_dest_port(port);
    message
}
