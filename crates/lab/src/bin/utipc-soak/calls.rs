//! Random calls on AF_TIPC sockets by programs under the shim: every call, option, address form, flag and length, from
//! several threads, with forks, copies and descriptors that are passed on. No call may stay, no process may crash, and
//! afterwards the daemon must hold no more than a fresh one.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;

use crate::daemon::Watched;
use crate::report::{Rest, Tolerance};

/// The program, in C: only the calls.
const PROGRAM: &str = include_str!("calls.c");

/// Time that a process may take beyond its duration: until it reports a call that does not return, plus its children.
const LONGER: Duration = Duration::from_secs(120);

/// The part of the tolerance that a second run may gain: a first run that gained more than all of it has filled the
/// reserve of the allocator.
const AGAIN: u64 = 2;

/// Pause between two checks of the processes.
const INTERVAL: Duration = Duration::from_millis(50);

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

/// Compiles the program.
fn compile(folder: &Path) -> Result<std::path::PathBuf> {
    let (source, program) = (folder.join("calls.c"), folder.join("calls"));
    std::fs::write(&source, PROGRAM).context("write the program")?;
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-pthread", "-o"]).arg(&program).arg(&source);
    let status = compiler.status().context("run cc (apt-get install gcc libc6-dev linux-libc-dev)")?;
    ensure!(status.success(), "calls.c does not compile (its errors are above)");
    Ok(program)
}

fn start(options: &Options, program: &Path, socket: &Path, number: u32) -> Result<Child> {
    let utipc = std::env::current_exe().context("find this program")?.with_file_name("utipc");
    let mut command = Command::new(utipc);
    command.args(["run", "--"]).arg(program).arg(options.seed.to_string());
    command.arg(options.seconds.to_string()).arg(options.threads.to_string());
    command.arg(number.to_string()).arg(options.processes.to_string());
    command.arg(std::process::id().to_string());
    command.env("UTIPC_SOCKET", socket).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().context("start a process")
}

/// Waits for a process; returns its calls, or what is wrong.
fn finish(child: &mut Child, until: Instant) -> Result<std::result::Result<u64, String>> {
    let status = loop {
        if let Some(status) = child.try_wait().context("wait for a process")? {
            break status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(Err("a process does not end".to_owned()));
        }
        std::thread::sleep(INTERVAL);
    };
    let mut said = String::new();
    child.stdout.take().context("it has no output")?.read_to_string(&mut said)?;
    let said = said.trim();
    if !status.success() {
        return Ok(Err(format!("a process has failed ({status}) {said}")));
    }
    Ok(said.parse().map_err(|_| format!("a process says: {said}")))
}

/// Runs the processes once; returns their calls, and the faults.
fn round(options: &Options, program: &Path, socket: &Path) -> Result<(u64, Vec<String>)> {
    let until = Instant::now() + Duration::from_secs_f64(options.seconds) + LONGER;
    let start = |number| start(options, program, socket, number);
    let mut children: Vec<Child> = (0..options.processes).map(start).collect::<Result<_>>()?;
    let (mut sum, mut wrong) = (0, Vec::new());
    for child in &mut children {
        match finish(child, until)? {
            Ok(calls) => sum += calls,
            Err(why) => wrong.push(why),
        }
    }
    Ok((sum, wrong))
}

/// Runs the processes; false if something is wrong. If the daemon holds much more memory than a fresh one, they run
/// again: a leak then repeats, while the reserve of the allocator is reused.
pub(crate) fn run(options: &Options, program: &Path, as_json: bool) -> Result<bool> {
    ensure!(options.seconds > 0.0 && options.processes > 0, "nothing to do (give seconds and processes)");
    let mut daemon = Watched::start(program)?;
    let folder = daemon.socket().parent().context("find the daemon's folder")?.to_path_buf();
    let calls = compile(&folder)?;
    let fresh = Rest::take(&mut daemon)?;
    let (sum, mut wrong) = round(options, &calls, daemon.socket())?;
    daemon.check_alive()?;
    let mut tolerance = Tolerance::of(options.tolerance);
    let mut rest = Rest::after(&mut daemon, &fresh, tolerance)?;
    let mut since = fresh.clone();
    if rest.resident_kib() > fresh.resident_kib() + options.tolerance {
        since = rest;
        wrong.extend(round(options, &calls, daemon.socket())?.1);
        daemon.check_alive()?;
        rest = Rest::after(&mut daemon, &fresh, tolerance)?;
        tolerance = Tolerance::of(options.tolerance / AGAIN);
    }
    wrong.extend(rest.faults(&fresh, &since, tolerance));
    if !daemon.end()? {
        wrong.push("the daemon has failed".to_owned());
    }
    let rate = (sum as f64 / options.seconds).round();
    if as_json {
        let verdict = json!({ "ok": wrong.is_empty(), "calls": sum, "per_second": rate, "seed": options.seed,
            "wrong": wrong, "fresh": fresh, "since": since, "rest": rest });
        println!("{verdict}");
    } else {
        println!("seed {}: {sum} calls, {rate} per second", options.seed);
        println!("fresh daemon: {fresh}");
        if since != fresh {
            println!("after the first run: {since}");
        }
        println!("afterwards: {rest}");
        wrong.iter().for_each(|why| println!("WRONG: {why}"));
        println!("calls: {}", if wrong.is_empty() { "ok" } else { "FAILED" });
    }
    Ok(wrong.is_empty())
}
