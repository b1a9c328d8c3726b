//! Progress of a kernel socket's connection, which the kernel does not report, and its connect timeout, which the
//! kernel applies only to callers that wait in `connect`.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The kernel's default connect timeout. Spec: tipc.md §8.2.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, Debug)]
enum Stage {
    Fresh,
    Listening,
    /// A request was sent; its reply is due at this time.
    Requested(Instant),
}

#[derive(Debug)]
struct State {
    stage: Stage,
    timeout: Duration,
}

/// State of the connection setup and the connect timeout.
#[derive(Debug)]
pub(super) struct ConnectSetup(Mutex<State>);

impl ConnectSetup {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State { stage: Stage::Fresh, timeout: DEFAULT_TIMEOUT }))
    }

    fn with<T>(&self, update: impl FnOnce(&mut State) -> T) -> T {
        update(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_listening(&self) {
        self.with(|state| state.stage = Stage::Listening);
    }

    /// Starts the timeout of a request that was sent.
    pub(super) fn set_requested(&self) {
        self.with(|state| state.stage = Stage::Requested(Instant::now() + state.timeout));
    }

    /// Ends the setup: the reply has come, or no call waits for it any more.
    pub(super) fn finish(&self) {
        self.with(|state| state.stage = Stage::Fresh);
    }

    /// Sets the connect timeout in milliseconds; 0 stands for the default.
    pub(super) fn set_timeout(&self, ms: u32) {
        let timeout = if ms == 0 { DEFAULT_TIMEOUT } else { Duration::from_millis(ms.into()) };
        self.with(|state| state.timeout = timeout);
    }

    pub(super) fn is_listening(&self) -> bool {
        self.with(|state| matches!(state.stage, Stage::Listening))
    }

    /// The time at which the reply to a pending request is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.with(|state| match state.stage {
            Stage::Requested(until) => Some(until),
            _ => None,
        })
    }
}
