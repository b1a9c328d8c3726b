//! Project chores: tests, tidy checks, interop lab.

mod tidy;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Project chores. Nothing here changes the system: what is downloaded stays below `target/`.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Checks the rules of the house: dependency arrows, unsafe, lints, words, unfinished code
    Tidy,
}

/// The project's folder: xtask is always built inside it.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

fn main() -> Result<()> {
    match Args::parse().chore {
        Chore::Tidy => tidy::run(&root()),
    }
}
