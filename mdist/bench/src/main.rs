//! `mdist-bench`: the tables of the RMDS performance report, run again on this machine.

mod between;
mod chain;
mod events;
mod foreign;
mod images;
mod latency;
mod options;
mod place;
mod report;
mod run;
mod runner;
mod search;
mod stall;
mod table;
mod targets;
mod throughput;
mod vendor;

use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;
use utipc_bench_kit::process::as_child;

fn main() -> ExitCode {
    if let Some(why) = as_child(std::env::args_os()) {
        eprintln!("{why:#}");
        return ExitCode::from(127);
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run::run(&options::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => utipc_cli::output::failed("mdist-bench", &why),
    }
}
