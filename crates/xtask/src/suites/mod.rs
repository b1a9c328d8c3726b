//! `cargo xtask test`: runs the suites that can run on this machine, each with a time limit, and prints the
//! counts and seconds of each.

mod runner;
mod table;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::judge::{Counts, names_failure, slow_test};
use crate::needs::Skip;
use crate::process::{Followed, follow, tail, within};
use crate::step::Site;
use crate::workspace::{make_folder, root};
use table::{SUITES, Suite, When};

pub(crate) use runner::run as run_tests;

/// Maximum number of lines of a failed suite that are shown. All are in its log.
const SHOWN_LINES: usize = 60;

/// Maximum number of failed tests of a suite that the summary names.
const NAMED_FAILURES: usize = 20;

/// Maximum number of characters of a line about a failed test in the summary.
const FAILURE_WIDTH: usize = 400;

/// Number of the slowest tests that the summary names.
const SLOWEST: usize = 10;

/// Folder of the suites' output. .ci/run reads the file `totals` there and adds its own checks.
const LOGS: &str = "target/test-logs";

/// Prefix of the lines by which tests report parts of them that cannot run here, on standard error: `skipped:
/// WHAT: WHY`.
const SKIPPED: &str = "skipped: ";

/// How the suites of a run run.
struct Run {
    site: Site,
    /// Whether suites run their quick command, if they have one.
    quick: bool,
    /// Whether this is continuous integration.
    ci: bool,
}

/// The priority of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Whole,
    /// Priority over the suites that run at the same time: a guest that gets no CPU time loses its links.
    First,
    /// The CPU time that suites with priority leave.
    Rest,
}

/// The result of a suite that ran.
struct Ran {
    name: &'static str,
    counts: Counts,
    took: Duration,
    /// Parts that it reported as skipped.
    parts: BTreeSet<String>,
    /// Seconds and names of its slowest tests, if it reported them.
    slow: Vec<(f64, String)>,
    /// Lines that name its failed tests.
    failures: Vec<String>,
}

/// Runs the suites named in `only`; if that is empty, the quick ones, or `all`. Returns whether all passed.
pub(crate) fn run(all: bool, only: &[String]) -> Result<bool> {
    if let Some(unknown) = only.iter().find(|name| !SUITES.iter().any(|s| s.step.name == **name)) {
        let known: Vec<_> = SUITES.iter().map(|suite| suite.step.name).collect();
        bail!("no such suite: {unknown} (there are: {})", known.join(", "));
    }
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    make_folder(&root().join(LOGS))?;
    let run = Run { site: Site::new()?, quick: !all && only.is_empty(), ci };
    let (wanted, left_out): (Vec<&Suite>, Vec<&Suite>) =
        SUITES.iter().partition(|suite| is_wanted(suite, all, only));
    let mut can_run = Vec::new();
    let mut skipped = Vec::new();
    for suite in wanted {
        match suite.needs.iter().find_map(|need| need()) {
            // An empty remedy: another suite covers it on this machine.
            Some(skip) if skip.remedy.is_empty() => println!("{}: {}", suite.step.name, skip.reason),
            Some(skip) => skipped.push((suite, skip)),
            None => can_run.push(suite),
        }
    }
    let good = report(&run_all(&run, &can_run)?, &skipped, ci);
    if only.is_empty() && !left_out.is_empty() {
        let how = if all { "by name" } else { "by name, or all with `cargo xtask test --all`" };
        let names: Vec<_> = left_out.iter().map(|suite| suite.step.name).collect();
        println!("not part of this run: {} ({how})", names.join(", "));
    }
    Ok(good)
}

fn is_wanted(suite: &Suite, all: bool, only: &[String]) -> bool {
    match suite.when {
        _ if !only.is_empty() => only.iter().any(|name| name == suite.step.name),
        When::Always => true,
        When::All => all,
        When::Named => false,
    }
}

