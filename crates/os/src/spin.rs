//! How long to look before sleeping.
//!
//! Waking a sleeper costs several microseconds, looking costs a core. Looking pays only if the answer comes soon, which
//! it can only if the partner runs meanwhile: on another core that nobody else wants.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Longest look of [`Mode::Adaptive`]: a few times what sleeping and being woken cost.
const BUDGET: Duration = Duration::from_micros(50);
/// A wait that was slept through and took no longer than this may have ended within the budget: being woken took the
/// rest, which on a busy host of virtual machines is a multiple of the budget.
const SHORT: Duration = Duration::from_micros(200);
/// Longest look of [`Mode::Busy`] before the caller gets to see to its timeouts.
const SLICE: Duration = Duration::from_millis(1);
/// How long the count of runnable tasks holds.
const LOAD_AGE: Duration = Duration::from_millis(10);
/// Between two looks at the clock that are further apart than this, somebody else had the core.
const PREEMPTED: Duration = Duration::from_micros(30);
/// Looks per look at the clock.
const LOOKS: u32 = 16;
/// Most short sleeps in a row that are wanted after looking in vain, before it is tried again.
const DOUBT_MAX: u32 = 256;

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
/// Adaptive: 50 µs if the last wait was short, else nothing. Each time that looking was in vain, or that the
/// core was lost meanwhile, twice as many short waits in a row (at most 256) have to come before it is tried again.
/// Nothing either while more tasks are runnable than there are cores (looked up at most every 10 ms), nor for a partner
/// that sleeps, unless the last wait was short all the same: whoever is woken by a question answers soon, and two that
/// answer each other keep each other awake.
#[derive(Debug)]
pub struct Spin {
    mode: Mode,
    /// Short waits that have to come before looking is tried again.
    wanted: u32,
    /// How many were wanted the last time.
    doubt: u32,
    /// When this wait began.
    began: Option<Instant>,
    /// The last one was short.
    short: bool,
    load: Load,
}

impl Spin {
    /// A new one, which looks at first.
    pub fn new(mode: Mode) -> Spin {
        Spin { mode, wanted: 0, doubt: 1, began: None, short: false, load: Load::new() }
    }

    /// How it waits.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How long the look that begins `now` may take.
    fn budget(&mut self, partner_awake: bool, now: Instant) -> Duration {
        match self.mode {
            Mode::Busy => SLICE,
            Mode::Parked => Duration::ZERO,
            Mode::Adaptive => {
                let soon = partner_awake || self.short;
                let pays = self.wanted == 0 && soon && !self.load.is_crowded(now);
                if pays { BUDGET } else { Duration::ZERO }
            }
        }
    }

    /// Looks once, and on until `look` finds something or the budget is used up. `None`: sleep now and tell by [`Spin::slept`] (in
    /// [`Mode::Busy`]: see to timeouts and call again). `partner_awake`: it ran when last seen, by
    /// its doorbell.
    pub fn look<T>(&mut self, partner_awake: bool, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        if let Some(found) = look() {
            return Some(found);
        }
        if self.mode == Mode::Parked {
            return None;
        }
        let start = Instant::now();
        self.began = Some(start);
        let budget = self.budget(partner_awake, start);
        if budget.is_zero() {
            return None;
        }
        let mut before = start;
        loop {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if let Some(found) = look() {
                    self.short = true;
                    self.doubt = 1;
                    return Some(found);
                }
            }
            let now = Instant::now();
            if now - start >= budget || self.mode == Mode::Adaptive && now - before > PREEMPTED {
                self.short = false;
                self.wanted = self.doubt;
                self.doubt = (self.doubt * 2).min(DOUBT_MAX);
                return None;
            }
            before = now;
        }
    }

    /// A sleep is over because something came.
    pub fn slept(&mut self) {
        if self.mode != Mode::Adaptive {
            return;
        }
        self.short = self.began.is_some_and(|began| began.elapsed() < SHORT);
        // Whatever takes long is not to be looked for, and proves nothing about what does not.
        self.wanted = if self.short { self.wanted.saturating_sub(1) } else { self.wanted.max(1) };
    }
}

