//! The results as Markdown tables, beside the figures of the report.

use utipc_bench_kit::Named as _;
use utipc_bench_kit::cpu::Usage;
use utipc_bench_kit::stats::Summary;
use utipc_bench_kit::table::{grouped, markdown_head as head, markdown_row};

use super::foreign::ForeignServer;
use super::images::ImagesTest;
use super::latency::LatencyTest;
use super::report;
use super::stall::StallTest;
use super::targets::{self, Target};
use super::throughput::{Measurements, Row};
use super::vendor::VendorPair;

fn known(value: Option<f64>) -> String {
    value.map_or("–".into(), grouped)
}

fn failed(why: &str) -> String {
    format!("failed: {why}")
}

/// A row of a table with `columns` columns, the last ones empty if there are fewer cells.
fn row(columns: usize, mut cells: Vec<String>) -> String {
    cells.resize(columns, String::new());
    markdown_row(cells)
}

/// The throughput table.
pub(super) fn throughput(rows: &[Row]) -> String {
    let mut text = head(
        "test | backbone | component | cache | mounts | at in/s | out/s | ns an output update | spread | target | met | \
         report ns | highest in/s | out/s | report out/s | limited by",
    );
    for line in rows {
        let cache = if line.cache { "on" } else { "off" };
        let mut cells = [line.test, &line.backbone.name(), line.component, cache].map(str::to_owned).to_vec();
        cells.push(line.mounts.to_string());
        match &line.measured {
            Ok(measured) => cells.extend(measured_cells(line, measured)),
            Err(why) => cells.push(failed(why)),
        }
        text += &row(16, cells);
    }
    text
}

/// Share of a core, or of all cores, from which CPU time limits the rate.
const FULL: f64 = 0.85;

/// What limits the rate of a measurement on a machine with `cores`.
fn limit(cpu: &Usage, cores: f64) -> String {
    let ((name, share), seconds) = (cpu.busiest(), cpu.elapsed.as_secs_f64().max(1e-9));
    let (all, percent) = (cpu.total / seconds, share * 100.0);
    if share >= FULL {
        format!("{name}, {percent:.0} % of a core; all: {all:.2} cores")
    } else if all >= FULL * cores {
        format!("the machine, {all:.2} of {cores} cores; most: {name}, {percent:.0} % of a core")
    } else {
        format!("no process; most: {name}, {percent:.0} % of a core; all: {all:.2} of {cores} cores")
    }
}

fn measured_cells(row: &Row, measured: &Measurements) -> [String; 11] {
    let (cost, typical, top) = (measured.cost(), measured.typical(), measured.top());
    let has_cost = !measured.charged.is_empty();
    let targets = targets::of_row(row);
    let verdict = targets.first().filter(|_| row.published.is_some() && has_cost);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let limit = top.map_or(String::new(), |top| limit(&top.cpu, cores as f64));
    [
        known(typical.map(|window| window.input)),
        known(typical.map(|window| window.output)),
        if has_cost { format!("{:.0}", cost.median) } else { "–".into() },
        format!("{:.0} %", cost.spread * 100.0),
        row.published.map_or("–".into(), |row| format!("≤ {:.0}", row.goal_ns)),
        verdict.map_or("", |target| target.verdict.word()).into(),
        known(row.published.map(|row| row.ns())),
        known(top.map(|window| window.input)),
        known(top.map(|window| window.output)),
        known(row.published.map(|row| row.output)),
        limit,
    ]
}

/// CPU time by process; each line sums to the time of the whole machine.
pub(super) fn cpu(rows: &[Row]) -> String {
    let mut text = head("test | backbone | in/s | cores busy | of that");
    for line in rows {
        let Some(window) = line.measured.as_ref().ok().and_then(Measurements::typical) else { continue };
        let seconds = window.cpu.elapsed.as_secs_f64().max(1e-9);
        let part = |(name, used): &(String, f64)| format!("{name} {:.3}", used / seconds);
        let parts = window.cpu.rows.iter().map(part).collect::<Vec<_>>().join(" + ");
        let (input, busy) = (grouped(window.input), format!("{:.3}", window.cpu.total / seconds));
        text += &markdown_row([line.test, &line.backbone.name(), &input, &busy, &parts]);
    }
    text
}

/// T8 over one backbone.
pub(super) fn latency(latency: &LatencyTest, pair: Option<&VendorPair>) -> String {
    let mut text = head(
        "rate | mean | spread | deviation | min | p50 | p90 | p99 | p99.9 | max | points | report RRCP | report RV | \
         vendor's pair directly",
    );
    let mut line = |rate: u64, seen: Result<Summary, &String>, spread: Option<f64>| {
        let mut cells = vec![grouped(rate as f64)];
        match seen {
            Ok(s) => {
                let spread = spread.map_or("–".into(), |spread| format!("{:.0} %", spread * 100.0));
                cells.extend([format!("{:.1}", s.mean), spread]);
                cells.extend(
                    [s.stddev, s.min, s.p50, s.p90, s.p99, s.p999, s.max].map(|us| format!("{us:.0}")),
                );
                cells.push(s.points.to_string());
            }
            Err(why) => cells.push(failed(why)),
        }
        cells.resize(11, String::new());
        let published = report::LATENCY.iter().find(|point| point.0 == rate);
        cells.extend([published.map(|point| point.1), published.map(|point| point.2)].map(known));
        cells.push(known(pair.and_then(|pair| pair.mean_us(rate))));
        text += &markdown_row(cells);
    };
    for point in &latency.points {
        let seen = point.windows.as_ref().map(|_| point.summary().unwrap_or_default());
        line(point.rate, seen, point.spread());
    }
    match &latency.fastest {
        Ok(Some(window)) => line(window.rate, Ok(window.latency), None),
        Ok(None) => {}
        Err(why) => text += &format!("\nThe highest rate with a mean of at most 1 ms: {}\n", failed(why)),
    }
    text
}

