//! Rows about utipc by itself.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::super::daemon::{self, cpu_s};
use super::super::job::{Job, Part, Role, Test};
use super::super::node::resident_kib;
use super::super::party::{Engine, Kind, Mode, Party, Scope, Transport};
use super::super::peer::value_of;
use super::super::place::{Peer, Place};
use super::super::run::{self, Case, Name};
use super::super::stats::median;
use super::{Bench, Verdict, no_daemon};

/// Receivers beside a busy process, and the messages per second that each gets.
const NEIGHBOURS: (u32, f64) = (8, 100.0);
/// Seconds for which the busy process counts.
const SPIN_SECONDS: f64 = 2.0;
/// Victims, each with processes of its own.
const VICTIMS: u64 = 200;
/// Bindings that are looked for.
const SEEN: u64 = 200;
/// Client sockets and the processes that hold them: so that each needs fewer than 4096 descriptors, were there one a
/// socket.
const CLIENTS: (u32, u32) = (10_000, 4);
/// Messages that the server receives per client, where there are many.
const SERVED: u64 = 100;
/// Bindings of each socket where there are many.
const BINDINGS: u32 = 10;
/// Bytes of a binding in the leaves of the binding table, where a leaf is full.
const LEAF_BYTES: u64 = 43;
/// Lookups among them.
const LOOKUPS: u64 = 1_000_000;
/// Sockets of an idle daemon, and how long it is watched.
const IDLE: (u32, Duration) = (1000, Duration::from_secs(10));

const OWN: Party = Party::new(Transport::Utipc, Mode::Adaptive, Kind::Rdm);

/// The largest value that all but this share of `values` do not exceed.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

pub(super) fn neighbours(bench: &Bench) -> Result<Verdict> {
    let place = bench.intra()?;
    let (receivers, rate) = NEIGHBOURS;
    let turns = |mode: Mode| -> Result<f64> {
        let milliseconds = bench.often((SPIN_SECONDS * 1e3) as u64);
        let mut spinner = place.start(&Job { messages: milliseconds, ..run::job(Test::Spin, OWN, 1) })?;
        spinner.wait_ready()?;
        let party = Party { mode, ..OWN };
        let case = Case { servers: receivers, rate: Some(rate), ..Case::new(Name::Multicast, party, 64) };
        // The receivers are busy for longer than the count takes.
        let messages = (rate * (milliseconds as f64 / 1e3 + 0.5)) as u64;
        let case = Case { pinned: false, ..case };
        run::measure_beside(&place, &case, messages, || spinner.go())?;
        value_of(&spinner.result()?)
    };
    let (mut adaptive, mut parked) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds {
        let mut modes = [Mode::Adaptive, Mode::Parked];
        if round % 2 == 1 {
            modes.reverse();
        }
        for mode in modes {
            let counts = if mode == Mode::Adaptive { &mut adaptive } else { &mut parked };
            counts.push(turns(mode)?);
        }
    }
    let loss = 1.0 - median(adaptive) / median(parked);
    Ok(Verdict::new(format!("{:.1} % lost", 100.0 * loss), loss <= 0.05))
}

/// Milliseconds from the return of `kill(2)` until the receive call of the victim's partner returns, and the KiB that the
/// victim held. It is the same victim for every party, with a connection of each.
fn death(place: &Place, party: Party) -> Result<(f64, f64)> {
    let job = run::job(Test::Death, party, 1);
    let mut victim = place.start(&Job { role: Role::Serve, ..job.clone() })?;
    let meet = vec![victim.wait_ready()?];
    let mut survivor = place.start(&Job { meet, ..job })?;
    survivor.wait_ready()?;
    survivor.go()?;
    // Until the survivor waits; were it late, its call would return at once and count from the kill all the same.
    std::thread::sleep(Duration::from_millis(10));
    let resident = resident_kib(&victim.id().to_string())?;
    let killed = victim.kill()?;
    let ended = survivor.finish()?.ended;
    Ok((ended.saturating_sub(killed) as f64 / 1e6, resident as f64))
}

pub(super) fn kill(bench: &Bench) -> Result<Verdict> {
    let place = bench.intra()?;
    let (mut own, mut tcp, mut largest) = (Vec::new(), Vec::new(), 0.0_f64);
    for _ in 0..bench.often(VICTIMS) {
        for (party, delays) in [(OWN, &mut own), (Party::TCP, &mut tcp)] {
            let (delay, resident) = death(&place, party)?;
            delays.push(delay);
            largest = largest.max(resident);
        }
    }
    let at = |delays: &Vec<f64>, share| quantile(delays.clone(), share);
    let text = |delays: &Vec<f64>| {
        format!(
            "p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
            at(delays, 0.5),
            at(delays, 0.99),
            at(delays, 1.0)
        )
    };
    let got = format!(
        "{} of {}; TCP connections of the same victims: {}; victims of {:.0} MB",
        text(&own),
        own.len(),
        text(&tcp),
        largest / 1024.0
    );
    Ok(Verdict::new(got, at(&own, 0.99) <= 2.0))
}

