//! Hostile processes of several users, and a hostile node, against one of two daemons that are linked. Honest processes
//! of another user must lose nothing: neither messages nor their link, and not much time.

mod attacker;
mod grammar;
mod junk;
mod links;
mod names;
mod rings;
mod search;
mod shape;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::bystander::{ECHO, TARGET, Window};
use crate::daemon::Watched;
use crate::honest::{Honest, OWN_PROGRAM, as_user};
use crate::message::Random;
use crate::report::{Rest, Tolerance};

pub(crate) use attacker::{Attacker, attack};
pub(crate) use search::{Options as SearchOptions, run as search};
pub(crate) use shape::{Shaped, attack as attack_with_shape};

use attacker::Done;
use links::Links;

/// The first user number of the hostile processes. They need not exist.
const HOSTILE_USER: u32 = 64_110;

/// Users of the hostile processes.
const USERS: u32 = 3;

/// Longest life of a hostile process, seconds.
const LIFE: f64 = 5.0;

/// Pause between two checks of the processes.
const INTERVAL: Duration = Duration::from_millis(50);

/// Time after which a hostile process that does not end is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Longest wait for links, or for an honest process.
const LIMIT: Duration = Duration::from_secs(60);

/// Factor by which attacks may raise the 99th percentile of exchanges, as the plan of the campaign has it.
const FACTOR: u64 = 5;

/// Longest turn that the plan of the campaign allows, microseconds.
const LONGEST_TURN_US: u64 = 50_000;

/// Options of a run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Duration of the attacks, seconds
    #[arg(long, default_value_t = 600.0)]
    seconds: f64,
    /// Duration of each measurement before them, seconds
    #[arg(long, default_value_t = 20.0)]
    quiet: f64,
    /// Hostile processes at a time
    #[arg(long, default_value_t = 6)]
    processes: u32,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Resident memory that the daemon may gain, KiB: the reserve of its allocator
    #[arg(long, default_value_t = 65536)]
    tolerance: u64,
    /// Fail also if a turn is too long or the honest processes become too slow: only on a machine without other work
    #[arg(long)]
    timed: bool,
    /// The daemon is built with AddressSanitizer (by `cargo xtask soak`): it may gain another 256 MiB
    #[arg(long)]
    asan: bool,
}

/// Memory that AddressSanitizer keeps, KiB: freed blocks, and pages of the others of their size.
const ASAN_KIB: u64 = 256 << 10;

impl Options {
    /// Whether the daemon must be named, because this build's daemon differs.
    pub(crate) fn needs_daemon(&self) -> bool {
        self.asan
    }

    fn tolerance(&self) -> Tolerance {
        match self.asan {
            false => Tolerance::of(self.tolerance),
            true => Tolerance { kib: self.tolerance + ASAN_KIB, mappings: 16 * Tolerance::MAPPINGS },
        }
    }
}

/// A hostile process, and when it has to be killed: in the middle of an attack, or because it does not end.
struct Hostile {
    child: Child,
    until: Instant,
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The hostile processes of a run.
struct Mob<'a> {
    options: &'a Options,
    socket: &'a Path,
    random: Random,
    started: u64,
    killed: u64,
    done: Done,
    living: Vec<Hostile>,
}

impl Mob<'_> {
    fn start(&mut self, left: f64) -> Result<()> {
        let number = self.started;
        self.started += 1;
        let life = (1.0 + self.random.below(1000) as f64 / 1000.0 * (LIFE - 1.0)).min(left);
        let is_killed = self.random.below(2) == 0;
        let mut command = Command::new(OWN_PROGRAM);
        command.args(["attacker", "--seconds", &life.to_string()]);
        command.args(["--seed", &(self.options.seed * 1_000_000 + number).to_string()]);
        command.args(["--services", &format!("{},{},1,2", ECHO.service, TARGET.service), "--socket"]);
        command.arg(self.socket).stdin(Stdio::null()).stdout(Stdio::piped());
        as_user(&mut command, HOSTILE_USER + (number % u64::from(USERS)) as u32);
        let child = command.spawn().context("start a hostile process")?;
        let until = Instant::now()
            + match is_killed {
                true => Duration::from_secs_f64(life * self.random.below(100) as f64 / 100.0),
                false => Duration::from_secs_f64(life) + GRACE,
            };
        self.living.push(Hostile { child, until });
        Ok(())
    }

    /// Replaces processes that have ended until the time is over.
    fn rage(&mut self, daemons: &mut [Watched; 2], end: Instant) -> Result<()> {
        loop {
            let left = end.saturating_duration_since(Instant::now()).as_secs_f64();
            while left > 0.0 && self.living.len() < self.options.processes as usize {
                self.start(left)?;
            }
            for daemon in &mut *daemons {
                daemon.check_alive()?;
            }
            let mut at = 0;
            while let Some(hostile) = self.living.get_mut(at) {
                if hostile.child.try_wait().context("check a hostile process")?.is_some() {
                    let mut said = String::new();
                    if let Some(mut output) = hostile.child.stdout.take() {
                        let _ = output.read_to_string(&mut said);
                    }
                    if let Ok(done) = serde_json::from_str(&said) {
                        self.done.add(&done);
                    }
                    drop(self.living.swap_remove(at));
                } else if Instant::now() > hostile.until {
                    self.killed += 1;
                    drop(self.living.swap_remove(at));
                } else {
                    at += 1;
                }
            }
            if left == 0.0 && self.living.is_empty() {
                return Ok(());
            }
            std::thread::sleep(INTERVAL);
        }
    }
}

