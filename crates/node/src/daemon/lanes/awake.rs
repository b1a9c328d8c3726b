//! What the daemon does between two turns: it looks on for a moment where that has paid lately, then sleeps.
//!
//! A process that shares an arena with the daemon tells it of what it has written by an event descriptor, which costs it a
//! system call and the daemon a wake-up. While the daemon is awake it looks at the arenas that it has just served by
//! itself, and their processes need not tell; before it sleeps it asks to be told again, and looks once more.

use std::time::Duration;

use utipc_attach::PairId;
use utipc_core::Time;
use utipc_os::reactor::Event as Ready;
use utipc_os::spin::{Mode, Spin};

use crate::daemon::dispatcher::{Dispatcher, token};
use crate::daemon::lanes::pairs::Near;

/// Arenas that are looked at while the daemon is awake; the processes of any more tell it.
const MAX_AWAKE: usize = 16;

/// Looks at arenas per look at everything else, which is a system call.
const LOOKS: u32 = 4;

/// Bytes of one turn from which on more work at once serves everybody better than work at once: the daemon sleeps, its cores
/// are those of the processes that it works for.
const BULK: usize = 8 << 10;

/// Arenas whose processes do not tell the daemon of what they write.
#[derive(Debug)]
pub(in crate::daemon) struct Awake {
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
    /// So many bytes have gone through a lane.
    pub(in crate::daemon) fn note_moved(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
    }
}

fn has_something(near: &Near) -> bool {
    near.inc.has_ready() || near.out.has_room()
}

impl Dispatcher {
    /// An arena was served, or something was written there: it is looked at until the daemon sleeps, if there is room in
    /// the list; else its process tells from here on.
    pub(in crate::daemon) fn stay_awake_for(&mut self, pair: PairId) {
        let Some(near) = self.broker.pairs.get(pair).and_then(|pair| pair.near.as_ref()) else { return };
        let pairs = &mut self.awake.pairs;
        if pairs.contains(&pair) {
            return;
        }
        let looks = pairs.len() < MAX_AWAKE;
        if looks {
            pairs.push(pair);
        }
        near.bell.tell_daemon(!looks);
    }

    /// Serves the arenas whose processes tell nobody.
    pub(in crate::daemon) fn serve_awake(&mut self, now: Time) {
        for at in 0..self.awake.pairs.len() {
            let Some(pair) = self.awake.pairs.get(at).copied() else { return };
            let near = self.broker.pairs.get(pair).and_then(|pair| pair.near.as_ref());
            if near.is_some_and(has_something) {
                self.serve_lanes(now, pair);
            }
        }
    }

    /// Waits until something has happened, at most `pause`; as [`utipc_os::reactor::Reactor::wait`].
    pub(in crate::daemon) fn wait(
        &mut self,
        pause: Option<Duration>,
        ready: &mut Vec<Ready>,
    ) -> utipc_os::Result<bool> {
        let bulk = std::mem::take(&mut self.awake.moved) >= BULK;
        if self.awake.pairs.is_empty() || pause == Some(Duration::ZERO) {
            return self.reactor.wait(pause, ready);
        }
        let Self { awake, broker, reactor, .. } = self;
        let nears = || {
            let pairs = awake.pairs.iter().filter_map(|pair| broker.pairs.get(*pair));
            pairs.filter_map(|pair| pair.near.as_ref())
        };
        let mut looks = 0_u32;
        ready.clear();
        let mut look = || {
            if nears().any(has_something) {
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
        let found = if bulk { look() } else { awake.spin.look(false, look) };
        if let Some(found) = found {
            return found;
        }
        for pair in awake.pairs.drain(..) {
            let Some(near) = broker.pairs.get(pair).and_then(|pair| pair.near.as_ref()) else { continue };
            near.bell.tell_daemon(true);
            // Who has written before that has told nobody.
            if has_something(near) {
                ready.push(Ready {
                    token: token::LANES | u64::from(pair.0),
                    readable: true,
                    writable: false,
                    hangup: false,
                });
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
