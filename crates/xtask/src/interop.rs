//! The interop matrix: rows of `interop/matrix` in one boot of the lab's machine.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::judge::{Counts, slow_line};
use crate::step::Tally;
use crate::workspace::{Profile, empty_folder, root, target};
use crate::{lab, wireshark};

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
    #[arg(long, default_value_t = BUDGET_MINUTES)]
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
const BUDGET_MINUTES: u64 = 35;

/// Runs the rows that `options` select, and prints each when it ends. Returns whether all passed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.wireshark && options.peer != "utipc" {
        bail!("--wireshark compares utipc with a kernel: use it without --peer");
    }
    let out = target().join("interop");
    empty_folder(&out)?;
    // The package of utipc's end of the rows also has the program that `utipc bench` starts.
    let program = |package, name| compile(package, name, options.dev);
    let mut args = vec!["--peer".to_owned()];
    match options.peer.as_str() {
        "kernel" => args.push("kernel".into()),
        "utipc" => args.push(program("utipc-lab", "utipc-interop")?),
        "kernel-engine" => {
            args.extend([program("utipc-lab", "utipc-interop")?, "--kernel-engine".into(), "--tool".into()]);
            args.push(program("utipc-tools", "utipc")?);
            program("utipc-lab", "utipc-lab")?;
        }
        other => bail!("no such peer: {other} (utipc, kernel or kernel-engine)"),
    }
    args.push(format!("--repeat={}", options.repeat));
    let flags = [(options.keep, "--keep"), (options.wireshark, "--twice"), (options.list, "--list")];
    args.extend(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.to_owned()));
    args.extend(options.rows.iter().cloned());
    let limits = lab::Limits { time: Duration::from_secs(options.minutes * 60), ..lab::Limits::default() };
    let code = lab::show(&root().join("interop/matrix/matrix.py"), &args, &out, limits)?;
    let mut tally = Tally::new("interop");
    if options.list && code == 0 {
        return Ok(true);
    }
    let Ok(results) = fs::read_to_string(out.join("results.json")) else {
        bail!("the matrix did not end (exit code {code}; 124 is the limit of {} minutes)", options.minutes);
    };
    tally.counts = count(&results).context("results.json has no rows")?;
    let failed = tally.counts.failed;
    ensure!(
        (code == 0) == (failed == 0),
        "the matrix ended with code {code} but reports {failed} failed rows"
    );
    if options.wireshark {
        tally.counts += wireshark::compare(&lab::build()?, &out)?;
    }
    Ok(tally.end())
}

/// Counts the rows, and reports the seconds of each for the summary of `cargo xtask test`.
fn count(results: &str) -> Option<Counts> {
    let results: Value = serde_json::from_str(results).ok()?;
    let rows = results["rows"].as_array().filter(|rows| !rows.is_empty())?;
    let mut counts = Counts::default();
    for row in rows {
        counts += Counts::one(row["failure"].is_null());
        if let (Some(name), Some(seconds)) = (row["row"].as_str(), row["seconds"].as_f64()) {
            println!("{}", slow_line(&format!("interop {name}"), Duration::from_secs_f64(seconds.max(0.0))));
        }
    }
    Some(counts)
}

/// Builds a program of utipc for the guest. It is optimised unless `dev`, because the guest's emulated CPU is
/// slow.
fn compile(package: &str, name: &str, dev: bool) -> Result<String> {
    let folder = Profile::chosen(dev).build(&format!("--package {package} --bin {name}"))?;
    Ok(folder.join(name).display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let text = r#"{"rows":[{"row":"a/eth","failure":null},{"row":"b/eth","failure":"lost"}]}"#;
        assert_eq!(count(text), Some(Counts { passed: 1, failed: 1 }));
        assert_eq!(count(r#"{"rows":[]}"#), None);
        assert_eq!(count("not json"), None);
    }
}
