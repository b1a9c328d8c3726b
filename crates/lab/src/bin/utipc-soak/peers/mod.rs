//! Hostile peers in separate network namespaces against a real `utipcd` with honest neighbours: the attacks
//! of the simulator's campaign, over real sockets, timers and system calls. Honest processes must lose nothing.

mod network;
mod peer;
mod phase;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use utipc_sim::peers::Attack;

use crate::daemon::{Watched, attach};
use crate::honest::{Honest, Role, Window};
use crate::report::{Rest, Tolerance, finish, verdict};
use network::{Network, PEERS_MAX};
use phase::Phase;

pub(crate) use peer::{Peer, attack};

/// Pause between two checks of a daemon.
const INTERVAL: Duration = Duration::from_millis(100);

/// Longest time until a node forgets peers that are down: 5 minutes, and some more.
const FORGET: Duration = Duration::from_secs(360);

/// Ceiling of the daemon's resident memory beyond that of a fresh one, KiB, for up to 250 peers: 84 MiB of early
/// packets, unfinished messages and waiting updates, a full table of bindings (2^20, in the node and in its copy for
/// programs), and 80 MiB of subscriptions and their events.
const MEMORY_KIB: u64 = 896 << 10;

/// Longest turn of the daemon with `--timed`, microseconds.
const LONGEST_TURN_US: u64 = 50_000;

/// Options of a run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Hostile peers, each in a separate network namespace
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=i64::from(PEERS_MAX)))]
    peers: u32,
    /// Total duration, seconds: each attack alone for a tenth of it, then all together
    #[arg(long, default_value_t = 1800.0)]
    seconds: f64,
    /// Attacks, as `nacks,bindings`; all if absent
    #[arg(long, value_delimiter = ',')]
    attacks: Vec<Attack>,
    /// Frames of the attack each time that a peer speaks
    #[arg(long, default_value_t = 8)]
    burst: usize,
    /// Milliseconds between two of these times; more than 1500 means no link
    #[arg(long, default_value_t = 250)]
    pause: u64,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Resident memory that the daemon may keep, KiB: its binding table does not shrink
    #[arg(long, default_value_t = 655_360)]
    tolerance: u64,
    /// Wait at the end until the node has forgotten the hostile peers, 5 minutes
    #[arg(long)]
    forget: bool,
    /// Fail also if a turn takes more than 50 ms: only on a machine without other work
    #[arg(long)]
    timed: bool,
}

/// The honest side of a run.
struct Honesty {
    daemons: Vec<Watched>,
    server: Honest,
    /// Over lanes, from the neighbour, and from the newcomer.
    clients: Vec<Honest>,
}

impl Honesty {
    fn start(network: &Network, program: &Path) -> Result<(Self, [Rest; 2])> {
        let mut daemons = vec![network.daemon(0, program)?, network.daemon(1, program)?];
        daemons.iter_mut().try_for_each(Watched::wait_for_link)?;
        let fresh = [Rest::take(&mut daemons[0])?, Rest::take(&mut daemons[1])?];
        let server = Honest::start(daemons[0].socket(), Role::Server)?;
        let client = |daemon: &Watched| Honest::start(daemon.socket(), Role::Client);
        let clients = vec![client(&daemons[0])?, client(&daemons[1])?];
        Ok((Self { daemons, server, clients }, fresh))
    }

    fn windows(&mut self) -> Result<Vec<Window>> {
        self.clients.iter_mut().take(2).map(Honest::window).collect()
    }

    /// The number of links that went down at honest nodes, which have only honest links.
    fn lost_links(&mut self) -> Result<Vec<String>> {
        let expected = self.daemons.len() as u64 - 1;
        let mut lost = Vec::new();
        for daemon in self.daemons.iter_mut().skip(1) {
            lost.extend(daemon.traffic()?.wrong_links(expected));
        }
        Ok(lost)
    }
}

