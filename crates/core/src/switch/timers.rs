//! Timers of the switch. Spec: tipc.md §4.5, §5.6.

use super::Switch;
use crate::addr::NodeAddr;
use crate::link::DownReason;
use crate::outbox::BearerId;
use crate::time::Time;

/// Time for which a node that is down is remembered, milliseconds. Spec: tipc.md §6.6.
const RETENTION_MS: u64 = 300_000;
/// Interval at which unused memory of messages is freed, milliseconds.
const TRIM_MS: u64 = 1000;

/// Peers whose timers one call handles; the deadline stays in the past while more are due. Ours: about a millisecond.
const TICKS_PER_CALL: usize = 512;

impl Switch {
    pub(crate) fn deadline(&self) -> Option<Time> {
        if !self.leaving.is_empty() || !self.bulks.is_empty() {
            return Some(Time::ZERO);
        }
        let discovery = self.bearers.iter().flatten().filter_map(|b| b.discoverer.deadline()).min();
        let tick = self.ticks.first().map(|(at, _)| *at);
        let trim = self.pool.needs_trim().then_some(self.trim_at);
        discovery.into_iter().chain(tick).chain(self.encryption.rekey_at()).chain(trim).min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        if self.encryption.rekey_at().is_some_and(|at| at <= now) {
            self.rekey(now).ok(); // an unfinished change of keys comes first
        }
        if self.trim_at <= now {
            self.pool.trim();
            self.trim_at = now.plus_millis(TRIM_MS);
        }
        for id in 0..self.bearers.len() as BearerId {
            self.discovery_timeout(now, id);
        }
        self.work.begin_timers();
        if let Some(lost) = self.leaving.first().copied() {
            self.withdraw_some_names_of(lost);
        }
        self.continue_next_bulk(now);
        for _ in 0..TICKS_PER_CALL {
            let Some((at, addr)) = self.ticks.first().copied().filter(|(at, _)| *at <= now) else { break };
            self.ticks.remove(&(at, addr));
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
        let Some(member) = self.members.get_mut(&addr) else { return };
        member.parts.tick();
        member.receiver.state_sent(); // the STATE of a tick acknowledges broadcasts too
        let (interval_ms, tolerance_ms) = (member.peer.tick_ms(), member.peer.tolerance_ms());
        if self.bcast.tick_peer(addr, interval_ms, tolerance_ms) {
            self.reset_peer(now, addr, DownReason::Broadcast);
        }
        self.account_deferred(addr);
        self.with_broadcast(|bcast, io| bcast.wake(io));
        self.forget_updates();
    }

    fn discovery_timeout(&mut self, now: Time, id: BearerId) {
        let mut outputs = Vec::new();
        let bearer = self.bearers.get_mut(usize::from(id)).and_then(Option::as_mut);
        if let (Some(bearer), Some(own)) = (bearer, self.own.as_mut()) {
            bearer.discoverer.handle_timeout(now, own, &mut outputs);
        }
        self.act_on_discovery(now, id, outputs);
    }

    fn retention_is_over(&self, now: Time, addr: NodeAddr) -> bool {
        let down = |m: &super::Member| !m.peer.is_up() && now >= m.peer.down_since.plus_millis(RETENTION_MS);
        self.members.get(&addr).is_none_or(down)
    }

    pub(super) fn remove_peer(&mut self, addr: NodeAddr) {
        if let Some(member) = self.members.remove(addr) {
            self.ticks.remove(&(member.peer.next_tick, addr));
            self.encryption.forget(self.now, &member.peer.id);
            self.deferral.remove(addr, &member.deferred);
            self.congestion.note(addr, 0);
            self.monitor_forget(addr);
        }
    }
}
