//! A long run against one real `utipcd`: hundreds of processes start, bind, communicate and die in every way, and are
//! replaced. Their messages must arrive whole and in order, no call may wait forever, and after all have ended the
//! daemon must hold no more than a fresh one. The subcommands are other campaigns.

mod actor;
mod calls;
mod connections;
mod crew;
mod daemon;
mod honest;
mod hostile;
mod path;
mod peers;
mod report;
mod roles;
mod tally;

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utipc_bench_kit::process::Killed;

use crew::Crew;
use daemon::Watched;
use report::{Rest, Tolerance, verdict};

/// This program, usable also by users who may not enter its folder.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Pause between two checks of processes.
const INTERVAL: Duration = Duration::from_millis(50);

/// Runs many processes on one daemon for a long time
#[derive(Debug, Parser)]
#[command(name = "utipc-soak", version)]
struct Cli {
    #[command(subcommand)]
    campaign: Option<Campaign>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Campaign {
    /// Opens and closes connections as fast as possible; the daemon must hold only those that are open
    Connections(connections::Options),
    /// Attacks a daemon with hostile processes of several users; honest processes must lose nothing
    Hostile(hostile::Options),
    /// Searches for the attack of one user, within its quotas, that costs others most
    Search(hostile::SearchOptions),
    /// Attacks a daemon with hostile peers in network namespaces; honest nodes must lose nothing
    Peers(peers::Options),
    /// Sends over a path between two daemons that loses, delays, duplicates and reorders packets, and drops large ones
    Path(path::Options),
    /// Makes random calls on AF_TIPC sockets under the shim; none may stay, and the daemon must hold nothing afterwards
    Calls(calls::Options),
    /// One process of a run; the run itself starts them
    #[command(hide = true)]
    Part {
        /// Its task, as JSON
        task: String,
    },
}

/// The task of one process of a run.
#[derive(Debug, Serialize, Deserialize)]
enum Part {
    Actor(actor::Life),
    Caller(connections::Caller),
    Shaped(hostile::Shaped),
    Attacker(hostile::Attacker),
    Bystander(honest::Bystander),
    Peer(peers::Peer),
}

impl Part {
    /// The arguments of the process.
    fn arguments(&self) -> Result<[String; 2]> {
        Ok(["part".to_owned(), serde_json::to_string(self).context("encode a task")?])
    }

    /// A command for the process.
    fn command(&self) -> Result<Command> {
        let mut command = Command::new(OWN_PROGRAM);
        command.args(self.arguments()?);
        Ok(command)
    }

    fn run(task: &str) -> Result<bool> {
        let task: Self = serde_json::from_str(task).context("read a task")?;
        let done = match task {
            Self::Actor(life) => actor::live(life),
            Self::Caller(caller) => connections::call(&caller),
            Self::Shaped(shaped) => hostile::attack_with_shape(&shaped),
            Self::Attacker(attacker) => hostile::attack(&attacker),
            Self::Bystander(bystander) => honest::live(&bystander),
            Self::Peer(peer) => peers::attack(&peer),
        };
        done.map(|()| true)
    }
}

/// Options of a run.
#[derive(Debug, Args)]
struct Options {
    /// Duration, minutes
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Processes at a time
    #[arg(long, default_value_t = 200)]
    processes: u32,
    /// Average life of a process, seconds
    #[arg(long, default_value_t = 15.0)]
    life: f64,
    /// Times that all processes end and the daemon is checked; the first check is the baseline
    #[arg(long, default_value_t = 4)]
    rests: u32,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Resident memory that the daemon may gain over the baseline, KiB: the reserve of its allocator
    #[arg(long, default_value_t = 4096)]
    tolerance: u64,
    /// Keep a process that does not end, for a debugger, and end the run
    #[arg(long)]
    keep: bool,
    /// The program of the daemon [default: utipcd in the folder of this program]
    #[arg(long)]
    daemon: Option<PathBuf>,
    /// Print the result as one JSON object
    #[arg(long, global = true)]
    json: bool,
}

fn main() -> ExitCode {
    match start(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("utipc-soak: {}", utipc_cli::one_line(&error));
            ExitCode::FAILURE
        }
    }
}

/// Runs a campaign or a process of one; false if something is wrong.
fn start(Cli { campaign, options }: &Cli) -> Result<bool> {
    let program = match &options.daemon {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("find this program")?.with_file_name("utipcd"),
    };
    let (program, as_json) = (program.as_path(), options.json);
    match campaign {
        None => run(options, program),
        Some(Campaign::Part { task }) => Part::run(task),
        Some(Campaign::Connections(options)) => connections::run(options, program, as_json),
        Some(Campaign::Hostile(own)) => {
            let named = options.daemon.is_some() || !own.needs_daemon();
            ensure!(named, "`--asan` needs `cargo xtask soak hostile --asan`, or --daemon with such a build");
            hostile::run(own, program, as_json)
        }
        Some(Campaign::Search(options)) => hostile::search(options, program, as_json),
        Some(Campaign::Peers(options)) => peers::run(options, program, as_json),
        Some(Campaign::Path(options)) => path::run(options, program, as_json),
        Some(Campaign::Calls(options)) => calls::run(options, program, as_json),
    }
}

