//! `cargo xtask test`: runs the suites that can run on this machine, each with a time limit, and prints the
//! counts and seconds of each.

mod judge;
mod runner;
mod table;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{self, End};
use judge::{Counts, names_failure, slow_test};
use table::{SUITES, Skip, Suite, When};

pub(crate) use judge::slow_line;

/// Maximum number of lines of a failed suite that are shown. All are in its log.
const SHOWN_LINES: usize = 60;

/// Maximum number of failed tests of a suite that the summary names.
const NAMED_FAILURES: usize = 20;

/// Maximum number of characters of a line about a failed test in the summary.
const FAILURE_WIDTH: usize = 400;

/// Number of the slowest tests that the summary names.
const SLOWEST: usize = 10;

/// Prefix of the lines by which tests report parts of them that cannot run here, on standard error: `skipped:
/// WHAT: WHY`.
const SKIPPED: &str = "skipped: ";

/// The environment of a run.
struct Site<'a> {
    root: &'a Path,
    logs: PathBuf,
    /// The path of this program, resolved before a suite rebuilds it.
    xtask: PathBuf,
    /// Whether suites run their quick command, if they have one.
    quick: bool,
    /// Whether this is continuous integration.
    ci: bool,
}

impl Site<'_> {
    fn command(&self, suite: &Suite) -> &'static [&'static str] {
        suite.quick.filter(|_| self.quick).unwrap_or(suite.command)
    }
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

/// Builds and runs the tests of `cargo test ARGUMENTS`; returns whether all passed.
pub(crate) fn run_tests(root: &Path, arguments: &[String]) -> Result<bool> {
    Ok(runner::run(root, arguments)?.failed == 0)
}

/// Runs the suites named in `only`; if that is empty, the quick ones, or `all`.
pub(crate) fn run(root: &Path, all: bool, only: &[String]) -> Result<ExitCode> {
    if let Some(unknown) = only.iter().find(|name| !SUITES.iter().any(|s| s.name == **name)) {
        let known: Vec<_> = SUITES.iter().map(|s| s.name).collect();
        bail!("no such suite: {unknown} (there are: {})", known.join(", "));
    }
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    let logs = root.join("target/test-logs");
    std::fs::create_dir_all(&logs).context("make target/test-logs")?;
    let xtask = std::env::current_exe().context("find this program")?;
    let site = Site { root, logs, xtask, quick: !all && only.is_empty(), ci };
    let mut can_run = Vec::new();
    let mut skipped = Vec::new();
    let mut left_out = Vec::new();
    for suite in SUITES {
        if !is_wanted(suite, all, only) {
            left_out.push(suite.name);
            continue;
        }
        match (suite.obstacle)(root) {
            // An empty remedy: another suite covers it on this machine.
            Some(skip) if skip.remedy.is_empty() => println!("{}: {}", suite.name, skip.reason),
            Some(skip) => skipped.push((suite, skip)),
            None => can_run.push(suite),
        }
    }
    let ran = run_all(&site, &can_run)?;
    let code = report(root, &ran, &skipped, ci);
    if only.is_empty() && !left_out.is_empty() {
        let how = if all { "by name" } else { "by name, or all with `cargo xtask test --all`" };
        println!("not part of this run: {} ({how})", left_out.join(", "));
    }
    Ok(code)
}

fn is_wanted(suite: &Suite, all: bool, only: &[String]) -> bool {
    match suite.when {
        _ if !only.is_empty() => only.iter().any(|name| name == suite.name),
        When::Always => true,
        When::All => all,
        When::Named => false,
    }
}

/// Runs suites in order. Those of the virtual machine run beside the others, because it leaves most of two cores idle:
/// in a quick run from the start, else from their place in the table on.
fn run_all(site: &Site<'_>, suites: &[&Suite]) -> Result<Vec<Ran>> {
    let beside = suites.iter().position(|suite| suite.beside);
    let fork = beside.map_or(suites.len(), |place| if site.quick { 0 } else { place });
    let (first, rest) = suites.split_at(fork);
    let (machine, others): (Vec<&Suite>, Vec<&Suite>) = rest.iter().partition(|suite| suite.beside);
    let mut ran = first.iter().map(|suite| run_one(site, suite, Share::Whole)).collect::<Result<Vec<_>>>()?;
    let (beside, after) = std::thread::scope(|threads| {
        let share = if others.is_empty() { Share::Whole } else { Share::First };
        let run_machine =
            move || machine.iter().map(|suite| run_one(site, suite, share)).collect::<Result<Vec<_>>>();
        let line = threads.spawn(run_machine);
        let share = if share == Share::First { Share::Rest } else { Share::Whole };
        let after: Result<Vec<_>> = others.iter().map(|suite| run_one(site, suite, share)).collect();
        (line.join().map_err(|_| anyhow::anyhow!("the thread of the machine's suites panicked")), after)
    });
    ran.extend(after?);
    ran.extend(beside??);
    Ok(ran)
}

