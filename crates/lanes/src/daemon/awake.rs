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
use super::{Context, Lanes};

/// Arenas that are checked while the daemon is awake; processes of further ones wake it.
const MAX_AWAKE: usize = 16;

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
}

impl Default for Awake {
    fn default() -> Self {
        Self { pairs: Vec::with_capacity(MAX_AWAKE), spin: Spin::new(Mode::Adaptive), moved: 0 }
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
}

fn has_work(near: &Near) -> bool {
    near.inc.has_ready() || near.out.has_room()
}

impl Lanes {
    /// Continues waking processes that sleep until the node takes more ([`Lanes::ring_all`]).
    pub fn step_ring(&mut self) {
        self.ringing = self.ringing.and_then(|last| self.pairs.ring_some(last, STEP_LANES));
    }

    /// Whether there is more for [`Lanes::step_ring`] to do.
    pub fn is_ringing(&self) -> bool {
        self.ringing.is_some()
    }

    /// Serves the arenas whose processes do not wake the daemon.
    pub fn serve_awake(&mut self, context: &mut Context<'_>) {
        for at in 0..self.awake.pairs.len() {
            let Some(pair) = self.awake.pairs.get(at).copied() else { return };
            if self.pairs.near(pair).is_some_and(has_work) {
                self.serve(context, pair);
            }
        }
    }

    /// Waits until something has happened, at most `pause`; as [`Reactor::wait`].
    pub fn wait(
        &mut self,
        reactor: &mut Reactor,
        pause: Option<Duration>,
        ready: &mut Vec<Ready>,
    ) -> utipc_os::Result<bool> {
        let Self { awake, pairs, .. } = self;
        let bulk = std::mem::take(&mut awake.moved) >= BULK;
        if awake.pairs.is_empty() || pause == Some(Duration::ZERO) {
            return reactor.wait(pause, ready);
        }
        let mut looks = 0_u32;
        ready.clear();
        let mut look = || {
            if awake.pairs.iter().filter_map(|pair| pairs.near(*pair)).any(has_work) {
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
        let found = if bulk { look() } else { awake.spin.spin(false, look) };
        if let Some(found) = found {
            return found;
        }
        for pair in awake.pairs.drain(..) {
            let Some(near) = pairs.near(pair) else { continue };
            near.bell.tell_daemon(true);
            // A message that was written before has caused no wake-up.
            if has_work(near) {
                let token = self.token | u64::from(pair.0);
                ready.push(Ready { token, readable: true, writable: false, hangup: false });
            }
        }
        if !ready.is_empty() {
            return Ok(false);
        }
        let waited = reactor.wait(pause, ready);
        if !bulk {
            awake.spin.slept();
        }
        waited
    }
}