/// Waits until the node knows only honest peers.
fn wait_until_forgotten(daemon: &Watched, honest: usize) -> Result<Option<String>> {
    let node = attach(daemon.socket())?;
    let begun = Instant::now();
    loop {
        let known = node.peers().len();
        if known <= honest {
            return Ok(None);
        }
        if begun.elapsed() > FORGET {
            return Ok(Some(format!("{known} nodes are known after {FORGET:?}, expected {honest}")));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Each attack alone, then all together; in the middle of that a node starts.
fn attacks(options: &Options, network: &Network, program: &Path, honest: &mut Honesty) -> Result<Vec<Phase>> {
    let all = match &options.attacks[..] {
        [] => Attack::value_variants(),
        attacks => attacks,
    };
    let part = Duration::from_secs_f64(options.seconds / (all.len() + 1) as f64);
    let mut phases = Vec::new();
    for (number, attacks) in all.chunks(1).chain([all]).enumerate() {
        let seed = options.seed << 16 | number as u64;
        let is_last = number == all.len();
        let work = || -> Result<Option<(Watched, Honest)>> {
            std::thread::sleep(part / 2);
            let newcomer = if is_last { Some(newcomer(network, program)?) } else { None };
            std::thread::sleep(part / 2);
            Ok(newcomer)
        };
        let victim = &mut honest.daemons[0];
        let (mut phase, newcomer) = phase::run(options, network.hostile(), attacks, seed, victim, work)?;
        if let Some((daemon, client)) = newcomer {
            honest.daemons.push(daemon);
            honest.clients.push(client);
        }
        phase.windows = honest.windows()?;
        eprintln!("{}", phase.line());
        phases.push(phase);
    }
    Ok(phases)
}

/// Starts the third honest node; returns when a program of it has a connection to the server on the first one.
fn newcomer(network: &Network, program: &Path) -> Result<(Watched, Honest)> {
    let begun = Instant::now();
    let daemon = network.daemon(2, program)?;
    let client = Honest::start(daemon.socket(), Role::Client).context("a new neighbour has no contact")?;
    eprintln!("a new neighbour has a connection after {:?}", begun.elapsed());
    Ok((daemon, client))
}

/// Runs the campaign; false if something is wrong.
pub(crate) fn run(options: &Options, program: &Path, as_json: bool) -> Result<bool> {
    ensure!(options.seconds > 0.0, "nothing to do (give seconds)");
    ensure!(rustix::process::geteuid().is_root(), "only root joins network namespaces by a switch");
    let network = Network::new(options.peers)?;
    let (mut honest, fresh) = Honesty::start(&network, program)?;
    let _start = honest.windows()?;
    std::thread::sleep(Duration::from_secs_f64((options.seconds / 20.0).min(20.0)));
    let quiet = honest.windows()?;
    let phases = attacks(options, &network, program, &mut honest)?;
    let turns = honest.daemons[0].turns()?;
    let mut wrong: Vec<String> = phases.iter().flat_map(|phase| phase.faults(options)).collect();
    wrong.extend(honest.lost_links()?);
    let base = fresh[0].held.resident_kib;
    let most = phases.iter().map(|phase| phase.resident_kib).max().unwrap_or(0);
    if most > base + MEMORY_KIB {
        wrong.push(format!("{} KiB of memory, the ceiling is {MEMORY_KIB} KiB", most - base));
    }
    let longest = turns.get("longest").and_then(|longest| longest.get("micros")).and_then(Value::as_u64);
    let is_slow = longest.is_none_or(|longest| longest > LONGEST_TURN_US);
    if options.timed && is_slow {
        wrong.push(format!("the longest turn took more than {LONGEST_TURN_US} us"));
    }
    let Honesty { mut daemons, server, clients } = honest;
    drop((server, clients));
    if options.forget {
        wrong.extend(wait_until_forgotten(&daemons[0], daemons.len() - 1)?);
    }
    // The newcomer ends: its bindings go with it.
    daemons.drain(fresh.len()..).try_for_each(|late| late.end(&mut wrong))?;
    let rests = finish(daemons, &fresh, Tolerance::of(options.tolerance), &mut wrong)?;
    let mut lines = vec![format!(
        "seed {}, {} hostile peers; exchanges before (lanes, two nodes): {quiet:?}",
        options.seed, options.peers
    )];
    lines.extend(phases.iter().map(Phase::line));
    lines.push(format!("turns: {turns}"));
    lines.extend(Rest::lines(&fresh, &rests));
    let facts = json!({ "seed": options.seed, "peers": options.peers, "quiet": quiet, "phases": phases,
        "turns": turns, "fresh": fresh, "rests": rests });
    Ok(verdict("peers", as_json, &wrong, facts, &lines))
}
