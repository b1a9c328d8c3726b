//! Deciding how long a thread spins before it sleeps.
//!
//! Waking a sleeper costs several microseconds; spinning costs a core. Spinning pays only if the answer comes soon,
//! which requires that the peer runs on another core.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Longest spin of [`Mode::Adaptive`]: a few times the cost of sleeping and being woken.
const BUDGET: Duration = Duration::from_micros(50);
/// A sleep this short may have ended within the budget: the rest was the wake-up, which takes several budgets on a busy
/// host of virtual machines.
const SHORT: Duration = Duration::from_micros(200);
/// Longest spin of [`Mode::Busy`] before the caller gets to check its timeouts.
const SLICE: Duration = Duration::from_millis(1);
/// Time for which a count of runnable tasks is valid.
const LOAD_AGE: Duration = Duration::from_millis(10);
/// If two readings of the clock are further apart than this, the thread was preempted in between.
const PREEMPTED: Duration = Duration::from_micros(30);
/// Number of checks per reading of the clock.
const CHECKS: u32 = 16;
/// Maximum number of consecutive short waits that are required, after unsuccessful spinning, before the next try.
const PENALTY_MAX: u32 = 256;

/// Whether a waiting thread spins or sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Never sleeps.
    Busy,
    /// Spins while that has paid lately, then sleeps.
    #[default]
    Adaptive,
    /// Sleeps at once.
    Parked,
}

/// A wait that spins; see [`Spin::begin`].
#[derive(Debug)]
pub struct Spinning {
    start: Instant,
    /// The end of the last turn.
    before: Instant,
    budget: Duration,
}

/// The result of one turn of a wait that spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn<T> {
    /// What the check found.
    Found(T),
    /// Nothing yet.
    Again,
    /// Nothing: the caller sleeps.
    Over,
}

/// Decides for one thread (or one socket) how long to spin before it sleeps.
///
/// Adaptive: it spins for at most 50 µs. Each time that spinning fails or the thread is preempted, the number of
/// consecutive short waits before it spins again doubles (at most 256). It does not spin while more tasks are runnable
/// than there are cores (checked at most every 10 ms). It spins for a sleeping peer only if the last wait was short:
/// a peer that a request wakes answers soon, and two peers that answer each other keep each other awake.
#[derive(Debug)]
pub struct Spin {
    mode: Mode,
    /// Short waits required before spinning is tried again.
    required: u32,
    /// Number to require after the next unsuccessful spin.
    penalty: u32,
    /// When this wait began.
    began: Option<Instant>,
    /// Whether the last wait was short.
    short: bool,
    load: Load,
}

impl Spin {
    /// The initial state, in which an adaptive waiter spins.
    pub fn new(mode: Mode) -> Spin {
        Spin { mode, required: 0, penalty: 1, began: None, short: false, load: Load::new() }
    }

    /// Its mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Maximum duration of the spin that begins `now`.
    fn budget(&mut self, peer_awake: bool, now: Instant) -> Duration {
        match self.mode {
            Mode::Busy => SLICE,
            Mode::Parked => Duration::ZERO,
            Mode::Adaptive => {
                let soon = peer_awake || self.short;
                let pays = self.required == 0 && soon && !self.load.is_crowded(now);
                if pays { BUDGET } else { Duration::ZERO }
            }
        }
    }

    /// Calls `check` once, then repeatedly until it finds something or the budget is used up. On `None` the caller
    /// sleeps and then calls [`Spin::slept`] (in [`Mode::Busy`]: checks its timeouts and calls again). `peer_awake`:
    /// the peer was awake when its doorbell was last read.
    pub fn spin<T>(&mut self, peer_awake: bool, mut check: impl FnMut() -> Option<T>) -> Option<T> {
        if let Some(found) = check() {
            return Some(found);
        }
        let mut wait = self.begin(peer_awake)?;
        loop {
            match self.turn(&mut wait, &mut check) {
                Turn::Found(found) => return Some(found),
                Turn::Again => {}
                Turn::Over => return None,
            }
        }
    }

