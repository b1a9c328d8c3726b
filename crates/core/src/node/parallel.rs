//! Filtering of packets, and the interplay of two parallel links: synchronisation when a second one comes up, failover
//! when one goes down. Spec: tipc.md §5.12, §5.13, §6.3.

use super::peer::{Ctx, Peer};
use super::state::{Event, State};
use crate::link::{self, DownReason};
use crate::link::{failover_point, synch_point};
use crate::outbox::BearerId;
use crate::wire::{LinkProtocolType, User, View, seq};

/// Provisional sync point, beyond every packet that can arrive. Spec: tipc.md §5.13.
const FAR: u16 = 32_766;

impl Peer {
    /// The other link, if packets of `bearer`'s link may have to wait for its traffic.
    fn parallel(&self, bearer: BearerId) -> Option<BearerId> {
        self.links().map(|(id, _)| id).find(|id| *id != bearer)
    }

    /// Updates the contact state for a packet that arrived on `bearer`; returns true if its link may process the
    /// packet.
    pub(crate) fn admit(&mut self, view: View<'_>, bearer: BearerId, ctx: &mut Ctx<'_>) -> bool {
        let Some(slot) = self.slot(bearer) else { return false };
        let protocol = view.user() == User::LinkProtocol;
        if protocol && !slot.link.accepts_protocol(view) {
            return false;
        }
        let (link_up, rcv_nxt) = (slot.link.is_up(), slot.link.rcv_nxt());
        let first_seqno = slot.link.config().first_seqno;
        let peer_link_up = !protocol || view.link_type() == LinkProtocolType::State;
        match self.state {
            State::SelfUpPeerComing => {
                if !link_up || !peer_link_up {
                    return true;
                }
                self.event(Event::PeerEstablished);
            }
            State::SelfDownPeerLeaving => {
                if peer_link_up || view.redundant_link() {
                    return false;
                }
                self.event(Event::PeerLost);
                return true;
            }
            State::SelfLeavingPeerDown => return false,
            _ => {}
        }
        if !protocol && seq::lt(view.seqno(), rcv_nxt) {
            return true;
        }
        if let Some(point) = failover_point(view) {
            self.receive_failover(point, bearer, ctx);
        }
        if self.state == State::FailingOver && link_up {
            if seq::gt(rcv_nxt, self.sync_point) {
                self.end_failover(bearer);
            }
            return true;
        }
        let Some(parallel) = self.parallel(bearer) else { return true };
        if !self.slot(parallel).is_some_and(|s| s.link.is_up()) {
            return true;
        }
        let synch = synch_point(view);
        if let Some(point) = synch
            && view.seqno() == first_seqno
        {
            self.receive_synch(point, bearer, ctx);
        }
        let overtakes = protocol || synch.is_some();
        self.state != State::Synching || self.update_synch(bearer, parallel, overtakes)
    }

    /// A packet of a failed link; the last of them marks the end of the failover.
    fn receive_failover(&mut self, candidate: u16, bearer: BearerId, ctx: &mut Ctx<'_>) {
        let parallel = self.parallel(bearer);
        if let Some(parallel) = parallel
            && self.slot(parallel).is_some_and(|s| !s.link.is_reset())
        {
            self.take_down(parallel, DownReason::PeerReset, ctx);
        }
        if self.state != State::FailingOver {
            self.answer_failover(parallel, bearer, ctx);
        }
        if seq::lt(candidate, self.sync_point) {
            self.sync_point = candidate;
        }
    }

