//! Rows that compare utipc with other transports in the same run.

use anyhow::{Result, ensure};
use utipc_bench_kit::stats::{Spread, Summary, median};
use utipc_bench_kit::{Verdict, in_turn};

use super::super::job::{Job, Role, Test};
use super::super::options::{BESIDE_FRAGMENT, FRAGMENTS, whole};
use super::super::place::{Peer, Place};
use super::super::run::{Case, Name, Run};
use super::super::table::speed;
use super::super::transports;
use super::super::variant::{Engine, Kind, Mode, Scope, Transport, Variant};
use super::Bench;

/// Above this spread of the rounds of TCP, a comparison between nodes is not valid.
const STEADY: f64 = 0.10;
/// Requests per second of the open loop.
const REQUESTS: f64 = 1000.0;
/// Duration of its rounds, seconds: enough for a p99.9.
const REQUEST_SECONDS: f64 = 5.0;
/// Receivers of anycasts.
const RECEIVERS: u32 = 4;
/// Bits per second, size and seconds of the constant load.
const LOAD: (f64, u32, f64) = (25e6, 1024, 2.0);

const fn utipc(mode: Mode, kind: Kind) -> Variant {
    Variant::new(Transport::Utipc, mode, kind)
}

const OWN: Variant = utipc(Mode::Adaptive, Kind::Seqpacket);
const DATAGRAMS: Variant = utipc(Mode::Adaptive, Kind::Rdm);
const STREAM: Variant = utipc(Mode::Adaptive, Kind::Stream);
const MEMBERS: Variant = utipc(Mode::Adaptive, Kind::Group);
const TCP: Variant = Variant::TCP;
const TCP_BUSY: Variant = Variant { mode: Mode::Busy, ..TCP };
const NAGLE: Variant = Variant { transport: Transport::TcpNagle, ..TCP };
const UNIX: Variant = Variant::new(Transport::Uds, Mode::Blocking, Kind::Seqpacket);

const fn encrypted(clear: Variant) -> Variant {
    Variant { transport: Transport::UtipcEncrypted, ..clear }
}

/// The runs of a row.
pub(super) struct Comparison(pub(super) Vec<Run>);

impl Comparison {
    fn run(bench: &Bench, place: &Place, name: Name, size: u32, variants: &[Variant]) -> Result<Self> {
        bench.compare(place, variants.iter().map(|variant| Case::new(name, *variant, size)))
    }

    /// Median and spread of a figure of the rounds of a variant.
    fn of(&self, variant: Variant, value: impl Fn(&Run) -> f64) -> Spread {
        self.0.iter().filter(|run| run.case.variant == variant).map(value).collect()
    }

    fn p50(&self, variant: Variant) -> f64 {
        self.of(variant, Run::p50).median
    }

    fn rate(&self, variant: Variant) -> f64 {
        self.of(variant, |run| run.measured.messages_per_s()).median
    }

    /// Spread of the rounds of a variant, percent.
    fn spread(&self, variant: Variant) -> f64 {
        100.0 * self.of(variant, speed).spread
    }

    /// The verdict, which counts only if the rounds of TCP were steady.
    fn if_steady(&self, tcp: Variant, got: String, met: bool) -> Verdict {
        let spread = self.spread(tcp);
        if spread <= 100.0 * STEADY {
            return Verdict::new(got, met);
        }
        Verdict::uncounted(format!("{got} (does not count: TCP's own spread is {spread:.0} %)"))
    }

    /// "3.2 ×: 81.0 Gbit/s, TCP 25.2 Gbit/s"
    fn gigabits(&self, own: Variant) -> String {
        let [ours, tcp] = [own, TCP].map(|variant| self.of(variant, Run::mbit_per_s).median / 1e3);
        format!("{:.2} ×: {ours:.2} Gbit/s, TCP {tcp:.2} Gbit/s", ours / tcp)
    }
}

/// Round trips on this host, `times` as fast as blocking TCP.
pub(super) fn rtt(bench: &Bench, place: &Place, mode: Mode, size: u32, times: f64) -> Result<Verdict> {
    let own = utipc(mode, Kind::Seqpacket);
    let found = Comparison::run(bench, place, Name::Latency, size, &[own, TCP, TCP_BUSY])?;
    let [ours, tcp, busy] = [own, TCP, TCP_BUSY].map(|variant| found.p50(variant));
    let p99 = found.of(own, |run| run.measured.rtt().as_ref().map_or(f64::NAN, |rtt| rtt.p99)).median;
    let got = format!(
        "{:.1} ×: {ours:.2} µs (p99 {p99:.1}), TCP {tcp:.1} µs (busy {busy:.1} µs); spread {:.0} %, TCP {:.0} %",
        tcp / ours,
        found.spread(own),
        found.spread(TCP)
    );
    Ok(Verdict::new(got, tcp / ours >= times))
}

