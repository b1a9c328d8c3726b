//! The one clock: what the pure parts are told and what latency stamps hold.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point in time: since the start of CLOCK_MONOTONIC, which all programs of one host share.
pub type Now = Duration;

/// The time.
#[must_use]
pub fn now() -> Now {
    let at = clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(at.tv_sec).unwrap_or(0), u32::try_from(at.tv_nsec).unwrap_or(0))
}
