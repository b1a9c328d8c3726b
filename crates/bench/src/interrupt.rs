//! Signals end a run in order, so that processes and namespaces are removed; a second Ctrl-C ends it at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static SIGNALLED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Handles SIGINT, SIGTERM and SIGHUP from now on, so that [`came`] and [`check`] report them.
///
/// # Errors
/// The handlers cannot be installed.
pub fn listen() -> Result<()> {
    let flag = SIGNALLED.get_or_init(Arc::default);
    // Registered first, so that it sees the flag of an earlier SIGINT only. Not for SIGTERM, which `timeout` sends
    // twice.
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, flag.clone())
        .context("listen to signals")?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, flag.clone()).context("listen to signals")?;
    }
    Ok(())
}

/// Whether a signal came.
#[must_use]
pub fn came() -> bool {
    SIGNALLED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Fails once a signal came.
///
/// # Errors
/// A signal came.
pub fn check() -> Result<()> {
    ensure!(!came(), "interrupted");
    Ok(())
}

/// Sleeps for `time`, and calls `watch` about ten times a second meanwhile.
///
/// # Errors
/// A signal came, or `watch` failed.
pub fn sleep(time: Duration, mut watch: impl FnMut() -> Result<()>) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        check()?;
        watch()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}