    /// Begins a wait. `None`: it does not pay to spin, the caller sleeps. Otherwise the caller calls [`Spin::turn`]
    /// until it is over.
    pub fn begin(&mut self, peer_awake: bool) -> Option<Spinning> {
        if self.mode == Mode::Parked {
            return None;
        }
        let start = Instant::now();
        self.began = Some(start);
        let budget = self.budget(peer_awake, start);
        (!budget.is_zero()).then_some(Spinning { start, before: start, budget })
    }

    /// Calls `check` up to 16 times. A caller may do other work between two turns; if that takes long, the wait is
    /// over, as if the thread had been preempted.
    pub fn turn<T>(&mut self, wait: &mut Spinning, mut check: impl FnMut() -> Option<T>) -> Turn<T> {
        for _ in 0..CHECKS {
            std::hint::spin_loop();
            if let Some(found) = check() {
                self.short = true;
                self.penalty = 1;
                return Turn::Found(found);
            }
        }
        let now = Instant::now();
        let preempted = self.mode == Mode::Adaptive && now - wait.before > PREEMPTED;
        if now - wait.start >= wait.budget || preempted {
            self.short = false;
            self.required = self.penalty;
            self.penalty = (self.penalty * 2).min(PENALTY_MAX);
            return Turn::Over;
        }
        wait.before = now;
        Turn::Again
    }

    /// Notes that a sleep has ended because something arrived.
    pub fn slept(&mut self) {
        if self.mode != Mode::Adaptive {
            return;
        }
        self.short = self.began.is_some_and(|began| began.elapsed() < SHORT);
        // After a long wait at least one short wait is required; a higher count stays.
        self.required = if self.short { self.required.saturating_sub(1) } else { self.required.max(1) };
    }
}

/// The load of the system: whether more tasks are runnable than there are cores.
#[derive(Debug)]
struct Load {
    /// `/proc/loadavg`. Absent in some sandboxes; then only unsuccessful spins and preemption reduce the spinning.
    file: Option<File>,
    cores: u32,
    crowded: bool,
    until: Option<Instant>,
}

impl Load {
    fn new() -> Load {
        Load { file: None, cores: cores(), crowded: false, until: None }
    }

    fn is_crowded(&mut self, now: Instant) -> bool {
        if self.cores < 2 {
            return true;
        }
        match self.until {
            Some(until) if now < until => return self.crowded,
            Some(_) => {}
            None => self.file = File::open("/proc/loadavg").ok(),
        }
        self.until = Some(now + LOAD_AGE);
        let mut text = [0; 64];
        let len = self.file.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let running = text.get(..len).and_then(runnable).unwrap_or(0);
        self.crowded = running > self.cores;
        self.crowded
    }
}

/// Number of cores of the system, not of this thread's affinity mask: the count of runnable tasks covers all of them,
/// and a thread that is pinned to one core can wait for a peer on another.
fn cores() -> u32 {
    // Not a `OnceLock`: in a child forked during its initialisation it would never become ready.
    static CORES: AtomicU32 = AtomicU32::new(0);
    match CORES.load(Relaxed) {
        0 => {
            // SAFETY: no pointer is involved.
            let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
            let cores = u32::try_from(online).unwrap_or(1).max(1);
            CORES.store(cores, Relaxed);
            cores
        }
        cores => cores,
    }
}

