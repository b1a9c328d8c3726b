//! Signals: they end a run in order, so that processes and namespaces go; a second Ctrl-C ends it at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static SIGNALLED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Listens to signals from now on.
pub(super) fn listen() -> Result<()> {
    let flag = SIGNALLED.get_or_init(Arc::default);
    // Before the others, so that it finds the flag of an earlier one. Not of SIGTERM, which `timeout` sends twice.
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, flag.clone())
        .context("listen to signals")?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, flag.clone()).context("listen to signals")?;
    }
    Ok(())
}

/// Whether a signal came.
pub(super) fn came() -> bool {
    SIGNALLED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// An error once a signal came.
pub(super) fn check() -> Result<()> {
    ensure!(!came(), "interrupted");
    Ok(())
}

/// Sleeps, unless a signal comes or `look`, asked ten times a second, finds something.
pub(super) fn sleep(time: Duration, mut look: impl FnMut() -> Result<()>) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        check()?;
        look()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}
