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
    /// Zero: it is readable once.
    period: Duration,
}

impl Timer {
    /// One that is not set.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Self { fd, at: None, period: Duration::ZERO })
    }

    /// To be watched for reading.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Readable from `at` on and not before; `None`: never. The clock is [`mdist::net::now`].
    ///
    /// # Errors
    /// The system's.
    pub fn set(&mut self, at: Option<Duration>) -> Result<()> {
        if self.at.is_none() && at.is_none() {
            return Ok(());
        }
        self.begin(at, Duration::ZERO)
    }

    /// Readable from `at` on, and a `period` later again; [`Timer::clear`] in between. One that beats so already is not touched:
    /// to set a timer costs a virtual machine more than to send a message.
    ///
    /// # Errors
    /// The system's.
    pub fn beat(&mut self, at: Duration, period: Duration) -> Result<()> {
        let since = self.at.filter(|_| self.period == period).and_then(|first| at.checked_sub(first));
        if since.is_some_and(|since| since.as_nanos().checked_rem(period.as_nanos()) == Some(0)) {
            return Ok(());
        }
        self.begin(Some(at), period)
    }

    /// Not readable until its next time.
    pub fn clear(&self) {
        // Nothing to read: it was not readable.
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }

    fn begin(&mut self, at: Option<Duration>, period: Duration) -> Result<()> {
        (self.at, self.period) = (at, period);
        // Zero would switch it off.
        let at = at.map_or(Duration::ZERO, |at| at.max(Duration::from_nanos(1)));
        let spec = |time: Duration| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        timerfd_settime(
            &self.fd,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec { it_interval: spec(period), it_value: spec(at) },
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Timer;
    use mdist::net::{Interest, Poller, now};

    #[test]
    fn beats_until_it_is_set_otherwise() {
        let poller = Poller::new().unwrap();
        let mut timer = Timer::new().unwrap();
        poller.add(timer.fd(), 1, Interest::Read).unwrap();
        let (start, period) = (now() + Duration::from_millis(2), Duration::from_millis(3));
        let mut events = Vec::new();
        for beat in 0..3 {
            timer.beat(start + period * beat, period).unwrap();
            poller.wait(Some(Duration::from_secs(5)), &mut events).unwrap();
            assert_eq!(events.drain(..).count(), 1);
            assert!(now() >= start + period * beat);
            timer.clear();
        }
        timer.set(None).unwrap();
        poller.wait(Some(period * 3), &mut events).unwrap();
        assert!(events.is_empty());
    }
}
