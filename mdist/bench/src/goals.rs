//! The targets, and whether they were met.

use serde_json::{Value, json};

use super::latency::{GOAL_RATES, Latency};
use super::stock::Pair;
use super::throughput::Row;

/// One target.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Goal {
    pub(super) what: String,
    pub(super) wanted: String,
    pub(super) got: String,
    /// `None`: it was not measured, or what was measured is worth nothing.
    pub(super) met: Option<bool>,
}

/// Output updates a second that 100 mounts should have.
const FAN_OUT: f64 = 6e6;
/// What the whole chain should keep for a minute.
const CHAIN: f64 = 1.2e6;
/// What the highest rate with a mean of a millisecond should be.
const WITHIN_A_MILLISECOND: u64 = 850_000;
/// How many times the direct pair's mean the chain's may be, and which part of its rate p2ps should keep.
const TIMES_DIRECT: f64 = 3.0;
const RATE_THROUGH: f64 = 0.6;
/// At each of the rates: mean, p99, p99.9, microseconds.
const LATENCIES: [[Option<f64>; 3]; 2] =
    [[Some(100.0), Some(150.0), Some(250.0)], [Some(100.0), None, Some(430.0)]];

/// A number with its thousands apart.
pub(super) fn grouped(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |rest| ("-", rest));
    let count = digits.len();
    let mut text = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (count - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The target of a row's cost, and of its rate if it has one.
pub(super) fn of_row(row: &Row) -> Vec<Goal> {
    let name = format!("{} {}", row.test, row.backbone);
    let mut goals = Vec::new();
    let mut add = |what: String, wanted: String, got: Option<(String, bool)>| {
        let (got, met) = got.map_or(("failed".into(), None), |(got, met)| (got, Some(met)));
        goals.push(Goal { what, wanted, got, met });
    };
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
    goals
}

/// The targets of T8.
pub(super) fn of_latency(latency: &Latency, pair: Option<&Pair>) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (rate, limits) in GOAL_RATES.into_iter().zip(LATENCIES) {
        let Some(point) = latency.points.iter().find(|point| point.rate == rate) else { continue };
        let name = format!("T8 {} at {}/s", latency.label(), grouped(rate as f64));
        let seen = point.summary();
        let values =
            [("mean", seen.map(|s| s.mean)), ("p99", seen.map(|s| s.p99)), ("p99.9", seen.map(|s| s.p999))];
        for ((which, value), limit) in values.into_iter().zip(limits) {
            let Some(limit) = limit else { continue };
            goals.push(Goal {
                what: format!("{name}: {which}"),
                wanted: format!("≤ {limit:.0} µs"),
                got: value.map_or("failed".into(), |value| format!("{value:.0} µs")),
                met: value.map(|value| value <= limit),
            });
        }
        if let Some(direct) = pair.and_then(|pair| pair.mean_us(rate)) {
            let ratio = seen.map(|seen| seen.mean / direct);
            goals.push(Goal {
                what: format!("{name}: mean ÷ the vendor's direct pair's ({direct:.0} µs)"),
                wanted: format!("≤ {TIMES_DIRECT:.0}"),
                got: ratio.map_or("failed".into(), |ratio| format!("{ratio:.2}")),
                met: ratio.map(|ratio| ratio <= TIMES_DIRECT),
            });
        }
    }
    let searched = !matches!(latency.fastest, Ok(None));
    if searched {
        let highest = latency.highest();
        goals.push(Goal {
            what: format!("T8 {}: highest updates/s with mean ≤ 1 ms", latency.backbone),
            wanted: format!("≥ {}", grouped(WITHIN_A_MILLISECOND as f64)),
            got: highest.map_or("none".into(), |rate| grouped(rate as f64)),
            met: Some(highest >= Some(WITHIN_A_MILLISECOND)),
        });
    }
    goals
}

/// The target of the vendor's pair with p2ps between.
pub(super) fn of_pair(pair: &Pair) -> Goal {
    let ratio =
        pair.rates().map(|(direct, through)| (through.median / direct.median, direct.median, through.median));
    Goal {
        what: "sdk: updates/s through p2ps ÷ directly".into(),
        wanted: format!("≥ {RATE_THROUGH}"),
        got: ratio.map_or("failed".into(), |(ratio, direct, through)| {
            format!("{ratio:.2} ({} of {})", grouped(through), grouped(direct))
        }),
        met: ratio.map(|(ratio, ..)| ratio >= RATE_THROUGH),
    }
}

impl Goal {
    pub(super) fn json(&self) -> Value {
        json!({ "what": self.what, "target": self.wanted, "got": self.got, "met": self.met })
    }

    pub(super) fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "–",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        assert_eq!(grouped(1_234_567.0), "1,234,567");
        assert_eq!(
            (grouped(999.0), grouped(1_000.4), grouped(-5_000.0)),
            ("999".into(), "1,000".into(), "-5,000".into())
        );
        assert_eq!(grouped(f64::NAN), "–");
    }

    #[test]
    fn a_failed_row_meets_nothing() {
        let row = Row {
            test: "T5",
            component: "p2ps",
            backbone: "lanes",
            cache: false,
            mounts: 100,
            published: super::super::report::THROUGHPUT.iter().find(|row| row.test == "T5").copied(),
            measured: Err("p2ps ended".into()),
        };
        let goals = of_row(&row);
        assert_eq!(goals.len(), 2);
        assert!(goals.iter().all(|goal| goal.met.is_none() && goal.got == "failed"));
        assert_eq!(of_pair(&Pair::default()).met, None);
    }
}
