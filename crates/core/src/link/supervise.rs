//! The link timer and the properties that control it. Spec: tipc.md §5.6.

use super::deliver::ACK_THRESHOLD;
use super::protocol::StateNote;
use super::{DownReason, Link, LinkIo, Outgoing, State};
use crate::limits::{MAX_TOLERANCE_MS, MIN_TOLERANCE_MS};
use crate::time::Time;
use crate::wire::User;

/// Longest interval between two ticks of a link, milliseconds. Spec: tipc.md §5.6.
const MAX_INTERVAL_MS: u32 = 500;
/// Number of ticks, from the first on, that each send a RESET. Spec: tipc.md §5.6.
const EAGER_RESETS: u32 = 5;
/// After those, RESET is sent at every tick whose number is a multiple of this. Spec: tipc.md §5.6.
const LAZY_RESET_PERIOD: u32 = 16;

/// Ticks at which a peer that has not shown that it hears this node gets a setup message, after the one at once. Any
/// host can send messages in the name of another one: they make this node send at most five bytes for each.
const STRANGER_TICKS: [u32; 4] = [1, 2, 16, 160];
/// Ticks after those that are not called: with the default tolerance the next one is due when the node forgets the
/// peer.
const LONG_IDLE_TICKS: u32 = 639;

/// Interval between two ticks for a tolerance, milliseconds.
pub(super) fn interval_ms(tolerance_ms: u32) -> u32 {
    (tolerance_ms / 4).clamp(1, MAX_INTERVAL_MS)
}

impl Link {
    /// Interval between two ticks that this link needs; the node uses the smallest of its links.
    #[must_use]
    pub fn wanted_interval_ms(&self) -> u32 {
        interval_ms(self.config.tolerance_ms)
    }

    /// Sets the interval at which [`tick`](Self::tick) is called.
    pub fn set_interval_ms(&mut self, interval_ms: u32) {
        self.interval_ms = interval_ms.max(1);
    }

    /// Number of coming ticks that do nothing, if no message arrives. The node need not call [`tick`](Self::tick) for
    /// them, but counts them with [`skip_ticks`](Self::skip_ticks).
    pub(crate) fn idle_ticks(&self) -> u32 {
        if !self.is_heard && matches!(self.state, State::Reset | State::Establishing) {
            let next = STRANGER_TICKS.iter().find(|tick| **tick > self.session.setup_ticks);
            return next.map_or(LONG_IDLE_TICKS, |tick| tick - self.session.setup_ticks - 1);
        }
        if self.state != State::Reset || self.session.setup_ticks < EAGER_RESETS {
            return 0;
        }
        LAZY_RESET_PERIOD - 1 - self.session.setup_ticks % LAZY_RESET_PERIOD
    }

    /// Counts ticks that did nothing.
    pub(crate) fn skip_ticks(&mut self, ticks: u32) {
        self.session.setup_ticks = self.session.setup_ticks.wrapping_add(ticks);
    }

    /// True if the peer has not shown that it hears this node, and gets setup messages at long intervals only.
    pub(crate) fn hesitates(&self) -> bool {
        let waits = matches!(self.state, State::Reset | State::Establishing);
        waits && !self.is_heard && self.session.setup_ticks > 1
    }

    /// The peer has another address, where it has not shown that it hears this node.
    pub(crate) fn has_moved(&mut self) {
        self.is_heard = false;
    }

    /// One tick of the node's timer.
    pub fn tick(&mut self, now: Time, io: &mut LinkIo<'_>) {
        match self.state {
            State::Established | State::Synching => self.supervise(now, io),
            State::Reset | State::Establishing if !self.is_heard => {
                self.session.setup_ticks = self.session.setup_ticks.saturating_add(1);
                if STRANGER_TICKS.contains(&self.session.setup_ticks) {
                    self.send_setup(false, io);
                }
            }
            State::Reset => {
                let eager = self.session.setup_ticks < EAGER_RESETS;
                self.session.setup_ticks = self.session.setup_ticks.wrapping_add(1);
                if eager || self.session.setup_ticks.is_multiple_of(LAZY_RESET_PERIOD) {
                    self.send_setup(false, io);
                }
            }
            State::Establishing => self.send_setup(false, io),
            State::Resetting | State::PeerReset | State::FailingOver => {}
        }
    }

