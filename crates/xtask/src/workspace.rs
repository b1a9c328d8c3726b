//! Folders of the project, builds and exit codes, which most chores need.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

/// The project's folder, as it was when xtask was built inside it.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The folder into which cargo builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Runs `cargo build` with these arguments, by the cargo that runs this program.
pub(crate) fn build(root: &Path, words: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(["build", "--quiet"]).args(words).current_dir(root).status();
    if !status.context("run cargo build")?.success() {
        bail!("cargo build {} failed (its message is above)", words.join(" "));
    }
    Ok(())
}

/// The exit code of a chore.
pub(crate) fn verdict(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
