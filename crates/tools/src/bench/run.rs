//! Runs cases: both ends as processes, all parties in turn, round after round.

use std::io::{IsTerminal, Write};

use anyhow::{Context, Result};

use super::job::{Job, Part, Role, Site, Test};
use super::party::{Engine, Party, Scope};
use super::place::{Peer, Place};
use super::stats::Rtt;

/// What the reports call a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Latency,
    Throughput,
    Cpu,
    Multicast,
    Pairs,
    Sizes,
}

/// One party's part of a comparison.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: Name,
    pub(super) party: Party,
    pub(super) size: u32,
    pub(super) connections: u32,
    /// Receivers of a multicast.
    pub(super) servers: u32,
    /// Pairs of processes that do the same at the same time.
    pub(super) pairs: u32,
    /// Messages per second by schedule.
    pub(super) rate: Option<f64>,
    /// Messages on each connection; none: as many as fill `seconds`.
    pub(super) messages: Option<u64>,
    pub(super) seconds: f64,
    /// Each role on a core of its own.
    pub(super) pinned: bool,
}

/// What one run of a case has measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) client: Part,
    pub(super) server: Part,
    /// Processor time of the daemons, where nodes live in such.
    pub(super) daemons_cpu_s: f64,
}

/// A run, for the reports.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) case: Case,
    pub(super) scope: Scope,
    pub(super) engine: Engine,
    pub(super) round: u32,
    pub(super) measured: Measured,
}

/// Messages of the run that finds out how many fill a round.
const TRIAL: u64 = 1000;
/// Fewest and most messages of a round, on each connection.
const MESSAGES: (u64, u64) = (100, 50_000_000);

impl Name {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Cpu => "cpu",
            Self::Multicast => "multicast",
            Self::Pairs => "pairs",
            Self::Sizes => "sizes",
        }
    }
}

impl Case {
    pub(super) fn new(name: Name, party: Party, size: u32) -> Self {
        let (rate, messages) = (None, None);
        Self {
            name,
            party,
            size,
            connections: 1,
            servers: 1,
            pairs: 1,
            rate,
            messages,
            seconds: 0.5,
            pinned: true,
        }
    }

    fn test(&self) -> Test {
        if self.name == Name::Latency { Test::Echo } else { Test::Flow }
    }
}

/// A job for a process that measures alone or whose parts the caller fills in.
pub(super) fn job(test: Test, party: Party, size: u32) -> Job {
    let nowhere = [0, 0, 0, 0].into();
    let site = Site { local: nowhere, remote: nowhere, private: false };
    Job {
        test,
        party,
        role: Role::Drive,
        index: 0,
        servers: 1,
        connections: 1,
        crowded: false,
        size,
        messages: 1,
        warmup: 1,
        rate: None,
        engine: Engine::Embedded,
        site,
        core: None,
        meet: Vec::new(),
    }
}

/// The cores of the two roles, where there are two.
fn cores() -> [Option<usize>; 2] {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return [None, None] };
    let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core));
    match (cores.next(), cores.next()) {
        (Some(first), Some(second)) => [Some(first), Some(second)],
        _ => [None, None],
    }
}

/// Runs a case once, with so many messages on each connection.
pub(super) fn measure(place: &Place, case: &Case, messages: u64) -> Result<Measured> {
    measure_beside(place, case, messages, || Ok(()))
}

/// [`measure`], and `beside` as soon as messages are on their way.
pub(super) fn measure_beside(
    place: &Place,
    case: &Case,
    messages: u64,
    beside: impl FnOnce() -> Result<()>,
) -> Result<Measured> {
    let mut base = job(case.test(), case.party, case.size);
    (base.connections, base.servers, base.rate) = (case.connections, case.servers, case.rate);
    (base.messages, base.warmup) = (messages, (messages / 10).clamp(1, TRIAL));
    let ends = case.connections * case.servers.max(case.pairs);
    base.crowded = ends > 1 || std::thread::available_parallelism().map_or(1, usize::from) < 2;
    let [server_core, client_core] = if case.pinned { cores() } else { [None, None] };

    let serve = |index| place.start(&Job { role: Role::Serve, index, core: server_core, ..base.clone() });
    let mut servers = (0..case.servers.max(case.pairs)).map(serve).collect::<Result<Vec<Peer>>>()?;
    let meets = servers.iter_mut().map(Peer::wait_ready).collect::<Result<Vec<_>>>()?;
    let drive = |index: u32| {
        let meet = match meets.get(index as usize) {
            Some(own) if case.servers == 1 => vec![own.clone()],
            _ => meets.clone(),
        };
        place.start(&Job { role: Role::Drive, index, core: client_core, meet, ..base.clone() })
    };
    let mut clients = (0..case.pairs).map(drive).collect::<Result<Vec<Peer>>>()?;
    for client in &mut clients {
        client.wait_ready()?;
    }
    let before = place.daemons_cpu_s();
    for client in &mut clients {
        client.go()?;
    }
    beside()?;
    let client = Part::merge(clients.iter_mut().map(Peer::result).collect::<Result<Vec<_>>>()?);
    let server = Part::merge(servers.iter_mut().map(Peer::result).collect::<Result<Vec<_>>>()?);
    Ok(Measured { client, server, daemons_cpu_s: place.daemons_cpu_s() - before })
}

