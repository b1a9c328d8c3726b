//! `utipcd`: the daemon; `utipc daemon` is the same.

use std::process::ExitCode;

use clap::Parser;

/// TIPC in user space: a node for the programs of this host.
#[derive(Debug, Parser)]
#[command(name = "utipcd", version)]
struct Cli {
    #[command(flatten)]
    options: utipc_tools::daemon::Options,
}

fn main() -> ExitCode {
    match utipc_tools::daemon::run(&utipc_cli::usage::parse::<Cli>().options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            utipc_tools::report("utipcd", &error);
            ExitCode::FAILURE
        }
    }
}
