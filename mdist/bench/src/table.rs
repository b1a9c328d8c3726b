//! The results as Markdown tables, beside the figures of the report.

use std::fmt::Write as _;

use utipc_bench_kit::table::{grouped, markdown_cell as cell, markdown_head as head};

use super::foreign::ForeignServer;
use super::latency::LatencyTest;
use super::report;
use super::targets::{self, Target};
use super::throughput::{Measurements, Row};
use super::vendor::VendorPair;

fn known(value: Option<f64>) -> String {
    value.map_or("–".into(), grouped)
}

/// The throughput table.
pub(super) fn throughput(rows: &[Row]) -> String {
    let mut text = head(&[
        "test",
        "backbone",
        "component",
        "cache",
        "mounts",
        "at in/s",
        "out/s",
        "ns an output update",
        "spread",
        "target",
        "",
        "report ns",
        "highest in/s",
        "out/s",
        "report out/s",
        "limited by",
    ]);
    for row in rows {
        let cache = if row.cache { "on" } else { "off" };
        let first =
            format!("| {} | {} | {} | {cache} | {}", row.test, row.backbone, row.component, row.mounts);
        let _ = match &row.measured {
            Ok(measured) => writeln!(text, "{first} | {} |", measured_cells(row, measured)),
            Err(why) => writeln!(text, "{first} | failed: {} ||||||||||| ", cell(why)),
        };
    }
    text
}

fn measured_cells(row: &Row, measured: &Measurements) -> String {
    let (cost, typical, top) = (measured.cost(), measured.typical(), measured.top());
    let has_cost = !measured.charged.is_empty();
    let verdict =
        targets::of_row(row).first().filter(|_| row.published.is_some() && has_cost).map(Target::verdict);
    let limit = top.map_or(String::new(), |top| {
        let ((name, share), seconds) = (top.cpu.busiest(), top.cpu.elapsed.as_secs_f64());
        format!("{name}, {:.0} % of a core; all: {:.2} cores", share * 100.0, top.cpu.total / seconds)
    });
    [
        known(typical.map(|window| window.input)),
        known(typical.map(|window| window.output)),
        if has_cost { format!("{:.0}", cost.median) } else { "–".into() },
        format!("{:.0} %", cost.spread * 100.0),
        row.published.map_or("–".into(), |row| format!("≤ {:.0}", row.goal_ns)),
        verdict.unwrap_or("").into(),
        known(row.published.map(|row| row.ns())),
        known(top.map(|window| window.input)),
        known(top.map(|window| window.output)),
        known(row.published.map(|row| row.output)),
        limit,
    ]
    .join(" | ")
}

/// CPU time by process; each line sums to the time of the whole machine.
pub(super) fn cpu(rows: &[Row]) -> String {
    let mut text = head(&["test", "backbone", "in/s", "cores busy", "of that"]);
    for row in rows {
        let Some(window) = row.measured.as_ref().ok().and_then(Measurements::typical) else { continue };
        let seconds = window.cpu.elapsed.as_secs_f64().max(1e-9);
        let part = |(name, used): &(String, f64)| format!("{name} {:.3}", used / seconds);
        let parts: Vec<String> = window.cpu.rows.iter().map(part).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.3} | {} |",
            row.test,
            row.backbone,
            grouped(window.input),
            window.cpu.total / seconds,
            parts.join(" + ")
        );
    }
    text
}

