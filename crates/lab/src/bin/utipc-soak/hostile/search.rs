//! A search for the attack of one unprivileged user that costs others most: random [`Shape`]s within the default
//! limits, each against a fresh daemon, and mutations of the worst so far. Bystanders of another user measure the time
//! of requests to the daemon, and compare it with the time while as many processes only compute.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use utipc_bench_kit::numbered::Random;

use super::shape::{End, Shape, Shaped};
use super::{FACTOR, Hostile, computing, seconds};
use crate::daemon::{Watched, configuration};
use crate::honest::{Honest, Role, Window};
use crate::{INTERVAL, Part};

/// Time after which the memory of a user that has left must be returned.
const RETURNED: Duration = Duration::from_secs(10);

/// Resident memory that may stay, KiB.
const LEFT_KIB: u64 = 4 << 10;

/// Resident memory beyond what users are charged for: KiB, and as a part of the charge.
const BEYOND_KIB: u64 = 16 << 10;
const BEYOND_PART: u64 = 4;

/// The longest turn, microseconds of processor time.
const TURN_US: u64 = 20_000;

/// How many times as long as an attack the processes compute that it is compared with, and it is repeated if it has
/// missed a target.
const LONGER: f64 = 3.0;

/// Seconds after which the system ends a process that only computes.
const COMPUTING: u64 = 600;

/// Options of a search.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Duration of the search, seconds
    #[arg(long, default_value_t = 3600.0)]
    seconds: f64,
    /// Duration of one attack, seconds
    #[arg(long, default_value_t = 4.0)]
    attack: f64,
    /// Hostile processes; by default one for each processor
    #[arg(long)]
    processes: Option<u64>,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Fail if a target is missed: only on a machine without other work
    #[arg(long)]
    timed: bool,
    /// Attach the bystanders to a separate daemon, which shares only the processors with the attacked one
    #[arg(long)]
    apart: bool,
    /// Run this shape only, given as JSON
    #[arg(long)]
    shape: Option<String>,
}

impl Options {
    fn processes(&self) -> u64 {
        let processors = || std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        self.processes.unwrap_or_else(processors).max(1)
    }
}

/// The cost of an attack.
#[derive(Clone, Debug, Default, Serialize)]
struct Cost {
    /// Requests of a bystander.
    requests: Window,
    /// Exchanges of bystanders by lanes.
    lanes: Window,
    /// The longest turn of the daemon, microseconds of processor time, and its handler.
    turn_us: u64,
    handler: String,
    /// Maximum resident memory beyond the start, KiB, and what users were charged for at that time.
    resident_kib: u64,
    charged_kib: u64,
    /// Resident memory beyond the start after the user has left, KiB.
    left_kib: u64,
}

impl Cost {
    /// Resident memory beyond what may be resident for this charge, KiB.
    fn beyond_kib(&self) -> u64 {
        self.resident_kib.saturating_sub(self.charged_kib + self.charged_kib / BEYOND_PART + BEYOND_KIB)
    }

    /// The targets that are missed.
    fn missed(&self, beside: &Window) -> Vec<String> {
        let mut missed = Vec::new();
        if self.requests.p99_us > FACTOR * beside.p99_us {
            missed.push(format!(
                "p99 of requests {} us, beside computing {}",
                self.requests.p99_us, beside.p99_us
            ));
        }
        if self.turn_us > TURN_US {
            missed.push(format!("a turn of {} us in {}", self.turn_us, self.handler));
        }
        if self.beyond_kib() > 0 {
            missed.push(format!("{} KiB resident, {} charged", self.resident_kib, self.charged_kib));
        }
        if self.left_kib > LEFT_KIB {
            missed.push(format!("{} KiB left", self.left_kib));
        }
        missed
    }
}

/// Bytes charged to users, and the longest turn with its handler.
fn counters(daemon: &mut Watched) -> Result<(u64, u64, String)> {
    let counters = daemon.counters()?;
    let quotas = counters.get("quotas").and_then(Value::as_array).context("no quotas")?;
    let memory = quotas.iter().find(|quota| quota.get("resource") == Some(&Value::from("memory")));
    let charged = memory.and_then(|quota| quota.get("used")).and_then(Value::as_u64).context("no memory")?;
    let turns = counters.get("turns").context("no counters of turns")?;
    let handler = turns.pointer("/longest/handler").and_then(Value::as_str).unwrap_or_default();
    Ok((charged, super::longest_us(turns), handler.to_owned()))
}

