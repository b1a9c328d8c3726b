//! `utipc-sim scale`: runs, their table, JSON and plots.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utipc_bench_kit::plot::{self, Curve, Panel};
use utipc_bench_kit::progress;
use utipc_bench_kit::table::Framed;
use utipc_sim::peers::Probe;
use utipc_sim::scale::{Detection, Plan, Report, run};

/// Clusters of many nodes on one segment: probes, messages, memory, and when a crash is detected.
#[derive(Args)]
pub(crate) struct Scale {
    /// Numbers of nodes, each 4 to 4000.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 33, 100, 330, 1000],
        value_parser = clap::value_parser!(u64).range(4..=4000))]
    nodes: Vec<u64>,
    /// With the monitor, without it, or both.
    #[arg(long, value_enum, default_value_t = Monitoring::Both)]
    monitoring: Monitoring,
    /// Virtual seconds of quiet time in which messages are counted.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=3600))]
    seconds: u64,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object for each run.
    #[arg(long)]
    json: bool,
    /// Show the results in these files, which `--json` has printed, instead of making runs.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["nodes", "monitoring", "seconds", "seed"])]
    from: Vec<PathBuf>,
    /// Write plots to this folder, as SVG pictures.
    #[arg(long)]
    plots: Option<PathBuf>,
    /// Subtitle of the plots, such as the commit.
    #[arg(long, default_value = "", requires = "plots")]
    caption: String,
}

/// Which runs to make for each number of nodes.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Monitoring {
    On,
    Off,
    Both,
}

impl Monitoring {
    fn states(self) -> &'static [bool] {
        match self {
            Self::On => &[true],
            Self::Off => &[false],
            Self::Both => &[true, false],
        }
    }
}

/// A run that has ended, as it is printed with `--json`. Rates are those of one node.
#[derive(Serialize, Deserialize)]
struct Row {
    ok: bool,
    violation: Option<String>,
    nodes: usize,
    monitoring: bool,
    seed: u64,
    #[serde(flatten)]
    report: Report,
    probes_per_node_second: f64,
    states_per_node_second: f64,
    messages_per_node_second: f64,
    bytes_per_node_second: f64,
    cpu_ms_per_node_second: f64,
    /// Bytes.
    memory_per_node: f64,
    wall_seconds: f64,
}

impl Row {
    fn new(plan: &Plan, report: Report, violation: Option<String>, wall_seconds: f64) -> Self {
        let quiet = report.quiet;
        let node_seconds = report.quiet_seconds.max(0.001) * plan.nodes as f64;
        Self {
            ok: violation.is_none(),
            violation,
            nodes: plan.nodes,
            monitoring: plan.monitoring,
            seed: plan.seed,
            probes_per_node_second: report.rate(plan, quiet.probes),
            states_per_node_second: report.rate(plan, quiet.states),
            messages_per_node_second: report.rate(plan, quiet.frames),
            bytes_per_node_second: report.rate(plan, quiet.bytes),
            cpu_ms_per_node_second: report.quiet_cpu.as_secs_f64() * 1000.0 / node_seconds,
            memory_per_node: report.memory as f64 / plan.nodes as f64,
            report,
            wall_seconds,
        }
    }
}

/// Runs that `--json` has printed before.
fn read(files: &[PathBuf]) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        for line in text.lines() {
            let row = serde_json::from_str(line).with_context(|| format!("parse {}", file.display()))?;
            rows.push(row);
        }
    }
    rows.sort_by_key(|row: &Row| (row.nodes, !row.monitoring));
    Ok(rows)
}

/// Makes the runs or reads their results, and shows them.
pub(crate) fn scale(args: &Scale, probe: Probe) -> ExitCode {
    let rows = if args.from.is_empty() { Ok(make_runs(args, probe)) } else { read(&args.from) };
    match rows {
        Ok(rows) => finish(args, &rows),
        Err(why) => {
            eprintln!("utipc-sim: cannot use the results: {why:#} (--from takes what --json has printed)");
            ExitCode::from(2)
        }
    }
}

/// Makes all runs, and stops after the first one that breaks an invariant.
fn make_runs(args: &Scale, probe: Probe) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for nodes in &args.nodes {
        for monitoring in args.monitoring.states() {
            let nodes = usize::try_from(*nodes).unwrap_or(usize::MAX);
            let monitoring = *monitoring;
            progress(&format!("{nodes} nodes, monitoring {}", switch(monitoring)));
            let plan = Plan { nodes, monitoring, quiet_ms: args.seconds * 1000, seed: args.seed };
            let begun = Instant::now();
            let (report, violation) = match run(&plan, probe) {
                Ok(report) => (report, None),
                Err(broken) => (broken.1, Some(broken.0)),
            };
            let row = Row::new(&plan, report, violation, begun.elapsed().as_secs_f64());
            if args.json {
                println!("{}", json!(row));
            }
            let is_broken = !row.ok;
            rows.push(row);
            if is_broken {
                return rows;
            }
        }
    }
    rows
}

