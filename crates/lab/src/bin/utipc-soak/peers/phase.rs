//! One attack of all peers: starts them, and measures the daemon.

use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use utipc_netns::Namespace;
use utipc_sim::peers::{Attack, ceilings};

use super::network::Traffic;
use super::peer::Done;
use super::{INTERVAL, Options};
use crate::bystander::Window;
use crate::daemon::{Watched, resident_kib};

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
        expect(
            self.amplification
                <= self.attack.parse().map_or(ceilings::AMPLIFICATION, ceilings::amplification),
            format!("{:.1} bytes are sent for each received", self.amplification),
        );
        let most = self.attack.parse().map_or(ceilings::CPU_PER_BINDINGS, ceilings::cpu_per_frame);
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

/// A hostile peer, which ends with its input.
struct Running(Child);

impl Running {
    fn start(options: &Options, host: &Namespace, number: u32, attack: Attack, seed: u64) -> Result<Self> {
        let mut command = host.command(std::env::current_exe().context("find this program")?);
        command.args(["peer", "--number", &number.to_string(), "--attack", attack.name()]);
        command.args(["--burst", &options.burst.to_string(), "--pause", &options.pause.to_string()]);
        command.args(["--seed", &seed.to_string()]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        child.context("start a hostile peer").map(Self)
    }

    /// Ends it.
    fn finish(mut self) -> Result<Done> {
        drop(self.0.stdin.take());
        let mut said = String::new();
        self.0.stdout.take().context("it has no output")?.read_to_string(&mut said)?;
        ensure!(self.0.wait()?.success(), "a hostile peer has failed; its error is above");
        serde_json::from_str(&said).context("read what a hostile peer has done")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
    let before = Traffic::of(victim)?;
    let (begun, cpu) = (std::time::Instant::now(), victim.processor_time()?);
    let mut peers = Vec::new();
    for (number, (host, attack)) in (0..).zip(hosts.iter().zip(attacks.iter().cycle())) {
        peers.push(Running::start(options, host, number, *attack, seed)?);
    }
    let is_over = AtomicBool::new(false);
    let pid = victim.pid();
    let (worked, resident_kib) = std::thread::scope(|scope| {
        let memory = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Relaxed) {
                most = most.max(resident_kib(pid));
                std::thread::sleep(INTERVAL);
            }
            most
        });
        let worked = work();
        is_over.store(true, Relaxed);
        (worked, memory.join().unwrap_or(u64::MAX))
    });
    let worked = worked?;
    let after = Traffic::of(victim)?;
    let (elapsed, cpu) = (begun.elapsed(), victim.processor_time()?.saturating_sub(cpu));
    let mut done = Done::default();
    for peer in peers {
        done.add(&peer.finish()?);
    }
    let frames = after.frames.saturating_sub(before.frames);
    let received = after.bytes.saturating_sub(before.bytes);
    let sent = after.sent_bytes.saturating_sub(before.sent_bytes);
    let phase = Phase {
        attack: if let [attack] = attacks { attack.name().to_owned() } else { "all".to_owned() },
        seconds: elapsed.as_secs_f64(),
        done,
        frames,
        us_per_frame: cpu.as_micros() as f64 / frames.max(1) as f64,
        amplification: sent as f64 / received.max(1) as f64,
        resident_kib,
        links_up: after.links.0.saturating_sub(before.links.0),
        links_down: after.links.1.saturating_sub(before.links.1),
        windows: Vec::new(),
    };
    Ok((phase, worked))
}
