//! The highest rate at which nothing goes wrong.

use std::time::Duration;

use anyhow::Result;

use super::chain::{Chain, Window};
use super::place::Place;

/// How long rates are tried while searching.
const TRY: Duration = Duration::from_millis(1_500);
const WARM_UP: Duration = Duration::from_millis(700);
/// The search ends when the highest clean and the lowest unclean rate are so near.
const NEAR: f64 = 1.06;

/// Searches from `guess` and measures the rate found for `time`; lower ones, should it not be clean for so long.
pub(super) fn highest(chain: &mut Chain, place: &Place, guess: u64, time: Duration) -> Result<Window> {
    let (mut clean, mut unclean) = (0u64, u64::MAX);
    let mut rate = guess;
    for _ in 0..12 {
        let seen = chain.measure(place, rate, WARM_UP, TRY)?;
        if seen.is_clean(chain.fan_out()) {
            clean = rate;
        } else {
            tracing::info!(rate, ?seen.faults, seen.lost, seen.missed, seen.input, seen.output, "unclean");
            unclean = rate;
        }
        if clean > 0 && unclean < u64::MAX && unclean as f64 <= clean as f64 * NEAR {
            break;
        }
        rate = match (clean, unclean) {
            (0, unclean) => unclean * 2 / 3,
            (clean, u64::MAX) => clean * 3 / 2,
            (clean, unclean) => u64::midpoint(clean, unclean),
        };
        if rate < 100 {
            break;
        }
    }
    let mut rate = clean.max(100);
    loop {
        let seen = chain.measure(place, rate, WARM_UP, time)?;
        if seen.is_clean(chain.fan_out()) || rate <= 200 {
            return Ok(seen);
        }
        tracing::info!(rate, ?seen.faults, seen.lost, seen.missed, "not clean for long");
        rate = rate * 19 / 20;
    }
}
