//! `cargo xtask cpg`: Corosync's own test programs, built outside the tree and linked to Corosync's library, run on
//! ours; or a measurement beside Corosync. The scripts are in `interop/cpg`.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;

use crate::install::link_cpg;
use crate::step::Site;
use crate::workspace::{Profile, target};

#[derive(Args)]
pub(crate) struct Options {
    /// Also run the benchmarks to their end: cpgbench and cpghum's flood, two and a half minutes
    #[arg(long)]
    bench: bool,
    /// Run a debug build of the library
    #[arg(long)]
    debug: bool,
    /// Run this utipcd instead of building one
    #[arg(long)]
    daemon: Option<PathBuf>,
    /// Measure beside Debian's Corosync instead, downloaded below target/cpg (root; exit code 77: skipped)
    #[arg(long)]
    compare: bool,
    /// Rounds of a comparison
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100), requires = "compare")]
    rounds: u32,
    /// Milliseconds of each rate, a fifth of them not counted
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    rate_ms: u64,
    /// Rounds in which members and nodes are killed; 0: none
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    kills: u32,
    /// Measure the build that is there (profile `dist`), without building
    #[arg(long, requires = "compare")]
    built: bool,
    /// Print one JSON object for each row
    #[arg(long, requires = "compare")]
    json: bool,
}

const PROGRAMS: &str =
    "python3 interop/cpg/run.py --place {place} --library {place}/lib/libcpg.so.4 --daemon {daemon}";
const COMPARISON: &str = "python3 interop/cpg/compare.py --place {place} --library {place}/lib/libcpg.so.4 \
    --programs {target}/dist";

/// Builds and runs the programs, or compares with Corosync.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let site = Site::new()?.with("{place}", target().join("cpg"));
    if options.compare {
        return compare(&site, options);
    }
    let profile = Profile::chosen(options.debug);
    link_cpg(&target().join("cpg/lib"), profile)?;
    let daemon = match &options.daemon {
        Some(daemon) => std::path::absolute(daemon).context("find the daemon")?,
        None => profile.build("--package utipc-tools --bin utipcd")?.join("utipcd"),
    };
    finish(site.with("{daemon}", daemon).command(PROGRAMS).args(options.bench.then_some("--bench")))
}

fn compare(site: &Site, options: &Options) -> Result<ExitCode> {
    let prepared = finish(site.command(COMPARISON).arg("--prepare"))?;
    if prepared != ExitCode::SUCCESS {
        return Ok(prepared);
    }
    if !options.built {
        link_cpg(&target().join("cpg/lib"), Profile::Dist)?;
        Profile::Dist.build("--package utipc-tools --bin utipcd")?;
        Profile::Dist.build("--package utipc-lab --bin utipc-lab")?;
    }
    let mut command = site.command(COMPARISON);
    command.args(["--rounds", &options.rounds.to_string(), "--rate-ms", &options.rate_ms.to_string()]);
    finish(command.args(["--kills", &options.kills.to_string()]).args(options.json.then_some("--json")))
}

/// Runs a script; its exit code is ours.
fn finish(command: &mut Command) -> Result<ExitCode> {
    let code = command.status().context("run python3")?.code();
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_comparison_are_judged_by_medians_and_longest_kills() {
        let words = ["-m", "doctest", "interop/cpg/compare.py"];
        let out = Command::new("python3").args(words).current_dir(crate::workspace::root()).output();
        let out = out.expect("run python3");
        assert!(out.status.success() && out.stdout.is_empty(), "{}", String::from_utf8_lossy(&out.stdout));
    }
}
