//! Perturbed schedules: labelled points at which a thread yields or sleeps at random. Without the feature `schedule` a
//! point is an empty function.
//!
//! A model checker explores small models in all interleavings; this explores the real code, with real memory and real
//! sleeping, in unusual ones.

#[cfg(feature = "schedule")]
pub use perturbed::{perturb, point, visits};

/// A point between two steps that another thread or process may come between.
#[cfg(not(feature = "schedule"))]
#[inline(always)]
pub(crate) fn point(_label: &'static str) {}

#[cfg(feature = "schedule")]
mod perturbed {
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Duration;

    use utipc_core::Rng;

    /// One of this many visits to a point sleeps.
    const SLEEPS: u64 = 64;
    /// One of this many visits yields.
    const YIELDS: u64 = 4;
    /// Longest sleep, microseconds: longer than a thread spins before it sleeps.
    const LONGEST_US: u64 = 200;

    static SEED: AtomicU64 = AtomicU64::new(0);
    static THREADS: AtomicU64 = AtomicU64::new(0);
    static VISITS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

    thread_local! {
        /// The seed of the run, and the generator of this thread in it.
        static STATE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }

    /// Begins a run: from now on every point perturbs, from this seed. 0 ends it.
    pub fn perturb(seed: u64) {
        THREADS.store(0, Relaxed);
        SEED.store(seed, Relaxed);
    }

    /// How often each point disturbed a thread.
    pub fn visits() -> BTreeMap<&'static str, u64> {
        VISITS.lock().map(|visits| visits.clone()).unwrap_or_default()
    }

    /// Yields or sleeps at random.
    pub fn point(label: &'static str) {
        let seed = SEED.load(Relaxed);
        if seed == 0 {
            return;
        }
        STATE.with(|state| {
            let (of, mut next) = state.get();
            if of != seed {
                let thread = THREADS.fetch_add(1, Relaxed);
                next = Rng::new(seed ^ thread << 32).next_u64();
            }
            let mut rng = Rng::new(next);
            let choice = rng.next_u64();
            state.set((seed, rng.next_u64()));
            if choice.is_multiple_of(SLEEPS) {
                std::thread::sleep(Duration::from_micros(choice / SLEEPS % LONGEST_US));
            } else if choice.is_multiple_of(YIELDS) {
                std::thread::yield_now();
            } else {
                return;
            }
            if let Ok(mut visits) = VISITS.lock() {
                *visits.entry(label).or_default() += 1;
            }
        });
    }
}
