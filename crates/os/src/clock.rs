//! The monotonic clock and the wall clock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since an arbitrary point before this boot's first process; it never runs backwards.
///
/// It is `CLOCK_MONOTONIC`: all processes of one boot share it; it stops during suspend.
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // The kernel starts this clock at zero and keeps nanoseconds below one second.
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// [`monotonic`] in nanoseconds: wraps after 584 years.
pub fn monotonic_ns() -> u64 {
    let now = monotonic();
    now.as_secs().wrapping_mul(1_000_000_000).wrapping_add(u64::from(now.subsec_nanos()))
}

/// Processor time that the calling thread has used, nanoseconds. Unlike the other clocks it costs a system call.
pub fn thread_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(used.tv_sec).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::try_from(used.tv_nsec).unwrap_or(0))
}

/// Wall-clock time since 1970, only for timestamps in files: it may jump.
pub fn wall() -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_uses_no_processor_time() {
        let first = thread_cpu_ns();
        std::thread::sleep(Duration::from_millis(200));
        assert!(thread_cpu_ns() - first < 100_000_000);
        let begun = thread_cpu_ns();
        while thread_cpu_ns() == begun {}
    }

    #[test]
    fn never_runs_backwards() {
        let first = monotonic_ns();
        std::thread::sleep(Duration::from_millis(2));
        assert!(monotonic_ns() >= first + 2_000_000);
        assert!(wall() > Duration::from_secs(1_600_000_000));
    }
}