/// How soon bindings are seen by another process, which looks all the time.
struct Seen {
    /// Microseconds from the return of `bind`; 0 if it was seen before.
    delays: Vec<f64>,
    /// Microseconds from when it was called.
    from_call: Vec<f64>,
    /// Bindings for which the other process began to look after they were asked for: it was not back in time.
    late: usize,
}

fn visible(bench: &Bench, place: &Place) -> Result<Seen> {
    let job = Job { messages: bench.often(SEEN), ..run::job(Test::Visible, OWN, 1) };
    let mut binder = place.start(&Job { role: Role::Serve, ..job.clone() })?;
    let mut watcher = place.start(&job)?;
    binder.wait_ready()?;
    watcher.wait_ready()?;
    watcher.go()?;
    binder.go()?;
    let (bound, seen) = (binder.result()?.times, watcher.result()?.times);
    ensure!(bound.len() == seen.len() && !seen.is_empty(), "not all bindings were seen");
    let micros = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
    let pairs = || bound.iter().zip(&seen);
    Ok(Seen {
        delays: pairs().map(|((_, returned), (_, seen))| micros(*returned, *seen)).collect(),
        from_call: pairs().map(|((asked, _), (_, seen))| micros(*asked, *seen)).collect(),
        late: pairs().filter(|((asked, _), (began, _))| began > asked).count(),
    })
}

impl Seen {
    fn p99(&self) -> f64 {
        quantile(self.delays.clone(), 0.99)
    }

    /// "p50 0.0 µs, p99 41.0 µs, max 60.0 µs of 200; from the call p50 70.0 µs"
    fn text(&self) -> String {
        let at = |share| quantile(self.delays.clone(), share);
        let late =
            if self.late > 0 { format!(", looked for late {} times", self.late) } else { String::new() };
        format!(
            "p50 {:.1} µs, p99 {:.1} µs, max {:.1} µs of {}; from the call p50 {:.1} µs{late}",
            at(0.5),
            at(0.99),
            at(1.0),
            self.delays.len(),
            quantile(self.from_call.clone(), 0.5)
        )
    }
}

pub(super) fn bind_local(bench: &Bench) -> Result<Verdict> {
    if bench.engine == Engine::Embedded {
        return Ok(Verdict::uncounted("two processes share a node only in a daemon"));
    }
    let seen = visible(bench, &bench.intra()?)?;
    Ok(Verdict::new(seen.text(), seen.p99() <= 50.0))
}

pub(super) fn bind_remote(bench: &Bench) -> Result<Verdict> {
    let seen = visible(bench, &Bench::inter(bench.engine)?)?;
    let tcp = Case { messages: Some(bench.often(2000)), ..Case::new(Name::Latency, Party::TCP, 64) };
    let lines = bench.compare(&Bench::inter(Engine::Embedded)?, vec![tcp])?;
    let network = median(lines.iter().map(run::Line::p50)) / 2.0;
    let got = format!("{}; network {network:.0} µs (half a TCP round trip)", seen.text());
    Ok(Verdict::new(got, seen.p99() <= 1000.0 + network))
}

/// A place with a daemon, if this build has one.
fn hosted() -> Result<Option<Place>> {
    if daemon::is_there() { Place::new(Scope::Intra, Engine::Daemon).map(Some) } else { Ok(None) }
}

pub(super) fn idle_daemon(bench: &Bench) -> Result<Verdict> {
    let Some(place) = hosted()? else { return Ok(no_daemon()) };
    let id = *place.daemons().first().context("there is no daemon")?;
    let resident = || resident_kib(&id.to_string());
    let (sockets, time) = IDLE;
    let time = if bench.messages.is_some() { time / 20 } else { time };
    // What the start has left is done by then.
    std::thread::sleep(time / 10);
    let before = cpu_s(id);
    std::thread::sleep(time);
    let share = 100.0 * (cpu_s(id) - before) / time.as_secs_f64();
    let empty = resident()?;
    let mut holder = place.start(&holder(0, sockets, 0))?;
    holder.wait_ready()?;
    let each = resident()?.saturating_sub(empty) as f64 / f64::from(sockets);
    let got =
        format!("{share:.2} % of a core, {:.1} MB, {each:.2} KB per idle socket", empty as f64 / 1024.0);
    Ok(Verdict::new(got, share <= 0.5 && empty <= 10 * 1024 && each <= 4.0))
}

/// A process with many sockets and as many bindings on each.
fn holder(index: u32, sockets: u32, bindings: u32) -> Job {
    let job = run::job(Test::Many, OWN, 1);
    Job { role: Role::Serve, index, connections: sockets, messages: bindings.into(), ..job }
}

/// Memory of a process that no other shares, and its share of what others do, KiB.
fn proportional_kib(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).context("find Pss")?;
    line.trim().trim_end_matches("kB").trim().parse().context("read Pss")
}

