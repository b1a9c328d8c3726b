//! The frame of both programs around their server: log, signals, metrics, exit code.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Running;
use super::demo::Chain;
use crate::config::{Config, Loaded};
use crate::metrics::{Lines, Metrics, Server};
use utipc_cli::{log, output, say};

/// Runs a program. The log goes to standard error, filtered by `RUST_LOG`; an error is printed there in one line, and
/// the exit code is 1.
pub fn main(name: &str, run: impl FnOnce() -> Result<()>) -> ExitCode {
    if let Err(why) = log::start(log::MARKET_VARIABLE, "info") {
        return output::failed(name, &anyhow::Error::msg(why));
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => output::failed(name, &why),
    }
}

/// The loaded settings; logs a warning for each ignored line and for settings in a former place, and a notice for each
/// setting without effect.
#[must_use]
pub fn settings(loaded: Loaded) -> Config {
    for line in &loaded.ignored {
        tracing::warn!("ignored: {line}");
    }
    if let Some(text) = loaded.former_places() {
        tracing::warn!("{text}");
    }
    for text in loaded.config.without_effect() {
        tracing::info!("has no effect: {text}");
    }
    for text in loaded.config.warnings() {
        tracing::warn!("{text}");
    }
    loaded.config
}

/// A server or chain that a program runs until it ends.
pub trait Served {
    /// The part with the listeners.
    fn running(&mut self) -> &mut Running;

    /// Lines for the user about what to try.
    fn hints(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Served for Running {
    fn running(&mut self) -> &mut Running {
        self
    }
}

impl Served for Chain {
    fn running(&mut self) -> &mut Running {
        &mut self.server
    }

    fn hints(&self) -> Vec<String> {
        Chain::hints(self)
    }
}

/// Starts a server, prints its addresses, and runs it until SIGINT, SIGTERM or a failure.
///
/// # Errors
/// The server does not start, or one of its threads has failed.
pub fn serve<S: Served>(
    name: &'static str,
    config: &Config,
    start: impl FnOnce(&Config, &Metrics) -> Result<S>,
) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("handle signals")?;
    let metrics = Metrics::new(name);
    let mut served = start(config, &metrics)?;
    let page = |at: &str| Server::start(at, &config.metrics.hosts, &metrics);
    let page = config.metrics.listen.as_deref().map(page).transpose()?;
    let every = Duration::from_secs(config.metrics.stats_interval_s.into());
    let _lines =
        (!every.is_zero()).then(|| Lines::start(&metrics, every, |line| drop(say!("{line}")))).transpose()?;
    // A server goes on when nobody reads its output.
    for address in &served.running().addresses {
        let _ = say!("{name}: listening at {address}");
    }
    if let Some(page) = &page {
        let _ = say!("{name}: metrics at http://{}/metrics", page.address());
        let _ = say!("{name}: web page at http://{}/", page.address());
    }
    for hint in served.hints() {
        let _ = say!("{name}: {hint}");
    }
    let _ = say!("{name}: ready");
    loop {
        let running = served.running();
        if signals.pending().next().is_some() {
            running.stop();
            return Ok(());
        }
        if !running.is_alive() {
            running.stop();
            anyhow::bail!("a thread has failed (see the log)");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
