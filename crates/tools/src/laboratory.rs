//! `utipc bench`: the program `utipc-lab` of another package measures.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use utipc_tools::companion;

/// The program, and its package.
const NAME: &str = "utipc-lab";

/// Arguments of `bench`, which `utipc-lab bench` parses.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// The measurement and its options (see `utipc bench --help`)
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Replaces this process by `utipc-lab bench`.
///
/// # Errors
/// The program is not installed, or cannot start.
pub(crate) fn run(options: &Options) -> Result<Infallible> {
    let Some(program) = companion::beside(NAME) else {
        let remedy = companion::remedy(NAME, "crates/lab")?;
        bail!("the benchmarks are in the package {NAME}, which is not here ({remedy})");
    };
    let why = Command::new(&program).arg("bench").args(&options.arguments).exec();
    Err(anyhow!("cannot start {}: {why} (check that it is a program of this machine)", program.display()))
}
