//! Runs the workspace's tests: one process for each test, several at once, each with a time limit.
//!
//! A test that hangs is killed without affecting others, and the time of each is measured. As root, each thread
//! that runs tests has a network namespace of its own, so that ports and multicast groups of one test do not
//! reach another. `cargo nextest` does the same, but takes several minutes to build where it is not installed.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::SKIPPED;
use crate::judge::{Counts, Judge, slow_line};
use crate::process::{Followed, follow, output};
use crate::workspace::cargo;

/// Time limit of one test.
const LIMIT: Duration = Duration::from_secs(300);
/// Number of tests that run at once on each core, because most of them wait most of the time.
const PER_CORE: usize = 3;
/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// Number of the slowest tests that are named at the end.
const SLOWEST: usize = 10;

/// A test executable that cargo has built.
struct Executable {
    /// Package and target, as `utipc-core::wire`.
    name: String,
    path: PathBuf,
    /// Folder of the package, which tests expect as their working directory.
    folder: PathBuf,
}

impl Executable {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(words).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// One test of an executable.
struct Test<'a> {
    executable: &'a Executable,
    name: String,
}

/// A test that has ended.
struct Ended {
    name: String,
    took: Duration,
    /// Its output, if it failed.
    failure: Option<String>,
    /// Lines about parts that could not run here.
    skipped: Vec<String>,
}

/// Builds the tests that `cargo test ARGUMENTS` would run, runs them, then the documentation's examples; prints each
/// failure, the slowest tests and the totals. Returns whether all passed.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    let executables = build(arguments)?;
    let mut tests = VecDeque::new();
    for executable in &executables {
        tests.extend(list(executable)?);
    }
    let all = tests.len();
    println!("{all} tests in {} executables", executables.len());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let isolated = std::thread::spawn(own_network).join().unwrap_or(false);
    let at_once = if isolated { cores * PER_CORE } else { cores };
    let (ended, results) = mpsc::channel();
    let queue = Mutex::new(tests);
    let mut results = std::thread::scope(|threads| {
        for _ in 0..at_once {
            let (queue, ended) = (&queue, ended.clone());
            threads.spawn(move || work(queue, &ended));
        }
        drop(ended);
        collect(&results, all)
    });
    results.sort_by_key(|test| std::cmp::Reverse(test.took));
    for test in results.iter().take(SLOWEST) {
        println!("{}", slow_line(&test.name, test.took));
    }
    let failed = results.iter().filter(|test| test.failure.is_some()).count();
    let mut counts = Counts { passed: results.len() - failed, failed };
    counts += documentation(arguments)?;
    println!("tests: {} passed, {} failed", counts.passed, counts.failed);
    Ok(counts.failed == 0)
}

fn build(arguments: &[String]) -> Result<Vec<Executable>> {
    let mut build = cargo("test --no-run --message-format=json-render-diagnostics");
    let out = build.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let out = out.context("run cargo test --no-run")?;
    if !out.status.success() {
        bail!("the tests do not build");
    }
    let messages = String::from_utf8_lossy(&out.stdout);
    let mut found: Vec<Executable> = messages.lines().filter_map(executable).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The test executable in one message of cargo, if that is one.
fn executable(message: &str) -> Option<Executable> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let package = message["package_id"].as_str()?.rsplit('/').next()?;
    let package = package.rsplit('#').next()?.split('@').next()?;
    let package = if package.starts_with(|c: char| c.is_ascii_digit()) {
        folder.file_name()?.to_str()?.to_owned()
    } else {
        package.to_owned()
    };
    Some(Executable {
        name: format!("{package}::{}", message["target"]["name"].as_str()?),
        path: message["executable"].as_str()?.into(),
        folder,
    })
}

fn list(executable: &Executable) -> Result<Vec<Test<'_>>> {
    let text = output(&mut executable.command(&["--list", "--format", "terse"]))?;
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(|name| Test { executable, name: name.to_owned() }).collect())
}