/// How many messages, on each connection, fill the time of a case.
pub(super) fn calibrate(place: &Place, case: &Case) -> Result<u64> {
    if let Some(messages) = case.messages {
        return Ok(messages);
    }
    if let Some(rate) = case.rate {
        return Ok(((rate * case.seconds) as u64).max(1));
    }
    let mut messages = TRIAL.min((64 << 20) / u64::from(case.size)).max(MESSAGES.0);
    // Twice: what is cold at first is slow.
    for _ in 0..2 {
        let trial = measure(place, case, messages)?;
        let part = if case.name == Name::Latency { &trial.client } else { &trial.server };
        let per_second = messages as f64 / part.elapsed_s().max(1e-6);
        messages = ((per_second * case.seconds) as u64).clamp(MESSAGES.0, MESSAGES.1.min(messages * 1000));
    }
    Ok(messages)
}

/// Runs each of `groups`, whose cases are compared with each other, `rounds` times: in turn, and in reversed order in
/// every second round, so that no party always has the warm machine.
pub(super) fn compare(
    place: &Place,
    groups: &[Vec<Case>],
    rounds: u32,
    mut each: impl FnMut(&Line),
) -> Result<Vec<Line>> {
    let steps = groups.iter().map(|cases| cases.len() * (rounds as usize + 1)).sum();
    let mut progress = Progress::new(steps);
    let mut lines = Vec::new();
    for cases in groups {
        let mut planned = Vec::new();
        for case in cases {
            progress.step(case, "trial");
            planned.push((case, calibrate(place, case).with_context(|| describe(case))?));
        }
        for round in 0..rounds {
            for (case, messages) in &planned {
                progress.step(case, &format!("round {} of {rounds}", round + 1));
                let measured = measure(place, case, *messages).with_context(|| describe(case))?;
                let (scope, engine) = (place.scope(), place.engine());
                let line = Line { case: (*case).clone(), scope, engine, round, measured };
                each(&line);
                lines.push(line);
            }
            planned.reverse();
        }
    }
    progress.end();
    Ok(lines)
}

fn describe(case: &Case) -> String {
    let mode = case.party.mode.name();
    format!(
        "measure {} of {} ({mode}) with messages of {} bytes",
        case.name.text(),
        case.party.label(),
        case.size
    )
}

impl Measured {
    /// Round trips.
    pub(super) fn rtt(&self) -> Option<Rtt> {
        Rtt::of(&self.client.times)
    }

    /// Messages that arrived, per second at the receiver, over all connections, receivers and pairs.
    pub(super) fn messages_per_s(&self) -> f64 {
        self.server.messages as f64 / self.server.elapsed_s()
    }

    /// Processor time of both ends and the daemons, seconds.
    pub(super) fn cpu_s(&self) -> f64 {
        self.client.cpu_s + self.server.cpu_s + self.daemons_cpu_s
    }

    /// Packets per message that left the sender, and the receiver.
    pub(super) fn packets_per_message(&self) -> Option<(f64, f64)> {
        let (out, back) = (self.client.packets?, self.server.packets?);
        let messages = self.client.messages.max(1) as f64;
        Some((out as f64 / messages, back as f64 / messages))
    }
}

impl Line {
    /// Seconds of the measured traffic, at the end that counts.
    pub(super) fn elapsed_s(&self) -> f64 {
        let measured = &self.measured;
        let at_client = matches!(self.case.name, Name::Latency | Name::Cpu);
        if at_client { measured.client.elapsed_s() } else { measured.server.elapsed_s() }
    }

    /// Messages that count.
    pub(super) fn messages(&self) -> u64 {
        let measured = &self.measured;
        if self.case.name == Name::Latency { measured.client.messages } else { measured.server.messages }
    }

    pub(super) fn mbit_per_s(&self) -> f64 {
        self.measured.messages_per_s() * f64::from(self.case.size) * 8.0 / 1e6
    }

    /// Microseconds of the median round trip.
    pub(super) fn p50(&self) -> f64 {
        self.measured.rtt().map_or(f64::NAN, |rtt| rtt.p50)
    }
}

/// Tells on standard error how far a run is: a line that is overwritten on a terminal, and nothing elsewhere.
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
            let (name, label, mode) = (case.name.text(), case.party.label(), case.party.mode.name());
            let mut err = std::io::stderr();
            let _ = write!(
                err,
                "\r\x1b[K[{}/{}] {name}: {label}, {mode}, {} bytes, {what}",
                self.done, self.total, case.size
            );
            let _ = err.flush();
        }
    }

    fn end(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // After an error too: its line must not stand behind ours.
        self.end();
    }
}