/// Stopped servers.
pub(super) fn stalls(tests: &[StallTest]) -> String {
    let mut text = head("backbone | rate | slowest without a stop | slowest | delay | faults");
    for test in tests {
        for stall in &test.stalls {
            let faults = if stall.faults.is_empty() { "none".into() } else { stall.faults.join(", ") };
            let ms = |us: f64| format!("{:.1}", us / 1e3);
            let (before, during) = (ms(stall.before.max), ms(stall.during.max));
            let (delay, rate) = (format!("{:.1}", stall.delay_ms()), grouped(test.rate as f64));
            text += &markdown_row([test.backbone.name(), rate, before, during, delay, faults]);
        }
    }
    text
}

/// The vendor's pair.
pub(super) fn pair(pair: &VendorPair) -> String {
    let mut text = head("path | rate | came/s | mean | deviation | min | max | p99.9 | ns of CPU an update");
    let paths = [
        ("direct", &pair.latencies),
        ("through the chain", &pair.chain),
        ("direct, highest", &pair.direct),
        ("through p2ps, highest", &pair.through),
    ];
    for (path, run) in paths.iter().flat_map(|(path, runs)| runs.iter().map(move |run| (*path, run))) {
        let clean = if run.clean { "" } else { " (not kept)" };
        let mut cells = vec![path.to_owned(), grouped(run.rate as f64) + clean, grouped(run.output)];
        cells.extend(run.latency.iter().chain([&run.p999]).map(|us| format!("{us:.0}")));
        cells.push(run.costs());
        text += &markdown_row(cells);
    }
    if let Some(why) = &pair.failed {
        text += &format!("\nFailed: {why}\n");
    }
    text
}

/// Images under full load.
pub(super) fn images(test: &ImagesTest) -> String {
    let programs = if test.is_vendor { "ProvPerf and ConsPerf" } else { "our own load programs" };
    let mut text = format!("{} items, {programs}.\n\n", grouped(test.items as f64));
    let rate = grouped(test.rate as f64);
    text += &head(&format!(
        "path | seconds at {rate}/s | each | highest rate | of the direct one | seconds at that"
    ));
    for path in &test.paths {
        let each = path.stated.iter().map(|load| match &load.seconds {
            Ok(seconds) => format!("{seconds:.2}"),
            Err(why) => failed(why),
        });
        let each = each.collect::<Vec<_>>().join(", ");
        let median = path.seconds().map_or("–".into(), |seconds| format!("{:.2}", seconds.median));
        let share = test.share(path.between).map_or("–".into(), |share| format!("{share:.2}"));
        let highest = path.highest.iter().filter_map(|load| load.seconds.as_ref().ok());
        let highest = highest.map(|seconds| format!("{seconds:.2}")).collect::<Vec<_>>().join(", ");
        let top = known(path.rate().map(|rate| rate.median));
        text += &markdown_row([path.between.name(), &median, &each, &top, &share, &highest]);
    }
    if let Some(why) = &test.failed {
        text += &format!("\nFailed: {why}\n");
    }
    text
}

/// A foreign server with data of its own.
pub(super) fn foreign(rows: &[ForeignServer]) -> String {
    let mut text = head(
        "mounts | item streams | loaded in | updates/s | mean | deviation | p50 | p99 | p99.9 | max | points | \
         client's ns an update",
    );
    for line in rows {
        let mut cells = vec![line.mounts.to_string()];
        match &line.counted {
            Ok(seen) => {
                let (window, l) = (&seen.window, &seen.window.latency);
                let updates = window.output * window.cpu.elapsed.as_secs_f64();
                cells.extend([grouped(seen.streams as f64), format!("{:.2} s", seen.startup_s)]);
                cells.push(grouped(window.output));
                cells.extend([l.mean, l.stddev, l.p50, l.p99, l.p999, l.max].map(|us| format!("{us:.0}")));
                cells.push(l.points.to_string());
                cells.push(grouped(window.cpu.of("rmdstestclient") * 1e9 / updates));
            }
            Err(why) => cells.push(failed(why)),
        }
        text += &row(12, cells);
    }
    text
}

/// All targets.
pub(super) fn targets(targets: &[Target]) -> String {
    let line = |Target { what, wanted, verdict }: &Target| {
        markdown_row([what.as_str(), wanted, &verdict.got, verdict.word()])
    };
    head("what | target | got | met") + &targets.iter().map(line).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::super::place::Backbone;
    use super::*;

    #[test]
    fn process_limits_the_rate_only_if_it_fills_a_core() {
        let usage = |rows: &[(&str, f64)], total: f64| Usage {
            elapsed: std::time::Duration::from_secs(10),
            rows: rows.iter().map(|row| (row.0.to_owned(), row.1)).collect(),
            total,
        };
        let rest = [("others", 0.0), ("rest", 0.0)];
        let of = |p2ps: f64, total: f64| {
            limit(&usage(&[("p2ps", p2ps), ("client", 1.0), rest[0], rest[1]], total), 2.0)
        };
        assert_eq!(of(9.5, 12.0), "p2ps, 95 % of a core; all: 1.20 cores");
        assert_eq!(of(3.9, 12.0), "no process; most: p2ps, 39 % of a core; all: 1.20 of 2 cores");
        assert_eq!(of(3.9, 19.5), "the machine, 1.95 of 2 cores; most: p2ps, 39 % of a core");
    }

    #[test]
    fn failed_row_has_no_figures() {
        let row = Row {
            test: "T1",
            component: "src_dist",
            backbone: Backbone::Udp,
            cache: false,
            is_extra: false,
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