/// Starts a daemon that takes processes of all users.
fn start(program: &Path, name: &str) -> Result<Watched> {
    Watched::start_by(Command::new(program), name, &configuration(0, &[], true))
}

fn end(daemon: Watched) -> Result<()> {
    let mut wrong = Vec::new();
    daemon.end(&mut wrong)?;
    ensure!(wrong.is_empty(), "the daemon has failed");
    Ok(())
}

/// Starts a process that runs for the duration of an attack.
fn start_shaped(socket: &Path, options: &Options, seed: u64, shape: &Shape, end: Instant) -> Result<Hostile> {
    let left = end.saturating_duration_since(Instant::now()).as_secs_f64();
    let shape = shape.part(options.processes());
    let part = Part::Shaped(Shaped { socket: socket.to_owned(), seed, seconds: left, shape });
    Hostile::start(&part, 0, Stdio::null(), end + seconds(options.attack))
}

/// One attack against a fresh daemon.
fn attack(program: &Path, options: &Options, seed: u64, shape: &Shape) -> Result<Cost> {
    let mut daemon = start(program, "-search")?;
    let apart = options.apart.then(|| start(program, "-apart")).transpose()?;
    let socket = apart.as_ref().unwrap_or(&daemon).socket();
    let server = Honest::start(socket, Role::Server)?;
    let mut clients = [Honest::start(socket, Role::Caller)?, Honest::start(socket, Role::Client)?];
    std::thread::sleep(seconds(0.5));
    for client in &mut clients {
        client.window()?;
    }
    let resident = |daemon: &Watched| {
        daemon.held().map(|held| held.resident_kib - held.shared_kib.min(held.resident_kib))
    };
    let at_start = resident(&daemon)?;
    let (begun, mut seeds) = (Instant::now(), seed..);
    // One that begins later would be at its end before it has set up anything.
    let [last_start, kill_at, over] = [0.75, 0.9, 1.0].map(|part| begun + seconds(options.attack * part));
    let mut hostile: Vec<Hostile> = Vec::new();
    let mut cost = Cost::default();
    loop {
        let mut living = Vec::new();
        for mut process in hostile {
            if !process.has_ended()? && Instant::now() < process.until {
                living.push(process);
            }
        }
        hostile = living;
        // A process may end sooner: its user starts another one.
        while Instant::now() < last_start && (hostile.len() as u64) < options.processes() {
            let seed = seeds.next().unwrap_or(seed);
            hostile.push(start_shaped(daemon.socket(), options, seed, shape, over)?);
        }
        if hostile.is_empty() || shape.end == End::Killed && Instant::now() > kill_at {
            break;
        }
        let now = resident(&daemon)?.saturating_sub(at_start);
        if now > cost.resident_kib + 1024 {
            (cost.charged_kib, cost.resident_kib) = (counters(&mut daemon)?.0 >> 10, now);
        }
        std::thread::sleep(INTERVAL);
    }
    drop(hostile);
    let left = Instant::now();
    while resident(&daemon)?.saturating_sub(at_start) > LEFT_KIB && left.elapsed() < RETURNED {
        std::thread::sleep(INTERVAL);
    }
    cost.left_kib = resident(&daemon)?.saturating_sub(at_start);
    (cost.requests, cost.lanes) = (clients[0].window()?, clients[1].window()?);
    let (_, turn_us, handler) = counters(&mut daemon)?;
    (cost.turn_us, cost.handler) = (turn_us, handler);
    drop((clients, server));
    apart.into_iter().chain([daemon]).try_for_each(end)?;
    Ok(cost)
}

/// The time of a bystander's requests while the attacker's processes only compute.
fn beside_computing(program: &Path, options: &Options) -> Result<Window> {
    let daemon = start(program, "-search")?;
    let mut caller = Honest::start(daemon.socket(), Role::Caller)?;
    let computing = computing(options.processes(), COMPUTING)?;
    std::thread::sleep(seconds(0.5));
    caller.window()?;
    std::thread::sleep(seconds(LONGER * options.attack));
    let window = caller.window()?;
    drop((computing, caller));
    end(daemon)?;
    Ok(window)
}

