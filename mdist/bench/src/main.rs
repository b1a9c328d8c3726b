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
use utipc_bench_kit::process::as_child;
use utipc_cli::log;

fn main() -> ExitCode {
    if let Some(why) = as_child(std::env::args_os()) {
        eprintln!("{why:#}");
        return ExitCode::from(127);
    }
    let started = log::start(log::MARKET_VARIABLE, "warn").map_err(anyhow::Error::msg);
    match started.and_then(|()| run::run(&options::Options::parse())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => utipc_cli::output::failed("mdist-bench", &why),
    }
}