/// Runs suites in order. Those of the virtual machine run beside the others, because it leaves most of two cores idle:
/// in a quick run from the start, else from their place in the table on.
fn run_all(run: &Run, suites: &[&Suite]) -> Result<Vec<Ran>> {
    let beside = suites.iter().position(|suite| suite.beside);
    let fork = beside.map_or(suites.len(), |place| if run.quick { 0 } else { place });
    let (first, rest) = suites.split_at(fork);
    let (machine, others): (Vec<&Suite>, Vec<&Suite>) = rest.iter().partition(|suite| suite.beside);
    let in_turn = |suites: &[&Suite], share| -> Result<Vec<Ran>> {
        suites.iter().map(|suite| run_one(run, suite, share)).collect()
    };
    let mut ran = in_turn(first, Share::Whole)?;
    let (shared, left) =
        if others.is_empty() { (Share::Whole, Share::Whole) } else { (Share::First, Share::Rest) };
    let (beside, after) = std::thread::scope(|threads| {
        let line = threads.spawn(move || in_turn(&machine, shared));
        let after = in_turn(&others, left);
        (line.join().map_err(|_| anyhow::anyhow!("the thread of the machine's suites panicked")), after)
    });
    ran.extend(after?);
    ran.extend(beside??);
    Ok(ran)
}

fn run_one(run: &Run, suite: &Suite, share: Share) -> Result<Ran> {
    let name = suite.step.name;
    let command = suite.quick.filter(|_| run.quick).unwrap_or(suite.step.command);
    let mut step = suite.step;
    step.command = command;
    println!("{name}: {command}");
    let path = root().join(LOGS).join(format!("{name}.log"));
    let mut log = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    let mut command = run.site.command_of(&step);
    if share == Share::Rest {
        command = within("nice -n 10", &command);
    }
    let Followed { end, output, took } = follow(&mut command, step.limit, &mut |line| {
        // If the disk is full, the log is incomplete, but the run continues.
        let _ = writeln!(log, "{line}");
        if suite.live {
            println!("  {name}: {line}");
        }
    })?;
    if let Some(folder) = suite.folder.filter(|_| run.ci) {
        // It may not exist; if it stays, only the disk is fuller.
        let _ = fs::remove_dir_all(root().join(folder));
    }
    let counts = step.judge.counts(&output, end.is_good());
    if counts.failed > 0 {
        if !suite.live {
            tail(&output, SHOWN_LINES).iter().for_each(|line| println!("  | {line}"));
        }
        println!("{name}: failed ({end}); all of its output: {}", path.display());
    }
    let parts = output.lines().filter_map(|line| line.strip_prefix(SKIPPED)).map(str::to_owned).collect();
    let slow = output.lines().filter_map(slow_test).map(|(took, name)| (took, name.to_owned())).collect();
    let failures = if counts.failed == 0 { Vec::new() } else { failures(&output) };
    let seconds = took.as_secs_f64();
    println!("{name}: {} passed, {} failed, {seconds:.1} s", counts.passed, counts.failed);
    Ok(Ran { name, counts, took, parts, slow, failures })
}

/// The first lines that name a failed test; the last line if none does.
fn failures(output: &str) -> Vec<String> {
    let short = |line: &str| line.trim().chars().take(FAILURE_WIDTH).collect();
    let named: Vec<String> =
        output.lines().filter(|line| names_failure(line)).take(NAMED_FAILURES).map(short).collect();
    if named.is_empty() { output.lines().last().map(short).into_iter().collect() } else { named }
}

/// Prints the summary; returns whether all passed.
fn report(ran: &[Ran], skipped: &[(&Suite, Skip)], ci: bool) -> bool {
    let mut total = Counts::default();
    println!();
    for Ran { name, counts, took, .. } in ran {
        let seconds = took.as_secs_f64();
        println!("{name:<18} {:>6} passed {:>4} failed {seconds:>8.1} s", counts.passed, counts.failed);
        total += *counts;
    }
    for (suite, skip) in skipped {
        println!("{:<18} skipped: {}", suite.step.name, skip.reason);
        println!("{:<18} to run it: {}", "", skip.remedy);
        if ci && suite.required_in_ci {
            println!("{:<18} continuous integration must run it: counted as a failure", "");
            total.failed += 1;
        }
    }
    for suite in ran {
        for part in &suite.parts {
            println!("{:<18} skipped in part: {part}", suite.name);
        }
    }
    let mut slow: Vec<_> = ran.iter().flat_map(|suite| &suite.slow).collect();
    slow.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (took, name) in slow.iter().take(SLOWEST) {
        println!("{:<18} {took:>8.1} s  {name}", "slow");
    }
    for suite in ran {
        for line in &suite.failures {
            println!("{:<18} failure: {line}", suite.name);
        }
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    let _ = fs::write(root().join(LOGS).join("totals"), format!("{} {}\n", total.passed, total.failed));
    total.failed == 0
}
