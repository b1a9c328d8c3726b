//! What surrounds a daemon: signals, the service manager, limits, its log.

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    End,
    Reload,
    Count,
}

/// Signals, one after the other.
pub(crate) struct Signals(signal_hook::iterator::Signals);

impl Signals {
    /// From now on they are counted and end nothing by themselves.
    pub(crate) fn new() -> Result<Self> {
        let signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1]);
        Ok(Self(signals.context("cannot take signals")?))
    }

    /// Waits for one.
    pub(crate) fn next(&mut self) -> Signal {
        match self.0.forever().next() {
            Some(SIGHUP) => Signal::Reload,
            Some(SIGUSR1) => Signal::Count,
            _ => Signal::End,
        }
    }
}

/// What the service manager is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Ready,
    Reloading,
    Stopping,
}

/// Tells the service manager, if there is one (`Type=notify-reload`).
pub(crate) fn notify(stage: Stage) {
    let states = match stage {
        Stage::Ready => vec![NotifyState::Ready],
        Stage::Reloading => {
            NotifyState::monotonic_usec_now().into_iter().chain([NotifyState::Reloading]).collect()
        }
        Stage::Stopping => vec![NotifyState::Stopping],
    };
    // Without a service manager there is nobody to be told.
    let _ = sd_notify::notify(false, &states);
}

/// As many descriptors as the system allows: each process and each polled socket takes some.
pub fn raise_descriptor_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // The limit that is there will do otherwise.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// The log on standard error, whose level may change.
pub(crate) struct Log(reload::Handle<EnvFilter, Registry>);

impl Log {
    /// Begins to log; `UTIPC_LOG` beats the configuration.
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
    EnvFilter::try_new(level).with_context(|| format!("log.level = {level:?} is no level (as \"info\")"))
}