    fn supervise(&mut self, now: Time, io: &mut LinkIo<'_>) {
        self.sample_profile();
        let is_silent = self.session.silence > 0;
        self.session.path.tick(now, is_silent);
        self.adopt_path(io);
        self.session.asked.rotate_right(1);
        self.session.asked[0] = 0;
        self.session.round_trip.tick();
        if self.session.monitor.reset {
            return self.fail_because(DownReason::Monitor, io);
        }
        if self.session.silence > self.config.tolerance_ms / self.interval_ms {
            return self.fail_because(DownReason::Silence, io);
        }
        let due = io.bcast.waiting
            || io.bcast.unacked
            || self.session.acks.unacked > 0
            || !self.session.transmit.is_empty();
        let mut probe = self.session.monitor.probing || is_silent;
        if probe || self.session.monitor.supervised {
            self.session.silence += 1;
        }
        probe |= self.session.receive.deferred_len() > 0;
        if self.snd_nxt() == self.session.checkpoint {
            self.session.window.idle();
            probe |= self.session.monitor.probes_when_idle || !self.session.transmit.is_empty();
        }
        self.session.checkpoint = self.snd_nxt();
        if self.session.acks.unacked >= ACK_THRESHOLD {
            // The peer may be waiting for this acknowledgement: its window may have become smaller.
            self.session.acks.max_peer_in_flight = 0;
        }
        // A probe of the path's size takes the place of an ordinary one, but not of two in a row.
        let probes_path = !is_silent && self.probe_path(now, io);
        if !probes_path && probe {
            self.session.path.give_up(now);
            self.adopt_path(io);
        }
        if !probes_path && (due || probe) {
            self.send_state_with(StateNote { probe, ..StateNote::default() }, io);
        }
        self.advance_backlog(io);
        self.backlog.wake(io.wakeups);
    }

    fn sample_profile(&mut self) {
        self.session.stats.queue_sum += self.session.transmit.len() as u64;
        self.session.stats.queue_samples += 1;
        if let Some(length) = self.session.transmit.first().and_then(|sent| profiled_length(&sent.packet)) {
            self.session.stats.profile(length);
        }
    }

    /// Sets the tolerance, milliseconds (clamped to 50 to 30000), and sends it to the peer.
    pub fn set_tolerance(&mut self, tolerance_ms: u32, io: &mut LinkIo<'_>) {
        self.config.tolerance_ms = tolerance_ms.clamp(MIN_TOLERANCE_MS, MAX_TOLERANCE_MS);
        let tolerance = self.config.tolerance_ms as u16;
        self.send_state_with(StateNote { tolerance, ..StateNote::default() }, io);
    }

    /// Sets the priority, 0 to 31, and sends it to the peer, which restarts the link.
    pub fn set_priority(&mut self, priority: u8, io: &mut LinkIo<'_>) {
        self.config.priority = priority.min(31);
        let priority = self.config.priority;
        self.send_state_with(StateNote { priority, ..StateNote::default() }, io);
    }
}

/// Length of the message that a packet belongs to; `None` for fragments after the first, which do not hold it.
fn profiled_length(packet: &Outgoing) -> Option<usize> {
    let view = packet.view();
    match view.user() {
        User::Fragmenter if view.kind() == super::fragment::FIRST => {
            let word = packet.data().first_chunk()?;
            Some(u32::from_be_bytes(*word) as usize & 0x1_ffff)
        }
        User::Fragmenter => None,
        _ => Some(view.size()),
    }
}
