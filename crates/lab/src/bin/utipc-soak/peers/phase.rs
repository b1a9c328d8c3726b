//! One attack of all peers: starts them, and measures the daemon.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;
use utipc_bench_kit::process::Process;
use utipc_bench_kit::{Named, machine};
use utipc_netns::Namespace;
use utipc_sim::peers::{Attack, ceilings};

use super::peer::{Done, Peer};
use super::{INTERVAL, Options};
use crate::Part;
use crate::daemon::Watched;
use crate::honest::Window;

/// Processor time of a frame outside the core (whose ceiling is [`ceilings::cpu_per_frame`]): system calls, the event
/// loop, notices of changed bindings.
const CPU_OF_SYSTEM: Duration = Duration::from_micros(60);

/// The cost of an attack to the daemon.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Phase {
    /// Its name; `all` if the peers take turns.
    attack: String,
    seconds: f64,
    done: Done,
    /// Frames that the daemon got, from all nodes.
    pub(super) frames: u64,
    us_per_frame: f64,
    /// Bytes sent for each byte received.
    amplification: f64,
    /// Maximum resident memory of the daemon, KiB.
    pub(super) resident_kib: u64,
    /// Links of hostile peers that came up, and those that went down.
    links_up: u64,
    links_down: u64,
    /// Exchanges of honest processes: by lanes, and from another node.
    pub(super) windows: Vec<Window>,
}

impl Phase {
    /// The figures above their ceiling, and figures that prove nothing.
    pub(super) fn faults(&self, options: &Options) -> Vec<String> {
        let mut found = Vec::new();
        let mut expect = |ok: bool, what: String| {
            if !ok {
                found.push(format!("{}: {what}", self.attack));
            }
        };
        let linked = u64::from(options.peers / 2);
        expect(
            self.links_up >= linked,
            format!("only {} links of hostile peers came up, expected {linked}", self.links_up),
        );
        let attack = Attack::from_str(&self.attack, false);
        let most = attack.clone().map_or(ceilings::AMPLIFICATION, ceilings::amplification);
        expect(
            self.amplification <= most,
            format!("{:.1} bytes are sent for each received", self.amplification),
        );
        let most = attack.map_or(ceilings::CPU_PER_BINDINGS, ceilings::cpu_per_frame);
        let most = (most + CPU_OF_SYSTEM).as_micros() as f64;
        expect(
            cfg!(debug_assertions) || self.us_per_frame <= most,
            format!("{:.0} us for a frame, the ceiling is {most:.0} us", self.us_per_frame),
        );
        for (path, window) in ["lanes", "two nodes"].iter().zip(&self.windows) {
            expect(window.trips > 0, format!("an honest process has exchanged nothing by {path}"));
        }
        found
    }

    pub(super) fn line(&self) -> String {
        let Self { attack, seconds, done, frames, us_per_frame, amplification, resident_kib, .. } = self;
        let times: Vec<String> =
            self.windows.iter().map(|w| format!("{}/{}/{}", w.p50_us, w.p99_us, w.longest_us)).collect();
        format!(
            "{attack:<15} {seconds:>6.1} s {:>8} frames sent, {frames:>8} received, {us_per_frame:>6.1} us each, \
             {amplification:>5.2} bytes answered for each, {:>5} MiB at most, links {} up {} down, exchanges \
             p50/p99/longest {} us",
            done.frames,
            resident_kib >> 10,
            self.links_up,
            self.links_down,
            times.join(" and "),
        )
    }
}

/// Starts a hostile peer, which ends with its input.
fn start(host: &Namespace, peer: Peer) -> Result<Process> {
    let mut command = host.command(std::env::current_exe().context("find this program")?);
    command.args(Part::Peer(peer).arguments()?);
    Process::start_patiently("a hostile peer", command)
}

/// Ends a hostile peer.
fn finish(mut peer: Process) -> Result<Done> {
    peer.close_and_wait()?;
    ensure!(peer.has_succeeded(), "a hostile peer has failed; its error is above");
    serde_json::from_str(&peer.line()?).context("read what a hostile peer has done")
}

/// Lets the peers, each on its host, take turns with these attacks while `work` runs.
pub(super) fn run<T>(
    options: &Options,
    hosts: &[Namespace],
    attacks: &[Attack],
    seed: u64,
    victim: &mut Watched,
    work: impl FnOnce() -> Result<T>,
) -> Result<(Phase, T)> {
    let before = victim.traffic()?;
    let (begun, cpu) = (std::time::Instant::now(), victim.processor_seconds()?);
    let mut peers = Vec::new();
    for (number, (host, &attack)) in (0..).zip(hosts.iter().zip(attacks.iter().cycle())) {
        let (burst, pause) = (options.burst, options.pause);
        peers.push(start(host, Peer { number, attack, burst, pause, seed })?);
    }
    let (is_over, pid) = (AtomicBool::new(false), victim.pid());
    let (worked, resident_kib) = std::thread::scope(|scope| {
        let memory = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Relaxed) {
                most = most.max(machine::resident_kib(pid).unwrap_or(0));
                std::thread::sleep(INTERVAL);
            }
            most
        });
        let worked = work();
        is_over.store(true, Relaxed);
        (worked, memory.join().unwrap_or(u64::MAX))
    });
    let worked = worked?;
    let passed = victim.traffic()?.since(&before);
    let (elapsed, cpu) = (begun.elapsed(), victim.processor_seconds()? - cpu);
    let mut done = Done::default();
    for peer in peers {
        done.add(&finish(peer)?);
    }
    let phase = Phase {
        attack: if let [attack] = attacks { attack.name() } else { "all".to_owned() },
        seconds: elapsed.as_secs_f64(),
        done,
        frames: passed.frames,
        us_per_frame: cpu * 1e6 / passed.frames.max(1) as f64,
        amplification: passed.sent_bytes as f64 / passed.bytes.max(1) as f64,
        resident_kib,
        links_up: passed.links_up,
        links_down: passed.links_down,
        windows: Vec::new(),
    };
    Ok((phase, worked))
}
