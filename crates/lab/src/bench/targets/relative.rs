//! Rows that compare utipc with other transports in the same run, and need more than one comparison of speeds.

use anyhow::{Result, ensure};
use utipc_bench_kit::stats::{Spread, Summary, median};
use utipc_bench_kit::{Verdict, in_turn};

use super::super::job::{Job, Test};
use super::super::options::{BESIDE_FRAGMENT, FRAGMENTS, whole};
use super::super::place::Place;
use super::super::run::{Case, Name, Run};
use super::super::table::speed;
use super::super::variant::{Engine, Kind, Mode, Transport, Variant};
use super::Bench;
use super::versus::{DATAGRAMS, OWN, STREAM, TCP};

/// Requests per second of the open loop.
const REQUESTS: f64 = 1000.0;
/// Duration of its rounds, seconds: enough for a p99.9.
const REQUEST_SECONDS: f64 = 5.0;
/// Receivers of anycasts.
const RECEIVERS: u32 = 4;
/// Bits per second, size and seconds of the constant load.
const LOAD: (f64, u32, f64) = (25e6, 1024, 2.0);

/// The runs of a row.
pub(super) struct Comparison(pub(super) Vec<Run>);

impl Comparison {
    /// Median and spread of a figure of the rounds of a variant.
    pub(super) fn of(&self, variant: Variant, value: impl Fn(&Run) -> f64) -> Spread {
        self.0.iter().filter(|run| run.case.variant == variant).map(value).collect()
    }

    fn rate(&self, variant: Variant) -> f64 {
        self.of(variant, |run| run.measured.messages_per_s()).median
    }

    /// Spread of the rounds of a variant, percent.
    pub(super) fn spread(&self, variant: Variant) -> f64 {
        100.0 * self.of(variant, speed).spread
    }
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

/// Messages to a service with several receivers, to a service with one receiver, and in turn on TCP connections.
pub(super) fn anycast(bench: &Bench) -> Result<Verdict> {
    let place = bench.intra()?;
    let milliseconds = bench.repetitions((1e3 * bench.seconds) as u64);
    let rate = |servers| -> Result<f64> {
        let job = Job { servers, messages: milliseconds, ..Job::new(Test::Anycast, DATAGRAMS, 64) };
        place.run(&job)?.single_value()
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
    let mtu = place.run(&job)?.single_value()? as u32;
    ensure!(mtu > BESIDE_FRAGMENT, "a link with packets of {mtu} bytes is too small (use --fragment)");
    Ok(mtu - BESIDE_FRAGMENT)
}

/// CPU time of a constant load, at most `most` × TCP's: "0.55 ×: 3.1 % of a core (1.0 tx, 1.1 rx, 1.0 daemon), TCP
/// 5.6 %".
pub(super) fn load(bench: &Bench, place: &Place, most: Option<f64>) -> Result<Verdict> {
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
    Ok(Verdict { got: text, met: most.map(|most| ratio <= most) })
}
