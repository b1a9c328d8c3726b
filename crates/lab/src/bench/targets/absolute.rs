//! Rows with absolute targets.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use utipc_bench_kit::machine::{proportional_kib, resident_kib};
use utipc_bench_kit::stats::{median, quantile};
use utipc_bench_kit::{Verdict, cpu, in_turn};

use super::super::job::{EndResult, Job, Role, Test};
use super::super::place::{Peer, Place};
use super::super::run::{self, Case, Name};
use super::super::variant::{Engine, Kind, Mode, Scope, Transport, Variant};
use super::Bench;

/// Receivers that compete with a busy process, and messages per second to each.
const NEIGHBOURS: (u32, f64) = (8, 100.0);
/// Duration of the measurement of the busy process, seconds.
const SPIN_SECONDS: f64 = 2.0;
/// Number of bursts, and the size of their messages, bytes.
const BURSTS: (u64, u32) = (100, 66_000);
/// Number of killed processes.
const VICTIMS: u64 = 200;
/// Number of started nodes.
const STARTS: u64 = 100;
/// Bindings that are looked up.
const SEEN: u64 = 200;
/// Client sockets and the processes that have them; each process stays below 4096 descriptors.
const CLIENTS: (u32, u32) = (10_000, 4);
/// Messages per client that the server receives in `many-clients`.
const SERVED: u64 = 100;
/// Bindings of each socket in `many-bindings`.
const BINDINGS: u32 = 10;
/// Bytes of a binding in a full leaf of the binding table.
const LEAF_BYTES: u64 = 43;
/// Lookups in `many-bindings`.
const LOOKUPS: u64 = 1_000_000;
/// Sockets of an idle daemon, and how long it is measured.
const IDLE: (u32, Duration) = (1000, Duration::from_secs(10));

const OWN: Variant = Variant::new(Transport::Utipc, Mode::Adaptive, Kind::Rdm);

pub(super) fn neighbours(bench: &Bench) -> Result<Verdict> {
    let place = bench.intra()?;
    let (receivers, rate) = NEIGHBOURS;
    let iterations = |mode: Mode| -> Result<f64> {
        let milliseconds = bench.repetitions((SPIN_SECONDS * 1e3) as u64);
        let mut spinner = place.ready(&Job { messages: milliseconds, ..Job::new(Test::Spin, OWN, 1) })?;
        let case = Case {
            servers: receivers,
            rate: Some(rate),
            pinned: false,
            ..Case::new(Name::Multicast, Variant { mode, ..OWN }, 64)
        };
        // The receivers are busy for longer than the count takes.
        let messages = (rate * (milliseconds as f64 / 1e3 + 0.5)) as u64;
        run::measure_with(&place, &case, messages, || spinner.go())?;
        spinner.result()?.single_value()
    };
    let mut counts = [(Mode::Adaptive, Vec::new()), (Mode::Parked, Vec::new())];
    in_turn(bench.rounds, &mut counts, |_, (mode, counts)| {
        counts.push(iterations(*mode)?);
        Ok(())
    })?;
    let [adaptive, parked] = counts.map(|(_, counts)| median(counts));
    let loss = 1.0 - adaptive / parked;
    Ok(Verdict::new(format!("{:.1} % lost", 100.0 * loss), loss <= 0.05))
}

/// "p50 0.04 ms, p99 0.12 ms, max 0.15 ms of 200"
fn quantiles(times: &[f64], unit: &str, decimals: usize) -> String {
    let at = |share| quantile(times.iter().copied(), share);
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| format!("{:.decimals$} {unit}", at(share)));
    format!("p50 {p50}, p99 {p99}, max {max} of {}", times.len())
}

/// Kills a process; returns the milliseconds from the return of `kill(2)` until the receive call of its peer returns,
/// and the resident memory of the killed process in KiB. It always has a connection of each variant.
fn death(place: &Place, variant: Variant) -> Result<(f64, u64)> {
    let job = Job::new(Test::Death, variant, 1);
    let mut victim = place.ready(&Job { role: Role::Serve, ..job.clone() })?;
    let mut survivor = place.ready(&Job { addresses: vec![victim.address.clone()], ..job })?;
    survivor.go()?;
    // Until the survivor waits. If it is late, its call returns at once and still counts from the kill.
    std::thread::sleep(Duration::from_millis(10));
    let resident = resident_kib(victim.id())?;
    let killed = victim.kill()?;
    let ended = survivor.finish()?.ended;
    Ok((ended.saturating_sub(killed) as f64 / 1e6, resident))
}

pub(super) fn kill(bench: &Bench, place: &Place, most_ms: f64) -> Result<Verdict> {
    let (mut own, mut tcp, mut largest) = (Vec::new(), Vec::new(), 0);
    for _ in 0..bench.repetitions(VICTIMS) {
        for (variant, delays) in [(OWN, &mut own), (Variant::TCP, &mut tcp)] {
            let (delay, resident) = death(place, variant)?;
            delays.push(delay);
            largest = largest.max(resident);
        }
    }
    let (ours, tcp) = (quantiles(&own, "ms", 2), quantiles(&tcp, "ms", 2));
    let got = format!("{ours}; TCP connections of the same victims: {tcp}; victims of {} MB", largest / 1024);
    Ok(Verdict::new(got, quantile(own, 0.99) <= most_ms))
}

