//! Calls that may wait: one system call where the kernel can do the waiting by itself.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use utipc_os::Wait;
use utipc_os::af_tipc::{KernelSocket, PollFlags};

/// Time that is left of a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    until: Option<Instant>,
    never: bool,
}

impl Left {
    pub(super) fn start(wait: Wait) -> Self {
        match wait {
            Wait::Never => Self { until: None, never: true },
            Wait::AtMost(limit) => Self { until: Instant::now().checked_add(limit), never: false },
            Wait::Forever => Self { until: None, never: false },
        }
    }

    /// `None`: no time is left. `Some(None)`: for ever.
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

/// The timeout that a direction of a socket has in the kernel, microseconds; it is set only when it changes.
#[derive(Debug)]
pub(super) struct Timeout(AtomicU64);

/// As the kernel begins: for ever.
const FOREVER: u64 = 0;

impl Timeout {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(FOREVER))
    }

    fn want(&self, wait: Wait, set: impl FnOnce(Option<Duration>) -> io::Result<()>) -> io::Result<()> {
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

/// A direction of a socket.
#[derive(Clone, Copy)]
pub(super) enum Way<'a> {
    In(&'a Timeout),
    Out(&'a Timeout),
}

/// Calls `attempt`, which shall not wait if its argument says so, until it succeeds, fails, or the time is over (`None`).
///
/// The kernel's own timeout does the waiting as a rule. It is the socket's, not the call's: where another thread has
/// changed it meanwhile, or the socket does not wait for a reason of its own, a poll waits for the rest.
pub(super) fn wait_for<T>(
    kernel: &KernelSocket,
    way: Way<'_>,
    wait: Wait,
    mut attempt: impl FnMut(bool) -> io::Result<T>,
) -> io::Result<Option<T>> {
    let wanted = match way {
        Way::In(timeout) => {
            timeout.want(wait, |limit| kernel.set_receive_timeout(limit))?;
            PollFlags::IN
        }
        Way::Out(timeout) => {
            timeout.want(wait, |limit| kernel.set_send_timeout(limit))?;
            PollFlags::OUT
        }
    };
    let now = matches!(wait, Wait::Never);
    let left = Left::start(wait);
    loop {
        match attempt(now) {
            Ok(done) => return Ok(Some(done)),
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => {
                    let Some(limit) = left.get() else { return Ok(None) };
                    kernel.poll(wanted, limit)?;
                }
                _ => return Err(error),
            },
        }
    }
}
