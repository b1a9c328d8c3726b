//! `utipc`: the command line of utipc.

mod bench;
mod demo;
mod run;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use utipc_tools::daemon;

/// TIPC in user space: demo and measurements.
#[derive(Debug, Parser)]
#[command(
    name = "utipc",
    version,
    after_help = "Set UTIPC_LOG=info (or debug) to see what the nodes report."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show two nodes that find each other, exchange messages and watch services come and go.
    Demo(demo::Options),
    /// Measure latency, throughput and more, beside TCP in the same run.
    Bench(Box<bench::Options>),
    /// Run a program that was written for the kernel's TIPC, on utipc: its AF_TIPC sockets are the daemon's. Without a daemon
    /// one is started for it.
    Run(run::Options),
    /// Run a node for the programs of this host; the program `utipcd` does the same.
    Daemon(daemon::Options),
}

/// Whoever reads the output has read enough, as in `utipc bench … | head`.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// What the standard library panics with when the output is a broken pipe.
const BROKEN_PIPE: &str = "failed printing to stdout: Broken pipe";

/// The exit code of a program that ended because nobody reads its output, as shells count it.
const SIGPIPE: u8 = 128 + 13;

fn main() -> ExitCode {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<String>().is_some_and(|why| why.starts_with(BROKEN_PIPE)) {
            UNREAD.store(true, Ordering::Relaxed);
        } else {
            usual(info);
        }
    }));
    // Unwinding ends what was started meanwhile.
    match std::panic::catch_unwind(run) {
        Ok(code) => code,
        Err(_) if UNREAD.load(Ordering::Relaxed) => ExitCode::from(SIGPIPE),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn run() -> ExitCode {
    let cli = Cli::parse();
    if !matches!(cli.command, Command::Daemon(_)) {
        // The daemon has a log of its own, whose level may change.
        let filter = EnvFilter::try_from_env("UTIPC_LOG").unwrap_or_else(|_| EnvFilter::new("off"));
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
    let result = match cli.command {
        Command::Demo(options) => demo::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Daemon(options) => daemon::run(&options),
        Command::Run(options) => match run::run(&options) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("utipc: {}", utipc_tools::one_line(&error));
            ExitCode::FAILURE
        }
    }
}
