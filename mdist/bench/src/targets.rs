//! The targets, and whether they are met.

use serde::Serialize;
use utipc_bench_kit::table::grouped;
use utipc_bench_kit::{Named as _, Verdict};

use super::between::Between;
use super::images::{ImagesTest, WITHIN};
use super::latency::{LatencyTest, TARGET_RATES};
use super::stall::StallTest;
use super::throughput::Row;
use super::vendor::VendorPair;

/// One target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Target {
    pub(super) what: String,
    #[serde(rename = "target")]
    pub(super) wanted: String,
    #[serde(flatten)]
    pub(super) verdict: Verdict,
}

impl Target {
    /// A target with the figures and whether they meet it; `None`: there is no valid measurement.
    fn new(what: String, wanted: String, got: Option<(String, bool)>) -> Self {
        let verdict = got.map_or_else(|| Verdict::uncounted("failed"), |(got, met)| Verdict::new(got, met));
        Self { what, wanted, verdict }
    }
}

/// Output updates per second to 100 mounts.
const FAN_OUT: f64 = 6e6;
/// Updates per second of the whole chain for a minute.
const CHAIN: f64 = 1.2e6;
/// The highest rate with a mean latency of a millisecond.
const WITHIN_A_MILLISECOND: u64 = 850_000;
/// Largest mean and 99.9th percentile of the chain's latency, in multiples of the direct pair's.
const TIMES_DIRECT: [(&str, f64); 2] = [("mean", 1.7), ("p99.9", 1.5)];
/// Least share of the direct pair's rate through p2ps.
const RATE_THROUGH: f64 = 0.6;
/// Least share of the direct pair's rate with all images, through p2ps and through the chain.
const IMAGES_THROUGH: [(Between, f64); 2] = [(Between::P2ps, 0.9), (Between::Chain, 0.6)];
/// Delay at the other server while one is stopped for a second, milliseconds.
const DELAY_MS: f64 = 5.0;
/// Mean, p99 and p99.9 at each of [`TARGET_RATES`], microseconds.
const LATENCIES: [[Option<f64>; 3]; 2] =
    [[Some(100.0), Some(150.0), Some(250.0)], [Some(100.0), None, Some(430.0)]];

/// The targets of a row: of its cost and of its rate.
pub(super) fn of_row(row: &Row) -> Vec<Target> {
    let name = row.name();
    let mut targets = Vec::new();
    let mut add = |what, wanted, got| targets.push(Target::new(what, wanted, got));
    let measured = row.measured.as_ref().ok();
    if let Some(published) = row.published {
        let cost = measured.map(|measured| measured.cost().median);
        let got = cost.map(|ns| (format!("{ns:.0} ns"), ns <= published.goal_ns));
        add(
            format!("{name}: CPU of {} an output update", row.component),
            format!("≤ {:.0} ns", published.goal_ns),
            got,
        );
    }
    let top = measured.and_then(|measured| measured.top());
    if row.test == "T5" {
        let got = top.map(|top| (grouped(top.output), top.output >= FAN_OUT));
        add(format!("{name}: updates/s out"), format!("≥ {}", grouped(FAN_OUT)), got);
    }
    if row.test == "chain" {
        let got = top.map(|top| {
            let text = format!("{} for {:.0} s", grouped(top.output), top.cpu.elapsed.as_secs_f64());
            (text, top.output >= CHAIN)
        });
        add(format!("{name}: updates/s without loss"), format!("≥ {} for 60 s", grouped(CHAIN)), got);
    }
    targets
}

/// The targets of T8.
pub(super) fn of_latency(latency: &LatencyTest, pair: Option<&VendorPair>) -> Vec<Target> {
    let mut targets = Vec::new();
    for (rate, limits) in TARGET_RATES.into_iter().zip(LATENCIES) {
        let Some(point) = latency.points.iter().find(|point| point.rate == rate) else { continue };
        let name = format!("T8 {} at {}/s", latency.label(), grouped(rate as f64));
        let seen = point.summary();
        let values =
            [("mean", seen.map(|s| s.mean)), ("p99", seen.map(|s| s.p99)), ("p99.9", seen.map(|s| s.p999))];
        for ((which, value), limit) in values.into_iter().zip(limits) {
            let Some(limit) = limit else { continue };
            let got = value.map(|value| (format!("{value:.0} µs"), value <= limit));
            targets.push(Target::new(format!("{name}: {which}"), format!("≤ {limit:.0} µs"), got));
        }
        targets.extend(times_direct(&name, pair, rate, seen.map(|seen| (seen.mean, seen.p999))));
    }
    let searched = !matches!(latency.fastest, Ok(None));
    if searched {
        let highest = latency.highest();
        let got = highest.map_or("none".into(), |rate| grouped(rate as f64));
        targets.push(Target::new(
            format!("T8 {}: highest updates/s with mean ≤ 1 ms", latency.backbone.name()),
            format!("≥ {}", grouped(WITHIN_A_MILLISECOND as f64)),
            Some((got, highest >= Some(WITHIN_A_MILLISECOND))),
        ));
    }
    targets
}

