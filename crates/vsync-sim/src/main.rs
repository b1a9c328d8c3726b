//! Deterministic simulator of virtual synchrony.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Parser, ValueEnum};
use utipc_vsync::Components;
use utipc_vsync_sim::{Broken, FaultKind, Outcome, SimConfig, run};

/// Which components of a partitioned group go on.
#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// The one with the majority.
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
    #[arg(long)]
    faults: Option<String>,
    /// Which components go on; by default those of odd seeds all, those of even seeds the primary one.
    #[arg(long)]
    components: Option<Mode>,
    /// Log every event to standard error.
    #[arg(long)]
    log: bool,
}

fn faults(list: &str) -> Result<Vec<FaultKind>, String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::parse).collect()
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

/// Makes all runs, on as many threads as there are cores; returns whether all invariants held.
fn make_runs(args: &Args, kinds: Option<&[FaultKind]>) -> bool {
    let next = AtomicU64::new(0);
    let broken = AtomicU64::new(0);
    let lost = AtomicU64::new(0);
    let printing = Mutex::new(());
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= args.seeds || broken.load(Ordering::Relaxed) > 0 {
                return;
            }
            let seed = args.seed + n;
            let mut config = SimConfig::new(args.members as usize, seed);
            config.rounds = args.rounds;
            config.log = args.log;
            if let Some(mode) = args.components {
                config.components =
                    if matches!(mode, Mode::All) { Components::All } else { Components::Primary };
            }
            if let Some(kinds) = kinds {
                config.faults = kinds.to_vec();
            }
            let result = run(&config);
            let _one_at_a_time = printing.lock();
            match &result {
                Ok(outcome) => {
                    lost.fetch_add(outcome.majority_lost.into(), Ordering::Relaxed);
                    print(seed, outcome, None);
                }
                Err(failure) => {
                    broken.fetch_add(1, Ordering::Relaxed);
                    print(seed, &failure.outcome, Some((failure.at_ms, &failure.broken)));
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(args.seeds as usize);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    println!("{} runs lost their majority for good", lost.into_inner());
    broken.into_inner() == 0
}

fn main() -> ExitCode {
    let args = Args::parse();
    let kinds = match args.faults.as_deref().map(faults).transpose() {
        Ok(kinds) => kinds,
        Err(reason) => {
            eprintln!("utipc-vsync-sim: cannot start: {reason}");
            return ExitCode::from(2);
        }
    };
    println!("seed {} ({} runs of {} members)", args.seed, args.seeds, args.members);
    if make_runs(&args, kinds.as_deref()) {
        return ExitCode::SUCCESS;
    }
    eprintln!("utipc-vsync-sim: a run broke an invariant: see above (repeat it with --seed)");
    ExitCode::FAILURE
}
