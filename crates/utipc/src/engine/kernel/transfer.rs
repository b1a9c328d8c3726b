//! Calls that may wait: one system call where the kernel's own timeout suffices.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use utipc_os::Wait;
use utipc_os::af_tipc::{KernelSocket, PollFlags};

/// The time that remains of a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remaining {
    until: Option<Instant>,
    never: bool,
}

impl Remaining {
    pub(super) fn start(wait: Wait) -> Self {
        match wait {
            Wait::Never => Self { until: None, never: true },
            Wait::AtMost(limit) => Self { until: Instant::now().checked_add(limit), never: false },
            Wait::Forever => Self { until: None, never: false },
        }
    }

    /// `None`: no time remains. `Some(None)`: no limit.
    pub(super) fn get(self) -> Option<Option<Duration>> {
        match self.until {
            _ if self.never => None,
            None => Some(None),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                (!left.is_zero()).then_some(Some(left))
            }
        }
    }
}

/// The timeout that one direction of a socket has in the kernel, in microseconds; set only when it changes.
#[derive(Debug)]
pub(super) struct Timeout(AtomicU64);

/// The kernel's initial value: no limit.
const FOREVER: u64 = 0;

impl Timeout {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(FOREVER))
    }

    fn apply(&self, wait: Wait, set: impl FnOnce(Option<Duration>) -> io::Result<()>) -> io::Result<()> {
        let limit = match wait {
            Wait::Never => return Ok(()),
            Wait::AtMost(limit) => Some(limit.max(Duration::from_micros(1))),
            Wait::Forever => None,
        };
        let micros = limit.map_or(FOREVER, |limit| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX));
        if self.0.load(Relaxed) == micros {
            return Ok(());
        }
        set(limit)?;
        self.0.store(micros, Relaxed);
        Ok(())
    }
}

/// A direction of a socket with its kernel timeout.
#[derive(Clone, Copy)]
pub(super) enum Direction<'a> {
    Receive(&'a Timeout),
    Send(&'a Timeout),
}

/// Calls `attempt` until it succeeds, fails, or the time is over (`None`). Its argument says whether it must not block.
///
/// The kernel's timeout normally does the waiting. It belongs to the socket, not to the call: if another thread has
/// changed it, or the socket is non-blocking, a poll waits for the rest.
pub(super) fn wait_for<T>(
    kernel: &KernelSocket,
    direction: Direction<'_>,
    wait: Wait,
    mut attempt: impl FnMut(bool) -> io::Result<T>,
) -> io::Result<Option<T>> {
    let wanted = match direction {
        Direction::Receive(timeout) => {
            timeout.apply(wait, |limit| kernel.set_receive_timeout(limit))?;
            PollFlags::IN
        }
        Direction::Send(timeout) => {
            timeout.apply(wait, |limit| kernel.set_send_timeout(limit))?;
            PollFlags::OUT
        }
    };
    let now = matches!(wait, Wait::Never);
    let remaining = Remaining::start(wait);
    loop {
        match attempt(now) {
            Ok(done) => return Ok(Some(done)),
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => {
                    let Some(limit) = remaining.get() else { return Ok(None) };
                    kernel.poll(wanted, limit)?;
                }
                _ => return Err(error),
            },
        }
    }
}
