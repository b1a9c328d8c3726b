//! The C cases of `interop/conformance` and the programs of `interop/programs`, under the shim and on the kernel.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::lab;
use crate::step::Site;
use crate::workspace::{build, built, root, target};

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

/// Compiles the cases.
const MAKE: &str = "make --silent -C interop/conformance OUT={target}/conformance";
/// Runs cases under the shim.
const CASES: &str = "{built}/utipc run --private -- {target}/conformance/conformance --engine utipc";
/// Cases about the hang-up of a connection, which run once more with the behaviour of Linux.
const EXACT_HANG_UP: &str = "poll/ended poll/hang-up-and-unread-messages epoll end";
/// Runs cases between two daemons.
const PAIR: &str = "python3 interop/conformance/pair.py {built}/utipc {target}/conformance/conformance";
/// Downloads and builds the programs, because the guest has no network.
const PREPARE: &str = "python3 interop/programs/run.py --prepare";
/// Runs the programs under the shim.
const PROGRAMS: &str = "python3 {root}/interop/programs/run.py --utipc {built}/utipc";

/// Builds the C program and runs the cases; returns whether all passed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let site = Site::new()?;
    let made = site.command(MAKE).status().context("run make (apt-get install make gcc linux-libc-dev)")?;
    ensure!(made.success(), "the cases do not compile");
    if !options.kernel {
        shim()?;
    }
    if options.kernel || options.mixed {
        let mut args = vec![target().join("conformance/conformance").display().to_string()];
        if options.mixed {
            args.extend(["--under".to_owned(), built("utipc").display().to_string()]);
        }
        return in_lab("interop/conformance/run.py", args, options);
    }
    if options.pair {
        return Ok(site.command(PAIR).args(&options.args).status().context("run python3")?.success());
    }
    // The last line of the output counts the cases of the second run.
    let mut exact = site.command(&format!("{CASES} {EXACT_HANG_UP}"));
    let exact = exact.env("UTIPC_EXACT_HUP", "1").status().context("run the cases under the shim")?;
    let all = site.command(CASES).args(&options.args).status().context("run the cases under the shim")?;
    Ok(all.success() && exact.success())
}

/// Runs the programs that were not written for utipc; returns whether all passed.
pub(crate) fn programs(options: &Options) -> Result<bool> {
    if options.pair {
        bail!("--pair is an option of `cargo xtask conformance` (interop/programs/run.py has none)");
    }
    let site = Site::new()?;
    if options.kernel || options.mixed {
        let fetched = site.command(PREPARE).status().context("run python3")?;
        ensure!(
            fetched.success(),
            "the programs cannot be built (interop/programs/run.py --prepare says why)"
        );
    }
    shim()?;
    if options.kernel || options.mixed {
        let utipc = built("utipc").display().to_string();
        let mixed = ["--mixed", "--utipc", &utipc, "--part", "20"];
        let how: &[&str] = if options.mixed { &mixed } else { &["--kernel"] };
        let args = how.iter().chain(&["--count", "300"]).map(|word| (*word).to_owned()).collect();
        return in_lab("interop/programs/run.py", args, options);
    }
    Ok(site.command(PROGRAMS).args(&options.args).status().context("run python3")?.success())
}

fn in_lab(script: &str, mut args: Vec<String>, options: &Options) -> Result<bool> {
    args.extend(options.args.iter().cloned());
    let limits = lab::Limits { time: Duration::from_secs(600), ..lab::Limits::default() };
    Ok(lab::show(&root().join(script), &args, &target().join("lab/out"), limits)? == 0)
}

/// Builds `utipc`, and beside it the library that it preloads.
fn shim() -> Result<()> {
    build("--package utipc-preload")?;
    build("--package utipc-tools --bin utipc")
}
