//! Runs with consecutive seeds, on as many threads as there are cores.

use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes `count` runs, with the seeds from `first` on; starts no more after a broken run. `report` gets the
/// result of each, one at a time, and returns whether all invariants held. Returns the number of broken runs.
pub fn run_all<R>(
    first: u64,
    count: u64,
    run: impl Fn(u64) -> R + Sync,
    report: impl Fn(u64, R) -> bool + Sync,
) -> u64 {
    let next = AtomicU64::new(0);
    let broken = AtomicU64::new(0);
    let reporting = Mutex::new(());
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= count || broken.load(Ordering::Relaxed) > 0 {
                return;
            }
            let seed = first.wrapping_add(n);
            let result = run(seed);
            let _one_at_a_time = reporting.lock();
            if !report(seed, result) {
                broken.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(count as usize);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    broken.into_inner()
}

/// Parses a list with commas, as an option has it.
///
/// # Errors
/// The first word that is not a value.
pub fn list<T: FromStr>(words: &str) -> Result<Vec<T>, T::Err> {
    words.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_run_once_until_one_breaks() {
        let seen = Mutex::new(Vec::new());
        let report = |seed, twice| {
            seen.lock().unwrap().push((seed, twice));
            true
        };
        assert_eq!(run_all(7, 50, |seed| 2 * seed, report), 0);
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, (7..57).map(|seed| (seed, 2 * seed)).collect::<Vec<_>>());
        let broken = run_all(0, u64::MAX, |seed| seed, |_, seed| seed != 3);
        assert_eq!(broken, 1);
    }

    #[test]
    fn lists_have_commas_and_report_the_word_that_is_wrong() {
        assert_eq!(list::<u8>("1, 2,,3").unwrap(), [1, 2, 3]);
        assert!(list::<u8>("1,x").is_err());
    }
}
