//! The wait between two turns: the daemon spins on shared memory for a moment if that has succeeded lately, then
//! sleeps.
//!
//! A process that shares an arena with the daemon wakes it by an event descriptor, which costs the process a system
//! call and the daemon a wake-up. While the daemon is awake it checks the arenas that it has just served itself, and
//! their processes need not wake it. Before it sleeps it asks for wake-ups again and checks once more.

use std::time::Duration;

use utipc_attach::PairId;
use utipc_os::reactor::{Event as Ready, Reactor};
use utipc_os::spin::{Mode, Spin};

use super::pairs::{Near, Pairs};
use super::work::STEP_LANES;
use super::{DAEMON, ProcessId};

/// Arenas that are checked while the daemon is awake; processes of further ones wake it.
pub(super) const MAX_AWAKE: usize = 16;

/// Number of arena checks for each check of everything else, which costs a system call.
const LOOKS: u32 = 4;

/// Bytes of one turn above which batching beats spinning: the daemon sleeps and leaves its core to the processes.
const BULK: usize = 8 << 10;

/// Arenas whose processes do not wake the daemon.
#[derive(Debug)]
pub(super) struct Awake {
    pairs: Vec<PairId>,
    spin: Spin,
    /// Bytes that went through lanes since the last wait.
    moved: usize,
    /// The process that was woken last, of those that sleep until the node takes more.
    ringing: Option<ProcessId>,
}

impl Default for Awake {
    fn default() -> Self {
        Self {
            pairs: Vec::with_capacity(MAX_AWAKE),
            spin: Spin::new(Mode::Adaptive),
            moved: 0,
            ringing: None,
        }
    }
}

impl Awake {
    /// Counts bytes that went through a lane.
    pub(super) fn note_moved(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// Checks an arena until the daemon sleeps, if there is room in the list; else its process wakes the daemon.
    pub(super) fn add(&mut self, pairs: &Pairs, pair: PairId) {
        let Some(near) = pairs.near(pair) else { return };
        if self.pairs.contains(&pair) {
            return;
        }
        let is_checked = self.pairs.len() < MAX_AWAKE;
        if is_checked {
            self.pairs.push(pair);
        }
        near.bell.tell_daemon(!is_checked);
    }

    /// The arena at this place of the list.
    pub(super) fn at(&self, place: usize) -> Option<PairId> {
        self.pairs.get(place).copied()
    }

    /// Wakes all processes that sleep until the node takes more, some now and the others in later turns.
    pub(super) fn ring_all(&mut self, pairs: &Pairs) {
        self.ringing = Some(DAEMON);
        self.step_ring(pairs);
    }

    /// Continues [`Self::ring_all`].
    pub(super) fn step_ring(&mut self, pairs: &Pairs) {
        self.ringing = self.ringing.and_then(|last| pairs.ring_some(last, STEP_LANES));
    }

    /// Whether there is more for [`Self::step_ring`] to do.
    pub(super) fn is_ringing(&self) -> bool {
        self.ringing.is_some()
    }

    /// Waits until something has happened, at most `pause`; as [`Reactor::wait`].
    pub(super) fn wait(
        &mut self,
        pairs: &Pairs,
        reactor: &mut Reactor,
        pause: Option<Duration>,
        ready: &mut Vec<Ready>,
    ) -> utipc_os::Result<bool> {
        let bulk = std::mem::take(&mut self.moved) >= BULK;
        if self.pairs.is_empty() || pause == Some(Duration::ZERO) {
            return reactor.wait(pause, ready);
        }
        let mut looks = 0_u32;
        ready.clear();
        let awake = &self.pairs;
        let mut look = || {
            if awake.iter().filter_map(|pair| pairs.near(*pair)).any(Near::has_work) {
                return Some(Ok(false));
            }
            looks += 1;
            if !looks.is_multiple_of(LOOKS) {
                return None;
            }
            match reactor.wait(Some(Duration::ZERO), ready) {
                Ok(false) if ready.is_empty() => None,
                found => Some(found),
            }
        };
        let found = if bulk { look() } else { self.spin.spin(false, look) };
        if let Some(found) = found {
            return found;
        }
        for pair in self.pairs.drain(..) {
            let Some(near) = pairs.near(pair) else { continue };
            near.bell.tell_daemon(true);
            // A message that was written before has caused no wake-up.
            if near.has_work() {
                let token = pairs.token(pair);
                ready.push(Ready { token, readable: true, writable: false, hangup: false });
            }
        }
        if !ready.is_empty() {
            return Ok(false);
        }
        let waited = reactor.wait(pause, ready);
        if !bulk {
            self.spin.slept();
        }
        waited
    }
}
