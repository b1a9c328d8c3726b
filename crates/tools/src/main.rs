//! `utipc`: the command line of utipc.

mod demo;
mod laboratory;
mod manage;
mod operate;
mod program;
mod proxy;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use utipc_cli::usage;
use utipc_tools::daemon;

/// TIPC in user space: management, demo and benchmarks
#[derive(Debug, Parser)]
#[command(
    name = "utipc",
    version,
    after_help = "Management commands may be abbreviated to any unambiguous prefix, and take --help, --json, --pretty and \
                  --engine daemon|kernel.\nSet UTIPC_LOG=info (or debug) to see what the nodes report."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show two nodes that find each other, exchange messages and watch services come and go
    Demo(demo::Options),
    /// Measure latency, throughput and more, together with TCP in the same run: the package utipc-lab
    Bench(laboratory::Options),
    /// Run a program written for the kernel's TIPC on utipc: the daemon serves its AF_TIPC sockets. If no daemon runs,
    /// one is started for it
    Run(run::Options),
    /// Show the state of the node on one screen, problems first
    Status(operate::status::Options),
    /// Look for problems of node and host, and say what to do
    Doctor(operate::doctor::Options),
    /// Show sockets, services and links by rate, live
    Top(operate::top::Options),
    /// Capture frames of bearers and messages between programs, for Wireshark
    Capture(operate::capture::Options),
    /// Connect TCP or Unix sockets with services, in both directions
    Proxy(proxy::Options),
    /// Run a node for the programs of this host, like the program `utipcd`
    Daemon(daemon::Options),
    /// Print a shell completion script for this command line
    Completion {
        /// The shell
        shell: manage::Shell,
    },
    /// Make a link named `tipc` to this program: under that name it has the grammar of iproute2's `tipc`
    InstallTipc {
        /// The folder of the link, a folder of your PATH
        folder: PathBuf,
    },
}

/// The whole command line: the commands that clap parses, and those of the management tool, which has its own parser.
fn whole() -> clap::Command {
    manage::names()
        .fold(Cli::command(), |all, (name, about)| all.subcommand(clap::Command::new(name).about(about)))
}

fn main() -> ExitCode {
    utipc_cli::output::until_closed(run)
}

fn run() -> ExitCode {
    let args: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let own = Cli::command();
    let others: Vec<&str> = own.get_subcommands().map(clap::Command::get_name).chain(["help"]).collect();
    if let Some(code) = manage::run(&args, &others) {
        return code;
    }
    let cli: Cli = usage::of_matches(&whole(), &usage::matches(whole()));
    let usual = if matches!(cli.command, Command::Proxy(_)) { proxy::LOG } else { "off" };
    // The daemon has its own log, whose level can change.
    if !matches!(cli.command, Command::Daemon(_))
        && let Err(why) = utipc_cli::log::start_of_command(usual)
    {
        eprintln!("utipc: {why}");
        return ExitCode::FAILURE;
    }
    let result = match cli.command {
        Command::Demo(options) => demo::run(&options),
        Command::Bench(options) => laboratory::run(&options).map(|never| match never {}),
        Command::Daemon(options) => daemon::run(&options),
        Command::Run(options) => return finish(run::run(&options)),
        Command::Status(options) => return finish(operate::status::run(&options)),
        Command::Top(options) => return finish(operate::top::run(&options)),
        Command::Doctor(options) => return finish(operate::doctor::run(&options)),
        Command::Capture(options) => return finish(operate::capture::run(&options)),
        Command::Proxy(options) => return finish(proxy::run(&options)),
        Command::Completion { shell } => {
            manage::completion(shell, whole(), &mut std::io::stdout());
            Ok(())
        }
        Command::InstallTipc { folder } => manage::install_tipc(&folder),
    };
    finish(result.map(|()| ExitCode::SUCCESS))
}

/// The exit code of a command; its error is printed.
fn finish(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        utipc_tools::report("utipc", &error);
        ExitCode::FAILURE
    })
}
