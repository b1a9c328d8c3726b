//! Timers of the switch. Spec: tipc.md §4.5, §5.6.

use super::Switch;
use crate::addr::NodeAddr;
use crate::limits::MAX_BEARERS;
use crate::link::DownReason;
use crate::outbox::BearerId;
use crate::time::Time;
use crate::timers::{Timer, Timers};

/// Time for which a node that is down is remembered, milliseconds. Spec: tipc.md §6.6.
const RETENTION_MS: u64 = 300_000;

/// Peers whose timers one call handles; the deadline stays in the past while more are due. Ours: about a millisecond.
const TICKS_PER_CALL: usize = 512;

const TIMERS: Timers<Switch> = Timers(&[
    Timer {
        due: |switch, _| switch.encryption.rekey_at().unwrap_or(Time::NEVER),
        handle: Switch::rekey_timeout,
    },
    Timer { due: |switch, _| switch.pool.trim_due(), handle: |switch, now| switch.pool.trim_timeout(now) },
    Timer { due: Switch::discovery_deadline, handle: Switch::discovery_timeouts },
    Timer { due: Switch::bindings_deadline, handle: Switch::continue_bindings },
    Timer { due: |switch, _| switch.peers.next_tick(), handle: Switch::tick_peers },
]);

impl Switch {
    pub(crate) fn deadline(&self) -> Time {
        TIMERS.deadline(self, self.now)
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        TIMERS.handle(self, now);
    }

    fn rekey_timeout(&mut self, now: Time) {
        if self.encryption.rekey_at().is_some_and(|at| at <= now) {
            self.rekey(now).ok(); // an unfinished change of keys comes first
        }
    }

    fn discovery_deadline(&self, _: Time) -> Time {
        let deadlines = self.bearers.iter().filter_map(|(_, bearer)| bearer.discoverer.deadline());
        deadlines.min().unwrap_or(Time::NEVER)
    }

    fn discovery_timeouts(&mut self, now: Time) {
        for id in 0..MAX_BEARERS as BearerId {
            self.discovery_timeout(now, id);
        }
    }

    /// Bindings of lost nodes and for new neighbours wait for nothing but the next call.
    fn bindings_deadline(&self, _: Time) -> Time {
        if self.bindings.has_work() { Time::ZERO } else { Time::NEVER }
    }

    fn continue_bindings(&mut self, now: Time) {
        self.work.begin_timers();
        if let Some(lost) = self.bindings.first_leaving() {
            self.withdraw_some_names_of(lost);
        }
        self.continue_next_bulk(now);
    }

    fn tick_peers(&mut self, now: Time) {
        for _ in 0..TICKS_PER_CALL {
            let Some(addr) = self.peers.take_tick(now) else { break };
            if self.retention_is_over(now, addr) {
                self.remove_peer(addr);
            } else {
                self.tick_peer(now, addr);
            }
        }
    }

    fn tick_peer(&mut self, now: Time, addr: NodeAddr) {
        self.monitor_tick(addr);
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

    fn discovery_timeout(&mut self, now: Time, id: BearerId) {
        let mut outputs = Vec::new();
        let bearer = self.bearers.get_mut(id);
        if let (Some(bearer), Some(own)) = (bearer, self.own.as_mut()) {
            bearer.discoverer.handle_timeout(now, own, &mut outputs);
        }
        self.act_on_discovery(now, id, outputs);
    }

    fn retention_is_over(&self, now: Time, addr: NodeAddr) -> bool {
        let down =
            |m: &super::PeerEntry| !m.peer.is_up() && now >= m.peer.down_since.plus_millis(RETENTION_MS);
        self.peers.get(&addr).is_none_or(down)
    }

    pub(super) fn remove_peer(&mut self, addr: NodeAddr) {
        if let Some(entry) = self.peers.remove(addr) {
            self.encryption.forget(self.now, &entry.peer.id);
            self.deferral.remove(addr, &entry.deferred);
            self.senders.note_congestion(addr, 0);
            self.monitor_forget(addr);
        }
    }
}
