//! Rows that compare utipc with other transports in the same run.

use anyhow::{Result, ensure};

use super::super::job::{Job, Role, Test};
use super::super::options::{BESIDE_FRAGMENT, FRAGMENTS, whole};
use super::super::place::{Place, has_daemon};
use super::super::run::{self, Case, Name, Run};
use super::super::table::{Group, speed};
use super::super::transports;
use super::super::variant::{Engine, Kind, Mode, Scope, Transport, Variant};
use super::{Bench, Verdict, no_daemon};
use utipc_bench_kit::stats::Summary;

/// Above this spread of the rounds of TCP, a comparison between nodes is not valid.
const STEADY: f64 = 0.10;
/// Requests per second of the open loop.
const REQUESTS: f64 = 1000.0;
/// Duration of its rounds, seconds: enough for a p99.9.
const REQUEST_SECONDS: f64 = 5.0;
/// Bits per second, size and seconds of the constant load.
const LOAD: (f64, u32, f64) = (25e6, 1024, 2.0);

const fn utipc(mode: Mode, kind: Kind) -> Variant {
    Variant::new(Transport::Utipc, mode, kind)
}

const fn peer_of(transport: Transport, mode: Mode) -> Variant {
    Variant::new(transport, mode, Kind::Stream)
}

const TCP_BUSY: Variant = peer_of(Transport::Tcp, Mode::Busy);
const NAGLE: Variant = peer_of(Transport::TcpNagle, Mode::Blocking);
const UNIX: Variant = Variant::new(Transport::Uds, Mode::Blocking, Kind::Seqpacket);
const UDP: Variant = Variant::new(Transport::Udp, Mode::Blocking, Kind::Rdm);

/// The runs of a row.
struct Comparison {
    runs: Vec<Run>,
}

impl Comparison {
    fn run(bench: &Bench, place: &Place, name: Name, size: u32, variants: &[Variant]) -> Result<Self> {
        let cases = variants.iter().map(|variant| Case::new(name, *variant, size)).collect();
        Ok(Self { runs: bench.compare(place, cases)? })
    }

    fn of(&self, variant: Variant) -> Group<'_> {
        Group { runs: self.runs.iter().filter(|run| run.case.variant == variant).collect() }
    }

    fn p50(&self, variant: Variant) -> f64 {
        self.of(variant).median(Run::p50)
    }

    fn rate(&self, variant: Variant) -> f64 {
        self.of(variant).median(|run| run.measured.messages_per_s())
    }

    /// Spread of the rounds of a variant, percent.
    fn spread(&self, variant: Variant) -> f64 {
        100.0 * self.of(variant).spread(speed)
    }

    /// The verdict, which counts only if the rounds of TCP were steady.
    fn if_steady(&self, tcp: Variant, verdict: Verdict) -> Verdict {
        if self.of(tcp).spread(speed) <= STEADY {
            return verdict;
        }
        Verdict::uncounted(format!(
            "{} (does not count: TCP's own spread is {:.0} %)",
            verdict.got,
            self.spread(tcp)
        ))
    }
}

/// Round trips on this host, compared with blocking TCP.
fn rtt(bench: &Bench, own: Variant, size: u32, times: f64) -> Result<Verdict> {
    let found = Comparison::run(bench, &bench.intra()?, Name::Latency, size, &[own, Variant::TCP, TCP_BUSY])?;
    let (ours, tcp, busy) = (found.p50(own), found.p50(Variant::TCP), found.p50(TCP_BUSY));
    let got = format!(
        "{:.1} ×: {ours:.2} µs, TCP {tcp:.1} µs (busy {busy:.1} µs); spread {:.0} %, TCP {:.0} %",
        tcp / ours,
        found.spread(own),
        found.spread(Variant::TCP)
    );
    Ok(Verdict::new(got, tcp / ours >= times))
}

pub(super) fn rtt_busy(bench: &Bench) -> Result<Verdict> {
    rtt(bench, utipc(Mode::Busy, Kind::Seqpacket), 64, 20.0)
}

pub(super) fn rtt_adaptive(bench: &Bench) -> Result<Verdict> {
    rtt(bench, utipc(Mode::Adaptive, Kind::Seqpacket), 64, 12.0)
}

pub(super) fn rtt_parked(bench: &Bench) -> Result<Verdict> {
    rtt(bench, utipc(Mode::Parked, Kind::Seqpacket), 64, 1.5)
}

