//! The clock of mdist. Code without I/O gets its times as arguments.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point in time: the duration since the start of CLOCK_MONOTONIC, which all programs of a host share.
pub type Now = Duration;

/// The current time.
#[must_use]
pub fn now() -> Now {
    let at = clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(at.tv_sec).unwrap_or(0), u32::try_from(at.tv_nsec).unwrap_or(0))
}
