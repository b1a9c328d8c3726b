//! Deterministic simulator of virtual synchrony.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Parser, ValueEnum};
use utipc_sim::seeds;
use utipc_vsync::Components;
use utipc_vsync_sim::{Broken, FaultKind, Outcome, SimConfig, run};

/// Which components of a partitioned group go on.
#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// The component with the majority.
    Primary,
    /// Each.
    All,
}

/// Runs a group of members on virtual time over a faulty transport. The same seed gives the same run, byte for byte.
#[derive(Parser)]
#[command(name = "utipc-vsync-sim", version)]
struct Args {
    /// Places of members, 1 to 32.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=32))]
    members: u64,
    /// The seed; with --seeds, the first one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of runs, with consecutive seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Rounds of each run: a busy period with faults and a quiet one.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Kinds of faults: delay, partition, flap, crash, leave, slow; all if absent; none if empty.
    // Not `Vec`, of which clap would make several values.
    #[arg(long, value_parser = seeds::list::<FaultKind>)]
    faults: Option<std::vec::Vec<FaultKind>>,
    /// Which components go on; by default all with odd seeds, the primary one with even seeds.
    #[arg(long)]
    components: Option<Mode>,
    /// Log every event to standard error.
    #[arg(long)]
    log: bool,
}

fn print(seed: u64, o: &Outcome, failure: Option<(u64, &Broken)>) {
    let [delivered, aborted, unknown] = o.atomic;
    let lost = if o.majority_lost { ", majority lost" } else { "" };
    println!(
        "seed {seed}: trace {:016x}, {} rounds, {} messages, {} delivered, {} views, {} transfers, {} members gone, \
         {} excluded, {} blocked, atomic {delivered} delivered {aborted} aborted {unknown} unknown, {} full{lost}",
        o.trace,
        o.rounds,
        o.messages,
        o.delivered,
        o.views,
        o.transfers,
        o.crashes,
        o.excluded,
        o.blocked,
        o.would_block,
    );
    if let Some((at, broken)) = failure {
        println!("seed {seed}: BROKEN at {at} ms: {broken:?}");
    }
}

/// Makes all runs; returns whether all invariants held.
fn make_runs(args: &Args) -> bool {
    let lost = AtomicU64::new(0);
    let make = |seed| {
        let mut config = SimConfig::new(args.members as usize, seed);
        config.rounds = args.rounds;
        config.log = args.log;
        if let Some(mode) = args.components {
            config.components = if matches!(mode, Mode::All) { Components::All } else { Components::Primary };
        }
        if let Some(kinds) = &args.faults {
            config.faults.clone_from(kinds);
        }
        run(&config)
    };
    let broken = seeds::run_all(args.seed, args.seeds, make, |seed, result| match result {
        Ok(outcome) => {
            lost.fetch_add(outcome.majority_lost.into(), Ordering::Relaxed);
            print(seed, &outcome, None);
            true
        }
        Err(failure) => {
            print(seed, &failure.outcome, Some((failure.at_ms, &failure.broken)));
            false
        }
    });
    println!("{} runs lost their majority for good", lost.into_inner());
    broken == 0
}

fn main() -> ExitCode {
    let args = Args::parse();
    println!("seed {} ({} runs of {} members)", args.seed, args.seeds, args.members);
    if make_runs(&args) {
        return ExitCode::SUCCESS;
    }
    eprintln!("utipc-vsync-sim: a run broke an invariant: see above (repeat it with --seed)");
    ExitCode::FAILURE
}
