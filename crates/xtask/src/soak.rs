//! `cargo xtask soak`: builds `utipc-soak` and `utipcd`, and runs the former; or runs a campaign of another package.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

/// Runs `utipc-soak` with `args`, built for release, beside the `utipcd` of the same build.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    match args.split_first() {
        Some((first, _)) if first == "hostile" => return hostile(root, args),
        Some((first, _)) if first == "steps" => return steps(root),
        Some((first, rest)) if first == "peers" && !rest.iter().any(|arg| arg == REAL) => {
            return peers(root, rest);
        }
        Some((first, rest)) if first == "schedules" => return schedules(root, rest),
        Some((first, rest)) if first == "mdist" => return mdist(root, rest),
        Some((first, _)) if first == "events" => return events(root, args),
        _ => {}
    }
    let quick = ["--quiet", "--release"];
    let mut build = Command::new(cargo());
    build.arg("build").args(quick).args(["--package", "utipc-tools", "--bin", "utipcd"]).current_dir(root);
    if args.iter().any(|arg| arg == "--shim" || arg == "calls") {
        build.args(["--bin", "utipc", "--package", "utipc-preload", "--lib"]);
    }
    ensure!(build.status().context("run cargo")?.success(), "utipcd cannot be built");
    let mut soak = Command::new(cargo());
    soak.arg("run").args(quick).args(["--package", "utipc-lab", "--bin", "utipc-soak", "--"]);
    finish(soak.args(args.iter().filter(|arg| *arg != REAL)).current_dir(root))
}

/// Of `soak peers`: in network namespaces against a daemon, instead of in the simulator.
const REAL: &str = "--real";

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn finish(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().context("run cargo")?;
    Ok(crate::workspace::verdict(status.success()))
}

/// Runs the campaign of hostile processes against a `utipcd` with overflow checks, and with `--asan` against one with
/// AddressSanitizer.
fn hostile(root: &Path, args: &[String]) -> Result<ExitCode> {
    let mut build = Command::new(cargo());
    // Without `--release`: a development build checks overflows and its own assertions.
    build.args(["build", "--quiet", "--package", "utipc-tools", "--bin", "utipcd"]);
    build.args(["--package", "utipc-lab", "--bin", "utipc-soak"]);
    ensure!(
        build.current_dir(root).status().context("run cargo")?.success(),
        "utipcd and utipc-soak cannot be built"
    );
    let mut soak = Command::new(crate::workspace::target(root).join("debug/utipc-soak"));
    if args.iter().any(|arg| arg == "--asan") {
        let mut build = Command::new("cargo");
        build.args(["+nightly", "build", "--quiet", "--package", "utipc-tools", "--bin", "utipcd"]);
        build.args(["--target", TARGET]).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        build.env("RUSTFLAGS", "-Zsanitizer=address").env("CARGO_TARGET_DIR", root.join("target/asan"));
        let status = build.current_dir(root).status().context("run cargo +nightly")?;
        ensure!(
            status.success(),
            "utipcd cannot be built with AddressSanitizer (rustup toolchain install nightly)"
        );
        // Memory that it keeps to find later uses is not a leak.
        soak.env("ASAN_OPTIONS", "quarantine_size_mb=32");
        soak.arg("--daemon").arg(root.join("target/asan").join(TARGET).join("debug/utipcd"));
    }
    finish(soak.args(args))
}

/// Runs the tests that interrupt daemon and clients at system calls, at all of these instead of a sample.
fn steps(root: &Path) -> Result<ExitCode> {
    let mut test = Command::new(cargo());
    test.args(["test", "--quiet", "--package", "utipc-node", "--test", "daemon", "--"]);
    test.args(["--nocapture", "--test-threads=1", "stops::", "own_death::", "steps::"]);
    let status = test.env("UTIPC_TEST_ALL_STEPS", "1").current_dir(root).status().context("run cargo")?;
    println!("steps: {}", if status.success() { "ok" } else { "FAILED" });
    Ok(crate::workspace::verdict(status.success()))
}

/// The platform of AddressSanitizer.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Hostile peers against a node in the simulator: 4000 for 60 virtual seconds unless `args` say otherwise.
fn peers(root: &Path, args: &[String]) -> Result<ExitCode> {
    let mut sim = Command::new(cargo());
    sim.args(["run", "--quiet", "--release", "--package", "utipc-sim", "--"]).current_dir(root);
    for (option, value) in [("--peers", "4000"), ("--seconds", "60")] {
        if !args.iter().any(|arg| arg.split('=').next() == Some(option)) {
            sim.args([option, value]);
        }
    }
    finish(sim.args(args))
}

/// Lanes in perturbed schedules: `--runs` and `--seed`.
fn schedules(root: &Path, args: &[String]) -> Result<ExitCode> {
    let test = ["test", "--quiet", "--release", "--package", "utipc-lanes", "--features", "schedule"];
    let mut runs = Command::new(cargo());
    runs.args(test).args(["--test", "lane_threads", "perturbed", "--", "--nocapture"]).current_dir(root);
    runs.env("UTIPC_SCHEDULE_RUNS", "10000");
    let options = [("--runs", "UTIPC_SCHEDULE_RUNS"), ("--seed", "UTIPC_SCHEDULE_SEED")];
    finish(numbers(&mut runs, "soak schedules", args, options)?)
}

/// All abuses of the market-data programs at once: `--seconds` and `--rate`, updates per second.
fn mdist(root: &Path, args: &[String]) -> Result<ExitCode> {
    let mut campaign = Command::new(cargo());
    campaign.args(["test", "--quiet", "--release", "--package", "mdist", "--test", "abuse", "campaign::"]);
    campaign.args(["--", "--nocapture"]).current_dir(root);
    campaign.env("MDIST_ABUSE_SECONDS", "1800").env("MDIST_ABUSE_RATE", "100000");
    let options = [("--seconds", "MDIST_ABUSE_SECONDS"), ("--rate", "MDIST_ABUSE_RATE")];
    finish(numbers(&mut campaign, "soak mdist", args, options)?)
}

/// Ordinary events of the market-data chain, alone and in pairs; options as for `mdist-bench`.
fn events(root: &Path, args: &[String]) -> Result<ExitCode> {
    let mut bench = Command::new(cargo());
    bench.args(["run", "--quiet", "--release", "--package", "mdist-bench", "--"]).args(args);
    finish(bench.current_dir(root))
}

/// Passes options that are numbers on in the environment.
fn numbers<'a>(
    command: &'a mut Command,
    name: &str,
    args: &[String],
    known: [(&str, &str); 2],
) -> Result<&'a mut Command> {
    let mut rest = args.iter();
    while let Some(option) = rest.next() {
        let Some((_, variable)) = known.iter().find(|(known, _)| known == option) else {
            bail!("{name}: unknown option {option} (use {} N and {} N)", known[0].0, known[1].0);
        };
        let value = rest.next().with_context(|| format!("{name}: {option} needs a number"))?;
        value.parse::<u64>().with_context(|| format!("{name}: {option} {value}: not a number"))?;
        command.env(variable, value);
    }
    Ok(command)
}
