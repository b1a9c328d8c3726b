//! Runs a target on mutated inputs and keeps inputs that show new behaviour.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use utipc_core::Rng;

use crate::mutate::mutate;
use crate::{Seen, Target};

/// Maximum number of parents (inputs that are mutated) in memory.
const MAX_PARENTS: usize = 4096;
/// An input that runs longer than this is a finding; the slowest regular input takes a thousandth.
const HANG: Duration = Duration::from_secs(30);

/// Result of a run without findings.
#[derive(Debug, Default)]
pub struct Report {
    /// Inputs run.
    pub executions: u64,
    /// Kinds of behaviour seen.
    pub behaviours: usize,
    /// Inputs that showed new behaviour, except the seeds.
    pub novel: Vec<Vec<u8>>,
}

/// An input that makes the target fail.
#[derive(Debug)]
pub struct Finding {
    /// The input.
    pub input: Vec<u8>,
    /// Inputs run before it.
    pub executions: u64,
}

/// Runs one input; returns false if it panicked.
#[must_use]
pub fn survives(target: &Target, input: &[u8], seen: &mut Seen) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input, seen))).is_ok()
}

/// Runs the seeds, then mutated inputs until `budget` is used up. If an input does not end, `on_hang` is called with it
/// from another thread.
///
/// # Errors
/// The first input that panics.
pub fn fuzz(
    target: &Target,
    seeds: &[Vec<u8>],
    seed: u64,
    budget: Duration,
    on_hang: fn(&str, &[u8]),
) -> Result<Report, Finding> {
    let current = Arc::new(Mutex::new((0u64, Vec::new())));
    let (stop, stopped) = mpsc::channel::<()>();
    let watched = Arc::clone(&current);
    let name = target.name;
    let watchdog = thread::spawn(move || {
        let mut last = 0;
        while stopped.recv_timeout(HANG) == Err(RecvTimeoutError::Timeout) {
            let (number, input) = &*watched.lock().unwrap_or_else(PoisonError::into_inner);
            if *number == last {
                on_hang(name, input);
            }
            last = *number;
        }
    });
    let result = run(target, seeds, seed, budget, &current);
    drop(stop);
    let ended = watchdog.join();
    assert!(ended.is_ok(), "the watchdog failed");
    result
}

fn run(
    target: &Target,
    seeds: &[Vec<u8>],
    seed: u64,
    budget: Duration,
    current: &Mutex<(u64, Vec<u8>)>,
) -> Result<Report, Finding> {
    let mut rng = Rng::new(seed);
    let mut report = Report::default();
    let mut all = Seen::default();
    let mut parents: Vec<Vec<u8>> = Vec::new();
    let mut step = |input: Vec<u8>, parents: &mut Vec<Vec<u8>>, report: &mut Report, is_seed: bool| {
        {
            let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
            *current = (report.executions + 1, input.clone());
        }
        let mut seen = Seen::default();
        if !survives(target, &input, &mut seen) {
            return Err(Finding { input, executions: report.executions });
        }
        report.executions += 1;
        let new = all.merge(seen);
        report.behaviours = all.len();
        if new && !is_seed {
            report.novel.push(input.clone());
        }
        if new || is_seed {
            parents.push(input);
            if parents.len() > MAX_PARENTS {
                parents.swap_remove(0);
            }
        }
        Ok(())
    };
    step(Vec::new(), &mut parents, &mut report, true)?;
    for input in seeds {
        step(input.clone(), &mut parents, &mut report, true)?;
    }
    let start = Instant::now();
    while start.elapsed() < budget {
        for _ in 0..16 {
            let pick = |rng: &mut Rng| rng.below(parents.len() as u64) as usize;
            let (parent, other) = (pick(&mut rng), pick(&mut rng));
            let input = mutate(&parents[parent], &parents[other], &mut rng);
            step(input, &mut parents, &mut report, false)?;
        }
    }
    Ok(report)
}
