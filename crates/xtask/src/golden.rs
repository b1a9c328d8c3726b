//! `cargo xtask golden`: compares the output of `tipc` for a kernel node with the recorded output and with that
//! of `utipc` for the same node.

#[path = "../../tools/tests/golden/normalise.rs"]
mod normalise;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use normalise::normalise;

use crate::lab;
use crate::workspace::{build, built, empty_folder, root, target};

/// Time limit of all cases, including the boot, on two busy cores.
const BUDGET: Duration = Duration::from_secs(8 * 60);

/// Runs every case in the lab. With `write`, the output of `tipc` replaces the recorded one in the tree. Returns
/// whether all outputs are equal.
pub(crate) fn run(write: bool) -> Result<bool> {
    build("--package utipc-tools --bin utipc")?;
    let out = target().join("golden");
    empty_folder(&out)?;
    let tree = root().join("interop/manage");
    let limits = lab::Limits { time: BUDGET, ..lab::Limits::default() };
    let code = lab::show(&tree.join("record.py"), &[built("utipc").display().to_string()], &out, limits)?;
    ensure!(
        code == 0,
        "the cases did not run to their end (exit code {code}; 124 is the limit of {BUDGET:?})"
    );
    let cases = fs::read_to_string(tree.join("cases.txt")).context("read cases.txt")?;
    let mut wrong = 0;
    for line in cases.lines().filter(|line| !line.starts_with(['#', '@']) && !line.is_empty()) {
        let mut words = line.split_whitespace();
        let (name, how) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let file = format!("{name}.txt");
        let golden = tree.join("golden").join(&file);
        if write && out.join("kernel").join(&file).exists() {
            fs::copy(out.join("kernel").join(&file), &golden).context("write a golden file")?;
        }
        let expected = fs::read_to_string(&golden).with_context(|| format!("read {}", golden.display()))?;
        for who in ["kernel", "utipc"] {
            // If the case changes something, one of the two programs has made the change.
            let Ok(shown) = fs::read_to_string(out.join(who).join(&file)) else { continue };
            if normalise(how, &shown) != normalise(how, &expected) {
                println!("{name} ({how}) by {who}:\n{shown}--- expected\n{expected}");
                wrong += 1;
            }
        }
    }
    println!("golden: {}", if wrong == 0 { "ok".to_owned() } else { format!("{wrong} texts differ") });
    Ok(wrong == 0)
}
