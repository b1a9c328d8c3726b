//! `cargo xtask golden`: compares the output of `tipc` for a kernel node with the recorded output and with that
//! of `utipc` for the same node.

#[path = "../../tools/tests/golden/normalise.rs"]
mod normalise;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use normalise::normalise;

use crate::lab;

/// Time limit of all cases, including the boot, on two busy cores.
const BUDGET: Duration = Duration::from_secs(8 * 60);

/// Runs every case in the lab. With `write`, the output of `tipc` replaces the recorded one in the tree.
pub(crate) fn run(root: &Path, write: bool) -> Result<ExitCode> {
    let lab = lab::build(root)?;
    let program = program(root)?;
    let out = root.join("target/golden");
    if out.exists() {
        std::fs::remove_dir_all(&out).context("remove the results of the last run")?;
    }
    let script = root.join("interop/manage/record.py");
    let limits = lab::Limits { time: BUDGET, memory: 2048, cpus: 2 };
    let code = lab::run(&lab, &script, &[program], &out, limits, &mut |line| println!("{line}"))?;
    if code != 0 {
        bail!("the cases did not run to their end (exit code {code}; 124 is the limit of {BUDGET:?})");
    }
    let tree = root.join("interop/manage");
    let cases = std::fs::read_to_string(tree.join("cases.txt")).context("read cases.txt")?;
    let mut wrong = 0;
    for line in cases.lines().filter(|line| !line.starts_with(['#', '@']) && !line.is_empty()) {
        let mut words = line.split_whitespace();
        let (name, how) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let file = format!("{name}.txt");
        let golden = tree.join("golden").join(&file);
        if write && out.join("kernel").join(&file).exists() {
            std::fs::copy(out.join("kernel").join(&file), &golden).context("write a golden file")?;
        }
        let expected =
            std::fs::read_to_string(&golden).with_context(|| format!("read {}", golden.display()))?;
        for who in ["kernel", "utipc"] {
            // If the case changes something, one of the two programs has made the change.
            let Ok(shown) = std::fs::read_to_string(out.join(who).join(&file)) else { continue };
            if normalise(how, &shown) != normalise(how, &expected) {
                println!("{name} ({how}) by {who}:\n{shown}--- expected\n{expected}");
                wrong += 1;
            }
        }
    }
    println!("golden: {}", if wrong == 0 { "ok".to_owned() } else { format!("{wrong} texts differ") });
    Ok(crate::workspace::verdict(wrong == 0))
}

/// Builds `utipc`.
fn program(root: &Path) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "utipc-tools", "--bin", "utipc"]).current_dir(root);
    if !build.status().context("run cargo build")?.success() {
        bail!("cargo cannot build utipc");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    Ok(target.join("debug/utipc").display().to_string())
}
