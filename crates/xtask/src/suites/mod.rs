//! `cargo xtask test`: every test that can run on this machine, each suite with its counts, seconds and a time limit.

mod judge;
mod table;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{self, End};
use judge::Counts;
use table::{SUITES, Skip, Suite};

/// Lines of a failed suite that are shown; all are in its log.
const SHOWN_LINES: usize = 60;

/// How tests say, on standard error, that a part of them could not run here: `skipped: WHAT: WHY`.
const SKIPPED: &str = "skipped: ";

/// Where suites run.
struct Site<'a> {
    root: &'a Path,
    logs: PathBuf,
    /// This program, found before a suite may build it anew.
    xtask: PathBuf,
}

/// How much of the cores a suite may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Whole,
    /// What it wants, beside others.
    First,
    /// What those leave that come first: a guest whose cores stand still loses its links.
    Rest,
}

/// A suite that ran.
struct Ran {
    name: &'static str,
    counts: Counts,
    took: Duration,
    /// Parts that it reported as skipped.
    parts: Vec<String>,
}

/// Runs the suites named in `only` (all if empty).
pub(crate) fn run(root: &Path, only: &[String]) -> Result<ExitCode> {
    if let Some(unknown) = only.iter().find(|name| !SUITES.iter().any(|s| s.name == **name)) {
        let known: Vec<_> = SUITES.iter().map(|s| s.name).collect();
        bail!("no such suite: {unknown} (there are: {})", known.join(", "));
    }
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    let logs = root.join("target/test-logs");
    std::fs::create_dir_all(&logs).context("make target/test-logs")?;
    let site = Site { root, logs, xtask: std::env::current_exe().context("find this program")? };
    let mut can_run = Vec::new();
    let mut skipped = Vec::new();
    for suite in SUITES.iter().filter(|s| only.is_empty() || only.iter().any(|name| name == s.name)) {
        let obstacle = if suite.by_name && only.is_empty() {
            let remedy = format!("cargo xtask test {}", suite.name);
            Some(Skip { reason: "it takes long, and runs when it is named".into(), remedy })
        } else {
            (suite.obstacle)(root)
        };
        match obstacle {
            // Nothing to enable: another suite covers it on this machine.
            Some(skip) if skip.remedy.is_empty() => println!("{}: {}", suite.name, skip.reason),
            Some(skip) => skipped.push((suite, skip)),
            None => can_run.push(suite),
        }
    }
    let ran = run_all(&site, &can_run)?;
    Ok(report(root, &ran, &skipped, ci))
}

/// Runs suites in order. From the first one of the virtual machine on, those run in a line of their own beside the others: the
/// machine leaves most of two cores idle.
fn run_all(site: &Site<'_>, suites: &[&Suite]) -> Result<Vec<Ran>> {
    let fork = suites.iter().position(|suite| suite.beside).unwrap_or(suites.len());
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
    println!("{}: {}", suite.name, suite.command.join(" "));
    let path = site.logs.join(format!("{}.log", suite.name));
    let began = Instant::now();
    let (end, output) = capture(site, suite, share, &path)?;
    let took = began.elapsed();
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
    let parts = output.lines().filter_map(|l| l.strip_prefix(SKIPPED)).map(str::to_owned).collect();
    Ok(Ran { name: suite.name, counts, took, parts })
}

/// Runs the suite's command, its output into `log`.
fn capture(site: &Site<'_>, suite: &Suite, share: Share, log: &PathBuf) -> Result<(End, String)> {
    let mut file = File::create(log).with_context(|| format!("create {}", log.display()))?;
    let (read, write) = std::io::pipe().context("make a pipe")?;
    let mut words = suite.command.iter();
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
    let mut child = command.spawn().with_context(|| format!("start {}", suite.command.join(" ")))?;
    drop(command); // its ends of the pipe, so that the pipe ends with the child
    let live = suite.live.then_some(suite.name);
    let reader = std::thread::spawn(move || {
        let mut output = String::new();
        for line in BufReader::new(read).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            // A full disk costs the log, not the run.
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

/// Prints the summary; the exit code says whether all is well.
fn report(root: &Path, ran: &[Ran], skipped: &[(&Suite, Skip)], ci: bool) -> ExitCode {
    let mut total = Counts::default();
    println!();
    for suite in ran {
        let Counts { passed, failed } = suite.counts;
        println!(
            "{:<10} {passed:>6} passed {failed:>4} failed {:>8.1} s",
            suite.name,
            suite.took.as_secs_f64()
        );
        total += suite.counts;
    }
    for (suite, skip) in skipped {
        println!("{:<10} skipped: {}", suite.name, skip.reason);
        println!("{:<10} to run it: {}", "", skip.remedy);
        if ci && suite.required_in_ci {
            println!("{:<10} continuous integration must run it: counted as a failure", "");
            total.failed += 1;
        }
    }
    for suite in ran {
        for part in &suite.parts {
            println!("{:<10} skipped in part: {part}", suite.name);
        }
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    // For .ci/run, which adds its own checks.
    let _ =
        std::fs::write(root.join("target/test-logs/totals"), format!("{} {}\n", total.passed, total.failed));
    if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
