//! How far the connection of a kernel's socket has come: what the kernel does not tell, and the connect timeout, which it
//! keeps for callers that wait in `connect` only.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Spec: tipc.md §8.2.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, Debug)]
enum Stage {
    Fresh,
    Listening,
    /// Requested, to be answered until then.
    Requested(Instant),
}

#[derive(Debug)]
struct State {
    stage: Stage,
    timeout: Duration,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Setup(Mutex<State>);

impl Setup {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State { stage: Stage::Fresh, timeout: DEFAULT_TIMEOUT }))
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn listens(&self) {
        self.with(|state| state.stage = Stage::Listening);
    }

    /// A request has left.
    pub(super) fn requested(&self) {
        self.with(|state| state.stage = Stage::Requested(Instant::now() + state.timeout));
    }

    /// It was answered, or nobody waits for the answer any more.
    pub(super) fn settled(&self) {
        self.with(|state| state.stage = Stage::Fresh);
    }

    /// Milliseconds; 0 stands for the default.
    pub(super) fn set_timeout(&self, ms: u32) {
        let timeout = if ms == 0 { DEFAULT_TIMEOUT } else { Duration::from_millis(ms.into()) };
        self.with(|state| state.timeout = timeout);
    }

    pub(super) fn is_listening(&self) -> bool {
        self.with(|state| matches!(state.stage, Stage::Listening))
    }

    /// Until when the answer to the request has to come.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.with(|state| match state.stage {
            Stage::Requested(until) => Some(until),
            _ => None,
        })
    }
}