/// As many computing processes as attackers: what honest processes lose to these, they lose to the scheduler.
fn crowd(options: &Options) -> Result<Vec<Hostile>> {
    let one = |number: u32| {
        let mut command = Command::new("sh");
        // The system ends it even if this program is killed.
        let most = options.quiet.ceil() as u64;
        command.args(["-c", &format!("ulimit -t {most}; while :; do :; done")]).stdin(Stdio::null());
        as_user(&mut command, HOSTILE_USER + number % USERS);
        let child = command.spawn().context("start a process that computes")?;
        Ok(Hostile { child, until: Instant::now() })
    };
    // One more: the hostile node.
    (0..=options.processes).map(one).collect()
}

/// Addresses of three nodes that no other run has.
fn addresses() -> [String; 3] {
    let number = std::process::id();
    [1, 2, 3].map(|host| format!("127.{}.{}.{host}", 100 + (number >> 8) % 100, number % 250))
}

/// Two daemons, linked, that take processes of all users.
fn start_daemons(program: &Path, addresses: &[String; 3]) -> Result<[Watched; 2]> {
    let start = |at: usize| {
        let others: Vec<String> = addresses
            .iter()
            .enumerate()
            .filter(|(n, _)| *n != at)
            .map(|(_, other)| format!("{other:?}"))
            .collect();
        let configuration = format!(
            "[node]\naddress = \"1.1.{}\"\n[[bearer]]\nmedia = \"udp\"\nname = \"lan\"\nlocal = {:?}\n\
             remotes = [{}]\n[policy]\nattach = [\"*\"]\nsocket_mode = \"0666\"\n",
            at + 1,
            addresses[at],
            others.join(", ")
        );
        Watched::start_with(program, ["-a", "-b"][at], &configuration)
    };
    let mut daemons = [start(0)?, start(1)?];
    let begun = Instant::now();
    for daemon in &mut daemons {
        while links_up(daemon)? == 0 {
            ensure!(begun.elapsed() < LIMIT, "the two daemons have no link after {LIMIT:?}");
            std::thread::sleep(INTERVAL);
        }
    }
    Ok(daemons)
}

/// How often a link has come up.
fn links_up(daemon: &mut Watched) -> Result<u64> {
    let counters = daemon.counters()?;
    let up = counters.get("node").and_then(|node| node.get("links_up"));
    up.and_then(Value::as_u64).context("no counter of links")
}

/// The longest turn of a daemon, and how many were long.
fn turns(daemon: &mut Watched) -> Result<Value> {
    daemon.counters()?.get("turns").cloned().context("no counters of turns")
}

