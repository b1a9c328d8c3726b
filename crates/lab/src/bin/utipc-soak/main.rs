//! A long run against one real `utipcd`: hundreds of processes start, bind, communicate and die in every way, and are
//! replaced. Their messages must arrive whole and in order, no call may wait forever, and after all have ended the
//! daemon must hold no more than a fresh one.

mod actor;
mod bystander;
mod calls;
mod connections;
mod crew;
mod daemon;
mod flow;
mod honest;
mod hostile;
mod life;
mod message;
mod path;
mod peers;
mod report;
mod roles;
mod tally;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, Parser, Subcommand};

use crew::Crew;
use daemon::Watched;
use report::{Rest, Tolerance, Verdict};

/// Runs many processes on one daemon for a long time
#[derive(Debug, Parser)]
#[command(name = "utipc-soak", version)]
struct Cli {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// One of the processes; the run itself starts them
    #[command(hide = true)]
    Actor(actor::Life),
    /// One of the processes that connect; the run itself starts them
    #[command(hide = true)]
    Caller(connections::Caller),
    /// Opens and closes connections as fast as possible; the daemon must hold only those that are open
    Connections(connections::Options),
    /// Attacks a daemon with hostile processes of several users; honest processes must lose nothing
    Hostile(hostile::Options),
    /// Searches for the attack of one user, within its quotas, that costs others most
    Search(hostile::SearchOptions),
    /// One process of the search; the run itself starts it
    #[command(hide = true)]
    Shaped(hostile::Shaped),
    /// One of the hostile processes; the run itself starts them
    #[command(hide = true)]
    Attacker(hostile::Attacker),
    /// One of the honest processes; the run itself starts them
    #[command(hide = true)]
    Bystander(bystander::Bystander),
    /// Attacks a daemon with hostile peers in network namespaces; honest nodes must lose nothing
    Peers(peers::Options),
    /// Sends over a path between two daemons that loses, delays, duplicates and reorders packets, and drops large ones
    Path(path::Options),
    /// One of the hostile peers; the run itself starts them
    #[command(hide = true)]
    Peer(peers::Peer),
    /// Makes random calls on AF_TIPC sockets under the shim; none may stay, and the daemon must hold nothing afterwards
    Calls(calls::Options),
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
    let cli = Cli::parse();
    let result = match &cli.part {
        Some(Part::Actor(life)) => life::live(life).map(|()| true),
        Some(Part::Caller(caller)) => connections::call(caller).map(|()| true),
        Some(Part::Connections(options)) => {
            program(&cli.options).and_then(|daemon| connections::run(options, &daemon, cli.options.json))
        }
        Some(Part::Calls(options)) => {
            program(&cli.options).and_then(|daemon| calls::run(options, &daemon, cli.options.json))
        }
        Some(Part::Hostile(options)) if options.needs_daemon() && cli.options.daemon.is_none() => {
            Err(anyhow!("`--asan` needs `cargo xtask soak hostile --asan`, or --daemon with such a build"))
        }
        Some(Part::Hostile(options)) => {
            program(&cli.options).and_then(|daemon| hostile::run(options, &daemon, cli.options.json))
        }
        Some(Part::Search(options)) => {
            program(&cli.options).and_then(|daemon| hostile::search(options, &daemon, cli.options.json))
        }
        Some(Part::Shaped(shaped)) => hostile::attack_with_shape(shaped).map(|()| true),
        Some(Part::Peers(options)) => {
            program(&cli.options).and_then(|daemon| peers::run(options, &daemon, cli.options.json))
        }
        Some(Part::Path(options)) => {
            program(&cli.options).and_then(|daemon| path::run(options, &daemon, cli.options.json))
        }
        Some(Part::Peer(peer)) => peers::attack(peer).map(|()| true),
        Some(Part::Attacker(attacker)) => hostile::attack(attacker).map(|()| true),
        Some(Part::Bystander(bystander)) => bystander::live(bystander).map(|()| true),
        None => run(&cli.options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("utipc-soak: {}", utipc_cli::one_line(&error));
            ExitCode::FAILURE
        }
    }
}

/// The program of the daemon.
fn program(options: &Options) -> Result<PathBuf> {
    match &options.daemon {
        Some(program) => Ok(program.clone()),
        None => Ok(std::env::current_exe().context("find this program")?.with_file_name("utipcd")),
    }
}

/// Whether the run found no error.
fn run(options: &Options) -> Result<bool> {
    ensure!(options.minutes > 0.0 && options.processes > 1, "nothing to do (give minutes and processes)");
    ensure!(options.rests >= 2, "a leak shows only between two checks (--rests 2 or more)");
    let mut daemon = Watched::start(&program(options)?)?;
    let fresh = Rest::take(&mut daemon)?;
    eprintln!("fresh daemon: {fresh}");
    let mut crew = Crew::new(options.processes, options.life, options.seed, options.keep, daemon.socket())?;
    let round = Duration::from_secs_f64(options.minutes * 60.0 / f64::from(options.rests));
    let mut rests = Vec::new();
    for number in 1..=options.rests {
        crew.work(round, &mut daemon)?;
        crew.end_all()?;
        let rest = Rest::after(&mut daemon, &fresh, Tolerance::of(options.tolerance))?;
        eprintln!("rest {number} of {}: {rest}", options.rests);
        rests.push(rest);
    }
    let verdict = Verdict::new(crew.end(), fresh, rests, options.tolerance, daemon.end()?);
    if options.json {
        println!("{}", serde_json::to_string(&verdict)?);
    } else {
        print!("{verdict}");
    }
    Ok(verdict.ok)
}