/// The targets that an attack misses when it is repeated for longer, and compared with what processes that only compute
/// cost now. A few milliseconds that the host takes for something else spoil the 99th percentile of seconds.
fn repeat(program: &Path, options: &Options, seed: u64, shape: &Shape) -> Result<Vec<String>> {
    let beside = beside_computing(program, options)?;
    let longer = Options { attack: LONGER * options.attack, ..options.clone() };
    Ok(attack(program, &longer, seed, shape)?.missed(&beside))
}

/// The worst shape so far in one respect.
#[derive(Default)]
struct Worst {
    found: Option<(u64, Shape, Cost)>,
}

impl Worst {
    fn offer(&mut self, what: &str, value: u64, shape: &Shape, cost: &Cost) -> Result<()> {
        if self.found.as_ref().is_none_or(|(worst, ..)| value > *worst) {
            eprintln!("{what} {value}: {} {}", serde_json::to_string(shape)?, serde_json::to_string(cost)?);
            self.found = Some((value, shape.clone(), cost.clone()));
        }
        Ok(())
    }
}

/// Runs the search; false if a target is missed and that counts.
pub(crate) fn run(options: &Options, program: &Path, as_json: bool) -> Result<bool> {
    let beside = beside_computing(program, options)?;
    eprintln!("requests beside {} processes that only compute: {beside:?}", options.processes());
    let (begun, mut random) = (Instant::now(), Random(options.seed << 32));
    let only: Option<Shape> =
        options.shape.as_deref().map(serde_json::from_str).transpose().context("read the shape")?;
    let mut worst: [(&str, Worst); 4] =
        ["longest turn, us", "p99 of requests, us", "KiB beyond the charge", "KiB left"]
            .map(|what| (what, Worst::default()));
    let (mut attacks, mut missed) = (0_u64, 0_u64);
    while begun.elapsed() < seconds(options.seconds) && (only.is_none() || attacks == 0) {
        let known: Vec<&Shape> =
            worst.iter().filter_map(|(_, worst)| worst.found.as_ref().map(|(_, shape, _)| shape)).collect();
        let shape = match (&only, known.is_empty() || random.below(2) == 0) {
            (Some(shape), _) => shape.clone(),
            (None, true) => Shape::any(&mut random),
            (None, false) => known[random.below(known.len() as u64) as usize].mutated(&mut random),
        };
        let cost = attack(program, options, random.draw() >> 40, &shape).with_context(|| {
            format!("the daemon beside {}", serde_json::to_string(&shape).unwrap_or_default())
        })?;
        attacks += 1;
        let values = [cost.turn_us, cost.requests.p99_us, cost.beyond_kib(), cost.left_kib];
        for ((what, worst), value) in worst.iter_mut().zip(values) {
            worst.offer(what, value, &shape, &cost)?;
        }
        let misses = cost.missed(&beside);
        if misses.is_empty() {
            continue;
        }
        let json = serde_json::to_string(&shape)?;
        println!("SLOW: {}: {json}", misses.join("; "));
        let again = repeat(program, options, random.draw() >> 40, &shape)?;
        if !again.is_empty() {
            missed += 1;
            println!("SLOW AGAIN (counts with --timed): {}: {json}", again.join("; "));
        }
    }
    let ok = !options.timed || missed == 0;
    if as_json {
        let found: Vec<Value> = worst
            .iter()
            .filter_map(|(what, worst)| {
                let (value, shape, cost) = worst.found.as_ref()?;
                Some(serde_json::json!({ "what": what, "value": value, "shape": shape, "cost": cost }))
            })
            .collect();
        println!(
            "{}",
            serde_json::json!({ "ok": ok, "seed": options.seed, "attacks": attacks, "missed": missed,
                "beside": beside, "worst": found })
        );
    } else {
        println!(
            "search: {attacks} attacks, {missed} with a missed target: {}",
            if ok { "ok" } else { "FAILED" }
        );
    }
    Ok(ok)
}
