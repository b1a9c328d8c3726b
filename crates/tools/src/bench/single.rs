//! Jobs of a single process.

use anyhow::Result;

use super::job::{EndResult, Job};
use super::parent::Parent;
use super::traffic::now_ns;

/// Iterations between two checks of the clock.
const ITERATIONS: u64 = 10_000;

/// A program that computes: iterations of a loop per second, measured for `messages` milliseconds.
pub(super) fn spin(job: &Job, parent: &Parent) -> Result<EndResult> {
    parent.ready_to_go()?;
    let began = now_ns();
    let end = began + job.messages * 1_000_000;
    let (mut iterations, mut ended) = (0_u64, began);
    while ended < end {
        for iteration in 0..ITERATIONS {
            std::hint::black_box(iteration);
        }
        iterations += ITERATIONS;
        ended = now_ns();
    }
    let value = Some(iterations as f64 / ((ended - began) as f64 / 1e9));
    Ok(EndResult { began, ended, value, ..EndResult::default() })
}
