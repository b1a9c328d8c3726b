//! Deterministic TIPC cluster simulator.

mod scale_command;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use utipc_bench_kit::Named as _;
use utipc_sim::check::Violation;
use utipc_sim::peers::{self, Attack, Campaign, Probe, Report};
use utipc_sim::{FaultKind, Outcome, SimConfig, run, seeds};

/// Counts the memory of hostile peers' victims and of large clusters.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Runs a cluster of TIPC nodes on virtual time over a faulty network. The same seed gives the same run, byte for byte.
#[derive(Parser)]
#[command(name = "utipc-sim", version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Nodes, 2 to 64.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=64))]
    nodes: u64,
    /// Networks that connect the nodes, 1 or 2.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    bearers: u8,
    /// The seed; with --seeds, the first one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Virtual minutes of each run.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Kinds of faults: loss, reorder, duplicate, delay, partition, crash, link; all if absent; none if empty.
    // Not `Vec`, of which clap would make several values.
    #[arg(long, value_parser = seeds::list::<FaultKind>)]
    faults: Option<std::vec::Vec<FaultKind>>,
    /// Seeds to skip, for example because their failure is known.
    #[arg(long, value_delimiter = ',')]
    skip: Vec<u64>,
    /// Number of runs, with consecutive seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Start all protocol counters just before they wrap (by default every fourth seed does).
    #[arg(long)]
    near_wrap: bool,
    /// Attack one node by this many hostile peers instead, up to 4000; see --attacks.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4000), conflicts_with_all = ["nodes", "seeds", "faults"])]
    peers: Option<u16>,
    /// With --peers: virtual seconds of the attack after all peers have begun.
    #[arg(long, default_value_t = 20, requires = "peers")]
    seconds: u64,
    /// With --peers: frames of a peer in each half virtual second.
    #[arg(long, default_value_t = 8, requires = "peers")]
    burst: usize,
    /// With --peers: attacks, in turns: deferred, broadcast-gaps, discovery, nacks, silence, bindings, subscriptions,
    /// fragments, tunnel; all if absent.
    #[arg(long, value_delimiter = ',', requires = "peers")]
    attacks: Vec<Attack>,
    /// Encrypt everything, with a master key and session keys that change every virtual minute.
    #[arg(long)]
    keys: bool,
    /// Log every event to standard error.
    #[arg(long)]
    log: bool,
    /// Print one JSON object per run.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    Scale(scale_command::Scale),
}

fn print_json(seed: u64, outcome: &Outcome, violation: Option<&Violation>) {
    let mut line = json!(outcome);
    (line["seed"], line["ok"]) = (seed.into(), violation.is_none().into());
    line["violation"] = json!(violation.map(ToString::to_string));
    line["trace"] = format!("{:016x}", outcome.trace).into();
    println!("{line}");
}

fn print_text(seed: u64, o: &Outcome, violation: Option<&Violation>) {
    println!(
        "seed {seed}: trace {:016x}, {} rounds in {:.1} virtual minutes, {} frames, {} datagrams ({} returned), \
         {} connections ({} ended, {} bytes), {} topology events, {} contacts lost",
        o.trace,
        o.rounds,
        o.virtual_ms as f64 / 60_000.0,
        o.frames,
        o.datagrams,
        o.returned,
        o.connections,
        o.broken_connections,
        o.connection_bytes,
        o.topology_events,
        o.contacts_lost,
    );
    if let Some(violation) = violation {
        println!("seed {seed}: BROKEN {violation}");
    }
}

/// Makes all runs; returns the number of runs that broke an invariant.
fn make_runs(args: &Args) -> u64 {
    let make = |seed| {
        if args.skip.contains(&seed) {
            return None;
        }
        let mut config = SimConfig::new(args.nodes as usize, seed, args.minutes);
        config.bearers = args.bearers;
        config.near_wrap |= args.near_wrap;
        config.keys = args.keys;
        config.log = args.log;
        if let Some(kinds) = &args.faults {
            config.faults.clone_from(kinds);
        }
        Some(run(&config))
    };
    seeds::run_all(args.seed, args.seeds, make, |seed, result| {
        let (outcome, violation) = match result {
            None => {
                println!("seed {seed} skipped (--skip)");
                return true;
            }
            Some(Ok(outcome)) => (outcome, None),
            Some(Err(failure)) => (failure.1, Some(failure.0)),
        };
        let print = if args.json { print_json } else { print_text };
        print(seed, &outcome, violation.as_ref());
        violation.is_none()
    })
}

fn processor_time() -> Duration {
    let at = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(at.tv_sec.unsigned_abs(), u32::try_from(at.tv_nsec).unwrap_or(0))
}

fn print_report(report: &Report, failure: Option<&str>, as_json: bool) {
    let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
    if as_json {
        let cost = |(attack, cost): &(Attack, peers::Cost)| {
            json!({
                "attack": attack.name(), "frames": cost.frames, "bytes": cost.bytes,
                "us_per_frame": micros(cost.cpu_per_frame()), "longest_us": micros(cost.longest),
                "amplification": cost.amplification(),
            })
        };
        let mut line = json!(report);
        (line["ok"], line["violation"]) = (json!(failure.is_none()), json!(failure));
        line["timers_us"] = json!(micros(report.timers));
        line["longest_timer_us"] = json!(micros(report.longest_timer));
        line["attacks"] = report.costs.iter().map(cost).collect();
        return println!("{line}");
    }
    for (attack, cost) in &report.costs {
        println!(
            "{:<15} {:>9} frames {:>7.2} us each, longest turn {:>8.0} us, {:>6.2} bytes answered for each",
            attack.name(),
            cost.frames,
            micros(cost.cpu_per_frame()),
            micros(cost.longest),
            cost.amplification(),
        );
    }
    println!(
        "{} peers, {} linked at once, {:.0} virtual seconds, {} MiB at most, {} KiB left, {} KiB deferred at most, {} \
         honest messages, {} hostile links reset, newcomer after {} ms, names late by {} ms, timers {:.0} us at most",
        report.peers,
        report.most_linked,
        report.virtual_ms as f64 / 1000.0,
        report.memory >> 20,
        report.memory_left >> 10,
        report.deferred >> 10,
        report.messages,
        report.resets,
        report.newcomer_ms,
        report.names_late_ms,
        micros(report.longest_timer),
    );
    match failure {
        Some(reason) => println!("peers: BROKEN {reason}"),
        None => println!("peers: ok"),
    }
}

const PROBE: Probe = Probe { memory: || MEMORY.current_usage(), cpu: processor_time };

/// Attacks a node by hostile peers.
fn attack(args: &Args, count: u16) -> ExitCode {
    let campaign = Campaign {
        peers: count.into(),
        attack_ms: args.seconds * 1000,
        burst: args.burst,
        attacks: args.attacks.clone(),
        seed: args.seed,
    };
    let (report, failure) = match peers::run(campaign, PROBE) {
        Ok(report) => (report, None),
        Err(failure) => (failure.1, Some(failure.0)),
    };
    print_report(&report, failure.as_deref(), args.json);
    if failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(Command::Scale(args)) = &args.command {
        return scale_command::scale(args, PROBE);
    }
    if let Some(count) = args.peers {
        return attack(&args, count);
    }
    if args.json {
        println!("{}", json!({ "seed": args.seed, "runs": args.seeds, "nodes": args.nodes }));
    } else {
        println!("seed {} ({} runs of {} nodes)", args.seed, args.seeds, args.nodes);
    }
    let broken = make_runs(&args);
    if broken > 0 {
        eprintln!("utipc-sim: {broken} runs broke an invariant: see above (repeat one with --seed)");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
