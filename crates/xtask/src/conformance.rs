//! The C cases of `interop/conformance` and the programs of `interop/programs`, under the shim and on the kernel.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::lab;

/// Options of `cargo xtask conformance` and `programs`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Run in the lab's machine, on the kernel's own TIPC, instead of under the shim
    #[arg(long, conflicts_with = "mixed")]
    kernel: bool,
    /// Run in the lab's machine, under the shim, with a kernel node as the other node
    #[arg(long)]
    mixed: bool,
    /// Between two daemons in two network namespaces, under the shim: the topic `pair`, or the given cases (needs root)
    #[arg(long, conflicts_with_all = ["kernel", "mixed"])]
    pair: bool,
    /// Cases, topics and options of the program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Resources of one boot of the lab's machine.
const LIMITS: lab::Limits = lab::Limits { time: Duration::from_secs(600), memory: 2048, cpus: 2 };

/// Cases about the hang-up of a connection, which run once more with the behaviour of Linux.
const EXACT_HANG_UP: [&str; 4] = ["poll/ended", "poll/hang-up-and-unread-messages", "epoll", "end"];

/// Builds the C program and runs the cases; returns whether all passed.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let program = make(root)?;
    let program_text = program.display().to_string();
    if options.kernel || options.mixed {
        let mut args = vec![program_text];
        if options.mixed {
            args.extend(["--under".to_owned(), shim(root)?.display().to_string()]);
        }
        args.extend(options.args.iter().cloned());
        return in_lab(root, "interop/conformance/run.py", &args);
    }
    let shim = shim(root)?;
    if options.pair {
        let mut command = Command::new("python3");
        command.arg("interop/conformance/pair.py").arg(&shim).arg(&program_text).args(&options.args);
        return Ok(command.current_dir(root).status().context("run python3")?.success());
    }
    let run = |variable: &[(&str, &str)], args: &[String]| {
        Command::new(&shim)
            .args(["run", "--private", "--", &program_text, "--engine", "utipc"])
            .args(args)
            .envs(variable.iter().copied())
            .current_dir(root)
            .status()
            .context("run the cases under the shim")
    };
    // The last line of the output counts the cases of the second run.
    let exact = run(&[("UTIPC_EXACT_HUP", "1")], &EXACT_HANG_UP.map(str::to_owned))?;
    Ok(run(&[], &options.args)?.success() && exact.success())
}

/// Runs the programs that were not written for utipc; returns whether all passed.
pub(crate) fn programs(root: &Path, options: &Options) -> Result<bool> {
    if options.pair {
        bail!("--pair is an option of `cargo xtask conformance` (interop/programs/run.py has none)");
    }
    let script = root.join("interop/programs/run.py");
    if options.kernel || options.mixed {
        // The guest has no network, so everything is downloaded here before.
        let fetched =
            Command::new("python3").arg(&script).arg("--prepare").status().context("run python3")?;
        if !fetched.success() {
            bail!("the programs cannot be built (interop/programs/run.py --prepare says why)");
        }
        let shim_text = shim(root)?.display().to_string();
        let mixed = ["--mixed", "--utipc", &shim_text, "--part", "20"];
        let how: &[&str] = if options.mixed { &mixed } else { &["--kernel"] };
        let mut args: Vec<String> =
            how.iter().chain(&["--count", "300"]).map(|word| (*word).to_owned()).collect();
        args.extend(options.args.iter().cloned());
        return in_lab(root, "interop/programs/run.py", &args);
    }
    let status = Command::new("python3")
        .arg(&script)
        .arg("--utipc")
        .arg(shim(root)?)
        .args(&options.args)
        .current_dir(root)
        .status()
        .context("run python3")?;
    Ok(status.success())
}

fn in_lab(root: &Path, script: &str, args: &[String]) -> Result<bool> {
    let lab = lab::build(root)?;
    let out = root.join("target/lab/out");
    Ok(lab::run(&lab, &root.join(script), args, &out, LIMITS, &mut |line| println!("{line}"))? == 0)
}

fn make(root: &Path) -> Result<PathBuf> {
    let out = root.join("target/conformance");
    let made = Command::new("make")
        .args(["--silent", "-C", "interop/conformance"])
        .arg(format!("OUT={}", out.display()))
        .current_dir(root)
        .status()
        .context("run make (apt-get install make gcc linux-libc-dev)")?;
    if !made.success() {
        bail!("the cases do not compile");
    }
    Ok(out.join("conformance"))
}

/// Builds `utipc`, and beside it the library that it preloads; returns the path of `utipc`.
fn shim(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    for what in [&["--package", "utipc-preload"][..], &["--package", "utipc-tools", "--bin", "utipc"]] {
        let built = Command::new(&cargo).args(["build", "--quiet"]).args(what).current_dir(root).status();
        if !built.context("run cargo build")?.success() {
            bail!("cargo cannot build {}", what.join(" "));
        }
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("debug/utipc"))
}