pub(super) fn rtt_large(bench: &Bench) -> Result<Verdict> {
    rtt(bench, utipc(Mode::Adaptive, Kind::Seqpacket), 65_536, 2.5)
}

pub(super) fn open_loop(bench: &Bench) -> Result<Verdict> {
    let own = utipc(Mode::Adaptive, Kind::Seqpacket);
    let case = |variant| {
        let mut case = Case::new(Name::Latency, variant, 64);
        (case.rate, case.seconds) = (Some(REQUESTS), REQUEST_SECONDS);
        case
    };
    let runs = bench.compare(&bench.intra()?, vec![case(own), case(Variant::TCP)])?;
    let found = Comparison { runs };
    let rtt = |variant, part: fn(&Summary) -> f64| {
        found.of(variant).median(|run| run.measured.rtt().as_ref().map_or(f64::NAN, part))
    };
    let cpu = |variant| found.of(variant).median(|run| 1e3 * run.measured.cpu_s());
    let p50 = [rtt(own, |r| r.p50), rtt(Variant::TCP, |r| r.p50)];
    let p999 = [rtt(own, |r| r.p999), rtt(Variant::TCP, |r| r.p999)];
    let load = [cpu(own), cpu(Variant::TCP)];
    let met = p50[0] <= 0.7 * p50[1] && p999[0] <= p999[1] && load[0] <= load[1];
    let got = format!(
        "p50 {:.2} × ({:.1} µs, TCP {:.1}), p99.9 {:.2} × ({:.0} µs, TCP {:.0}), CPU {:.2} × ({:.0} ms, TCP {:.0})",
        p50[0] / p50[1],
        p50[0],
        p50[1],
        p999[0] / p999[1],
        p999[0],
        p999[1],
        load[0] / load[1],
        load[0],
        load[1]
    );
    Ok(Verdict::new(got, met))
}

pub(super) fn iceoryx(bench: &Bench) -> Result<Verdict> {
    if let Some(why) = transports::obstacle(Transport::Iceoryx2, Scope::Intra) {
        return Ok(Verdict::uncounted(format!("not measured: {why}")));
    }
    let own = utipc(Mode::Busy, Kind::Seqpacket);
    let other = Variant::new(Transport::Iceoryx2, Mode::Busy, Kind::Rdm);
    let found = Comparison::run(bench, &bench.intra()?, Name::Latency, 64, &[own, other])?;
    let (ours, its) = (found.p50(own), found.p50(other));
    Ok(Verdict::new(format!("{:.2} ×: {ours:.2} µs, iceoryx2 {its:.2} µs", ours / its), ours <= 2.5 * its))
}

pub(super) fn rate_small(bench: &Bench) -> Result<Verdict> {
    let [packets, datagrams] = [utipc(Mode::Adaptive, Kind::Seqpacket), utipc(Mode::Adaptive, Kind::Rdm)];
    let variants = [packets, datagrams, Variant::TCP, UNIX];
    let found = Comparison::run(bench, &bench.intra()?, Name::Throughput, 64, &variants)?;
    let (tcp, unix) = (found.rate(Variant::TCP), found.rate(UNIX));
    let least = found.rate(packets).min(found.rate(datagrams));
    let got = format!(
        "SEQPACKET {:.1} × TCP, {:.1} × Unix; RDM {:.1} ×, {:.1} ×: {:.2} and {:.2} M/s, TCP {:.2}, Unix {:.2}",
        found.rate(packets) / tcp,
        found.rate(packets) / unix,
        found.rate(datagrams) / tcp,
        found.rate(datagrams) / unix,
        found.rate(packets) / 1e6,
        found.rate(datagrams) / 1e6,
        tcp / 1e6,
        unix / 1e6
    );
    Ok(Verdict::new(got, least >= 20.0 * tcp && least >= 8.0 * unix))
}

/// "3.2 ×: 81.0 Gbit/s, TCP 25.2 Gbit/s"
fn gigabits(found: &Comparison, own: Variant, tcp: Variant) -> String {
    let bits = |variant| found.of(variant).median(Run::mbit_per_s) / 1e3;
    format!("{:.2} ×: {:.2} Gbit/s, TCP {:.2} Gbit/s", bits(own) / bits(tcp), bits(own), bits(tcp))
}

