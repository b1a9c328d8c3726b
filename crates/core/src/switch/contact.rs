//! Reactions of the node to links and contacts that come up or go down. Spec: tipc.md §6.4, §6.6.

use super::{PeerEntry, Switch};
use crate::addr::{Binding, NodeAddr, PortId, Scope, ServiceRange};
use crate::broadcast::{BroadcastIo, BroadcastSender};
use crate::event::Event;
use crate::limits::LINK_STATE;
use crate::link::{BcastStamp, Link, Parts};
use crate::node::peer::{Ctx, Notice, Peer};
use crate::outbox::BearerId;
use crate::planted::{self, Fault};
use crate::time::Time;
use crate::wire::{ErrorCode, Message, MessageType, SHORT_HEADER, User};

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
        self.account_deferred(addr);
        let entry = self.peers.get_mut(&addr)?;
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
        self.monitor_link_up(addr, bearer);
        let binding = link_binding(addr, id, self.own_node());
        self.publish_internal(now, binding);
        self.event(Event::LinkUp { link: name, peer: addr });
    }

    fn link_down(&mut self, now: Time, addr: NodeAddr, bearer: BearerId, mtu: u16) {
        if let Some(b) = self.bearers.get_mut(bearer) {
            b.discoverer.link_down(now);
        }
        self.bcast.link_down(bearer, mtu.into());
        self.monitor_link_down(addr, bearer);
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
        self.forget_hold(addr);
        if !planted::active(Fault::NodeBindingsStay) {
            self.withdraw_some_names_of(addr);
        }
        if !planted::active(Fault::ConnectionsStay) {
            for (port, peer) in self.connections.to(addr) {
                self.delivery.push(port, no_node(peer, port));
            }
        }
        self.peers.note_lost(addr);
        self.event(Event::NodeDown(addr));
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
