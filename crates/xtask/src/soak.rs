//! `cargo xtask soak`: builds `utipc-soak` and `utipcd`, and runs the former.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

/// Runs `utipc-soak` with `args`, built for release, beside the `utipcd` of the same build.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let package = ["--quiet", "--release", "--package", "utipc-tools"];
    let mut build = Command::new(&cargo);
    build.arg("build").args(package).args(["--bin", "utipcd"]).current_dir(root);
    ensure!(build.status().context("run cargo")?.success(), "utipcd cannot be built");
    let mut soak = Command::new(&cargo);
    soak.arg("run").args(package).args(["--bin", "utipc-soak", "--"]).args(args).current_dir(root);
    let status = soak.status().context("run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