pub(super) fn throughput_large(bench: &Bench) -> Result<Verdict> {
    let own = utipc(Mode::Adaptive, Kind::Seqpacket);
    let found = Comparison::run(bench, &bench.intra()?, Name::Throughput, 65_536, &[own, Variant::TCP])?;
    Ok(Verdict::new(gigabits(&found, own, Variant::TCP), found.rate(own) >= 4.0 * found.rate(Variant::TCP)))
}

pub(super) fn multicast(bench: &Bench) -> Result<Verdict> {
    let own = utipc(Mode::Adaptive, Kind::Rdm);
    let case = |variant| Case { servers: 8, ..Case::new(Name::Multicast, variant, 256) };
    let runs = bench.compare(&bench.intra()?, vec![case(own), case(Variant::TCP)])?;
    let found = Comparison { runs };
    let (ours, tcp) = (found.rate(own), found.rate(Variant::TCP));
    let got = format!("{:.1} ×: {:.2} M/s, TCP {:.2} M/s", ours / tcp, ours / 1e6, tcp / 1e6);
    Ok(Verdict::new(got, ours >= 8.0 * tcp))
}

/// Round trips between nodes; all variants wait in the same mode.
fn inter_rtt(bench: &Bench, engine: Engine, mode: Mode, most: f64, most_udp: Option<f64>) -> Result<Verdict> {
    let own = utipc(mode, Kind::Seqpacket);
    let others = if mode == Mode::Busy { Mode::Busy } else { Mode::Blocking };
    let (tcp, udp) = (peer_of(Transport::Tcp, others), Variant { mode: others, ..UDP });
    let found = Comparison::run(bench, &Bench::inter(engine)?, Name::Latency, 64, &[own, tcp, udp])?;
    let (ours, tcp_us, udp_us) = (found.p50(own), found.p50(tcp), found.p50(udp));
    let got = format!(
        "{:.2} × TCP, {:.2} × UDP: {ours:.1} µs, TCP {tcp_us:.1}, UDP {udp_us:.1}",
        ours / tcp_us,
        ours / udp_us
    );
    let met = ours <= most * tcp_us && most_udp.is_none_or(|most| ours <= most * udp_us);
    Ok(found.if_steady(tcp, Verdict::new(got, met)))
}

pub(super) fn inter_rtt_busy(bench: &Bench) -> Result<Verdict> {
    inter_rtt(bench, Engine::Embedded, Mode::Busy, 0.85, None)
}

pub(super) fn inter_rtt_blocking(bench: &Bench) -> Result<Verdict> {
    inter_rtt(bench, Engine::Embedded, Mode::Parked, 1.0, Some(1.15))
}

pub(super) fn inter_rtt_daemon(bench: &Bench) -> Result<Verdict> {
    if !has_daemon() {
        return Ok(no_daemon());
    }
    inter_rtt(bench, Engine::Daemon, Mode::Adaptive, 1.3, None)
}

fn inter_stream(bench: &Bench, place: &Place, least: f64) -> Result<Verdict> {
    let own = utipc(Mode::Adaptive, Kind::Stream);
    let found = Comparison::run(bench, place, Name::Throughput, 65_536, &[own, Variant::TCP])?;
    let met = found.rate(own) >= least * found.rate(Variant::TCP);
    Ok(found.if_steady(Variant::TCP, Verdict::new(gigabits(&found, own, Variant::TCP), met)))
}

pub(super) fn inter_throughput(bench: &Bench) -> Result<Verdict> {
    inter_stream(bench, &Bench::inter(Engine::Embedded)?, 1.2)
}

pub(super) fn inter_throughput_daemon(bench: &Bench) -> Result<Verdict> {
    if !has_daemon() {
        return Ok(no_daemon());
    }
    inter_stream(bench, &Bench::inter(Engine::Daemon)?, 0.8)
}

pub(super) fn inter_no_offloads(bench: &Bench) -> Result<Verdict> {
    let place = Bench::inter(Engine::Embedded)?;
    place.offloads_off(&run::job(Test::OffloadsOff, Variant::TCP, 1))?;
    inter_stream(bench, &place, 0.9)
}

pub(super) fn inter_rate_small(bench: &Bench) -> Result<Verdict> {
    let own = utipc(Mode::Adaptive, Kind::Seqpacket);
    let place = Bench::inter(Engine::Embedded)?;
    let found = Comparison::run(bench, &place, Name::Throughput, 64, &[own, Variant::TCP, NAGLE])?;
    let (ours, tcp, nagle) = (found.rate(own), found.rate(Variant::TCP), found.rate(NAGLE));
    let got = format!(
        "{:.2} × TCP, {:.2} × with Nagle: {:.2} M/s, TCP {:.2}, Nagle {:.2}",
        ours / tcp,
        ours / nagle,
        ours / 1e6,
        tcp / 1e6,
        nagle / 1e6
    );
    Ok(found.if_steady(Variant::TCP, Verdict::new(got, ours >= 3.0 * tcp && ours >= nagle)))
}