/// Messages per second between two embedded nodes of this host.
pub(super) fn host_rate(bench: &Bench) -> Result<Verdict> {
    let found = Comparison::run(bench, &Bench::host()?, Name::Throughput, 64, &[OWN, TCP])?;
    let [ours, tcp] = [OWN, TCP].map(|variant| found.rate(variant) / 1e6);
    Ok(Verdict::new(format!("{:.1} ×: {ours:.2} M/s, TCP {tcp:.2} M/s", ours / tcp), ours >= 8.0 * tcp))
}

pub(super) fn open_loop(bench: &Bench) -> Result<Verdict> {
    let case = |variant| Case {
        rate: Some(REQUESTS),
        seconds: REQUEST_SECONDS,
        ..Case::new(Name::Latency, variant, 64)
    };
    let found = bench.compare(&bench.intra()?, [OWN, TCP].map(case))?;
    let rtt = |part: fn(&Summary) -> f64| {
        let part = move |run: &Run| run.measured.rtt().as_ref().map_or(f64::NAN, part);
        [OWN, TCP].map(|variant| found.of(variant, part).median)
    };
    let [[p50, tcp_p50], [p999, tcp_p999]] = [rtt(|rtt| rtt.p50), rtt(|rtt| rtt.p999)];
    let [cpu, tcp_cpu] = [OWN, TCP].map(|variant| found.of(variant, |run| 1e3 * run.measured.cpu_s()).median);
    let got = format!(
        "p50 {:.2} × ({p50:.1} µs, TCP {tcp_p50:.1}), p99.9 {:.2} × ({p999:.0} µs, TCP {tcp_p999:.0}), \
         CPU {:.2} × ({cpu:.0} ms, TCP {tcp_cpu:.0})",
        p50 / tcp_p50,
        p999 / tcp_p999,
        cpu / tcp_cpu
    );
    Ok(Verdict::new(got, p50 <= 0.7 * tcp_p50 && p999 <= tcp_p999 && cpu <= tcp_cpu))
}

pub(super) fn iceoryx(bench: &Bench) -> Result<Verdict> {
    if let Some(why) = transports::obstacle(Transport::Iceoryx2, Scope::Intra, bench.engine) {
        return Ok(Verdict::uncounted(format!("not measured: {why}")));
    }
    let variants =
        [utipc(Mode::Busy, Kind::Seqpacket), Variant::new(Transport::Iceoryx2, Mode::Busy, Kind::Rdm)];
    let found = Comparison::run(bench, &bench.intra()?, Name::Latency, 64, &variants)?;
    let [ours, its] = variants.map(|variant| found.p50(variant));
    Ok(Verdict::new(format!("{:.2} ×: {ours:.2} µs, iceoryx2 {its:.2} µs", ours / its), ours <= 2.5 * its))
}

pub(super) fn rate_small(bench: &Bench) -> Result<Verdict> {
    let variants = [OWN, DATAGRAMS, TCP, UNIX];
    let found = Comparison::run(bench, &bench.intra()?, Name::Throughput, 64, &variants)?;
    let [packets, datagrams, tcp, unix] = variants.map(|variant| found.rate(variant) / 1e6);
    let got = format!(
        "SEQPACKET {:.1} × TCP, {:.1} × Unix; RDM {:.1} ×, {:.1} ×: {packets:.2} and {datagrams:.2} M/s, \
         TCP {tcp:.2}, Unix {unix:.2}",
        packets / tcp,
        packets / unix,
        datagrams / tcp,
        datagrams / unix
    );
    let least = packets.min(datagrams);
    Ok(Verdict::new(got, least >= 20.0 * tcp && least >= 8.0 * unix))
}

pub(super) fn throughput_large(bench: &Bench) -> Result<Verdict> {
    let found = Comparison::run(bench, &bench.intra()?, Name::Throughput, 65_536, &[OWN, TCP])?;
    Ok(Verdict::new(found.gigabits(OWN), found.rate(OWN) >= 4.0 * found.rate(TCP)))
}

pub(super) fn multicast(bench: &Bench) -> Result<Verdict> {
    let variants = [DATAGRAMS, TCP];
    let case = |variant| Case { servers: 8, ..Case::new(Name::Multicast, variant, 256) };
    let found = bench.compare(&bench.intra()?, variants.map(case))?;
    let [ours, tcp] = variants.map(|variant| found.rate(variant) / 1e6);
    Ok(Verdict::new(format!("{:.1} ×: {ours:.2} M/s, TCP {tcp:.2} M/s", ours / tcp), ours >= 8.0 * tcp))
}

