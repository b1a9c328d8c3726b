//! `cargo run --release -p utipc-fuzz -- TARGET --seconds N`: see README.md.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use utipc_fuzz::{Seen, TARGETS, Target, engine, home, seeds, target};

/// Inputs that `--keep` leaves in the tree for one target.
const MAX_CORPUS: usize = 32;
/// Longest input that `--keep` leaves in the tree, bytes.
const MAX_KEPT: usize = 512;

/// Throws mutated input at parsers and state machines.
#[derive(Parser)]
struct Args {
    /// What to fuzz, or `all`
    target: Option<String>,
    /// Seconds; `all` divides them
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Repeats a run
    #[arg(long)]
    seed: Option<u64>,
    /// Runs one file instead
    #[arg(long)]
    input: Option<PathBuf>,
    /// Adds inputs that showed something new to the corpus in the tree
    #[arg(long)]
    keep: bool,
    /// Names the targets
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("utipc-fuzz: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    if args.list {
        TARGETS.iter().for_each(|t| println!("{}", t.name));
        return Ok(true);
    }
    let chosen: Vec<&Target> = match args.target.as_deref() {
        Some("all") => TARGETS.iter().collect(),
        Some(name) => vec![target(name).with_context(|| format!("no target {name} (see --list)"))?],
        None => bail!("name a target or `all` (see --list)"),
    };
    if let Some(path) = &args.input {
        let input = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let mut seen = Seen::default();
        return Ok(chosen.iter().all(|t| engine::survives(t, &input, &mut seen)));
    }
    let seed = args.seed.unwrap_or_else(|| std::process::id().into());
    let budget = Duration::from_secs(args.seconds) / chosen.len() as u32;
    let mut total = 0;
    for target in chosen {
        println!("{}: seed {seed}, {} s", target.name, budget.as_secs());
        match engine::fuzz(target, &seeds::all(target)?, seed, budget, hang) {
            Ok(report) => {
                total += report.executions;
                let (runs, kinds) = (report.executions, report.behaviours);
                println!("{}: {runs} executions, {kinds} kinds of behaviour, no finding", target.name);
                if args.keep {
                    keep(target, report.novel)?;
                }
            }
            Err(finding) => {
                let path = seeds::save(&seeds::crash_dir(), &finding.input)?;
                println!("{}: FAILED after {} executions", target.name, finding.executions);
                println!(
                    "repeat with: cargo run -p utipc-fuzz -- {} --input {}",
                    target.name,
                    path.display()
                );
                return Ok(false);
            }
        }
    }
    println!("{total} executions in all");
    Ok(true)
}

/// An input that does not end cannot be unwound: say which, and end.
fn hang(target: &str, input: &[u8]) {
    match seeds::save(&seeds::crash_dir(), input) {
        Ok(path) => println!("{target}: HANGS on {}", path.display()),
        Err(e) => println!("{target}: HANGS, {e:#}"),
    }
    std::process::exit(1);
}

/// Adds the inputs that show most, smallest first, until the corpus is full.
fn keep(target: &Target, mut novel: Vec<Vec<u8>>) -> Result<()> {
    let mut all = Seen::default();
    let present = seeds::corpus(target)?;
    for (_, input) in &present {
        let mut seen = Seen::default();
        let survived = engine::survives(target, input, &mut seen);
        anyhow::ensure!(survived, "an input of the corpus fails");
        all.merge(seen);
    }
    novel.retain(|input| input.len() <= MAX_KEPT);
    let mut rated = Vec::new();
    for input in novel {
        let mut seen = Seen::default();
        if engine::survives(target, &input, &mut seen) {
            rated.push((seen.len(), input));
        }
    }
    rated.sort_by_key(|(shown, input)| (std::cmp::Reverse(*shown), input.len()));
    let dir: &Path = &home().join("corpus").join(target.name);
    let mut room = MAX_CORPUS.saturating_sub(present.len());
    for (_, input) in rated {
        let mut seen = Seen::default();
        if room > 0 && engine::survives(target, &input, &mut seen) && all.merge(seen) {
            seeds::save(dir, &input)?;
            room -= 1;
        }
    }
    Ok(())
}
