//! A timer as a descriptor. It is more precise than the timeout of a wait, which is rounded up to milliseconds.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use anyhow::Result;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A timer whose descriptor is readable once it expires.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
    at: Option<Duration>,
    /// Zero: it expires once.
    period: Duration,
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Self { fd, at: None, period: Duration::ZERO })
    }

    /// The descriptor to poll for reading.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Expires at `at`; `None`: never. The clock is [`mdist::net::now`].
    ///
    /// # Errors
    /// Those of `timerfd_settime`.
    pub fn set(&mut self, at: Option<Duration>) -> Result<()> {
        if self.at.is_none() && at.is_none() {
            return Ok(());
        }
        self.begin(at, Duration::ZERO)
    }

    /// Expires at `at`, and then every `period`; call [`Timer::clear`] in between. A timer that already expires at
    /// these times is not set again: on virtual machines setting a timer costs more than sending a message.
    ///
    /// # Errors
    /// Those of `timerfd_settime`.
    pub fn repeat(&mut self, at: Duration, period: Duration) -> Result<()> {
        let since = self.at.filter(|_| self.period == period).and_then(|first| at.checked_sub(first));
        if since.is_some_and(|since| since.as_nanos().checked_rem(period.as_nanos()) == Some(0)) {
            return Ok(());
        }
        self.begin(Some(at), period)
    }

    /// Makes the descriptor unreadable until the timer expires again.
    pub fn clear(&self) {
        // An error means that it was not readable.
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }

    fn begin(&mut self, at: Option<Duration>, period: Duration) -> Result<()> {
        (self.at, self.period) = (at, period);
        // Zero would disarm it.
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
    fn repeats_until_it_is_set_again() {
        let poller = Poller::new().unwrap();
        let mut timer = Timer::new().unwrap();
        poller.add(timer.fd(), 1, Interest::Read).unwrap();
        let (start, period) = (now() + Duration::from_millis(2), Duration::from_millis(3));
        let mut events = Vec::new();
        for beat in 0..3 {
            timer.repeat(start + period * beat, period).unwrap();
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
