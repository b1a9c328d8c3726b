//! Waiting calls.
//!
//! A call of the library cannot be interrupted, so it is repeated in slices. Between slices Python runs its signal
//! handlers, which may raise `KeyboardInterrupt`.

use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::exception;

/// The longest time until a signal, or a close by another thread, is noticed.
const SLICE: Duration = Duration::from_millis(50);

/// Time limit of a call: `None` for no limit, zero for not waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<Duration>);

impl Limit {
    /// Do not wait.
    pub(crate) const NEVER: Self = Self(Some(Duration::ZERO));

    /// Converts a timeout in seconds.
    pub(crate) fn from_seconds(seconds: Option<f64>) -> PyResult<Self> {
        let Some(seconds) = seconds else { return Ok(Self(None)) };
        // A time that does not fit counts as no limit.
        match Duration::try_from_secs_f64(seconds) {
            Ok(limit) => Ok(Self(Some(limit))),
            Err(_) if seconds > 0.0 => Ok(Self(None)),
            Err(_) => Err(PyValueError::new_err("a timeout is a number of seconds, not below 0, or None")),
        }
    }

    pub(crate) fn seconds(self) -> Option<f64> {
        self.0.map(|limit| limit.as_secs_f64())
    }
}

/// The remaining time of a call.
pub(crate) struct Clock {
    end: Option<Instant>,
    /// The call must not wait.
    never: bool,
}

impl Clock {
    pub(crate) fn start(limit: Limit) -> Self {
        let end = limit.0.and_then(|limit| Instant::now().checked_add(limit));
        Self { end, never: limit.0.is_some_and(|limit| limit.is_zero()) }
    }

    /// The next slice; `None` if the time is over.
    pub(crate) fn slice(&self) -> Option<Duration> {
        let Some(end) = self.end else { return Some(SLICE) };
        let left = end.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| left.min(SLICE))
    }
}

/// Repeats a call until it is done or its time is over, and releases the GIL while it waits. `gone` fails if the object
/// was closed.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    limit: Limit,
    mut call: impl FnMut(Duration) -> utipc::Result<T> + Send,
    mut gone: impl FnMut() -> PyResult<()>,
) -> PyResult<T> {
    let clock = Clock::start(limit);
    let mut slice = if clock.never { Duration::ZERO } else { clock.slice().unwrap_or_default() };
    loop {
        match py.detach(|| call(slice)) {
            Err(error) if error.is_temporary() => {
                py.check_signals()?;
                gone()?;
                match clock.slice() {
                    Some(next) => slice = next,
                    None => return Err(exception(py, &error)),
                }
            }
            done => return done.map_err(|error| exception(py, &error)),
        }
    }
}