/// Whether tasks wait for cores: the system's own count of runnable ones against its cores.
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

/// Cores of the system: those that the count of runnable tasks is about. Who is pinned to one of them may well wait for a
/// partner on another.
fn cores() -> u32 {
    // Nothing that one thread waits for while another one finds out: in a child that was forked then, that one is not there.
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

/// The count of runnable tasks in the text of /proc/loadavg: `0.20 0.18 0.12 1/80 11206`.
fn runnable(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAKE: bool = true;

    /// As on an idle machine with cores to spare.
    fn adaptive() -> Spin {
        let until = Some(Instant::now() + LOAD_AGE * 10_000);
        let load = Load { file: None, cores: 64, crowded: false, until };
        Spin { load, ..Spin::new(Mode::Adaptive) }
    }

    /// How often a wait for nothing looks again.
    fn looks(spin: &mut Spin, awake: bool) -> u32 {
        let mut count = 0;
        let found = spin.look(awake, || {
            count += 1;
            None::<()>
        });
        assert_eq!(found, None);
        count - 1
    }

    /// Whether something that comes soon is found by looking.
    fn finds(spin: &mut Spin, awake: bool) -> bool {
        let mut count = 0;
        let soon = || {
            count += 1;
            (count > 3).then_some(())
        };
        spin.look(awake, soon).is_some()
    }

    /// A sleep of this length, at the end of a wait that has just begun.
    fn sleep(spin: &mut Spin, time: Duration) {
        assert_eq!(looks(spin, AWAKE), 0);
        spin.began = spin.began.and_then(|began| began.checked_sub(time));
        spin.slept();
    }

    #[test]
    fn looking_in_vain_ends_and_short_waits_bring_it_back() {
        let mut spin = adaptive();
        assert!(looks(&mut spin, AWAKE) > 0);
        for long in [1, 1, 50] {
            sleep(&mut spin, Duration::from_millis(long));
        }
        sleep(&mut spin, Duration::ZERO);
        // Each time in vain, more are wanted.
        for short in [2, 4, 8] {
            assert!(looks(&mut spin, AWAKE) > 0);
            for _ in 0..short {
                sleep(&mut spin, Duration::ZERO);
            }
        }
        assert!(finds(&mut spin, AWAKE));
        assert!(looks(&mut spin, AWAKE) > 0);
        sleep(&mut spin, Duration::ZERO);
        assert!(looks(&mut spin, AWAKE) > 0);
    }

    #[test]
    fn nobody_looks_for_a_sleeping_partner_unless_it_has_answered_soon() {
        let mut spin = adaptive();
        assert!(!finds(&mut spin, !AWAKE));
        spin.slept();
        assert!(finds(&mut spin, !AWAKE));
        assert!(looks(&mut spin, !AWAKE) > 0);
        assert!(!finds(&mut spin, !AWAKE));
        spin.slept();
        assert!(finds(&mut spin, !AWAKE));
    }

    #[test]
    fn nobody_looks_on_a_crowded_machine() {
        let mut spin = adaptive();
        spin.load.crowded = true;
        assert_eq!(looks(&mut spin, AWAKE), 0);
        spin.load.crowded = false;
        assert!(looks(&mut spin, AWAKE) > 0);
        let mut alone = Load { cores: 1, ..Load::new() };
        assert!(alone.is_crowded(Instant::now()));
    }

    #[test]
    fn the_other_modes_do_not_adapt() {
        for awake in [true, false] {
            let mut spin = Spin::new(Mode::Parked);
            assert_eq!(looks(&mut spin, awake), 0);
            let mut spin = Spin::new(Mode::Busy);
            for _ in 0..3 {
                assert!(looks(&mut spin, awake) > 0);
            }
        }
    }

    #[test]
    fn the_system_tells_its_load() {
        assert_eq!(runnable(b"0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(runnable(b"nonsense"), None);
        let mut load = Load::new();
        load.is_crowded(Instant::now());
        assert!(load.cores > 0);
    }
}