/// Runs tests from the queue until it is empty.
fn work(queue: &Mutex<VecDeque<Test<'_>>>, ended: &Sender<Result<Ended>>) {
    own_network();
    loop {
        let next = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front();
        let Some(test) = next else { return };
        if ended.send(run_one(&test)).is_err() {
            return;
        }
    }
}

/// Gives this thread and the processes that it starts a network namespace of their own. Returns false if the
/// user may not do that.
fn own_network() -> bool {
    // Without `ip`, nothing could bring the new namespace's loopback device up.
    let has_ip = Command::new("ip").arg("-V").output().is_ok();
    if !has_ip || nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_err() {
        return false;
    }
    Command::new("ip").args(["link", "set", "lo", "up"]).status().is_ok_and(|end| end.success())
}

fn run_one(test: &Test<'_>) -> Result<Ended> {
    let name = format!("{} {}", test.executable.name, test.name);
    let mut command = test.executable.command(&["--exact", &test.name, "--nocapture"]);
    let Followed { end, output, took } = follow(&mut command, LIMIT, &mut |_| {})?;
    let passed = end.is_good() && output.contains("test result: ok. 1 passed");
    let failure = (!passed).then(|| format!("{output}{name}: {end}"));
    let skipped = output.lines().filter(|line| line.starts_with(SKIPPED)).map(str::to_owned).collect();
    Ok(Ended { name, took, failure, skipped })
}

/// Collects the results; shows each failure when it is reported, and progress.
fn collect(results: &Receiver<Result<Ended>>, all: usize) -> Vec<Ended> {
    let (began, mut shown) = (Instant::now(), Instant::now());
    let mut ended = Vec::with_capacity(all);
    for result in results {
        let test = result.unwrap_or_else(|error| Ended {
            name: "a test that did not start".into(),
            took: Duration::ZERO,
            failure: Some(format!("{error:#}")),
            skipped: Vec::new(),
        });
        for line in &test.skipped {
            println!("{line}");
        }
        if let Some(output) = &test.failure {
            println!("FAILED {} ({:.1} s)\n{output}", test.name, test.took.as_secs_f64());
        }
        ended.push(test);
        if shown.elapsed() >= PROGRESS {
            shown = Instant::now();
            println!("{} of {all} tests, {} s", ended.len(), began.elapsed().as_secs());
        }
    }
    ended
}

/// Runs the examples in the documentation, which only cargo can build.
fn documentation(arguments: &[String]) -> Result<Counts> {
    let began = Instant::now();
    let mut test = cargo("test --doc --no-fail-fast");
    let out = test.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let out = out.context("run cargo test --doc")?;
    let output = String::from_utf8_lossy(&out.stdout);
    let counts = Judge::CargoTest.counts(&output, out.status.success());
    if counts.failed > 0 {
        println!("{output}");
    }
    println!("{} examples of the documentation, {} s", counts.passed, began.elapsed().as_secs());
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_executables_are_found_among_cargos_messages() {
        let message = |reason: &str, test: bool, id: &str| {
            format!(
                r#"{{"reason":"{reason}","package_id":"{id}","manifest_path":"/x/crates/a/Cargo.toml",
                "target":{{"name":"wire"}},"profile":{{"test":{test}}},"executable":"/x/target/debug/deps/wire-1"}}"#
            )
        };
        let id = "path+file:///x/crates/a#utipc-a@0.1.0";
        let found = executable(&message("compiler-artifact", true, id)).expect("an executable");
        assert_eq!(found.name, "utipc-a::wire");
        assert_eq!(found.folder, Path::new("/x/crates/a"));
        let short = executable(&message("compiler-artifact", true, "path+file:///x/crates/a#0.1.0"));
        assert_eq!(short.expect("an executable").name, "a::wire");
        assert!(executable(&message("compiler-artifact", false, id)).is_none());
        assert!(executable(&message("build-finished", true, id)).is_none());
        assert!(executable("not json").is_none());
    }
}