/// The targets of the chain's latency (mean, p99.9) at a rate, relative to the direct pair's in the same run.
fn times_direct(name: &str, pair: Option<&VendorPair>, rate: u64, seen: Option<(f64, f64)>) -> Vec<Target> {
    let Some(pair) = pair else { return Vec::new() };
    let direct = [pair.mean_us(rate), pair.p999_us(rate)];
    let seen = [seen.map(|seen| seen.0), seen.map(|seen| seen.1)];
    let rows = TIMES_DIRECT.into_iter().zip(direct).zip(seen);
    rows.filter_map(|(((which, most), direct), seen)| {
        let direct = direct?;
        let what = format!("{name}: {which} ÷ the vendor's direct pair's ({direct:.0} µs)");
        let ratio = seen.map(|seen| seen / direct);
        let got = ratio.map(|ratio| (format!("{ratio:.2}"), ratio <= most));
        Some(Target::new(what, format!("≤ {most}"), got))
    })
    .collect()
}

/// The targets of a stopped server.
pub(super) fn of_stall(stall: &StallTest) -> [Target; 2] {
    let name = format!("stall {} at {}/s", stall.backbone.name(), grouped(stall.rate as f64));
    let delay = stall.delays().median;
    let faults = stall.faults();
    let got = if faults.is_empty() { "none".into() } else { faults.join(", ") };
    [
        Target::new(
            format!("{name}: delay at the other server"),
            format!("≤ {DELAY_MS:.0} ms"),
            Some((format!("{delay:.1} ms"), delay <= DELAY_MS)),
        ),
        Target::new(format!("{name}: lost or suspect"), "none".into(), Some((got, faults.is_empty()))),
    ]
}

/// The targets of the vendor's pair with our programs in between.
pub(super) fn of_pair(pair: &VendorPair) -> Vec<Target> {
    let got = pair.rates().map(|(direct, through)| {
        let ratio = through.median / direct.median;
        let text = format!("{ratio:.2} ({} of {})", grouped(through.median), grouped(direct.median));
        (text, ratio >= RATE_THROUGH)
    });
    let mut targets =
        vec![Target::new("sdk: updates/s through p2ps ÷ directly".into(), format!("≥ {RATE_THROUGH}"), got)];
    for rate in TARGET_RATES {
        let name = format!("sdk: the chain at {}/s", grouped(rate as f64));
        targets.extend(times_direct(&name, Some(pair), rate, pair.through_chain_us(rate)));
    }
    targets
}

/// The targets of images under full load.
pub(super) fn of_images(test: &ImagesTest) -> Vec<Target> {
    let chain = test.paths.iter().find(|path| path.between == Between::Chain);
    let got = chain
        .and_then(|path| path.seconds())
        .map(|seconds| (format!("{:.1} s", seconds.median), seconds.median <= WITHIN.as_secs_f64()));
    let what = format!("images: {} at {}/s", grouped(test.items as f64), grouped(test.rate as f64));
    let what = format!("{what} {}", Between::Chain.name());
    let mut targets = vec![Target::new(what, format!("≤ {} s", WITHIN.as_secs()), got)];
    if test.paths.iter().any(|path| !path.highest.is_empty()) {
        targets.extend(IMAGES_THROUGH.into_iter().map(|(between, least)| {
            let got = test.share(between).map(|share| (format!("{share:.2}"), share >= least));
            let what = format!("images: highest rate {} ÷ directly", between.name());
            Target::new(what, format!("≥ {least}"), got)
        }));
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::super::place::Backbone;
    use super::*;

    #[test]
    fn failed_row_meets_no_target() {
        let row = Row {
            test: "T5",
            component: "p2ps",
            backbone: Backbone::Lanes,
            cache: false,
            is_extra: false,
            mounts: 100,
            published: super::super::report::THROUGHPUT.iter().find(|row| row.test == "T5").copied(),
            measured: Err("p2ps ended".into()),
        };
        let targets = of_row(&row);
        assert_eq!(targets.len(), 2);
        assert!(targets.iter().all(|target| target.verdict == Verdict::uncounted("failed")));
        assert_eq!(of_pair(&VendorPair::default())[0].verdict.met, None);
    }
}
