//! How results are shown.

use serde_json::{Value, json};

use super::peer::{Job, Rtt, Test};
use super::{Mode, Scope, Transport};

/// What one run of both ends has measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) elapsed_s: f64,
    pub(super) rtt_us: Option<Rtt>,
    pub(super) cpu_tx: f64,
    pub(super) cpu_rx: f64,
}

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Line {
    test: Test,
    scope: Scope,
    transport: Transport,
    mode: Mode,
    size: u32,
    messages: u64,
    measured: Measured,
}

impl Line {
    pub(super) fn new(job: &Job, scope: Scope, measured: Measured) -> Self {
        let Job { test, transport, mode, size, messages, .. } = *job;
        Self { test, scope, transport, mode, size, messages, measured }
    }

    fn messages_per_s(&self) -> f64 {
        self.messages as f64 / self.measured.elapsed_s
    }

    fn mbit_per_s(&self) -> f64 {
        self.messages_per_s() * f64::from(self.size) * 8.0 / 1e6
    }

    /// The shape that scripts rely on.
    pub(super) fn to_json(&self) -> Value {
        let round = |value: f64| (value * 1000.0).round() / 1000.0;
        let mut line = json!({
            "test": self.test.name(),
            "scope": format!("{:?}", self.scope).to_lowercase(),
            "transport": self.transport.name(),
            "mode": self.mode.name(self.transport),
            "size": self.size,
            "messages": self.messages,
            "elapsed_s": round(self.measured.elapsed_s),
            "cpu_s": { "tx": round(self.measured.cpu_tx), "rx": round(self.measured.cpu_rx) },
        });
        match self.measured.rtt_us {
            Some(rtt) => {
                line["rtt_us"] = json!({
                    "mean": round(rtt.mean), "p50": round(rtt.p50), "p99": round(rtt.p99), "max": round(rtt.max),
                });
            }
            None => {
                line["msgs_per_s"] = json!(self.messages_per_s().round());
                line["mbit_per_s"] = json!(round(self.mbit_per_s()));
            }
        }
        line
    }
}

/// The middle value; the lower of two.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// The medians, a line for each size and transport, beside TCP's.
pub(super) fn table(test: Test, lines: &[Line]) {
    match test {
        Test::Latency => println!(
            "{:>8}  {:<9} {:<8} {:>9} {:>9} {:>9} {:>9} {:>7}",
            "bytes", "transport", "mode", "mean us", "p50 us", "p99 us", "max us", "x TCP"
        ),
        _ => println!(
            "{:>8}  {:<9} {:<8} {:>12} {:>10} {:>10} {:>10} {:>7}",
            "bytes", "transport", "mode", "messages/s", "Mbit/s", "cpu tx s", "cpu rx s", "x TCP"
        ),
    }
    let mut shown = Vec::new();
    for line in lines {
        let key = (line.size, line.transport.name());
        if !shown.contains(&key) {
            shown.push(key);
            row(test, line, lines);
        }
    }
}

fn row(test: Test, first: &Line, lines: &[Line]) {
    let median_of = |transport: Transport, value: &dyn Fn(&Line) -> f64| {
        median(lines.iter().filter(|l| l.size == first.size && l.transport == transport).map(value))
    };
    let own = |value: &dyn Fn(&Line) -> f64| median_of(first.transport, value);
    let rtt = |part: fn(&Rtt) -> f64| own(&|l| l.measured.rtt_us.as_ref().map_or(f64::NAN, part));
    let (bytes, name, mode) = (first.size, first.transport.name(), first.mode.name(first.transport));
    if test == Test::Latency {
        let p50 = |l: &Line| l.measured.rtt_us.map_or(f64::NAN, |rtt| rtt.p50);
        // More is better: how many round trips fit into one of TCP's.
        let ratio = median_of(Transport::Tcp, &p50) / own(&p50);
        let (mean, p50, p99, max) = (rtt(|r| r.mean), rtt(|r| r.p50), rtt(|r| r.p99), rtt(|r| r.max));
        println!(
            "{bytes:>8}  {name:<9} {mode:<8} {mean:>9.1} {p50:>9.1} {p99:>9.1} {max:>9.1} {:>7}",
            times(ratio)
        );
    } else {
        let ratio = own(&Line::messages_per_s) / median_of(Transport::Tcp, &Line::messages_per_s);
        let (count, bits) = (own(&Line::messages_per_s), own(&Line::mbit_per_s));
        let (tx, rx) = (own(&|l| l.measured.cpu_tx), own(&|l| l.measured.cpu_rx));
        println!(
            "{bytes:>8}  {name:<9} {mode:<8} {count:>12.0} {bits:>10.1} {tx:>10.3} {rx:>10.3} {:>7}",
            times(ratio)
        );
    }
}

fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}") } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_measured_value() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.0);
        assert!(median(std::iter::empty()).is_nan());
    }

    #[test]
    fn the_json_has_the_promised_shape() {
        let job = Job::new(Test::Throughput, Transport::Utipc, Mode::Parked, 1000, 2000);
        let measured = Measured { elapsed_s: 2.0, rtt_us: None, cpu_tx: 0.5, cpu_rx: 0.25 };
        let line = Line::new(&job, Scope::Inter, measured).to_json();
        assert_eq!(
            line,
            json!({
                "test": "throughput", "scope": "inter", "transport": "utipc", "mode": "parked", "size": 1000,
                "messages": 2000, "elapsed_s": 2.0, "msgs_per_s": 1000.0, "mbit_per_s": 8.0,
                "cpu_s": { "tx": 0.5, "rx": 0.25 },
            })
        );
    }
}