/// What one server has measured that received `messages` from `clients` clients in `processes` processes, and the memory
/// of all, KiB.
fn serve_clients(place: &Place, clients: u32, processes: u32, messages: u64) -> Result<(Part, u64)> {
    let job = Job { messages, warmup: u64::from(clients), ..run::job(Test::Crowd, OWN, 64) };
    let mut server = place.start(&Job { role: Role::Serve, ..job.clone() })?;
    server.wait_ready()?;
    let connections = clients / processes;
    let start = |index| place.start(&Job { index, connections, ..job.clone() });
    let mut crowds = (0..processes).map(start).collect::<Result<Vec<Peer>>>()?;
    for crowd in &mut crowds {
        crowd.wait_ready()?;
    }
    for crowd in &mut crowds {
        crowd.go()?;
    }
    let part = server.result()?;
    let ids = place.daemons().into_iter().chain([server.id()]).chain(crowds.iter().map(Peer::id));
    let memory = ids.map(proportional_kib).sum::<Result<u64>>()?;
    Ok((part, memory))
}

pub(super) fn many_clients(bench: &Bench) -> Result<Verdict> {
    let Some(place) = hosted()? else { return Ok(no_daemon()) };
    let clients = if bench.messages.is_some() { CLIENTS.0 / 100 } else { CLIENTS.0 };
    // Processes compete for the cores alike in both: only the number of sockets differs.
    let messages = u64::from(clients) * SERVED;
    let (few, _) = serve_clients(&place, 2 * CLIENTS.1, CLIENTS.1, messages)?;
    let (many, memory) = serve_clients(&place, clients, CLIENTS.1, messages)?;
    let cost = |part: &Part| 1e9 * part.cpu_s / part.messages as f64;
    let served = many.times.iter().map(|(_, count)| *count);
    let least = served.clone().min().unwrap_or(0);
    let most = served.max().unwrap_or(0);
    let (ratio, uneven) = (cost(&many) / cost(&few), most as f64 / least as f64);
    let megabytes = memory as f64 / 1024.0;
    let got = format!(
        "{clients} sockets: {megabytes:.0} MB, {:.0} ns a message ({ratio:.2} × of {}), most {most} ÷ least {least} served = {uneven:.1}",
        cost(&many),
        2 * CLIENTS.1
    );
    Ok(Verdict::new(got, megabytes <= 256.0 && ratio <= 1.5 && uneven <= 2.0))
}

pub(super) fn many_bindings(bench: &Bench) -> Result<Verdict> {
    let Some(place) = hosted()? else { return Ok(no_daemon()) };
    let (all, processes) = CLIENTS;
    let sockets = if bench.messages.is_some() { all / 100 } else { all };
    let start = |index| place.start(&holder(index, sockets / processes, BINDINGS));
    let mut holders = (0..processes).map(start).collect::<Result<Vec<Peer>>>()?;
    for holder in &mut holders {
        holder.wait_ready()?;
    }
    let bindings = sockets * BINDINGS;
    let lookups = bench.often(LOOKUPS);
    let job = Job { connections: bindings, messages: lookups, ..run::job(Test::Many, OWN, 1) };
    let time = |_| -> Result<f64> {
        let mut client = place.start(&job)?;
        client.wait_ready()?;
        client.go()?;
        value_of(&client.finish()?)
    };
    let times = (0..bench.rounds).map(time).collect::<Result<Vec<f64>>>()?;
    let lookup = median(times);
    let load = random_load(u64::from(bindings) * LEAF_BYTES);
    Ok(Verdict::new(
        format!(
            "{sockets} sockets, {bindings} bindings; {lookup:.0} ns a lookup (one load at random from as much memory: {load:.0} ns)"
        ),
        lookup <= 150.0,
    ))
}

/// Nanoseconds of one load whose place only the load before it tells, among `bytes`: what no lookup in so large a table
/// goes below.
fn random_load(bytes: u64) -> f64 {
    const LINE: u64 = 64;
    let lines = bytes.div_ceil(LINE).next_power_of_two();
    let mut memory = vec![[0_u64; LINE as usize / 8]; lines as usize];
    // A full-period sequence through all lines.
    for (number, line) in (0..lines).zip(&mut memory) {
        line[0] = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % lines;
    }
    let mut at = 0;
    let mut walk = |steps: u64| {
        let began = Instant::now();
        for _ in 0..steps {
            at = memory.get(at as usize).map_or(0, |line| line[0]);
        }
        began.elapsed().as_nanos() as f64 / steps as f64
    };
    walk(lines);
    let time = walk(LOOKUPS);
    std::hint::black_box(at);
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_measured_value() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(quantile(values.clone(), 0.99), 198.0);
        assert_eq!((quantile(values.clone(), 1.0), quantile(values, 0.0)), (200.0, 1.0));
        assert!(quantile(Vec::new(), 0.5).is_nan());
    }
}
