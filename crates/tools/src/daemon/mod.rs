//! `utipcd`: a node for the programs of this host.

mod build;
mod file;
mod life;
mod users;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use utipc::daemon::Daemon;

use file::File;
pub use life::raise_descriptor_limit;
use life::{Log, Signal, Stage};

/// Options of the daemon.
#[derive(Debug, Args)]
pub struct Options {
    /// Configuration file [default: none; the daemon then serves the programs of this host]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of this daemon, if several run side by side, each with a node of its own
    #[arg(long, value_name = "NAME", env = "UTIPC_INSTANCE", default_value = "default")]
    instance: String,
    /// Path of the socket that programs attach to
    #[arg(long, value_name = "PATH", env = "UTIPC_SOCKET")]
    socket: Option<PathBuf>,
    /// Only check the configuration
    #[arg(long)]
    check: bool,
}

impl Options {
    fn file(&self) -> Result<File> {
        self.config.as_deref().map_or_else(|| Ok(File::default()), File::read)
    }
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// The configuration is invalid, or the system refuses something.
pub fn run(options: &Options) -> Result<()> {
    let file = options.file()?;
    let config = build::config(&file, &options.instance, options.socket.as_deref())?;
    if options.check {
        println!("utipcd: the configuration is valid");
        return Ok(());
    }
    let log = Log::start(file.log.level.as_deref())?;
    let mut signals = life::Signals::new()?;
    life::raise_descriptor_limit();
    let daemon = build::start(config, &file).context("cannot start the daemon")?;
    if let Some(user) = &file.node.user {
        users::become_user(user)?;
    }
    tracing::info!(socket = %daemon.socket().display(), "programs may attach");
    life::notify(Stage::Ready);
    let mut running = Running { daemon, file };
    loop {
        match signals.next() {
            Signal::End => break,
            Signal::Reload => {
                life::notify(Stage::Reloading);
                // The old configuration stays in force: a typing error must not stop a node.
                if let Err(error) = running.reload(options, &log) {
                    tracing::error!("configuration not reloaded: {error:#}");
                }
                life::notify(Stage::Ready);
            }
            Signal::Count => {
                tracing::info!("counters: {}", serde_json::to_string(&running.daemon.counters())?)
            }
        }
    }
    life::notify(Stage::Stopping);
    running.daemon.stop();
    Ok(())
}

/// A daemon in this process, at a path of its own, which serves until it is stopped.
///
/// # Errors
/// As [`run`].
pub fn private(config: Option<&Path>, socket: &Path) -> Result<Daemon> {
    let file = config.map_or_else(|| Ok(File::default()), File::read)?;
    let config = build::config(&file, "private", Some(socket))?;
    build::start(config, &file).context("cannot start a daemon for the program")
}

/// A daemon and its present configuration.
struct Running {
    daemon: Daemon,
    file: File,
}

impl Running {
    /// Applies keys that can change while the daemon runs; the error names keys that cannot.
    fn reload(&mut self, options: &Options, log: &Log) -> Result<()> {
        let new = options.file()?;
        let fixed = self.file.fixed_difference(&new);
        if !fixed.is_empty() {
            bail!("{} cannot change while the daemon runs (restart it)", fixed.join(", "));
        }
        let (policy, limits) = (build::policy(&new.policy)?, build::limits(&new.limits));
        log.set(new.log.level.as_deref())?;
        self.daemon.change(policy, limits);
        self.file = new;
        tracing::info!("configuration reloaded");
        Ok(())
    }
}
