//! `cargo run --release -p utipc-fuzz -- TARGET --seconds N`: see README.md.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use utipc_fuzz::{Seen, TARGETS, Target, engine, home, seeds, target};

/// Maximum number of inputs that `--keep` stores per target.
const MAX_CORPUS: usize = 32;
/// Longest input that `--keep` stores, bytes.
const MAX_KEPT: usize = 512;

/// Runs parsers and state machines on mutated input
#[derive(Parser)]
struct Args {
    /// Target, or `all`
    target: Option<String>,
    /// Seconds; divided among the targets by `all`
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the run to repeat
    #[arg(long)]
    seed: Option<u64>,
    /// Run this input file only
    #[arg(long)]
    input: Option<PathBuf>,
    /// Store inputs that show new behaviour in the corpus
    #[arg(long)]
    keep: bool,
    /// List the targets
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
        Some(name) => vec![target(name).with_context(|| format!("unknown target {name} (see --list)"))?],
        None => bail!("no target given: give one or `all` (see --list)"),
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
    println!("{total} executions in total");
    Ok(true)
}

/// An input that does not end cannot be unwound: report it and exit.
fn hang(target: &str, input: &[u8]) {
    match seeds::save(&seeds::crash_dir(), input) {
        Ok(path) => println!("{target}: HANGS on {}", path.display()),
        Err(e) => println!("{target}: HANGS, {e:#}"),
    }
    std::process::exit(1);
}

/// Adds the inputs that show most behaviour to the corpus, smallest first, until it is full.
fn keep(target: &Target, mut novel: Vec<Vec<u8>>) -> Result<()> {
    let mut all = Seen::default();
    let present = seeds::corpus(target)?;
    for (_, input) in &present {
        let mut seen = Seen::default();
        let survived = engine::survives(target, input, &mut seen);
        anyhow::ensure!(survived, "an input of the corpus fails (run it with --input)");
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
