//! The interop matrix: rows of `interop/matrix` in one boot of the lab's machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::suites::slow_line;
use crate::{lab, wireshark};

/// The program that is utipc's end of the rows.
const PROGRAM: &str = "utipc-interop";
/// The program of `utipc bench`, and the package of both.
const LABORATORY: &str = "utipc-lab";

/// Options of `cargo xtask interop`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Rows (`message-sizes`), one medium of a row (`message-sizes/udp`) or a medium (`udp`); with the kernel-engine
    /// also `demo` and `bench`; all if none is named
    rows: Vec<String>,
    /// `utipc`; `kernel` to prove the rows with a second kernel node; `kernel-engine`: the library on a second kernel
    /// node
    #[arg(long, default_value = "utipc")]
    peer: String,
    /// Minutes, then the machine is killed
    #[arg(long, default_value_t = BUDGET.as_secs() / 60)]
    minutes: u64,
    /// Run the rows this many times, to find one that fails now and then
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Keep the recordings of rows that passed as well
    #[arg(long)]
    keep: bool,
    /// Let Wireshark's dissector compare what utipc sends with what a kernel sends in the same rows
    #[arg(long)]
    wireshark: bool,
    /// Only name the rows
    #[arg(long)]
    list: bool,
    /// Use programs of the dev profile: built sooner, slower
    #[arg(long)]
    dev: bool,
}

/// Time limit of the whole matrix, including the boot, on two busy cores.
pub(crate) const BUDGET: Duration = Duration::from_secs(35 * 60);

/// Numbers of rows that ran and that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

/// Runs the rows that `options` select, and prints each when it ends.
pub(crate) fn run(root: &Path, options: &Options) -> Result<Outcome> {
    if options.wireshark && options.peer != "utipc" {
        bail!("--wireshark compares utipc with a kernel: use it without --peer");
    }
    let lab = lab::build(root)?;
    let out = root.join("target/interop");
    if out.exists() {
        std::fs::remove_dir_all(&out).context("remove the results of the last run")?;
    }
    let program = match options.peer.as_str() {
        "kernel" => "kernel".to_owned(),
        "utipc" | "kernel-engine" => build_program(root, PROGRAM, options.dev)?.display().to_string(),
        other => bail!("no such peer: {other} (utipc, kernel or kernel-engine)"),
    };
    let mut args = vec!["--peer".to_owned(), program];
    if options.peer == "kernel-engine" {
        let tool = build_program(root, "utipc", options.dev)?.display().to_string();
        // `utipc bench` starts it.
        build_program(root, LABORATORY, options.dev)?;
        args.extend(["--kernel-engine".to_owned(), "--tool".to_owned(), tool]);
    }
    args.push(format!("--repeat={}", options.repeat));
    args.extend(options.keep.then(|| "--keep".to_owned()));
    args.extend(options.wireshark.then(|| "--twice".to_owned()));
    args.extend(options.list.then(|| "--list".to_owned()));
    args.extend(options.rows.iter().cloned());
    let limits = lab::Limits { time: Duration::from_secs(options.minutes * 60), memory: 2048, cpus: 2 };
    let script = root.join("interop/matrix/matrix.py");
    let code = lab::run(&lab, &script, &args, &out, limits, &mut |line| println!("{line}"))?;
    if options.list && code == 0 {
        return Ok(Outcome::default());
    }
    let results = std::fs::read_to_string(out.join("results.json"));
    let Ok(results) = results else {
        bail!("the matrix did not end (exit code {code}; 124 is the limit of {} minutes)", options.minutes);
    };
    let mut outcome = count(&results).context("results.json has no rows")?;
    name_slow_rows(&results);
    if (code == 0) != (outcome.failed == 0) {
        bail!("the matrix ended with code {code} but reports {} failed rows", outcome.failed);
    }
    if options.wireshark {
        let tshark = lab.command("tshark")?;
        let verdict = wireshark::compare(&out, &|| without_arguments(&tshark))?;
        for fault in &verdict.faults {
            println!("wireshark: malformed, and not when the kernel sends it: {fault}");
        }
        println!("wireshark: {} recordings, {} faults", verdict.recordings, verdict.faults.len());
        if verdict.recordings > 0 && verdict.faults.is_empty() {
            outcome.passed += 1;
        } else {
            outcome.failed += 1;
        }
    }
    println!("interop: {} passed, {} failed", outcome.passed, outcome.failed);
    Ok(outcome)
}

/// A command for the same program in the same environment, without its arguments.
fn without_arguments(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    copy
}

/// Reports the seconds of each row for the summary of `cargo xtask test`.
fn name_slow_rows(results: &str) {
    let results: Value = serde_json::from_str(results).unwrap_or_default();
    for row in results["rows"].as_array().into_iter().flatten() {
        if let (Some(name), Some(seconds)) = (row["row"].as_str(), row["seconds"].as_f64()) {
            println!("{}", slow_line(&format!("interop {name}"), Duration::from_secs_f64(seconds.max(0.0))));
        }
    }
}

fn count(results: &str) -> Option<Outcome> {
    let results: Value = serde_json::from_str(results).ok()?;
    let rows = results["rows"].as_array().filter(|rows| !rows.is_empty())?;
    let failed = rows.iter().filter(|r| !r["failure"].is_null()).count();
    Some(Outcome { passed: rows.len() - failed, failed })
}

/// Builds a program of utipc for the guest. It is optimised unless `dev`, because the guest's emulated CPU is
/// slow.
fn build_program(root: &Path, name: &str, dev: bool) -> Result<PathBuf> {
    let (profile, folder) = if dev { ("dev", "debug") } else { ("release", "release") };
    let package = if name == "utipc" { "utipc-tools" } else { LABORATORY };
    crate::workspace::build(root, &["--profile", profile, "--package", package, "--bin", name])?;
    Ok(crate::workspace::target(root).join(folder).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let text = r#"{"rows":[{"row":"a/eth","failure":null},{"row":"b/eth","failure":"lost"}]}"#;
        assert_eq!(count(text), Some(Outcome { passed: 1, failed: 1 }));
        assert_eq!(count(r#"{"rows":[]}"#), None);
        assert_eq!(count("not json"), None);
    }
}