/// Whether the run found no error.
fn run(options: &Options, program: &std::path::Path) -> Result<bool> {
    ensure!(options.minutes > 0.0 && options.processes > 1, "nothing to do (give minutes and processes)");
    ensure!(options.rests >= 2, "a leak shows only between two checks (--rests 2 or more)");
    let mut daemon = Watched::start(program)?;
    let fresh = Rest::take(&mut daemon)?;
    eprintln!("fresh daemon: {fresh}");
    let mut crew = Crew::new(options.processes, options.life, options.seed, options.keep, daemon.socket())?;
    let round = Duration::from_secs_f64(options.minutes * 60.0 / f64::from(options.rests));
    let (mut rests, mut wrong) = (Vec::<Rest>::new(), Vec::new());
    for number in 1..=options.rests {
        crew.work(round, &mut daemon)?;
        crew.end_all()?;
        let rest = Rest::after(&mut daemon, &fresh, Tolerance::of(options.tolerance))?;
        eprintln!("rest {number} of {}: {rest}", options.rests);
        wrong.extend(rest.leaks(&fresh).into_iter().map(|leak| format!("rest {number}: {leak}")));
        rests.push(rest);
    }
    if let (Some(baseline), Some(last)) = (rests.first(), rests.last()) {
        wrong.extend(last.faults(&fresh, baseline, Tolerance::of(options.tolerance)));
    }
    let (sums, deaths) = (crew.tally().sums, crew.deaths);
    wrong.extend(crew.tally().violations.clone());
    // A run without traffic or deaths tests nothing.
    if sums.received == 0 || deaths.killed == 0 {
        wrong.push("no message was sent, or no process died".to_owned());
    }
    daemon.end(&mut wrong)?;
    let elapsed_s = crew.begun.elapsed().as_secs_f64();
    let facts = json!({ "test": "soak", "elapsed_s": elapsed_s, "processes": options.processes, "deaths": deaths,
        "sums": sums, "fresh": fresh, "rests": rests, "tolerance_kib": options.tolerance });
    let mut lines = vec![
        format!("{} processes for {elapsed_s:.0} s", options.processes),
        format!(
            "  lives        {} started: {} ended by kill -9, {} in the middle of work, {} in good order",
            deaths.started, deaths.killed, deaths.exited, deaths.orderly
        ),
        format!(
            "  messages     {} sent, {} received whole and in order ({} MiB); {} returned, {} requests without answer \
             (server dead), {} answers after more than 3 s ({} of them found by a repeated receive call), {} gaps in \
             flows of datagrams",
            sums.sent,
            sums.received,
            sums.bytes >> 20,
            sums.returned,
            sums.unanswered,
            sums.late,
            sums.late_at_look,
            sums.gaps
        ),
        format!(
            "  connections  {} set up, {} broken by a death; {} refused; {} multicasts; {} topology events, {} \
             repeated subscriptions",
            sums.connections, sums.broken, sums.refused, sums.multicasts, sums.events, sums.resubscribed
        ),
        format!("  fresh        {fresh}"),
    ];
    lines.extend((1..).zip(&rests).map(|(number, rest): (u32, _)| format!("  rest {number:<7} {rest}")));
    Ok(verdict("soak", options.json, &wrong, facts, &lines))
}

/// Runs processes that print a count at their end, and calls `watch` meanwhile; returns the sum of the counts. A
/// process that fails, or still runs after `limit`, is wrong.
fn count(
    commands: impl IntoIterator<Item = Command>,
    limit: Duration,
    wrong: &mut Vec<String>,
    mut watch: impl FnMut() -> Result<()>,
) -> Result<u64> {
    let start = |mut command: Command| {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("start a process").map(Killed)
    };
    let mut children = commands.into_iter().map(start).collect::<Result<Vec<_>>>()?;
    let (end, mut sum) = (Instant::now() + limit, 0);
    while !children.is_empty() {
        watch()?;
        let mut living = Vec::new();
        for mut child in children {
            let Some(status) = child.0.try_wait().context("wait for a process")? else {
                match Instant::now() > end {
                    true => wrong.push("a process does not end".to_owned()),
                    false => living.push(child),
                }
                continue;
            };
            let mut said = String::new();
            child.0.stdout.take().context("a process has no output")?.read_to_string(&mut said)?;
            match said.trim().parse::<u64>() {
                Ok(count) if status.success() => sum += count,
                _ => wrong.push(format!("a process has failed ({status}): {}", said.trim())),
            }
        }
        children = living;
        std::thread::sleep(INTERVAL);
    }
    Ok(sum)
}