/// Messages of a group to all its members, and plain multicasts.
pub(super) fn group(bench: &Bench) -> Result<Verdict> {
    let variants = [MEMBERS, DATAGRAMS];
    let case = |variant| Case { servers: 8, ..Case::new(Name::Multicast, variant, 256) };
    let found = bench.compare(&bench.intra()?, variants.map(case))?;
    let [group, plain] = variants.map(|variant| found.rate(variant) / 1e6);
    let got = format!("{:.2} ×: {group:.2} M/s, multicast {plain:.2} M/s", group / plain);
    Ok(Verdict::new(got, group >= 0.8 * plain))
}

/// Messages to a service with several receivers, to a service with one receiver, and in turn on TCP connections.
pub(super) fn anycast(bench: &Bench) -> Result<Verdict> {
    let place = bench.intra()?;
    let milliseconds = bench.repetitions((1e3 * bench.seconds) as u64);
    let rate = |servers| -> Result<f64> {
        let job = Job { servers, messages: milliseconds, ..Job::new(Test::Anycast, DATAGRAMS, 64) };
        let start = |index| place.ready(&Job { role: Role::Serve, index, ..job.clone() });
        let _servers = (0..servers).map(start).collect::<Result<Vec<Peer>>>()?;
        let mut sender = place.ready(&job)?;
        sender.go()?;
        sender.finish()?.single_value()
    };
    let mut rates = [(RECEIVERS, Vec::new()), (1, Vec::new())];
    in_turn(bench.rounds, &mut rates, |_, (servers, rates)| {
        rates.push(rate(*servers)? / 1e6);
        Ok(())
    })?;
    let [many, one] = rates.map(|(_, rates)| median(rates));
    // The sender of a multicast by TCP writes into its connections in turn.
    let case = Case { servers: RECEIVERS, ..Case::new(Name::Multicast, TCP, 64) };
    let tcp = bench.compare(&place, [case])?.rate(TCP) / 1e6;
    let got = format!("{:.1} ×: {many:.2} M/s, TCP {tcp:.2} M/s (to one receiver {one:.2} M/s)", many / tcp);
    Ok(Verdict::new(got, many >= 2.0 * tcp))
}

/// Round trips between nodes, at most `most` × TCP's; all variants wait in the same mode.
pub(super) fn inter_rtt(
    bench: &Bench,
    engine: Engine,
    mode: Mode,
    most: f64,
    most_udp: Option<f64>,
) -> Result<Verdict> {
    let own = utipc(mode, Kind::Seqpacket);
    let others = if mode == Mode::Busy { Mode::Busy } else { Mode::Blocking };
    let tcp = Variant { mode: others, ..TCP };
    let variants = [own, tcp, Variant::new(Transport::Udp, others, Kind::Rdm)];
    let found = Comparison::run(bench, &Bench::inter(engine)?, Name::Latency, 64, &variants)?;
    let [ours, tcp_us, udp_us] = variants.map(|variant| found.p50(variant));
    let got = format!(
        "{:.2} × TCP, {:.2} × UDP: {ours:.1} µs, TCP {tcp_us:.1}, UDP {udp_us:.1}",
        ours / tcp_us,
        ours / udp_us
    );
    let met = ours <= most * tcp_us && most_udp.is_none_or(|most| ours <= most * udp_us);
    Ok(found.if_steady(tcp, got, met))
}

/// Bytes per second between nodes, at least `least` × TCP's.
pub(super) fn inter_stream(bench: &Bench, place: &Place, least: f64) -> Result<Verdict> {
    let found = Comparison::run(bench, place, Name::Throughput, 65_536, &[STREAM, TCP])?;
    Ok(found.if_steady(TCP, found.gigabits(STREAM), found.rate(STREAM) >= least * found.rate(TCP)))
}

/// Encrypted streams between nodes, and the same in clear text.
pub(super) fn encrypted_stream(bench: &Bench) -> Result<Verdict> {
    let variants = [encrypted(STREAM), STREAM];
    let place = Bench::inter(Engine::Embedded)?;
    let found = Comparison::run(bench, &place, Name::Throughput, 65_536, &variants)?;
    let [sealed, clear] = variants.map(|variant| found.of(variant, Run::mbit_per_s).median / 1e3);
    let got = format!("{:.2} ×: {sealed:.2} Gbit/s, clear {clear:.2} Gbit/s", sealed / clear);
    Ok(Verdict::new(got, sealed >= 0.6 * clear))
}