/// Parses the count of runnable tasks from /proc/loadavg: `0.20 0.18 0.12 1/80 11206`.
fn runnable(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAKE: bool = true;

    /// On an idle machine with cores to spare.
    fn adaptive() -> Spin {
        let until = Some(Instant::now() + LOAD_AGE * 10_000);
        let load = Load { file: None, cores: 64, crowded: false, until };
        Spin { load, ..Spin::new(Mode::Adaptive) }
    }

    /// Number of checks of an unsuccessful wait, after the first.
    fn checks(spin: &mut Spin, awake: bool) -> u32 {
        let mut count = 0;
        let found = spin.spin(awake, || {
            count += 1;
            None::<()>
        });
        assert_eq!(found, None);
        count - 1
    }

    /// Whether spinning finds something that comes soon.
    fn finds(spin: &mut Spin, awake: bool) -> bool {
        let mut count = 0;
        let soon = || {
            count += 1;
            (count > 3).then_some(())
        };
        spin.spin(awake, soon).is_some()
    }

    /// A sleep of this length, at the end of a wait that has just begun.
    fn sleep(spin: &mut Spin, time: Duration) {
        assert_eq!(checks(spin, AWAKE), 0);
        spin.began = spin.began.and_then(|began| began.checked_sub(time));
        spin.slept();
    }

    #[test]
    fn short_waits_enable_spinning_again() {
        let mut spin = adaptive();
        assert!(checks(&mut spin, AWAKE) > 0);
        for long in [1, 1, 50] {
            sleep(&mut spin, Duration::from_millis(long));
        }
        sleep(&mut spin, Duration::ZERO);
        // Each unsuccessful spin requires more short waits.
        for short in [2, 4, 8] {
            assert!(checks(&mut spin, AWAKE) > 0);
            for _ in 0..short {
                sleep(&mut spin, Duration::ZERO);
            }
        }
        assert!(finds(&mut spin, AWAKE));
        assert!(checks(&mut spin, AWAKE) > 0);
        sleep(&mut spin, Duration::ZERO);
        assert!(checks(&mut spin, AWAKE) > 0);
    }

    #[test]
    fn spins_for_a_sleeping_peer_only_after_a_short_wait() {
        let mut spin = adaptive();
        assert!(!finds(&mut spin, !AWAKE));
        spin.slept();
        assert!(finds(&mut spin, !AWAKE));
        assert!(checks(&mut spin, !AWAKE) > 0);
        assert!(!finds(&mut spin, !AWAKE));
        spin.slept();
        assert!(finds(&mut spin, !AWAKE));
    }

    #[test]
    fn does_not_spin_on_a_busy_machine() {
        let mut spin = adaptive();
        spin.load.crowded = true;
        assert_eq!(checks(&mut spin, AWAKE), 0);
        spin.load.crowded = false;
        assert!(checks(&mut spin, AWAKE) > 0);
        let mut alone = Load { cores: 1, ..Load::new() };
        assert!(alone.is_crowded(Instant::now()));
    }

    #[test]
    fn wait_in_turns_ends_when_the_caller_is_busy_in_between() {
        let mut spin = adaptive();
        let mut wait = spin.begin(AWAKE).unwrap();
        wait.before = wait.before.checked_sub(2 * PREEMPTED).unwrap();
        assert_eq!(spin.turn(&mut wait, || None::<()>), Turn::Over);
        assert!(spin.begin(AWAKE).is_none());
        spin.required = 0;
        let mut wait = spin.begin(AWAKE).unwrap();
        assert_eq!(spin.turn(&mut wait, || Some(1)), Turn::Found(1));
        spin.mode = Mode::Parked;
        assert!(spin.begin(AWAKE).is_none());
    }

    #[test]
    fn busy_and_parked_do_not_adapt() {
        for awake in [true, false] {
            let mut spin = Spin::new(Mode::Parked);
            assert_eq!(checks(&mut spin, awake), 0);
            let mut spin = Spin::new(Mode::Busy);
            for _ in 0..3 {
                assert!(checks(&mut spin, awake) > 0);
            }
        }
    }

    #[test]
    fn reads_the_load_of_the_system() {
        assert_eq!(runnable(b"0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(runnable(b"garbage"), None);
        let mut load = Load::new();
        load.is_crowded(Instant::now());
        assert!(load.cores > 0);
    }
}
