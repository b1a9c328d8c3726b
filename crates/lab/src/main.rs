//! `utipc-lab`: the laboratory of utipc, outside the product. `utipc bench` runs `utipc-lab bench`.

mod bench;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use utipc_cli::usage;
use utipc_tools::daemon;

/// Measurements of utipc, compared with TCP and other transports
#[derive(Debug, Parser)]
#[command(
    name = "utipc-lab",
    version,
    after_help = "Set UTIPC_LOG=info (or debug) to see what the nodes report."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure latency, throughput and more, together with TCP in the same run
    Bench(Box<bench::Options>),
    /// Run the daemon of a measurement, from the same build as its programs; the other commands start it
    #[command(hide = true)]
    Daemon(Box<daemon::Options>),
}

fn main() -> ExitCode {
    utipc_cli::output::until_closed(run)
}

fn run() -> ExitCode {
    // `--completion` stands without a command.
    let command = usage::with_completion(Cli::command()).subcommand_required(false);
    let matches = usage::matches(command.clone());
    usage::complete(&matches, command);
    let cli: Cli = usage::of_matches(&Cli::command(), &matches);
    // The daemon has its own log.
    if !matches!(cli.command, Command::Daemon(_))
        && let Err(why) = utipc_cli::log::start_of_command("off")
    {
        eprintln!("utipc-lab: {why}");
        return ExitCode::FAILURE;
    }
    let result = match cli.command {
        Command::Bench(options) => bench::run(&options),
        Command::Daemon(options) => daemon::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            utipc_tools::report("utipc-lab", &error);
            ExitCode::FAILURE
        }
    }
}
