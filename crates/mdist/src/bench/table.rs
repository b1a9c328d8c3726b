//! What was measured, beside what the report says.

use serde_json::{Value, json};

use super::chain::Window;
use super::cpu::Table;
use super::report::{self, Published};
use super::stock;
use crate::load::plot::Curve;
use crate::load::stats::Summary;

/// One line of the throughput table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) test: &'static str,
    pub(super) component: &'static str,
    pub(super) backbone: &'static str,
    pub(super) cache: bool,
    pub(super) mounts: usize,
    pub(super) rate: u64,
    pub(super) input: f64,
    pub(super) output: f64,
    pub(super) lost: i64,
    pub(super) clean: bool,
    pub(super) faults: Vec<String>,
    /// CPU of the component for an output update, nanoseconds.
    pub(super) ns: f64,
    /// The process that used most of a core, and how much of one.
    pub(super) limit: String,
    pub(super) limit_share: f64,
    pub(super) startup_s: f64,
    pub(super) latency: Summary,
    pub(super) cpu: Table,
    pub(super) published: Option<Published>,
}

/// T8 over one backbone.
#[derive(Clone, Debug)]
pub(super) struct Latency {
    pub(super) backbone: &'static str,
    /// What was measured, and whether nothing was lost.
    pub(super) windows: Vec<(Window, bool)>,
}

fn cpu_json(cpu: &Table) -> Value {
    let rows: serde_json::Map<String, Value> =
        cpu.rows.iter().map(|(name, used)| (name.clone(), json!(used))).collect();
    json!({ "elapsed_s": cpu.elapsed.as_secs_f64(), "total_s": cpu.total, "s": rows })
}

impl Row {
    /// As one line of JSON.
    pub(super) fn json(&self) -> Value {
        json!({
            "test": self.test, "component": self.component, "cache": self.cache, "mounts": self.mounts,
            "in_per_s": self.input, "out_per_s": self.output, "lost": self.lost,
            "cpu_ns_per_update": self.ns, "backbone": self.backbone, "rate": self.rate, "clean": self.clean,
            "faults": self.faults, "limit": { "process": self.limit, "share": self.limit_share },
            "startup_s": self.startup_s, "latency_us": self.latency, "cpu": cpu_json(&self.cpu),
            "report": self.published.map(|row| json!({ "in_per_s": row.input, "out_per_s": row.output, "ns": row.ns() })),
            "goal_ns": self.published.map(|row| row.goal_ns),
        })
    }
}

/// One line of JSON for one rate of T8.
pub(super) fn latency_json(backbone: &str, window: &Window, clean: bool) -> Value {
    json!({
        "test": "T8", "rate": window.rate, "latency_us": window.latency, "backbone": backbone,
        "in_per_s": window.input, "out_per_s": window.output, "lost": window.lost, "clean": clean,
        "faults": window.faults, "cpu": cpu_json(&window.cpu),
    })
}

impl Latency {
    /// For the plot: mean and tail, and the report's means.
    pub(super) fn curves(&self) -> Vec<Curve> {
        let of = |label: &str, value: fn(&Summary) -> f64| Curve {
            label: label.into(),
            points: self
                .windows
                .iter()
                .map(|(window, _)| (window.rate as f64, value(&window.latency)))
                .collect(),
        };
        let published = |label: &str, value: fn(&(u64, f64, f64)) -> f64| Curve {
            label: label.into(),
            points: report::LATENCY.iter().map(|point| (point.0 as f64, value(point))).collect(),
        };
        vec![
            of("mean", |summary| summary.mean),
            of("p99", |summary| summary.p99),
            of("p99.9", |summary| summary.p999),
            published("report, RRCP, mean", |point| point.1),
            published("report, Rendezvous, mean", |point| point.2),
        ]
    }

    /// The highest clean rate with a mean of at most a millisecond.
    fn fastest(&self) -> Option<u64> {
        let good = self.windows.iter().filter(|(window, clean)| *clean && window.latency.mean <= 1_000.0);
        good.map(|(window, _)| window.rate).max()
    }
}

/// Says that a row is done, while others are still to be measured.
pub(super) fn progress(row: &Row) {
    eprintln!(
        "{} {}: {:.0} in, {:.0} out, {} lost, {:.0} ns an update, {} at {:.0} % of a core{}",
        row.test,
        row.backbone,
        row.input,
        row.output,
        row.lost,
        row.ns,
        row.limit,
        row.limit_share * 100.0,
        if row.clean { String::new() } else { format!(", NOT CLEAN: {:?}", row.faults) }
    );
}

/// Says that a rate is done.
pub(super) fn latency_progress(window: &Window) {
    eprintln!(
        "T8 at {}: mean {:.0} µs, p99.9 {:.0} µs",
        window.rate, window.latency.mean, window.latency.p999
    );
}

/// Prints all tables.
pub(super) fn print(rows: &[Row], latencies: &[Latency], stocks: &[(&str, stock::Run)]) {
    if !rows.is_empty() {
        throughput(rows);
        cpu(rows);
    }
    for latency in latencies {
        print_latency(latency);
    }
    if !stocks.is_empty() {
        print_stocks(stocks);
    }
}

