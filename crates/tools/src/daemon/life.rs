//! Signals, the service manager, descriptor limit and log of the daemon.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::{Registry, reload};
use utipc::daemon::{DaemonCounters, Doorway, Pulse};

use utipc_cli::log;

/// Times that the watchdog is fed within its limit.
const FEEDS_PER_LIMIT: u32 = 3;

/// The action that a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    End,
    Reload,
    Count,
}

/// Signals, delivered one after another.
pub(crate) struct Signals(signal_hook::iterator::Signals);

impl Signals {
    /// Handles signals from now on, so that none of them ends the process.
    pub(crate) fn new() -> Result<Self> {
        let signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1]);
        Ok(Self(signals.context("cannot handle signals")?))
    }

    /// Waits for a signal.
    pub(crate) fn next(&mut self) -> Signal {
        match self.0.forever().next() {
            Some(SIGHUP) => Signal::Reload,
            Some(SIGUSR1) => Signal::Count,
            _ => Signal::End,
        }
    }
}

/// A state that the service manager is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Ready,
    Reloading,
    Stopping,
}

/// Notifies the service manager, if present (`Type=notify`, or `notify-reload`).
pub(crate) fn notify(stage: Stage) {
    let states = match stage {
        Stage::Ready => vec![NotifyState::Ready],
        Stage::Reloading => {
            NotifyState::monotonic_usec_now().into_iter().chain([NotifyState::Reloading]).collect()
        }
        Stage::Stopping => vec![NotifyState::Stopping],
    };
    // Fails without a service manager.
    let _ = sd_notify::notify(false, &states);
}

/// The socket for programs that the service manager has passed (`LISTEN_FDS`), if it has.
pub(crate) fn passed_socket() -> Result<Option<Doorway>> {
    let mut numbers = sd_notify::listen_fds().context("cannot read LISTEN_FDS (unset it)")?;
    let Some(number) = numbers.next() else { return Ok(None) };
    if numbers.next().is_some() {
        bail!("several sockets were passed (name one ListenSequentialPacket= in the socket unit)");
    }
    Ok(Some(Doorway::passed(number)?))
}

/// Feeds the watchdog of the service manager (`WatchdogSec=`), if it has one, while the event loop runs.
pub(crate) fn feed_watchdog(pulse: Pulse) -> Result<()> {
    let mut limit_us = 0;
    if !sd_notify::watchdog_enabled(false, &mut limit_us) || limit_us == 0 {
        return Ok(());
    }
    let interval = Duration::from_micros(limit_us) / FEEDS_PER_LIMIT;
    let feed = move || {
        loop {
            if pulse.beats_within(interval) {
                // Fails if the service manager has gone.
                let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
            }
            thread::sleep(interval);
        }
    };
    thread::Builder::new().name("watchdog".to_owned()).spawn(feed).context("start the watchdog's thread")?;
    Ok(())
}

/// Raises the descriptor limit to the hard limit, because each process and each polled socket needs some.
pub fn raise_descriptor_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If this is refused, the present limit stays.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// A summary of what the daemon has served, for its log.
pub(crate) fn balance(time: Duration, counters: &DaemonCounters) -> String {
    let (seconds, node) = (time.as_secs(), &counters.node);
    format!(
        "{} h {} min {} s: served {} processes ({} attached now) and {} requests; {} links came up, {} went down",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        counters.attached_ever,
        counters.attached,
        counters.requests,
        node.links_up,
        node.links_down
    )
}

/// The log on standard error; its level can change.
pub(crate) struct Log(reload::Handle<Targets, Registry>);

impl Log {
    /// Starts the log; `UTIPC_LOG` overrides the configuration.
    pub(crate) fn start(level: Option<&str>) -> Result<Self> {
        let (filter, handle) = reload::Layer::new(filter(level)?);
        log::start_with(filter);
        Ok(Self(handle))
    }

    /// Changes the level.
    pub(crate) fn set(&self, level: Option<&str>) -> Result<()> {
        self.0.reload(filter(level)?).context("cannot change the log's level")
    }
}

fn filter(level: Option<&str>) -> Result<Targets> {
    let wrong = |why: String| anyhow::anyhow!(why);
    match log::filter_of_environment().map_err(wrong)? {
        Some(filter) => Ok(filter),
        None => log::filter(level.unwrap_or("info")).map_err(wrong),
    }
}
