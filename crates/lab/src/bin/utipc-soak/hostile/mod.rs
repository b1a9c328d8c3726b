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
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};
use utipc_bench_kit::numbered::Random;
use utipc_bench_kit::process::Killed;

use crate::daemon::{Watched, configuration};
use crate::honest::{ECHO, Honest, Role, TARGET, Window, as_user};
use crate::report::{Rest, Tolerance, finish, verdict};
use crate::{INTERVAL, Part};

pub(crate) use attacker::{Attacker, attack};
pub(crate) use search::{Options as SearchOptions, run as search};
pub(crate) use shape::{Shaped, attack as attack_with_shape};

use attacker::Done;
use links::Links;

/// The first user number of the hostile processes. They need not exist.
const HOSTILE_USER: u32 = 64_110;

/// Users of the hostile processes.
const USERS: u64 = 3;

/// Longest life of a hostile process, seconds.
const LIFE: f64 = 5.0;

/// Time after which a hostile process that does not end is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Longest wait for links, or for an honest process.
const LIMIT: Duration = Duration::from_secs(60);

/// Factor by which attacks may raise the 99th percentile of exchanges, as the plan of the campaign has it.
const FACTOR: u64 = 5;

/// Longest turn that the plan of the campaign allows, microseconds.
const LONGEST_TURN_US: u64 = 50_000;

/// The paths of the honest clients.
const PATHS: [&str; 2] = ["lanes", "two nodes"];

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
    process: Killed,
    until: Instant,
}

impl Hostile {
    /// Starts a process of one of the hostile users.
    fn start(part: &Part, user: u64, output: Stdio, until: Instant) -> Result<Self> {
        let mut command = part.command()?;
        command.stdin(Stdio::null()).stdout(output);
        Ok(Self { process: spawn(command, user)?, until })
    }

    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.process.0.try_wait().context("check a hostile process")?.is_some())
    }
}

/// Starts a process of one of the hostile users.
fn spawn(mut command: Command, user: u64) -> Result<Killed> {
    as_user(&mut command, HOSTILE_USER + (user % USERS) as u32);
    command.spawn().context("start a hostile process").map(Killed)
}

/// Processes that only compute: what honest processes lose to these, they lose to the scheduler. The system ends each
/// after this many seconds, even if this program is killed.
fn computing(count: u64, seconds: u64) -> Result<Vec<Killed>> {
    let one = |user| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -t {seconds}; while :; do :; done")]).stdin(Stdio::null());
        spawn(command, user)
    };
    (0..count).map(one).collect()
}

/// The hostile processes of a run.
struct Mob<'a> {
    options: &'a Options,
    socket: PathBuf,
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
        let attacker = Attacker {
            socket: self.socket.clone(),
            seed: self.options.seed * 1_000_000 + number,
            seconds: life,
            inherited: false,
            services: vec![u64::from(ECHO.service), u64::from(TARGET.service), 1, 2],
        };
        let until = Instant::now()
            + match is_killed {
                true => seconds(life * self.random.below(100) as f64 / 100.0),
                false => seconds(life) + GRACE,
            };
        self.living.push(Hostile::start(&Part::Attacker(attacker), number, Stdio::piped(), until)?);
        Ok(())
    }

    /// Replaces processes that have ended until the time is over.
    fn rage(&mut self, daemons: &mut [Watched], end: Instant) -> Result<()> {
        loop {
            let left = end.saturating_duration_since(Instant::now()).as_secs_f64();
            while left > 0.0 && self.living.len() < self.options.processes as usize {
                self.start(left)?;
            }
            daemons.iter_mut().try_for_each(Watched::check_alive)?;
            let mut at = 0;
            while let Some(hostile) = self.living.get_mut(at) {
                if hostile.has_ended()? {
                    let mut said = String::new();
                    if let Some(mut output) = hostile.process.0.stdout.take() {
                        let _ = output.read_to_string(&mut said);
                    }
                    if let Ok(done) = serde_json::from_str(&said) {
                        self.done.add(&done);
                    }
                } else if Instant::now() > hostile.until {
                    self.killed += 1;
                } else {
                    at += 1;
                    continue;
                }
                drop(self.living.swap_remove(at));
            }
            if left == 0.0 && self.living.is_empty() {
                return Ok(());
            }
            std::thread::sleep(INTERVAL);
        }
    }
}