    /// The peer's link went down before the one here was ever up: answers with an empty failover, so that both ends
    /// leave the state.
    fn answer_failover(&mut self, failed: Option<BearerId>, tunnel: BearerId, ctx: &mut Ctx<'_>) {
        let failed_ready = failed.is_none_or(|f| self.slot(f).is_some_and(|s| s.link.is_reset()));
        let Some(slot) = self.slot_mut(tunnel).filter(|s| s.link.is_up() && failed_ready) else { return };
        slot.link.event(link::Event::SynchEnd);
        self.sync_point = slot.link.rcv_nxt().wrapping_add(FAR);
        let peer_bearer = failed.and_then(|f| self.slot(f)).map_or(0, |s| s.link.peer_bearer());
        self.event(Event::SynchEnd);
        self.with_link(tunnel, ctx, |link, io| link.join_failover(peer_bearer, io));
        if let Some(slot) = failed.and_then(|f| self.slot_mut(f)) {
            slot.link.event(link::Event::FailoverBegin);
        }
        self.event(Event::FailoverBegin);
    }

    fn end_failover(&mut self, bearer: BearerId) {
        self.event(Event::FailoverEnd);
        if let Some(slot) = self.parallel(bearer).and_then(|p| self.slot_mut(p)) {
            slot.link.event(link::Event::FailoverEnd);
        }
    }

    /// The first packet of a second link: packets of the first link up to the sync point go first.
    fn receive_synch(&mut self, sync_point: u16, bearer: BearerId, ctx: &mut Ctx<'_>) {
        self.link_up(bearer, ctx);
        if self.state == State::SelfUpPeerUp {
            self.sync_point = sync_point;
            if let Some(slot) = self.slot_mut(bearer) {
                slot.link.event(link::Event::SynchBegin);
            }
            self.event(Event::SynchBegin);
        }
    }

    /// True if a packet on `bearer` may pass during synchronisation. Ends the synchronisation once the first link has
    /// delivered everything up to the sync point. Deliveries are drained after every packet, so everything received has
    /// been delivered.
    fn update_synch(&mut self, bearer: BearerId, parallel: BearerId, overtakes: bool) -> bool {
        let synching = self.slot(bearer).is_some_and(|s| s.link.is_synching());
        let (new, old) = if synching { (bearer, parallel) } else { (parallel, bearer) };
        let delivered_next = self.slot(old).map_or(0, |s| s.link.rcv_nxt());
        if seq::gt(delivered_next, self.sync_point) {
            if let Some(slot) = self.slot_mut(new) {
                slot.link.event(link::Event::SynchEnd);
            }
            self.event(Event::SynchEnd);
            return true;
        }
        bearer == old || overtakes
    }

    /// A second link came up: tells the peer which packets of the first one precede those of the new one.
    pub(super) fn start_synch(&mut self, old: BearerId, new: BearerId, ctx: &mut Ctx<'_>) {
        let Some(slot) = self.slot(old) else { return };
        let synch = slot.link.synch_message();
        let now = ctx.now;
        self.with_link(new, ctx, |link, io| link.send(now, synch, io));
    }

    /// A link went down while another is up: its undelivered packets are sent over the other.
    pub(super) fn start_failover(&mut self, failed: BearerId, tunnel: BearerId, ctx: &mut Ctx<'_>) {
        let Some(slot) = self.slot_mut(tunnel) else { return };
        slot.link.event(link::Event::SynchEnd);
        let sync_point = slot.link.rcv_nxt().wrapping_add(FAR);
        self.event(Event::SynchEnd);
        self.sync_point = sync_point;
        let Some(slot) = self.slot_mut(failed) else { return };
        let failover = slot.link.take_failover();
        let mut wakeups = Vec::new();
        slot.link.reset(&mut wakeups);
        slot.link.event(link::Event::LocalReset);
        slot.link.event(link::Event::FailoverBegin);
        self.wakeups.append(&mut wakeups);
        self.event(Event::FailoverBegin);
        let carried = self.with_link(tunnel, ctx, |link, io| link.carry_failover(failover, io));
        if !matches!(carried, Some(Ok(()))) {
            // The undelivered packets of the failed link are lost, so contact must be broken.
            self.take_down(tunnel, DownReason::Failover, ctx);
        }
    }
}
