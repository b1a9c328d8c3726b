//! `utipc`: the command line of utipc.

mod bench;
mod demo;

use std::process::ExitCode;

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
    /// Run a node for the programs of this host; the program `utipcd` does the same.
    Daemon(daemon::Options),
}

fn main() -> ExitCode {
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
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("utipc: {}", utipc_tools::one_line(&error));
            ExitCode::FAILURE
        }
    }
}