/// Addresses of three nodes that no other run has.
fn addresses() -> [Ipv4Addr; 3] {
    let number = std::process::id();
    [1, 2, 3].map(|host| Ipv4Addr::new(127, (100 + (number >> 8) % 100) as u8, (number % 250) as u8, host))
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
    let start = |at: usize| {
        let configuration = configuration(at, &addresses, true);
        Watched::start_by(Command::new(program), ["-a", "-b"][at], &configuration)
    };
    let mut daemons = vec![start(0)?, start(1)?];
    daemons.iter_mut().try_for_each(Watched::wait_for_link)?;
    let fresh = [Rest::take(&mut daemons[0])?, Rest::take(&mut daemons[1])?];
    let names = names::Hostile::new(addresses)?;
    let server = Honest::start(daemons[0].socket(), Role::Server)?;
    // Over lanes, and from the other node.
    let mut clients = [
        Honest::start(daemons[0].socket(), Role::Client)?,
        Honest::start(daemons[1].socket(), Role::Client)?,
    ];
    let mut windows = |what: &str| -> Result<[Window; 2]> {
        let windows = [clients[0].window()?, clients[1].window()?];
        for (path, window) in PATHS.iter().zip(&windows) {
            eprintln!("{what}, {path}: {window:?}");
        }
        Ok(windows)
    };
    let _start = windows("start")?;
    std::thread::sleep(seconds(options.quiet));
    let quiet = windows("quiet")?;
    // As many as attackers, and one more: the hostile node.
    let crowd = computing(u64::from(options.processes) + 1, options.quiet.ceil() as u64)?;
    std::thread::sleep(seconds(options.quiet));
    let crowded = windows("beside processes that only compute")?;
    drop(crowd);
    let quiet_turns = daemons[0].turns()?;
    let watched = [Links::of(daemons[0].socket())?, Links::of(daemons[1].socket())?];
    let mut mob = Mob {
        options,
        socket: daemons[0].socket().to_owned(),
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
    let loud_turns = daemons[0].turns()?;
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
    let rests = finish(daemons, &fresh, options.tolerance(), &mut wrong)?;
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
    let Done { attachments, packets, replies, descriptors, writes } = &mob.done;
    let mut lines = vec![format!(
        "seed {}: {} hostile processes ({} killed); of those that ended: {attachments} attachments, {packets} packets, \
         {replies} replies read, {descriptors} descriptors passed, {writes} words of shared memory overwritten; \
         {bindings} bindings of the hostile node, whose links went down {given_up} times",
        options.seed, mob.started, mob.killed
    )];
    lines.extend(PATHS.iter().zip(quiet.iter().zip(&crowded).zip(&loud)).map(
        |(path, ((before, beside), after))| {
            format!("{path}: quiet {before:?}, beside processes that only compute {beside:?}, under attack {after:?}")
        },
    ));
    lines.push(format!("turns before: {quiet_turns}\nturns: {loud_turns}"));
    lines.extend(Rest::lines(&fresh, &rests));
    lines.extend(slow.iter().map(|what| format!("SLOW (counts with --timed): {what}")));
    let facts = json!({ "seed": options.seed, "processes": mob.started, "killed": mob.killed, "done": mob.done,
        "bindings": bindings, "hostile_links_lost": given_up, "quiet": quiet, "crowded": crowded, "attacked": loud,
        "quiet_turns": quiet_turns, "turns": loud_turns, "fresh": fresh, "rests": rests, "slow": slow });
    Ok(verdict("hostile", as_json, &wrong, facts, &lines))
}
