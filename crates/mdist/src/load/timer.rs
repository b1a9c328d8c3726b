//! A timer as a descriptor: exact where the timeout of a wait is rounded up to milliseconds.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use anyhow::Result;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Readable from a point in time on.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
    at: Option<Duration>,
}

impl Timer {
    /// One that is not set.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Self { fd, at: None })
    }

    /// To be watched for reading.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Readable from `at` on and not before; `None`: never. The clock is [`crate::net::now`].
    ///
    /// # Errors
    /// The system's.
    pub fn set(&mut self, at: Option<Duration>) -> Result<()> {
        if self.at == at && at.is_none() {
            return Ok(());
        }
        self.at = at;
        // Zero would switch it off.
        let at = at.map_or(Duration::ZERO, |at| at.max(Duration::from_nanos(1)));
        let value = Timespec {
            tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at.subsec_nanos().into(),
        };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(
            &self.fd,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec { it_interval: never, it_value: value },
        )?;
        Ok(())
    }
}