/// Encrypted round trips between nodes that wait in `mode`, and the same in clear text.
pub(super) fn encrypted_rtt(bench: &Bench, mode: Mode) -> Result<Verdict> {
    let clear = utipc(mode, Kind::Seqpacket);
    let variants = [encrypted(clear), clear];
    let found = Comparison::run(bench, &Bench::inter(Engine::Embedded)?, Name::Latency, 64, &variants)?;
    let [sealed, clear] = variants.map(|variant| found.p50(variant));
    let got = format!("{:.2} ×: {sealed:.1} µs, clear {clear:.1} µs", sealed / clear);
    Ok(Verdict::new(got, sealed <= 1.2 * clear))
}

pub(super) fn inter_no_offloads(bench: &Bench) -> Result<Verdict> {
    let place = Bench::inter(Engine::Embedded)?;
    place.offloads_off()?;
    inter_stream(bench, &place, 0.9)
}

pub(super) fn inter_rate_small(bench: &Bench) -> Result<Verdict> {
    let variants = [OWN, TCP, NAGLE];
    let place = Bench::inter(Engine::Embedded)?;
    let found = Comparison::run(bench, &place, Name::Throughput, 64, &variants)?;
    let [ours, tcp, nagle] = variants.map(|variant| found.rate(variant) / 1e6);
    let got = format!(
        "{:.2} × TCP, {:.2} × with Nagle: {ours:.2} M/s, TCP {tcp:.2}, Nagle {nagle:.2}",
        ours / tcp,
        ours / nagle
    );
    Ok(found.if_steady(TCP, got, ours >= 3.0 * tcp && ours >= nagle))
}

pub(super) fn stream_sizes(bench: &Bench) -> Result<Verdict> {
    let place = Bench::inter(Engine::Embedded)?;
    let fragment = fragment(&place)?;
    let (mut least, mut worst) = (f64::INFINITY, 0);
    for k in (1..=FRAGMENTS).filter(|k| whole(*k, fragment) < STREAM.transport.largest()) {
        let sizes = [whole(k, fragment), whole(k, fragment) + 1];
        let found = bench.compare(&place, sizes.map(|size| Case::new(Name::Sizes, STREAM, size)))?;
        let rate = |size| {
            let runs = found.0.iter().filter(|run| run.case.size == size);
            runs.map(Run::mbit_per_s).collect::<Spread>().median
        };
        let ratio = rate(sizes[1]) / rate(sizes[0]);
        if ratio < least {
            (least, worst) = (ratio, k);
        }
    }
    ensure!(least.is_finite(), "no write of whole fragments of {fragment} bytes fits a message");
    let got = format!("at least {least:.3} × (k = {worst}, {fragment} bytes a fragment)");
    Ok(Verdict::new(got, least >= 0.95))
}

/// Bytes of a message in a fragment on the link between the two ends of `place`.
pub(in super::super) fn fragment(place: &Place) -> Result<u32> {
    let own = if place.engine() == Engine::Kernel { Transport::KernelTipc } else { Transport::Utipc };
    let job = Job::new(Test::Link, Variant::new(own, Mode::Parked, Kind::Stream), 1);
    let mtu = place.pair(&job)?.single_value()? as u32;
    ensure!(mtu > BESIDE_FRAGMENT, "a link with packets of {mtu} bytes is too small (use --fragment)");
    Ok(mtu - BESIDE_FRAGMENT)
}

/// CPU time of a constant load: "0.55 ×: 3.1 % of a core (1.0 tx, 1.1 rx, 1.0 daemon), TCP 5.6 %", and the ratio.
pub(super) fn load(bench: &Bench, place: &Place) -> Result<(String, f64)> {
    let (bits, size, seconds) = LOAD;
    let rate = Some(bits / 8.0 / f64::from(size));
    let case = |variant| Case { rate, seconds, ..Case::new(Name::Cpu, variant, size) };
    let found = bench.compare(place, [OWN, TCP].map(case))?;
    let share =
        |variant, part: fn(&Run) -> f64| found.of(variant, |run| 100.0 * part(run) / run.elapsed_s()).median;
    let cpu = |variant| found.of(variant, |run| run.measured.cpu_s()).median;
    let ratio = cpu(OWN) / cpu(TCP);
    let text = format!(
        "{ratio:.2} ×: {:.1} % of a core ({:.1} tx, {:.1} rx, {:.1} daemon), TCP {:.1} %",
        share(OWN, |run| run.measured.cpu_s()),
        share(OWN, |run| run.measured.client.cpu_s),
        share(OWN, |run| run.measured.server.cpu_s),
        share(OWN, |run| run.measured.daemons_cpu_s),
        share(TCP, |run| run.measured.cpu_s())
    );
    Ok((text, ratio))
}
