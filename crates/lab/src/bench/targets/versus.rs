//! Rows that compare utipc with other transports in the same place and run, as data.

use anyhow::Result;
use utipc_bench_kit::Verdict;

use super::super::place::Place;
use super::super::run::{Case, Name, Run};
use super::super::table::speed;
use super::super::transports;
use super::super::variant::{Engine, Kind, Mode, Scope, Transport, Variant};
use super::Bench;
use super::relative::Comparison;

/// Receivers of a multicast.
const RECEIVERS: u32 = 8;
/// Message size from which rates are in bits.
const LARGE: u32 = 65_536;
/// Above this spread of the rounds of TCP, a comparison between nodes is not valid, percent.
const STEADY: f64 = 10.0;

/// The ends of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ends {
    /// On this host, with the engine that the options name.
    Intra,
    /// On this host, with embedded nodes.
    Host,
    /// Between two network namespaces.
    Inter(Engine),
    /// The same with embedded nodes and without offloads.
    NoOffloads,
}

/// How fast utipc has to be beside another variant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// At least so many times as fast.
    Times(f64),
    /// Its time is at most so many times the other's.
    AtMost(f64),
    /// Any: the other one is only reported.
    Any,
}

/// A comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct Versus {
    pub(super) ends: Ends,
    pub(super) name: Name,
    pub(super) size: u32,
    /// Variants of utipc, each of which has to keep the limits.
    pub(super) ours: &'static [Variant],
    pub(super) others: &'static [(Variant, Limit)],
}

const fn utipc(mode: Mode, kind: Kind) -> Variant {
    Variant::new(Transport::Utipc, mode, kind)
}

const fn encrypted(clear: Variant) -> Variant {
    Variant { transport: Transport::UtipcEncrypted, ..clear }
}

pub(super) const OWN: Variant = utipc(Mode::Adaptive, Kind::Seqpacket);
pub(super) const OWN_BUSY: Variant = utipc(Mode::Busy, Kind::Seqpacket);
pub(super) const OWN_PARKED: Variant = utipc(Mode::Parked, Kind::Seqpacket);
pub(super) const DATAGRAMS: Variant = utipc(Mode::Adaptive, Kind::Rdm);
pub(super) const STREAM: Variant = utipc(Mode::Adaptive, Kind::Stream);
pub(super) const MEMBERS: Variant = utipc(Mode::Adaptive, Kind::Group);
pub(super) const SEALED: Variant = encrypted(OWN);
pub(super) const SEALED_BUSY: Variant = encrypted(OWN_BUSY);
pub(super) const SEALED_STREAM: Variant = encrypted(STREAM);
pub(super) const TCP: Variant = Variant::TCP;
pub(super) const TCP_BUSY: Variant = Variant { mode: Mode::Busy, ..TCP };
pub(super) const NAGLE: Variant = Variant { transport: Transport::TcpNagle, ..TCP };
pub(super) const UNIX: Variant = Variant::new(Transport::Uds, Mode::Blocking, Kind::Seqpacket);
pub(super) const UDP: Variant = Variant::new(Transport::Udp, Mode::Blocking, Kind::Rdm);
pub(super) const UDP_BUSY: Variant = Variant { mode: Mode::Busy, ..UDP };
pub(super) const ICEORYX: Variant = Variant::new(Transport::Iceoryx2, Mode::Busy, Kind::Rdm);

impl Ends {
    fn place(self, bench: &Bench) -> Result<Place> {
        match self {
            Self::Intra => bench.intra(),
            Self::Host => Bench::host(),
            Self::Inter(engine) => Bench::inter(engine),
            Self::NoOffloads => {
                let place = Bench::inter(Engine::Embedded)?;
                place.offloads_off().map(|()| place)
            }
        }
    }
}

impl Versus {
    /// Measures all variants in turn.
    pub(super) fn measure(&self, bench: &Bench) -> Result<Verdict> {
        let place = self.ends.place(bench)?;
        let others = self.others.iter().map(|(variant, _)| variant);
        let variants: Vec<Variant> = self.ours.iter().chain(others).copied().collect();
        let obstacle =
            |variant: &Variant| transports::obstacle(variant.transport, place.scope(), place.engine());
        if let Some(why) = variants.iter().find_map(obstacle) {
            return Ok(Verdict::uncounted(format!("not measured: {why}")));
        }
        let servers = if self.name == Name::Multicast { RECEIVERS } else { 1 };
        let case = |variant| Case { servers, ..Case::new(self.name, variant, self.size) };
        let found = bench.compare(&place, variants.into_iter().map(case))?;
        let (mut got, mut met) = (Vec::new(), true);
        for own in self.ours {
            let ours = found.of(*own, speed).median;
            let mut ratios = Vec::new();
            for (other, limit) in self.others {
                let times = ours / found.of(*other, speed).median;
                let (ratio, keeps) = match *limit {
                    Limit::Times(least) => (times, times >= least),
                    Limit::AtMost(most) => (1.0 / times, 1.0 / times <= most),
                    Limit::Any => continue,
                };
                ratios.push(format!("{ratio:.2} × {}", name(other)));
                met &= keeps;
            }
            got.push(format!("{}: {}", ratios.join(", "), self.figures(&found, *own)));
        }
        got.extend(self.others.iter().map(|(other, _)| self.figures(&found, *other)));
        let got = got.join("; ");
        let tcp = self.others.iter().find(|(variant, _)| variant.transport == Transport::Tcp);
        let spread = tcp.filter(|_| place.scope() == Scope::Inter).map_or(0.0, |tcp| found.spread(tcp.0));
        if spread > STEADY {
            return Ok(Verdict::uncounted(format!("{got} (does not count: TCP's own spread)")));
        }
        Ok(Verdict::new(got, met))
    }

    /// "utipc seqpacket 8.02 M/s (spread 3 %)"
    fn figures(&self, found: &Comparison, variant: Variant) -> String {
        let median = |value: fn(&Run) -> f64| found.of(variant, value).median;
        let rate = median(|run| run.measured.messages_per_s());
        let figure = match self.name {
            Name::Latency => {
                let p99 = median(|run| run.measured.rtt().map_or(f64::NAN, |rtt| rtt.p99));
                format!("{:.2} µs, p99 {p99:.1}", median(Run::p50))
            }
            _ if self.size >= LARGE => format!("{:.2} Gbit/s", rate * f64::from(self.size) * 8.0 / 1e9),
            _ => format!("{:.2} M/s", rate / 1e6),
        };
        format!("{} {figure} (spread {:.0} %)", name(&variant), found.spread(variant))
    }
}

/// "busy tcp"
fn name(variant: &Variant) -> String {
    let busy = if variant.mode == Mode::Busy { "busy " } else { "" };
    format!("{busy}{}", variant.label())
}
