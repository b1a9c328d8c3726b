//! Runs cases: both ends as processes, all variants in turn, round after round.

use std::io::{IsTerminal, Write};

use anyhow::{Context, Result};
use clap::ValueEnum;
use utipc_bench_kit::stats::Summary;
use utipc_bench_kit::{Named as _, in_turn, machine};

use super::job::{EndResult, Job, Role, Test};
use super::place::{Peer, Place};
use super::variant::{Engine, Scope, Variant};

/// Name of a measurement in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Name {
    Latency,
    Throughput,
    Cpu,
    Multicast,
    Pairs,
    Sizes,
}

/// The measurement of one variant.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: Name,
    pub(super) variant: Variant,
    pub(super) size: u32,
    pub(super) connections: u32,
    /// Receivers of a multicast.
    pub(super) servers: u32,
    /// Pairs of processes that run at the same time.
    pub(super) pairs: u32,
    /// Messages per second by schedule.
    pub(super) rate: Option<f64>,
    /// Messages on each connection; `None`: as many as take `seconds`.
    pub(super) messages: Option<u64>,
    pub(super) seconds: f64,
    /// Each role runs on its own core.
    pub(super) pinned: bool,
}

/// The results of both ends in one round.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) client: EndResult,
    pub(super) server: EndResult,
    /// CPU time of the daemons that have the nodes, if any.
    pub(super) daemons_cpu_s: f64,
}

/// One round of a case.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) case: Case,
    pub(super) scope: Scope,
    pub(super) engine: Engine,
    pub(super) round: u32,
    pub(super) measured: Measured,
}

/// Messages of the trial that finds out how many take the time of a round.
const TRIAL: u64 = 1000;
/// Minimum and maximum messages of a round, on each connection.
const MESSAGES: (u64, u64) = (100, 50_000_000);

impl Case {
    pub(super) fn new(name: Name, variant: Variant, size: u32) -> Self {
        Self {
            name,
            variant,
            size,
            connections: 1,
            servers: 1,
            pairs: 1,
            rate: None,
            messages: None,
            seconds: 0.5,
            pinned: true,
        }
    }

    fn test(&self) -> Test {
        if self.name == Name::Latency { Test::Echo } else { Test::Flow }
    }

    /// For progress and error messages.
    fn description(&self) -> String {
        let (name, label, mode) = (self.name.name(), self.variant.label(), self.variant.mode.name());
        format!("measure {name} of {label} ({mode}) with messages of {} bytes", self.size)
    }
}

/// Runs a case once, with `messages` on each connection.
pub(super) fn measure(place: &Place, case: &Case, messages: u64) -> Result<Measured> {
    measure_with(place, case, messages, || Ok(()))
}

/// Like [`measure`]; calls `started` as soon as messages are on their way.
pub(super) fn measure_with(
    place: &Place,
    case: &Case,
    messages: u64,
    started: impl FnOnce() -> Result<()>,
) -> Result<Measured> {
    let mut base = Job::new(case.test(), case.variant, case.size);
    (base.connections, base.servers, base.rate) = (case.connections, case.servers, case.rate);
    (base.messages, base.warmup) = (messages, (messages / 10).clamp(1, TRIAL));
    let ends = case.connections * case.servers.max(case.pairs);
    base.crowded = ends > 1 || std::thread::available_parallelism().map_or(1, usize::from) < 2;
    let [server_core, client_core] = if case.pinned { machine::two_cores() } else { [None, None] };

    let serve = |index| place.start(&Job { role: Role::Serve, index, core: server_core, ..base.clone() });
    let mut servers = (0..case.servers.max(case.pairs)).map(serve).collect::<Result<Vec<Peer>>>()?;
    servers.iter_mut().try_for_each(Peer::wait_ready)?;
    let addresses: Vec<_> = servers.iter().map(|server| server.address.clone()).collect();
    let drive = |index: u32| {
        let addresses = match addresses.get(index as usize) {
            Some(own) if case.servers == 1 => vec![own.clone()],
            _ => addresses.clone(),
        };
        place.start(&Job { role: Role::Drive, index, core: client_core, addresses, ..base.clone() })
    };
    let mut clients = (0..case.pairs).map(drive).collect::<Result<Vec<Peer>>>()?;
    clients.iter_mut().try_for_each(Peer::wait_ready)?;
    let before = place.daemons_cpu_s();
    clients.iter_mut().try_for_each(Peer::go)?;
    started()?;
    let client = EndResult::merge(clients.iter_mut().map(Peer::result).collect::<Result<Vec<_>>>()?);
    let server = EndResult::merge(servers.iter_mut().map(Peer::result).collect::<Result<Vec<_>>>()?);
    Ok(Measured { client, server, daemons_cpu_s: place.daemons_cpu_s() - before })
}