/// Time from the start of an embedded node until the node of another process has answered it.
pub(super) fn host_start(bench: &Bench) -> Result<Verdict> {
    let place = Bench::host()?;
    let job = Job::new(Test::Start, OWN, 64);
    let _server = place.ready(&Job { role: Role::Serve, ..job.clone() })?;
    let start = |index| -> Result<f64> {
        let mut client = place.ready(&Job { index, ..job.clone() })?;
        client.go()?;
        client.finish()?.single_value()
    };
    let starts = bench.repetitions(STARTS);
    let times = (0..u32::try_from(starts)?).map(start).collect::<Result<Vec<_>>>()?;
    Ok(Verdict::new(quantiles(&times, "ms", 1), quantile(times, 1.0) <= 50.0))
}

pub(super) fn burst(bench: &Bench) -> Result<Verdict> {
    let (bursts, size) = (bench.repetitions(BURSTS.0), BURSTS.1);
    let (mut met, mut got) = (true, Vec::new());
    for (name, scope) in [("one host", Scope::Intra), ("two nodes", Scope::Inter)] {
        // One place at a time: both have the same folder.
        let place = Place::new(scope, bench.engine)?;
        for (readers, silent) in [(2, 0), (8, 0), (8, 1)] {
            let servers = readers + silent;
            let job =
                Job { servers, connections: readers, messages: bursts, ..Job::new(Test::Burst, OWN, size) };
            let times = place.run(&job)?.times;
            let whole = times.iter().filter(|(_, whole)| *whole == 1).count();
            let millis = || times.iter().map(|(ns, _)| *ns as f64 / 1e6);
            let (typical, longest) = (median(millis()), millis().fold(0.0, f64::max));
            let readers = if silent > 0 { format!("{readers} + 1") } else { readers.to_string() };
            got.push(format!("{name}, {readers}: {whole} whole, {typical:.0} ms, longest {longest:.0} ms"));
            met &= whole as u64 == bursts && (silent == 0 || longest - typical <= 50.0);
        }
    }
    Ok(Verdict::new(got.join("; "), met))
}

/// Time until another process, which polls, sees bindings: as text, and the p99 from the return of `bind`, in
/// microseconds. A binding that was visible before counts as 0.
fn visible(bench: &Bench, place: &Place) -> Result<(String, f64)> {
    let job = Job { messages: bench.repetitions(SEEN), ..Job::new(Test::Visible, OWN, 1) };
    let mut binder = place.ready(&Job { role: Role::Serve, ..job.clone() })?;
    let mut watcher = place.ready(&job)?;
    watcher.go()?;
    binder.go()?;
    let (bound, seen) = (binder.result()?.times, watcher.result()?.times);
    ensure!(bound.len() == seen.len() && !seen.is_empty(), "not all bindings were seen");
    let micros = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
    let pairs = || bound.iter().zip(&seen);
    let delays: Vec<f64> = pairs().map(|((_, returned), (_, seen))| micros(*returned, *seen)).collect();
    let from_call = median(pairs().map(|((asked, _), (_, seen))| micros(*asked, *seen)));
    let mut text = format!("{}; from the call p50 {from_call:.1} µs", quantiles(&delays, "µs", 1));
    // Bindings that the other process began to look up only after the call of `bind`.
    let late = pairs().filter(|((asked, _), (began, _))| began > asked).count();
    if late > 0 {
        text += &format!(", looked for late {late} times");
    }
    Ok((text, quantile(delays, 0.99)))
}

pub(super) fn bind_local(bench: &Bench) -> Result<Verdict> {
    if bench.engine == Engine::Embedded {
        return Ok(Verdict::uncounted("two processes share a node only in a daemon"));
    }
    let (text, p99) = visible(bench, &bench.intra()?)?;
    Ok(Verdict::new(text, p99 <= 50.0))
}

pub(super) fn bind_remote(bench: &Bench) -> Result<Verdict> {
    let (text, p99) = visible(bench, &Bench::inter(bench.engine)?)?;
    let tcp = Case { messages: Some(bench.repetitions(2000)), ..Case::new(Name::Latency, Variant::TCP, 64) };
    let runs = bench.compare(&Bench::inter(Engine::Embedded)?, [tcp])?.0;
    let network = median(runs.iter().map(run::Run::p50)) / 2.0;
    let got = format!("{text}; network {network:.0} µs (half a TCP round trip)");
    Ok(Verdict::new(got, p99 <= 1000.0 + network))
}

/// This host, with a daemon.
fn hosted() -> Result<Place> {
    Place::new(Scope::Intra, Engine::Daemon)
}

