//! Signals, the service manager, descriptor limit and log of the daemon.

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

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

/// Notifies the service manager, if there is one (`Type=notify-reload`).
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

/// Raises the descriptor limit to the hard limit, because each process and each polled socket needs some.
pub fn raise_descriptor_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If this is refused, the present limit stays.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// The log on standard error; its level can change.
pub(crate) struct Log(reload::Handle<EnvFilter, Registry>);

impl Log {
    /// Starts the log; `UTIPC_LOG` overrides the configuration.
    pub(crate) fn start(level: Option<&str>) -> Result<Self> {
        let (filter, handle) = reload::Layer::new(filter(level)?);
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        tracing_subscriber::registry().with(filter).with(lines).init();
        Ok(Self(handle))
    }

    /// Changes the level.
    pub(crate) fn set(&self, level: Option<&str>) -> Result<()> {
        self.0.reload(filter(level)?).context("cannot change the log's level")
    }
}

fn filter(level: Option<&str>) -> Result<EnvFilter> {
    if let Ok(filter) = EnvFilter::try_from_env("UTIPC_LOG") {
        return Ok(filter);
    }
    let level = level.unwrap_or("info");
    EnvFilter::try_new(level)
        .with_context(|| format!("log.level = {level:?} is not a log level (write \"info\")"))
}