fn finish(args: &Scale, rows: &[Row]) -> ExitCode {
    if !args.json {
        print!("{}", table(rows));
    }
    if let Some(folder) = &args.plots
        && let Err(why) = write_plots(folder, rows, &args.caption)
    {
        eprintln!("utipc-sim: cannot write the plots: {why:#} (choose another folder with --plots)");
        return ExitCode::from(2);
    }
    let broken = rows.iter().find_map(|row| Some((row, row.violation.as_ref()?)));
    let Some((row, reason)) = broken else { return ExitCode::SUCCESS };
    eprintln!("utipc-sim: {} nodes, monitoring {}: BROKEN {reason}", row.nodes, switch(row.monitoring));
    ExitCode::FAILURE
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn table(rows: &[Row]) -> String {
    let heads = vec![
        ["nodes", ""],
        ["monitor", ""],
        ["all in contact", "[s]"],
        ["supervised", "peers"],
        ["probes", "[1/node/s]"],
        ["messages", "[1/node/s]"],
        ["bytes", "[kB/node/s]"],
        ["memory", "[MiB/node]"],
        ["cpu", "[ms/node/s]"],
        ["one node crashes", "first/median/last [ms]"],
        ["a domain crashes", "nodes: first/median/last [ms]"],
        ["run", "[s]"],
    ];
    let mut table = Framed::new(heads);
    for row in rows {
        let times = |d: &Detection| format!("{:.0}/{:.0}/{:.0}", d.first_ms, d.median_ms, d.last_ms);
        table.row(vec![
            row.nodes.to_string(),
            if row.report.is_monitored { "active" } else { switch(row.monitoring) }.to_owned(),
            format!("{:.1}", row.report.contact_ms as f64 / 1000.0),
            format!("{:.1}", row.report.supervised),
            format!("{:.1}", row.probes_per_node_second),
            format!("{:.1}", row.messages_per_node_second),
            format!("{:.1}", row.bytes_per_node_second / 1000.0),
            format!("{:.2}", row.memory_per_node / f64::from(1 << 20)),
            format!("{:.2}", row.cpu_ms_per_node_second),
            times(&row.report.one),
            format!("{}: {}", row.report.domain.crashed, times(&row.report.domain)),
            format!("{:.0}", row.wall_seconds),
        ]);
    }
    table.text()
}

/// Writes one picture for each quantity.
fn write_plots(folder: &Path, rows: &[Row], caption: &str) -> anyhow::Result<()> {
    let curve = |label: &str, monitoring: bool, value: &dyn Fn(&Row) -> f64| Curve {
        label: label.to_owned(),
        points: rows
            .iter()
            .filter(|row| row.monitoring == monitoring && row.ok)
            .map(|row| (row.nodes as f64, value(row)))
            .collect(),
        ..Curve::default()
    };
    let both = |value: &dyn Fn(&Row) -> f64| {
        vec![curve("monitoring on", true, value), curve("monitoring off", false, value)]
    };
    let detected = vec![
        curve("one node, last", true, &|row| row.report.one.last_ms),
        curve("one node, median", true, &|row| row.report.one.median_ms),
        curve("one node, first", true, &|row| row.report.one.first_ms),
        curve("one domain, last", true, &|row| row.report.domain.last_ms),
        curve("one domain, median", true, &|row| row.report.domain.median_ms),
        curve("off: one node, last", false, &|row| row.report.one.last_ms),
        curve("off: one node, median", false, &|row| row.report.one.median_ms),
    ];
    let pictures = [
        ("probes", "Link probes of a node", "probes/s", both(&|row| row.probes_per_node_second)),
        ("messages", "Messages of a node", "messages/s", both(&|row| row.messages_per_node_second)),
        ("memory", "Memory of a node", "bytes", both(&|row| row.memory_per_node)),
        ("detection", "Detection of a crash", "time after the crash [ms]", detected),
    ];
    for (name, title, y, curves) in pictures {
        let (title, caption) = (title.to_owned(), caption.to_owned());
        let panel = Panel { title, caption, x: ("nodes", 10.0), y, curves };
        plot::write(&folder.join(format!("scale-{name}.svg")), &[panel])?;
    }
    Ok(())
}