/// The number of messages on each connection that takes the time of a case.
pub(super) fn calibrate(place: &Place, case: &Case) -> Result<u64> {
    if let Some(messages) = case.messages {
        return Ok(messages);
    }
    if let Some(rate) = case.rate {
        return Ok(((rate * case.seconds) as u64).max(1));
    }
    let mut messages = TRIAL.min((64 << 20) / u64::from(case.size)).max(MESSAGES.0);
    // Twice, because cold caches make the first trial slow.
    for _ in 0..2 {
        let trial = measure(place, case, messages)?;
        let end = if case.name == Name::Latency { &trial.client } else { &trial.server };
        let per_second = messages as f64 / end.elapsed_s().max(1e-6);
        messages = ((per_second * case.seconds) as u64).clamp(MESSAGES.0, MESSAGES.1.min(messages * 1000));
    }
    Ok(messages)
}

/// Runs the cases of each group in turn, for `rounds` rounds.
pub(super) fn compare(
    place: &Place,
    groups: &[Vec<Case>],
    rounds: u32,
    mut each: impl FnMut(&Run),
) -> Result<Vec<Run>> {
    let steps = groups.iter().map(|cases| cases.len() * (rounds as usize + 1)).sum();
    let mut progress = Progress::new(steps);
    let mut runs = Vec::new();
    for cases in groups {
        let mut planned = Vec::new();
        for case in cases {
            progress.step(case, "trial");
            planned.push((case, calibrate(place, case).with_context(|| case.description())?));
        }
        in_turn(rounds, &mut planned, |round, (case, messages)| {
            progress.step(case, &format!("round {} of {rounds}", round + 1));
            let measured = measure(place, case, *messages).with_context(|| case.description())?;
            let (scope, engine) = (place.scope(), place.engine());
            let run = Run { case: (*case).clone(), scope, engine, round, measured };
            each(&run);
            runs.push(run);
            Ok(())
        })?;
    }
    Ok(runs)
}

impl Measured {
    /// Round-trip times, microseconds.
    pub(super) fn rtt(&self) -> Option<Summary> {
        Summary::of_times(&self.client.times)
    }

    /// Messages per second at the receiver, over all connections, receivers and pairs.
    pub(super) fn messages_per_s(&self) -> f64 {
        self.server.messages as f64 / self.server.elapsed_s()
    }

    /// CPU time of both ends and the daemons, seconds.
    pub(super) fn cpu_s(&self) -> f64 {
        self.client.cpu_s + self.server.cpu_s + self.daemons_cpu_s
    }

    /// Packets per message that left the sender, and the receiver; NaN if they cannot be counted.
    pub(super) fn packets_per_message(&self) -> (f64, f64) {
        let packets = self.client.packets.zip(self.server.packets);
        let each = |packets: u64| packets as f64 / self.client.messages.max(1) as f64;
        packets.map_or((f64::NAN, f64::NAN), |(out, back)| (each(out), each(back)))
    }

    /// Messages that did not arrive.
    pub(super) fn lost(&self) -> u64 {
        self.client.lost + self.server.lost
    }
}

impl Run {
    /// Seconds of the measured traffic: at the client for round trips and loads, at the server for rates.
    pub(super) fn elapsed_s(&self) -> f64 {
        let measured = &self.measured;
        let at_client = matches!(self.case.name, Name::Latency | Name::Cpu);
        if at_client { measured.client.elapsed_s() } else { measured.server.elapsed_s() }
    }

    /// Measured messages.
    pub(super) fn messages(&self) -> u64 {
        let measured = &self.measured;
        if self.case.name == Name::Latency { measured.client.messages } else { measured.server.messages }
    }

    pub(super) fn mbit_per_s(&self) -> f64 {
        self.measured.messages_per_s() * f64::from(self.case.size) * 8.0 / 1e6
    }

    /// The median round-trip time, microseconds.
    pub(super) fn p50(&self) -> f64 {
        self.measured.rtt().map_or(f64::NAN, |rtt| rtt.p50)
    }
}

/// Shows progress in one line of a terminal on standard error; nothing elsewhere.
struct Progress {
    total: usize,
    done: usize,
    shown: bool,
}

impl Progress {
    fn new(total: usize) -> Self {
        Self { total, done: 0, shown: std::io::stderr().is_terminal() }
    }

    fn step(&mut self, case: &Case, what: &str) {
        self.done += 1;
        if self.shown {
            let mut err = std::io::stderr();
            let _ = write!(err, "\r\x1b[K[{}/{}] {}, {what}", self.done, self.total, case.description());
            let _ = err.flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // Clears the line, so that an error message does not follow it.
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