pub(super) fn stream_sizes(bench: &Bench) -> Result<Verdict> {
    let place = Bench::inter(Engine::Embedded)?;
    let own = utipc(Mode::Adaptive, Kind::Stream);
    let fragment = fragment(&place)?;
    let (mut least, mut worst) = (f64::INFINITY, 0);
    let largest = own.transport.largest();
    for k in (1..=FRAGMENTS).filter(|k| whole(*k, fragment) < largest) {
        let case = |size| Case::new(Name::Sizes, own, size);
        let full = whole(k, fragment);
        let runs = bench.compare(&place, vec![case(full), case(full + 1)])?;
        let rate = |size| {
            let runs = runs.iter().filter(|run| run.case.size == size).collect();
            Group { runs }.median(Run::mbit_per_s)
        };
        let ratio = rate(full + 1) / rate(full);
        if ratio < least {
            (least, worst) = (ratio, k);
        }
    }
    ensure!(least.is_finite(), "no write of whole fragments of {fragment} bytes fits a message");
    Ok(Verdict::new(
        format!("at least {least:.3} × (k = {worst}, {fragment} bytes a fragment)"),
        least >= 0.95,
    ))
}

/// Bytes of a message in a fragment on the link between the two ends of `place`.
pub(in super::super) fn fragment(place: &Place) -> Result<u32> {
    let own = if place.engine() == Engine::Kernel { Transport::KernelTipc } else { Transport::Utipc };
    let job = run::job(Test::LinkMtu, Variant::new(own, Mode::Parked, Kind::Stream), 1);
    let mut server = place.start(&Job { role: Role::Serve, ..job.clone() })?;
    server.wait_ready()?;
    let mut client = place.start(&job)?;
    client.wait_ready()?;
    client.go()?;
    let mtu = client.finish()?.single_value()? as u32;
    ensure!(mtu > BESIDE_FRAGMENT, "a link with packets of {mtu} bytes is too small (use --fragment)");
    Ok(mtu - BESIDE_FRAGMENT)
}

fn load(bench: &Bench, place: &Place) -> Result<(Comparison, f64)> {
    let own = utipc(Mode::Adaptive, Kind::Seqpacket);
    let (bits, size, seconds) = LOAD;
    let case = |variant| Case {
        rate: Some(bits / 8.0 / f64::from(size)),
        seconds,
        ..Case::new(Name::Cpu, variant, size)
    };
    let runs = bench.compare(place, vec![case(own), case(Variant::TCP)])?;
    let found = Comparison { runs };
    let cpu = |variant| found.of(variant).median(|run| run.measured.cpu_s());
    let ratio = cpu(own) / cpu(Variant::TCP);
    Ok((found, ratio))
}

/// "0.55 ×: 3.1 % of a core (1.0 tx, 1.1 rx, 1.0 daemon), TCP 5.6 %"
fn load_text(found: &Comparison, ratio: f64) -> String {
    let own = utipc(Mode::Adaptive, Kind::Seqpacket);
    let share =
        |variant, part: fn(&Run) -> f64| found.of(variant).median(|run| 100.0 * part(run) / run.elapsed_s());
    format!(
        "{ratio:.2} ×: {:.1} % of a core ({:.1} tx, {:.1} rx, {:.1} daemon), TCP {:.1} %",
        share(own, |run| run.measured.cpu_s()),
        share(own, |run| run.measured.client.cpu_s),
        share(own, |run| run.measured.server.cpu_s),
        share(own, |run| run.measured.daemons_cpu_s),
        share(Variant::TCP, |run| run.measured.cpu_s())
    )
}

pub(super) fn cpu(bench: &Bench) -> Result<Verdict> {
    let (found, ratio) = load(bench, &bench.intra()?)?;
    Ok(Verdict::new(load_text(&found, ratio), ratio <= 0.6))
}

pub(super) fn cpu_inter(bench: &Bench) -> Result<Verdict> {
    let (found, ratio) = load(bench, &Bench::inter(Engine::Embedded)?)?;
    Ok(Verdict::uncounted(load_text(&found, ratio)))
}
