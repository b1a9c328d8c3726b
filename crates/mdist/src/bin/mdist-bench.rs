//! `mdist-bench`: the tables of the RMDS performance report, run again on this machine.

use std::process::ExitCode;

use clap::Parser as _;
use mdist::bench::{Options, run};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mdist-bench: {}", format!("{why:#}").replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}
