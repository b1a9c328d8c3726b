//! The neighbour monitor of each bearer: passes its verdicts to the links, and monitor records from STATE messages to
//! it. Spec: tipc.md §11.

use super::bearers::Bearers;
use crate::addr::NodeAddr;
use crate::limits::MAX_BEARERS;
use crate::link::MonitorVerdict;
use crate::monitor::{MonitorSession, record_in_state};
use crate::node::peer::Peer;
use crate::outbox::BearerId;
use crate::wire::{LinkProtocolType, User, View};

impl Bearers {
    pub(super) fn monitor_link_up(&mut self, peer: &mut Peer, id: BearerId) {
        begin_session(peer, id);
        if let Some(bearer) = self.get_mut(id) {
            bearer.monitor.peer_up(peer.addr);
        }
    }

    pub(super) fn monitor_link_down(&mut self, peer: &mut Peer, id: BearerId) {
        begin_session(peer, id);
        if let Some(bearer) = self.get_mut(id) {
            bearer.monitor.peer_down(peer.addr);
        }
    }

    pub(super) fn monitor_forget(&mut self, addr: NodeAddr) {
        for bearer in self.iter_mut() {
            bearer.monitor.remove_peer(addr);
        }
    }

    /// Before a tick: passes the monitors' verdicts to the links of a peer. An encrypted link `needs_packets`: keys of
    /// a peer that is silent for 3 s are set aside (tipc.md §12.5).
    pub(super) fn monitor_tick(&self, peer: &mut Peer, needs_packets: bool) {
        for id in 0..MAX_BEARERS as BearerId {
            let addr = peer.addr;
            let (Some(bearer), Some(slot)) = (self.get(id), peer.slot_mut(id)) else { continue };
            let verdict = bearer.monitor.verdict(addr, &mut slot.monitor);
            slot.link.set_monitor(MonitorVerdict {
                supervised: verdict.supervised,
                probing: verdict.probing,
                probes_when_idle: verdict.supervised || needs_packets,
                reset: verdict.reset,
            });
            slot.link.set_monitor_record(bearer.monitor.record(&slot.monitor));
        }
    }

    /// Before a link processes a STATE: passes on its monitor record. False if the record is malformed: it is ignored,
    /// the STATE is not.
    pub(super) fn monitor_state(&mut self, peer: &mut Peer, id: BearerId, view: View<'_>) -> bool {
        if view.user() != User::LinkProtocol || view.link_type() != LinkProtocolType::State {
            return true;
        }
        let (addr, capabilities) = (peer.addr, peer.capabilities);
        let (Some(bearer), Some(slot)) = (self.get_mut(id), peer.slot_mut(id)) else { return true };
        if !slot.link.is_up() || !slot.link.accepts_protocol(view) {
            return true;
        }
        let record = record_in_state(view, capabilities);
        let is_accepted = bearer.monitor.receive(addr, &mut slot.monitor, record).is_ok();
        slot.link.set_monitor_record(bearer.monitor.record(&slot.monitor));
        is_accepted
    }
}

/// The peer's session of the monitor has ended: the next record is complete, and acknowledges nothing. A record of the
/// session before would be the first one that the peer gets, which it takes for this node's domain.
fn begin_session(peer: &mut Peer, id: BearerId) {
    if let Some(slot) = peer.slot_mut(id) {
        slot.monitor = MonitorSession::default();
        slot.link.set_monitor_record(Vec::new());
    }
}
