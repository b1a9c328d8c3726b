//! `utipc run -- PROGRAM …`: runs a program written for the kernel's TIPC, or for Corosync, on utipc.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, mkdtemp};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use utipc::daemon::{Daemon, is_named_by_environment};
use utipc::{Engine, Node};

use utipc_tools::{daemon, preload};

use crate::program;

/// Options of `utipc run`.
#[derive(Debug, Args)]
#[command(trailing_var_arg = true)]
pub(crate) struct Options {
    /// Start a daemon for this program alone, even if one runs
    #[arg(long)]
    private: bool,
    /// Configuration of a daemon that is started for the program, as for `utipcd`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The program uses Corosync's closed process groups: libcpg.so.4 of utipc replaces Corosync's
    #[arg(long, conflicts_with = "library")]
    cpg: bool,
    /// Path of libutipc_preload.so
    #[arg(long, value_name = "PATH", env = "UTIPC_PRELOAD")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, value_name = "PROGRAM", allow_hyphen_values = true)]
    program: Vec<String>,
}

/// Runs the program and returns its exit code.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let preload = if options.cpg { preload::groups()? } else { preload::shim(options.library.as_deref())? };
    let private = if is_private(options)? { Some(Private::start(options.config.as_deref())?) } else { None };
    let (name, arguments) = options.program.split_first().context("no program is given")?;
    if let Some(why) = program::why_not_preloaded(name) {
        eprintln!("utipc: {why}");
    }
    let mut command = Command::new(name);
    command.args(arguments).env("LD_PRELOAD", preload);
    if let Some(private) = &private {
        command.env("UTIPC_SOCKET", &private.socket);
    }
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]).context("cannot handle signals")?;
    let child = command.spawn().map_err(|error| anyhow::anyhow!(cannot_start(name, &error)))?;
    // After the program was started, so that it inherits the original limit.
    daemon::raise_descriptor_limit();
    Ok(code(wait(child, signals)?))
}

fn cannot_start(name: &str, error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        ErrorKind::NotFound if name.contains('/') => "check the path",
        ErrorKind::NotFound => "check the name and PATH",
        ErrorKind::PermissionDenied => "make the file executable",
        _ => "check that it is a program of this machine",
    };
    format!("cannot start {name}: {error} ({remedy})")
}

/// Whether the program gets a private daemon.
///
/// # Errors
/// The environment names a daemon that does not answer.
fn is_private(options: &Options) -> Result<bool> {
    if options.private || options.config.is_some() {
        return Ok(true);
    }
    let Err(error) = Node::builder().engine(Engine::Daemon).start() else { return Ok(false) };
    if is_named_by_environment() {
        bail!("{error}; the environment names that daemon (--private starts another)");
    }
    eprintln!("utipc: {error}; started a private daemon for this program; other programs cannot see it");
    Ok(true)
}

/// A daemon in this process, which ends with it.
struct Private {
    daemon: Option<Daemon>,
    directory: PathBuf,
    socket: PathBuf,
}

impl Private {
    fn start(config: Option<&Path>) -> Result<Self> {
        // No other user can have made the directory, or enter it.
        let pattern = std::env::temp_dir().join("utipc-run-XXXXXX");
        let directory = mkdtemp(&pattern).with_context(|| format!("cannot make {}", pattern.display()))?;
        let socket = directory.join("utipcd.sock");
        let started = daemon::private(config, &socket);
        let daemon = started.inspect_err(|_| drop(std::fs::remove_dir_all(&directory)))?;
        Ok(Self { daemon: Some(daemon), directory, socket })
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop();
        }
        // Nothing but the daemon's files is in the folder.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Waits for the program's end and forwards signals to it. A terminal sends them to both processes, so only those sent
/// to this process alone are forwarded.
fn wait(mut child: Child, mut signals: Signals) -> Result<ExitStatus> {
    let pid = Pid::from_raw(i32::try_from(child.id()).context("the process id is out of range")?);
    let handle = signals.handle();
    let forward = thread::spawn(move || {
        for signal in signals.forever().filter(|signal| matches!(*signal, SIGTERM | SIGHUP)) {
            if let Ok(signal) = Signal::try_from(signal) {
                // Fails if the program has just ended.
                let _ = kill(pid, signal);
            }
        }
    });
    let ended = child.wait().context("cannot wait for the program");
    handle.close();
    drop(forward.join());
    ended
}

/// The exit code, as shells count it.
fn code(status: ExitStatus) -> ExitCode {
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(u8::MAX))
}
