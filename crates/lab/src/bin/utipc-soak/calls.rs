//! Random calls on AF_TIPC sockets by programs under the shim: every call, option, address form, flag and length, from
//! several threads, with forks, copies and descriptors that are passed on. No call may stay, no process may crash, and
//! afterwards the daemon must hold no more than a fresh one.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use serde_json::json;
use utipc_bench_kit::compiler::compile;

use crate::count;
use crate::daemon::Watched;
use crate::report::{Rest, Tolerance, verdict};

/// The program, in C: only the calls.
const PROGRAM: &str = include_str!("calls.c");

/// Time that a process may take beyond its duration: until it reports a call that does not return, plus its children.
const LONGER: Duration = Duration::from_secs(120);

/// The part of the tolerance that a second run may gain: a first run that gained more than all of it has filled the
/// reserve of the allocator.
const AGAIN: u64 = 2;

/// Options of a run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Duration, seconds
    #[arg(long, default_value_t = 300.0)]
    seconds: f64,
    /// Processes at a time
    #[arg(long, default_value_t = 8)]
    processes: u32,
    /// Threads of each, at most 16
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Resident memory that the daemon may gain, KiB; if it gains more, the calls are made again and may add half of it
    #[arg(long, default_value_t = 32768)]
    tolerance: u64,
}

/// Runs the processes once; returns their calls.
fn round(options: &Options, calls: &Path, daemon: &mut Watched, wrong: &mut Vec<String>) -> Result<u64> {
    let utipc = std::env::current_exe().context("find this program")?.with_file_name("utipc");
    let socket = daemon.socket().to_owned();
    let command = |number: u32| {
        let mut command = Command::new(&utipc);
        command.args(["run", "--"]).arg(calls).arg(options.seed.to_string());
        command.arg(options.seconds.to_string()).arg(options.threads.to_string());
        command.arg(number.to_string()).arg(options.processes.to_string());
        command.arg(std::process::id().to_string()).env("UTIPC_SOCKET", &socket);
        command
    };
    let limit = Duration::from_secs_f64(options.seconds) + LONGER;
    count((0..options.processes).map(command), limit, wrong, || daemon.check_alive())
}

/// Runs the processes; false if something is wrong. If the daemon holds much more memory than a fresh one, they run
/// again: a leak then repeats, while the reserve of the allocator is reused.
pub(crate) fn run(options: &Options, program: &Path, as_json: bool) -> Result<bool> {
    ensure!(options.seconds > 0.0 && options.processes > 0, "nothing to do (give seconds and processes)");
    let mut daemon = Watched::start(program)?;
    let flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-pthread"];
    let calls = compile(daemon.folder(), "calls", PROGRAM, &flags)?;
    let calls = calls.map_err(|why| anyhow!("{why} (apt-get install gcc libc6-dev linux-libc-dev)"))?;
    let fresh = Rest::take(&mut daemon)?;
    let mut wrong = Vec::new();
    let sum = round(options, &calls, &mut daemon, &mut wrong)?;
    let mut tolerance = Tolerance::of(options.tolerance);
    let mut rest = Rest::after(&mut daemon, &fresh, tolerance)?;
    let mut since = fresh.clone();
    if rest.held.resident_kib > fresh.held.resident_kib + options.tolerance {
        since = rest;
        round(options, &calls, &mut daemon, &mut wrong)?;
        rest = Rest::after(&mut daemon, &fresh, tolerance)?;
        tolerance = Tolerance::of(options.tolerance / AGAIN);
    }
    wrong.extend(rest.faults(&fresh, &since, tolerance));
    daemon.end(&mut wrong)?;
    let rate = (sum as f64 / options.seconds).round();
    let facts = json!({ "calls": sum, "per_second": rate, "seed": options.seed, "fresh": fresh, "since": since,
        "rest": rest });
    let mut lines = vec![
        format!("seed {}: {sum} calls, {rate} per second", options.seed),
        format!("fresh daemon: {fresh}"),
    ];
    lines.extend((since != fresh).then(|| format!("after the first run: {since}")));
    lines.push(format!("afterwards: {rest}"));
    Ok(verdict("calls", as_json, &wrong, facts, &lines))
}
