//! Jobs that need no other end.

use anyhow::Result;

use super::job::{Job, Part};
use super::peer::Parent;
use super::traffic::now_ns;

/// Turns between two looks at the clock.
const TURNS: u64 = 10_000;

/// A program that computes: how many turns of a loop it makes in `messages` milliseconds, per second.
pub(super) fn spin(job: &Job, parent: &Parent) -> Result<Part> {
    parent.ready_to_go()?;
    let began = now_ns();
    let end = began + job.messages * 1_000_000;
    let (mut turns, mut ended) = (0_u64, began);
    while ended < end {
        for turn in 0..TURNS {
            std::hint::black_box(turn);
        }
        turns += TURNS;
        ended = now_ns();
    }
    let value = Some(turns as f64 / ((ended - began) as f64 / 1e9));
    Ok(Part { began, ended, value, ..Part::default() })
}