/// One line of JSON for the vendor's pair.
pub(super) fn stock_json(name: &str, run: &stock::Run) -> Value {
    let [mean, stddev, min, max] = run.latency;
    json!({
        "test": name, "rate": run.rate, "out_per_s": run.output, "clean": run.clean,
        "latency_us": { "mean": mean, "stddev": stddev, "min": min, "max": max }, "cpu": cpu_json(&run.cpu),
    })
}

fn print_stocks(stocks: &[(&str, stock::Run)]) {
    println!(
        "\nThe vendor's pair [latency in µs from the time when an update was made; ns of CPU an update]"
    );
    println!(
        "{:<12}{:>10}{:>12}{:>10}{:>10}{:>10}{:>10}  CPU",
        "test", "rate", "out/s", "mean", "stddev", "min", "max"
    );
    for (name, run) in stocks {
        let [mean, stddev, min, max] = run.latency;
        let updates = run.output * run.cpu.elapsed.as_secs_f64();
        let parts = run.cpu.rows.iter().take(run.cpu.rows.len().saturating_sub(2));
        let parts: Vec<String> =
            parts.map(|(name, used)| format!("{name} {:.0}", used * 1e9 / updates)).collect();
        println!(
            "{name:<12}{:>10}{:>12.0}{mean:>10.1}{stddev:>10.1}{min:>10.1}{max:>10.1}  {}{}",
            run.rate,
            run.output,
            parts.join(" + "),
            if run.clean { "" } else { "  NOT CLEAN" },
        );
    }
}

fn throughput(rows: &[Row]) {
    println!(
        "\nThroughput: the highest rate without loss, and what an output update costs its component there"
    );
    println!(
        "{:<7}{:<9}{:<16}{:<6}{:>7}{:>12}{:>12}{:>8}{:>8}{:>7}{:>12}{:>9}{:>9}  limited by",
        "test",
        "backbone",
        "component",
        "cache",
        "mounts",
        "in/s",
        "out/s",
        "lost",
        "ns",
        "goal",
        "report/s",
        "report ns",
        "× report"
    );
    for row in rows {
        let report = |value: Option<f64>, digits: usize| {
            value.map_or("–".into(), |value| format!("{value:.digits$}"))
        };
        let published = row.published;
        println!(
            "{:<7}{:<9}{:<16}{:<6}{:>7}{:>12.0}{:>12.0}{:>8}{:>8.0}{:>7}{:>12}{:>9}{:>9}  {} ({:.0} % of a core){}",
            row.test,
            row.backbone,
            row.component,
            if row.cache { "on" } else { "off" },
            row.mounts,
            row.input,
            row.output,
            row.lost,
            row.ns,
            report(published.map(|row| row.goal_ns), 0),
            report(published.map(|row| row.output), 0),
            report(published.map(|row| row.ns()), 0),
            report(published.map(|published| row.output / published.output), 2),
            row.limit,
            row.limit_share * 100.0,
            if row.clean { "" } else { "  NOT CLEAN" },
        );
    }
    println!("report: one core of a 2009 machine for each component, over its own backbone RRCP");
}

/// Where the machine's time went; each column sums to what the kernel measured.
fn cpu(rows: &[Row]) {
    println!("\nCPU of the whole machine, cores busy on average");
    for row in rows {
        let seconds = row.cpu.elapsed.as_secs_f64().max(1e-9);
        let parts: Vec<String> =
            row.cpu.rows.iter().map(|(name, used)| format!("{name} {:.2}", used / seconds)).collect();
        println!(
            "{:<7}{:<9}{:>6.2} = {}",
            row.test,
            row.backbone,
            row.cpu.total / seconds,
            parts.join(" + ")
        );
    }
}

fn print_latency(latency: &Latency) {
    println!(
        "\nT8, latency from the scheduled send time to the client, whole chain on this machine, {} [µs]",
        latency.backbone
    );
    println!(
        "{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}{:>12}{:>12}",
        "rate", "mean", "stddev", "min", "p50", "p99", "p99.9", "max", "points", "report RRCP", "report RV"
    );
    for (window, clean) in &latency.windows {
        let seen = &window.latency;
        let published = report::LATENCY.iter().find(|point| point.0 == window.rate);
        let known =
            |value: Option<f64>| value.filter(|v| v.is_finite()).map_or("–".into(), |v| format!("{v:.0}"));
        println!(
            "{:>10}{:>10.1}{:>10.1}{:>10.1}{:>10.1}{:>10.1}{:>10.1}{:>10.1}{:>8}{:>12}{:>12}{}",
            window.rate,
            seen.mean,
            seen.stddev,
            seen.min,
            seen.p50,
            seen.p99,
            seen.p999,
            seen.max,
            seen.points,
            known(published.map(|point| point.1)),
            known(published.map(|point| point.2)),
            if *clean { "" } else { "  NOT CLEAN" },
        );
    }
    let fastest = latency.fastest().map_or("none".into(), |rate| rate.to_string());
    println!(
        "highest of these rates with a mean of at most 1 ms: {fastest} (report: {})",
        report::FASTEST_WITHIN_A_MILLISECOND
    );
}
