//! The neighbour monitor of each bearer: passes its verdicts to the links, and monitor records from STATE messages to
//! it. Spec: tipc.md §11.

use super::Switch;
use crate::addr::NodeAddr;
use crate::limits::MAX_BEARERS;
use crate::link::MonitorVerdict;
use crate::monitor::{MonitorSession, record_in_state};
use crate::outbox::BearerId;
use crate::wire::{LinkProtocolType, User, View};

impl Switch {
    pub(super) fn monitor_link_up(&mut self, addr: NodeAddr, bearer: BearerId) {
        self.monitor_begin_session(addr, bearer);
        if let Some(bearer) = self.bearers.get_mut(bearer) {
            bearer.monitor.peer_up(addr);
        }
    }

    /// The peer's session of the monitor has ended: the next record is complete, and acknowledges nothing. A record of
    /// the session before would be the first one that the peer gets, which it takes for this node's domain.
    fn monitor_begin_session(&mut self, addr: NodeAddr, bearer: BearerId) {
        if let Some(slot) = self.peers.get_mut(&addr).and_then(|m| m.peer.slot_mut(bearer)) {
            slot.monitor = MonitorSession::default();
            slot.link.set_monitor_record(Vec::new());
        }
    }

    pub(super) fn monitor_link_down(&mut self, addr: NodeAddr, bearer: BearerId) {
        self.monitor_begin_session(addr, bearer);
        if let Some(bearer) = self.bearers.get_mut(bearer) {
            bearer.monitor.peer_down(addr);
        }
    }

    pub(super) fn monitor_forget(&mut self, addr: NodeAddr) {
        for bearer in self.bearers.iter_mut() {
            bearer.monitor.remove_peer(addr);
        }
    }

    /// Before a tick: passes the monitor's verdicts to the links of a peer.
    pub(super) fn monitor_tick(&mut self, addr: NodeAddr) {
        let Some(entry) = self.peers.get_mut(&addr) else { return };
        // Keys of a peer that is silent for 3 s are set aside (tipc.md §12.5).
        let needs_packets = self.encryption.is_on();
        for id in 0..MAX_BEARERS as BearerId {
            let bearer = self.bearers.get(id);
            let (Some(bearer), Some(slot)) = (bearer, entry.peer.slot_mut(id)) else { continue };
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

    /// Before a link processes a STATE: passes on its monitor record. A malformed record is ignored, the STATE is not.
    pub(super) fn monitor_state(&mut self, addr: NodeAddr, id: BearerId, view: View<'_>) {
        if view.user() != User::LinkProtocol || view.link_type() != LinkProtocolType::State {
            return;
        }
        let bearer = self.bearers.get_mut(id);
        let Some(entry) = self.peers.get_mut(&addr) else { return };
        let capabilities = entry.peer.capabilities;
        let (Some(bearer), Some(slot)) = (bearer, entry.peer.slot_mut(id)) else { return };
        if !slot.link.is_up() || !slot.link.accepts_protocol(view) {
            return;
        }
        let record = record_in_state(view, capabilities);
        if bearer.monitor.receive(addr, &mut slot.monitor, record).is_err() {
            self.stats.monitor_records_refused += 1;
        }
        slot.link.set_monitor_record(bearer.monitor.record(&slot.monitor));
    }
}
