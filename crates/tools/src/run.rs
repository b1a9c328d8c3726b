//! `utipc run -- PROGRAM …`: runs a program written for the kernel's TIPC on utipc.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use utipc::daemon::Daemon;
use utipc::{Engine, Node};

use utipc_tools::daemon;

use crate::program;

/// The library that provides AF_TIPC sockets.
const LIBRARY: &str = "libutipc_preload.so";

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
    /// Path of libutipc_preload.so
    #[arg(long, value_name = "PATH", env = "UTIPC_PRELOAD")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, value_name = "PROGRAM", allow_hyphen_values = true)]
    program: Vec<String>,
}

/// Runs the program and returns its exit code.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let library = library(options.library.as_deref())?;
    let private = if options.private || options.config.is_some() || !daemon_answers() {
        Some(Private::start(options.config.as_deref())?)
    } else {
        None
    };
    let (name, arguments) = options.program.split_first().context("no program is given")?;
    if let Some(why) = program::why_not_preloaded(name) {
        eprintln!("utipc: {why}");
    }
    let mut command = Command::new(name);
    command.args(arguments).env("LD_PRELOAD", preloaded(&library)?);
    if let Some(private) = &private {
        command.env("UTIPC_SOCKET", &private.socket);
    }
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]).context("cannot handle signals")?;
    let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    // After the program was started, so that it inherits the original limit.
    daemon::raise_descriptor_limit();
    Ok(code(wait(child, signals)?))
}

/// The value of LD_PRELOAD: libraries that are preloaded already come after this one.
fn preloaded(library: &Path) -> Result<String> {
    let library = library.to_str().filter(|path| !path.contains([' ', ':'])).with_context(|| {
        format!("{} has a space or colon in its path, which LD_PRELOAD cannot express", library.display())
    })?;
    Ok(match std::env::var("LD_PRELOAD") {
        Ok(others) if !others.is_empty() => format!("{library}:{others}"),
        _ => library.to_owned(),
    })
}

/// The library beside this program, where cargo puts it, or where packages do.
fn library(given: Option<&Path>) -> Result<PathBuf> {
    let found = match given {
        Some(path) => path.exists().then(|| path.to_owned()),
        None => {
            let program = std::env::current_exe().context("cannot find this program's own path")?;
            let directory = program.parent().unwrap_or(Path::new("/"));
            let places = ["", "../lib/utipc", "../lib", "deps"];
            places.iter().map(|place| directory.join(place).join(LIBRARY)).find(|path| path.exists())
        }
    };
    let Some(found) = found else {
        bail!(
            "{LIBRARY} is not in the folder of this program (build it: cargo build --release -p utipc-preload; or use --library)"
        );
    };
    found.canonicalize().with_context(|| format!("cannot resolve {}", found.display()))
}

fn daemon_answers() -> bool {
    Node::builder().engine(Engine::Daemon).start().is_ok()
}

/// A daemon in this process, which ends with it.
struct Private {
    daemon: Option<Daemon>,
    directory: PathBuf,
    socket: PathBuf,
}

impl Private {
    fn start(config: Option<&Path>) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("utipc-run-{}", std::process::id()));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
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
/// to this process alone make a difference.
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
