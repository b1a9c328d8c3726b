//! `utipc bench chart`: bars of round-trip time and message rate from the JSON lines of earlier measurements.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;
use utipc_bench_kit::chart::{self, Bar, Group};
use utipc_bench_kit::group_by;
use utipc_bench_kit::stats::median;
use utipc_bench_kit::table::grouped;

/// Options of `bench chart`.
#[derive(Clone, Debug, Args)]
pub(super) struct Options {
    /// File with the JSON lines of `bench latency` and `bench throughput`
    #[arg(long, value_name = "FILE")]
    json_in: PathBuf,
    /// Picture to write
    #[arg(long, value_name = "FILE")]
    svg: PathBuf,
    /// Message size of the bars, bytes
    #[arg(long, default_value_t = 64)]
    size: u32,
}

/// A measure that has bars.
struct Measure {
    test: &'static str,
    title: &'static str,
    value: fn(&Value) -> Option<f64>,
    text: fn(f64) -> String,
    /// The best bar is the longest.
    larger_is_better: bool,
}

const MEASURES: [Measure; 2] = [
    Measure {
        test: "latency",
        title: "Round trip, median (shorter is better)",
        value: |line| line["rtt_us"]["p50"].as_f64(),
        text: |value| format!("{value:.1} µs"),
        larger_is_better: false,
    },
    Measure {
        test: "throughput",
        title: "Messages per second (longer is better)",
        value: |line| line["msgs_per_s"].as_f64(),
        text: grouped,
        larger_is_better: true,
    },
];

pub(super) fn run(options: &Options) -> Result<()> {
    let path = options.json_in.display();
    let text = std::fs::read_to_string(&options.json_in).with_context(|| format!("read {path}"))?;
    let parse = |line: &str| serde_json::from_str(line).with_context(|| format!("read {path}: {line}"));
    let lines = text.lines().map(parse).collect::<Result<Vec<Value>>>()?;
    let groups = groups(&lines, options.size);
    ensure!(
        !groups.is_empty(),
        "{path} has no latency or throughput of {} bytes (choose another --size)",
        options.size
    );
    chart::write(&options.svg, &groups)
}

/// The bars of each measure that has any, best first.
fn groups(lines: &[Value], size: u32) -> Vec<Group> {
    let group = |measure: &Measure| {
        let lines = lines.iter().filter(|line| line["test"] == measure.test && line["size"] == size);
        let values = lines.filter_map(|line| Some((label(line), (measure.value)(line)?)));
        let bar = |(label, values): (String, Vec<(String, f64)>)| {
            let value = median(values.into_iter().map(|(_, value)| value));
            Bar { is_own: label.starts_with("utipc"), label, value, text: (measure.text)(value) }
        };
        let groups = group_by(values, |(label, _)| label.clone());
        let mut bars: Vec<Bar> = groups.into_iter().map(bar).collect();
        bars.sort_by(|a, b| a.value.total_cmp(&b.value));
        if measure.larger_is_better {
            bars.reverse();
        }
        let title = format!("{}, {size} bytes", measure.title);
        (!bars.is_empty()).then_some(Group { title, bars })
    };
    MEASURES.iter().filter_map(group).collect()
}

/// The transport, with kind and mode where it has several.
fn label(line: &Value) -> String {
    let text = |key: &str| line[key].as_str().unwrap_or_default();
    let transport = text("transport");
    let kind = if matches!(transport, "utipc" | "kernel-tipc") { text("kind") } else { "" };
    let mode = match text("mode") {
        "blocking" => String::new(),
        mode => format!("({mode})"),
    };
    [transport, kind, &mode].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bars_are_medians_and_the_best_is_first() {
        let line = |transport: &str, p50: f64| {
            json!({ "test": "latency", "transport": transport, "mode": "blocking", "kind": "stream", "size": 64,
                    "rtt_us": { "p50": p50 } })
        };
        let lines = [line("tcp", 20.0), line("tcp", 30.0), line("tcp", 90.0), line("uds", 10.0)];
        let groups = groups(&lines, 64);
        let bars: Vec<_> = groups[0].bars.iter().map(|bar| (bar.label.as_str(), bar.value)).collect();
        assert_eq!((groups.len(), bars), (1, vec![("uds", 10.0), ("tcp", 30.0)]));
    }
}