/// T8 over one backbone.
pub(super) fn latency(latency: &LatencyTest, pair: Option<&VendorPair>) -> String {
    let mut text = head(&[
        "rate",
        "mean",
        "spread",
        "deviation",
        "min",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "points",
        "report RRCP",
        "report RV",
        "vendor's pair directly",
    ]);
    let mut line =
        |rate: u64, cells: Option<[f64; 8]>, spread: Option<f64>, points: u64, failed: Option<&str>| {
            let published = report::LATENCY.iter().find(|point| point.0 == rate);
            let last = [
                known(published.map(|point| point.1)),
                known(published.map(|point| point.2)),
                known(pair.and_then(|pair| pair.mean_us(rate))),
            ]
            .join(" | ");
            let rate = grouped(rate as f64);
            let _ = match cells {
                Some([mean, rest @ ..]) => {
                    let rest = rest.map(|value| format!("{value:.0}")).join(" | ");
                    let spread = spread.map_or("–".into(), |spread| format!("{:.0} %", spread * 100.0));
                    writeln!(text, "| {rate} | {mean:.1} | {spread} | {rest} | {points} | {last} |")
                }
                None => writeln!(
                    text,
                    "| {rate} | failed: {} |||||||||| {last} |",
                    cell(failed.unwrap_or_default())
                ),
            };
        };
    let cells =
        |s: &utipc_bench_kit::stats::Summary| [s.mean, s.stddev, s.min, s.p50, s.p90, s.p99, s.p999, s.max];
    for point in &latency.points {
        let seen = point.summary();
        let failed = point.windows.as_ref().err().map(String::as_str);
        line(
            point.rate,
            seen.as_ref().map(cells),
            point.spread(),
            seen.map_or(0, |seen| seen.points),
            failed,
        );
    }
    match &latency.fastest {
        Ok(Some(window)) => {
            let seen = &window.latency;
            line(window.rate, Some(cells(seen)), None, seen.points, None);
        }
        Ok(None) => {}
        Err(why) => {
            let _ = writeln!(text, "\nThe highest rate with a mean of at most 1 ms: failed: {}", cell(why));
        }
    }
    text
}

/// The vendor's pair.
pub(super) fn pair(pair: &VendorPair) -> String {
    let mut text =
        head(&["path", "rate", "came/s", "mean", "deviation", "min", "max", "ns of CPU an update"]);
    let rows = [
        ("direct", &pair.latencies),
        ("direct, highest", &pair.direct),
        ("through p2ps, highest", &pair.through),
    ];
    for (path, runs) in rows {
        for run in runs {
            let [mean, stddev, min, max] = run.latency;
            let clean = if run.clean { "" } else { " (not kept)" };
            let _ = writeln!(
                text,
                "| {path} | {}{clean} | {} | {mean:.0} | {stddev:.0} | {min:.0} | {max:.0} | {} |",
                grouped(run.rate as f64),
                grouped(run.output),
                run.costs()
            );
        }
    }
    if let Some(why) = &pair.failed {
        let _ = writeln!(text, "\nFailed: {}", cell(why));
    }
    text
}

/// A foreign server with data of its own.
pub(super) fn foreign(rows: &[ForeignServer]) -> String {
    let mut text = head(&[
        "mounts",
        "item streams",
        "loaded in",
        "updates/s",
        "mean",
        "deviation",
        "p50",
        "p99",
        "p99.9",
        "max",
        "points",
        "client's ns an update",
    ]);
    for row in rows {
        let _ = match &row.counted {
            Ok(seen) => {
                let l = &seen.latency;
                let times = [l.mean, l.stddev, l.p50, l.p99, l.p999, l.max]
                    .map(|value| format!("{value:.0}"))
                    .join(" | ");
                let cost =
                    seen.cpu.of("rmdstestclient") * 1e9 / (seen.output * seen.cpu.elapsed.as_secs_f64());
                writeln!(
                    text,
                    "| {} | {} | {:.2} s | {} | {times} | {} | {} |",
                    row.mounts,
                    grouped(seen.streams as f64),
                    seen.startup_s,
                    grouped(seen.output),
                    l.points,
                    grouped(cost)
                )
            }
            Err(why) => writeln!(text, "| {} | failed: {} ||||||||||", row.mounts, cell(why)),
        };
    }
    text
}

/// All targets.
pub(super) fn targets(targets: &[Target]) -> String {
    let mut text = head(&["what", "target", "got", ""]);
    for target in targets {
        let _ =
            writeln!(text, "| {} | {} | {} | {} |", target.what, target.wanted, target.got, target.verdict());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_row_has_no_figures() {
        let row = Row {
            test: "T1",
            component: "src_dist",
            backbone: "udp",
            cache: false,
            mounts: 1,
            published: None,
            measured: Err("src_dist ended by itself; its last output:\n    out | of memory".into()),
        };
        let text = throughput(std::slice::from_ref(&row));
        assert!(
            text.contains("failed: src_dist ended by itself; its last output:; out / of memory |"),
            "{text}"
        );
        let cells = |line: &str| line.matches('|').count();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((cells(lines[0]), cells(lines[2])), (17, 17), "{text}");
        assert_eq!(cpu(&[row]).lines().count(), 2);
    }
}
