//! How long to look before sleeping.
//!
//! Waking a sleeper costs several microseconds, looking costs a core. Looking pays only if the answer comes soon, which
//! it can only if the partner runs meanwhile: on another core that nobody else wants.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::thread::sched_getaffinity;

/// Longest look of [`Mode::Adaptive`]: a few times what sleeping and being woken cost.
const BUDGET_MAX: Duration = Duration::from_micros(50);
/// A budget that shrinks below this becomes zero.
const BUDGET_MIN: Duration = Duration::from_micros(3);
/// Longest look of [`Mode::Busy`] before the caller gets to see to its timeouts.
const SLICE: Duration = Duration::from_millis(1);
/// How long the count of runnable tasks holds.
const LOAD_AGE: Duration = Duration::from_millis(10);
/// Between two looks at the clock that are further apart than this, somebody else had the core.
const PREEMPTED: Duration = Duration::from_micros(30);
/// Looks per look at the clock.
const LOOKS: u32 = 16;

/// What a waiting thread does with its core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Never sleeps.
    Busy,
    /// Looks while that has paid lately, then sleeps.
    #[default]
    Adaptive,
    /// Sleeps at once.
    Parked,
}

/// Decides for one thread (or one socket) how long to look before it sleeps.
///
/// Adaptive: at most 50 µs. Halved each time that looking was in vain, down to nothing; whole again once something came
/// in time, or once a sleep turned out so short ([`Spin::slept`]) that looking would have paid. Nothing while the
/// partner sleeps, while more tasks are runnable than this thread may use cores (looked up at most every 10 ms), and
/// after losing the core while looking, until a sleep was short again.
#[derive(Debug)]
pub struct Spin {
    mode: Mode,
    budget: Duration,
    load: Load,
}

impl Spin {
    /// A new one, with the whole budget.
    pub fn new(mode: Mode) -> Spin {
        Spin { mode, budget: BUDGET_MAX, load: Load::new() }
    }

    /// How it waits.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How long the next look may take.
    pub fn budget(&mut self, partner_awake: bool) -> Duration {
        match self.mode {
            Mode::Busy => SLICE,
            Mode::Parked => Duration::ZERO,
            Mode::Adaptive if !partner_awake || self.budget.is_zero() || self.load.is_crowded() => {
                Duration::ZERO
            }
            Mode::Adaptive => self.budget,
        }
    }

    /// Looks until `look` finds something or the budget is used up. `None`: sleep now (in [`Mode::Busy`]: see to
    /// timeouts and call again). `partner_awake`: it ran when last seen, see [`Doorbell::is_parked`].
    ///
    /// [`Doorbell::is_parked`]: super::Doorbell::is_parked
    pub fn look<T>(&mut self, partner_awake: bool, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        if let Some(found) = look() {
            return Some(found);
        }
        let budget = self.budget(partner_awake);
        if budget.is_zero() {
            return None;
        }
        let start = Instant::now();
        let mut before = Duration::ZERO;
        loop {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if let Some(found) = look() {
                    self.budget = BUDGET_MAX;
                    return Some(found);
                }
            }
            let now = start.elapsed();
            if self.mode == Mode::Adaptive && now - before > PREEMPTED {
                self.budget = Duration::ZERO;
                return None;
            }
            if now >= budget {
                self.budget = if self.budget / 2 < BUDGET_MIN { Duration::ZERO } else { self.budget / 2 };
                return None;
            }
            before = now;
        }
    }

    /// Tells how long a sleep took that ended because something came.
    pub fn slept(&mut self, time: Duration) {
        if time < BUDGET_MAX {
            self.budget = BUDGET_MAX;
        }
    }
}

/// Whether tasks wait for cores: the system's own count of runnable ones against the cores that this thread may use.
#[derive(Debug)]
struct Load {
    /// Absent in some sandboxes; then looking in vain and losing the core are the only signs.
    file: Option<File>,
    cores: u32,
    crowded: bool,
    until: Option<Instant>,
}

impl Load {
    fn new() -> Load {
        let cores = sched_getaffinity(None).map_or(1, |set| set.count());
        Load { file: None, cores, crowded: cores < 2, until: None }
    }

    fn is_crowded(&mut self) -> bool {
        if self.cores < 2 {
            return true;
        }
        let now = Instant::now();
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

/// The count of runnable tasks in the text of /proc/loadavg: `0.20 0.18 0.12 1/80 11206`.
fn runnable(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on an idle machine with cores to spare.
    fn adaptive() -> Spin {
        let load =
            Load { file: None, cores: 64, crowded: false, until: Some(Instant::now() + LOAD_AGE * 10_000) };
        Spin { mode: Mode::Adaptive, budget: BUDGET_MAX, load }
    }

    #[test]
    fn looking_in_vain_ends_and_a_short_sleep_brings_it_back() {
        let mut spin = adaptive();
        for _ in 0..8 {
            assert_eq!(spin.look(true, || None::<()>), None);
        }
        assert_eq!(spin.budget(true), Duration::ZERO);
        spin.slept(Duration::from_millis(1));
        assert_eq!(spin.budget(true), Duration::ZERO);
        spin.slept(Duration::from_micros(10));
        assert_eq!(spin.budget(true), BUDGET_MAX);
    }

    #[test]
    fn nobody_looks_for_a_sleeping_partner_or_on_a_crowded_machine() {
        let mut spin = adaptive();
        assert_eq!(spin.budget(false), Duration::ZERO);
        spin.load.crowded = true;
        assert_eq!(spin.budget(true), Duration::ZERO);
        let mut calls = 0;
        let count = || -> Option<()> {
            calls += 1;
            None
        };
        assert_eq!(spin.look(true, count), None);
        assert_eq!(calls, 1);
    }

    #[test]
    fn the_other_modes_do_not_adapt() {
        for (mode, budget) in [(Mode::Busy, SLICE), (Mode::Parked, Duration::ZERO)] {
            let mut spin = Spin::new(mode);
            assert_eq!((spin.budget(true), spin.budget(false)), (budget, budget));
            assert_eq!(spin.look(true, || None::<()>), None);
            assert_eq!(spin.budget(true), budget);
            assert_eq!(spin.look(true, || Some(7)), Some(7));
        }
    }

    #[test]
    fn the_system_tells_its_load() {
        assert_eq!(runnable(b"0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(runnable(b"nonsense"), None);
        let mut load = Load::new();
        load.is_crowded();
        assert!(load.cores > 0);
    }
}
