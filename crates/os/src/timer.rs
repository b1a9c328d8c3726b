//! A timer that a poll loop can wait for (`timerfd`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::{OsError, Result};

/// A one-shot timer on the monotonic clock; its descriptor is readable once it has expired.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
}

impl Timer {
    /// Creates a timer that is not set.
    pub fn new() -> Result<Timer> {
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map(|fd| Timer { fd })
            .map_err(|errno| OsError::new("create", "a timer descriptor", errno))
    }

    /// Sets the timer to expire at `deadline` of [`clock::monotonic`](crate::clock::monotonic), at once if that is
    /// past; `None` stops it. Either way the descriptor is no longer readable for the old deadline.
    pub fn set(&self, deadline: Option<Duration>) -> Result<()> {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = deadline.map_or(none, |deadline| Timespec {
            tv_sec: i64::try_from(deadline.as_secs()).unwrap_or(i64::MAX),
            // Zero would stop the timer instead of expiring at once.
            tv_nsec: i64::from(deadline.subsec_nanos()).max(1),
        });
        let value = Itimerspec { it_interval: none, it_value: value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &value)
            .map(drop)
            .map_err(|errno| OsError::new("set", "a timer descriptor", errno))
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
