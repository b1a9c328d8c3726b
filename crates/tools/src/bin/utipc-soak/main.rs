//! A long run of everything against one real `utipcd`: hundreds of processes that start, bind, talk and die in every
//! way, restarted continuously. What they receive must be whole and in order, nobody may wait for ever, and when all have
//! gone the daemon must hold nothing.

mod actor;
mod crew;
mod daemon;
mod flow;
mod message;
mod report;
mod roles;
mod tally;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};

use crew::Crew;
use daemon::Watched;
use report::{Rest, Verdict};

/// Many processes on one daemon, for a long time.
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
}

/// What the run is like.
#[derive(Debug, Args)]
struct Options {
    /// How long, minutes
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Processes at a time
    #[arg(long, default_value_t = 200)]
    processes: u32,
    /// How long a process lives, seconds, on the average
    #[arg(long, default_value_t = 15.0)]
    life: f64,
    /// Times that all processes end and the daemon is looked at; the first time gives the baseline
    #[arg(long, default_value_t = 4)]
    rests: u32,
    /// Number that decides who does and dies when
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Resident memory that the daemon may have gained since the baseline, KiB: what its allocator keeps in reserve
    #[arg(long, default_value_t = 4096)]
    tolerance: u64,
    /// Let a process that does not end stand, for a debugger, and end the run
    #[arg(long)]
    keep: bool,
    /// The daemon's program; by default the one beside this
    #[arg(long)]
    daemon: Option<PathBuf>,
    /// The result as one JSON object
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.part {
        Some(Part::Actor(life)) => actor::live(life).map(|()| true),
        None => run(&cli.options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("utipc-soak: {}", utipc_tools::one_line(&error));
            ExitCode::FAILURE
        }
    }
}

/// Whether all was as it should be.
fn run(options: &Options) -> Result<bool> {
    ensure!(options.minutes > 0.0 && options.processes > 1, "nothing to do (give minutes and processes)");
    ensure!(options.rests >= 2, "one look shows no leak (--rests 2 or more)");
    let program = match &options.daemon {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("find this program")?.with_file_name("utipcd"),
    };
    let mut daemon = Watched::start(&program)?;
    let fresh = Rest::take(&mut daemon)?;
    eprintln!("fresh daemon: {fresh}");
    let mut crew = Crew::new(options.processes, options.life, options.seed, options.keep, daemon.socket())?;
    let round = Duration::from_secs_f64(options.minutes * 60.0 / f64::from(options.rests));
    let mut rests = Vec::new();
    for number in 1..=options.rests {
        crew.work(round, &mut daemon)?;
        crew.send_home()?;
        let rest = Rest::after(&mut daemon, &fresh)?;
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