pub(super) fn idle_daemon(bench: &Bench) -> Result<Verdict> {
    let place = hosted()?;
    let id = *place.daemons().first().context("there is no daemon")?;
    let (sockets, time) = IDLE;
    let time = if bench.messages.is_some() { time / 20 } else { time };
    // Until the daemon has finished its start.
    std::thread::sleep(time / 10);
    let before = cpu::seconds_of(id);
    std::thread::sleep(time);
    let share = 100.0 * (cpu::seconds_of(id) - before) / time.as_secs_f64();
    let empty = resident_kib(id)?;
    let _holder = place.ready(&holder(0, sockets, 0))?;
    let each = resident_kib(id)?.saturating_sub(empty) as f64 / f64::from(sockets);
    let megabytes = empty as f64 / 1024.0;
    let got = format!("{share:.2} % of a core, {megabytes:.1} MB, {each:.2} KB per idle socket");
    Ok(Verdict::new(got, share <= 0.5 && empty <= 10 * 1024 && each <= 4.0))
}

/// The job of a process with `sockets` sockets and `bindings` bindings on each.
fn holder(index: u32, sockets: u32, bindings: u32) -> Job {
    let job = Job::new(Test::Many, OWN, 1);
    Job { role: Role::Serve, index, connections: sockets, messages: bindings.into(), ..job }
}

/// The result of a server that received `messages` from `clients` clients in `processes` processes, and the memory of
/// all processes and the daemon, KiB.
fn serve_clients(place: &Place, clients: u32, processes: u32, messages: u64) -> Result<(EndResult, u64)> {
    let job = Job { messages, warmup: u64::from(clients), ..Job::new(Test::Crowd, OWN, 64) };
    let mut server = place.ready(&Job { role: Role::Serve, ..job.clone() })?;
    let connections = clients / processes;
    let start = |index| place.start(&Job { index, connections, ..job.clone() });
    let mut crowds = (0..processes).map(start).collect::<Result<Vec<Peer>>>()?;
    crowds.iter_mut().try_for_each(Peer::wait_ready)?;
    crowds.iter_mut().try_for_each(Peer::go)?;
    let result = server.result()?;
    let ids = place.daemons().into_iter().chain([server.id()]).chain(crowds.iter().map(Peer::id));
    let memory = ids.map(proportional_kib).sum::<Result<u64>>()?;
    Ok((result, memory))
}

pub(super) fn many_clients(bench: &Bench) -> Result<Verdict> {
    let place = hosted()?;
    let (all, processes) = CLIENTS;
    let clients = if bench.messages.is_some() { all / 100 } else { all };
    // Both have the same number of processes: only the number of sockets differs.
    let messages = u64::from(clients) * SERVED;
    let few_clients = 2 * processes;
    let (few, _) = serve_clients(&place, few_clients, processes, messages)?;
    let (many, memory) = serve_clients(&place, clients, processes, messages)?;
    let [few_ns, ns] = [&few, &many].map(|result| 1e9 * result.cpu_s / result.messages as f64);
    let served = many.times.iter().map(|(_, count)| *count);
    let (least, most) = (served.clone().min().unwrap_or(0), served.max().unwrap_or(0));
    let (ratio, uneven, megabytes) = (ns / few_ns, most as f64 / least as f64, memory as f64 / 1024.0);
    let got = format!(
        "{clients} sockets: {megabytes:.0} MB, {ns:.0} ns a message ({ratio:.2} × of {few_clients}), \
         most {most} ÷ least {least} served = {uneven:.1}"
    );
    Ok(Verdict::new(got, megabytes <= 256.0 && ratio <= 1.5 && uneven <= 2.0))
}

pub(super) fn many_bindings(bench: &Bench) -> Result<Verdict> {
    let place = hosted()?;
    let (all, processes) = CLIENTS;
    let sockets = if bench.messages.is_some() { all / 100 } else { all };
    let start = |index| place.start(&holder(index, sockets / processes, BINDINGS));
    let mut holders = (0..processes).map(start).collect::<Result<Vec<Peer>>>()?;
    holders.iter_mut().try_for_each(Peer::wait_ready)?;
    let bindings = sockets * BINDINGS;
    let messages = bench.repetitions(LOOKUPS);
    // The holders already run.
    let job = Job { servers: 0, connections: bindings, messages, ..Job::new(Test::Many, OWN, 1) };
    let time = |_| place.run(&job)?.single_value();
    let lookup = median((0..bench.rounds).map(time).collect::<Result<Vec<f64>>>()?);
    let load = random_load(u64::from(bindings) * LEAF_BYTES);
    let got = format!(
        "{sockets} sockets, {bindings} bindings; {lookup:.0} ns a lookup (one load at random from as much \
         memory: {load:.0} ns)"
    );
    Ok(Verdict::new(got, lookup <= 150.0))
}

/// Nanoseconds of a load whose address depends on the load before, among `bytes` bytes: a lower bound for a lookup in a
/// table of that size.
fn random_load(bytes: u64) -> f64 {
    const LINE: u64 = 64;
    let lines = bytes.div_ceil(LINE).next_power_of_two();
    let mut memory = vec![[0_u64; LINE as usize / 8]; lines as usize];
    // A full-period sequence through all cache lines.
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