fn run_one(site: &Site<'_>, suite: &Suite, share: Share) -> Result<Ran> {
    println!("{}: {}", suite.name, site.command(suite).join(" "));
    let path = site.logs.join(format!("{}.log", suite.name));
    let began = Instant::now();
    let (end, output) = capture(site, suite, share, &path)?;
    let took = began.elapsed();
    if let Some(folder) = suite.folder.filter(|_| site.ci) {
        // It may not exist; if it stays, only the disk is fuller.
        let _ = std::fs::remove_dir_all(site.root.join(folder));
    }
    let success = matches!(end, End::Exit(status) if status.success());
    let counts = suite.judge.counts(&output, success);
    if counts.failed > 0 {
        let lines: Vec<&str> = output.lines().collect();
        if !suite.live {
            for line in lines.get(lines.len().saturating_sub(SHOWN_LINES)..).unwrap_or_default() {
                println!("  | {line}");
            }
        }
        let why = match end {
            End::TimedOut => format!("killed at its limit of {} s", suite.limit.as_secs()),
            End::Exit(status) => status.to_string(),
        };
        println!("{}: failed ({why}); all of its output: {}", suite.name, path.display());
    }
    let parts: BTreeSet<_> =
        output.lines().filter_map(|l| l.strip_prefix(SKIPPED)).map(str::to_owned).collect();
    let slow = output.lines().filter_map(slow_test).map(|(took, name)| (took, name.to_owned())).collect();
    let failures = match counts.failed {
        0 => Vec::new(),
        _ => failures(&output),
    };
    println!(
        "{}: {} passed, {} failed, {:.1} s",
        suite.name,
        counts.passed,
        counts.failed,
        took.as_secs_f64()
    );
    Ok(Ran { name: suite.name, counts, took, parts, slow, failures })
}

/// The first lines that name a failed test; the last line if none does.
fn failures(output: &str) -> Vec<String> {
    let short = |line: &str| line.trim().chars().take(FAILURE_WIDTH).collect();
    let named: Vec<String> =
        output.lines().filter(|line| names_failure(line)).take(NAMED_FAILURES).map(short).collect();
    if named.is_empty() { output.lines().last().map(short).into_iter().collect() } else { named }
}

/// Runs the suite's command and writes its output to `log`.
fn capture(site: &Site<'_>, suite: &Suite, share: Share, log: &PathBuf) -> Result<(End, String)> {
    let mut file = File::create(log).with_context(|| format!("create {}", log.display()))?;
    let (read, write) = std::io::pipe().context("make a pipe")?;
    let mut words = site.command(suite).iter();
    let program = words.next().context("a suite without a command")?;
    let program = resolve(site, program);
    let mut command = match share {
        Share::Rest => Command::new("nice"),
        Share::Whole | Share::First => Command::new(&program),
    };
    if share == Share::Rest {
        command.args(["-n", "10"]).arg(&program);
    }
    command.args(words).current_dir(site.root).stdin(Stdio::null());
    command.stdout(write.try_clone().context("copy a pipe")?).stderr(write);
    let mut child = command.spawn().with_context(|| format!("start {}", suite.name))?;
    drop(command); // its ends of the pipe, so that the pipe ends with the child
    let live = suite.live.then_some(suite.name);
    let reader = std::thread::spawn(move || {
        let mut output = String::new();
        for line in BufReader::new(read).split(b'\n').map_while(Result::ok) {
            let line = judge::plain(&String::from_utf8_lossy(&line));
            // If the disk is full, the log is incomplete, but the run continues.
            let _ = writeln!(file, "{line}");
            if let Some(name) = live {
                println!("  {name}: {line}");
            }
            output.push_str(&line);
            output.push('\n');
        }
        output
    });
    let end = process::wait(&mut child, suite.limit)?;
    let output =
        reader.join().map_err(|_| anyhow::anyhow!("the thread that reads {} panicked", suite.name))?;
    Ok((end, output))
}

fn resolve(site: &Site<'_>, program: &str) -> PathBuf {
    match program {
        "cargo" => std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from),
        "xtask" => site.xtask.clone(),
        other => other.into(),
    }
}

/// Prints the summary; returns the exit code of the run.
fn report(root: &Path, ran: &[Ran], skipped: &[(&Suite, Skip)], ci: bool) -> ExitCode {
    let mut total = Counts::default();
    println!();
    for suite in ran {
        let Counts { passed, failed } = suite.counts;
        println!(
            "{:<18} {passed:>6} passed {failed:>4} failed {:>8.1} s",
            suite.name,
            suite.took.as_secs_f64()
        );
        total += suite.counts;
    }
    for (suite, skip) in skipped {
        println!("{:<18} skipped: {}", suite.name, skip.reason);
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
    // .ci/run reads this line and adds its own checks.
    let _ =
        std::fs::write(root.join("target/test-logs/totals"), format!("{} {}\n", total.passed, total.failed));
    crate::workspace::verdict(total.failed == 0)
}