/// The longest turn without the time in which the system ran something else, microseconds: there are more processes
/// than processors.
fn longest_us(turns: &Value) -> u64 {
    let count = |at: &str| turns.pointer(at).and_then(Value::as_u64).unwrap_or(u64::MAX);
    match count("/long") {
        0 => count("/longest/micros"),
        _ => count("/longest/micros").min(count("/long_cpu_micros")),
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Runs the campaign; false if something is wrong.
pub(crate) fn run(options: &Options, program: &Path, as_json: bool) -> Result<bool> {
    ensure!(options.seconds > 0.0 && options.processes > 0, "nothing to do (give seconds and processes)");
    let addresses = addresses();
    // Why the hostile node gives its links up.
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .try_init();
    let mut daemons = start_daemons(program, &addresses)?;
    let fresh = [Rest::take(&mut daemons[0])?, Rest::take(&mut daemons[1])?];
    let names = names::Hostile::new(&addresses)?;
    let server = Honest::start(daemons[0].socket(), "server")?;
    // Over lanes, and from the other node.
    let mut clients =
        [Honest::start(daemons[0].socket(), "client")?, Honest::start(daemons[1].socket(), "client")?];
    let mut windows = |what: &str| -> Result<[Window; 2]> {
        let windows = [clients[0].window()?, clients[1].window()?];
        for (path, window) in ["lanes", "two nodes"].iter().zip(&windows) {
            eprintln!("{what}, {path}: {window:?}");
        }
        Ok(windows)
    };
    let _start = windows("start")?;
    std::thread::sleep(seconds(options.quiet));
    let quiet = windows("quiet")?;
    let crowd = crowd(options)?;
    std::thread::sleep(seconds(options.quiet));
    let crowded = windows("beside processes that only compute")?;
    drop(crowd);
    let quiet_turns = turns(&mut daemons[0])?;
    let watched = [Links::of(daemons[0].socket())?, Links::of(daemons[1].socket())?];
    let socket = daemons[0].socket().to_owned();
    let mut mob = Mob {
        options,
        socket: &socket,
        random: Random(options.seed << 32),
        started: 0,
        killed: 0,
        done: Done::default(),
        living: Vec::new(),
    };
    let over = AtomicBool::new(false);
    let (raged, bindings) = std::thread::scope(|scope| {
        let hostile = scope.spawn(|| names.flood(options.seed, &over));
        let raged = mob.rage(&mut daemons, Instant::now() + seconds(options.seconds));
        over.store(true, Relaxed);
        (raged, hostile.join())
    });
    raged?;
    let Ok(bindings) = bindings else { bail!("the hostile node has failed") };
    let loud = windows("under attack")?;
    let loud_turns = turns(&mut daemons[0])?;
    drop((clients, server));
    let mut wrong = Vec::new();
    let mut given_up = 0;
    for links in watched {
        let lost = links.lost(names::ADDRESS)?;
        given_up += lost.hostile;
        if lost.honest > 0 {
            wrong.push(format!("the link between the two daemons went down {} times", lost.honest));
        }
    }
    drop(names);
    let mut rests = Vec::new();
    for (daemon, fresh) in daemons.iter_mut().zip(&fresh) {
        let tolerance = options.tolerance();
        let rest = Rest::after(daemon, fresh, tolerance)?;
        wrong.extend(rest.leaks(fresh));
        wrong.extend(rest.gained(fresh, tolerance));
        rests.push(rest);
    }
    let mut slow = Vec::new();
    if longest_us(&loud_turns) > LONGEST_TURN_US {
        slow.push(format!("a turn took {} ms", longest_us(&loud_turns) / 1000));
    }
    for ((before, beside), after) in quiet.iter().zip(&crowded).zip(&loud) {
        if after.trips == 0 {
            wrong.push("an honest process has exchanged nothing".to_owned());
        }
        if after.p99_us > FACTOR * before.p99_us {
            slow.push(format!(
                "99th percentile of exchanges: {} us, quiet {} us, beside processes that only compute {} us",
                after.p99_us, before.p99_us, beside.p99_us
            ));
        }
    }
    if options.timed {
        wrong.append(&mut slow);
    }
    for daemon in daemons {
        if !daemon.end()? {
            wrong.push("a daemon has failed".to_owned());
        }
    }
    let ok = wrong.is_empty();
    if as_json {
        let verdict = json!({ "ok": ok, "seed": options.seed, "processes": mob.started, "killed": mob.killed,
            "done": mob.done, "bindings": bindings, "hostile_links_lost": given_up, "quiet": quiet,
            "crowded": crowded, "attacked": loud, "quiet_turns": quiet_turns, "turns": loud_turns, "fresh": fresh,
            "rests": rests, "wrong": wrong, "slow": slow });
        println!("{verdict}");
        return Ok(ok);
    }
    let Done { attachments, packets, replies, descriptors, writes } = &mob.done;
    println!(
        "seed {}: {} hostile processes ({} killed); of those that ended: {attachments} attachments, {packets} packets, \
         {replies} replies read, {descriptors} descriptors passed, {writes} words of shared memory overwritten; \
         {bindings} bindings of the hostile node, whose links went down {given_up} times",
        options.seed, mob.started, mob.killed
    );
    for (path, ((before, beside), after)) in
        ["lanes", "two nodes"].iter().zip(quiet.iter().zip(&crowded).zip(&loud))
    {
        println!(
            "{path}: quiet {before:?}, beside processes that only compute {beside:?}, under attack {after:?}"
        );
    }
    println!("turns before: {quiet_turns}\nturns: {loud_turns}");
    for (fresh, rest) in fresh.iter().zip(&rests) {
        println!("fresh daemon: {fresh}\nafterwards: {rest}");
    }
    slow.iter().for_each(|what| println!("SLOW (counts with --timed): {what}"));
    wrong.iter().for_each(|why| println!("WRONG: {why}"));
    println!("hostile: {}", if ok { "ok" } else { "FAILED" });
    Ok(ok)
}
