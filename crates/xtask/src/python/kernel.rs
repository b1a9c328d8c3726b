//! The package's tests and the examples of all languages on the kernel's own TIPC, in the lab's machine.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::environment::Environment;
use super::{install, interpreter, tally};
use crate::{examples, lab};

/// Time limit of all tests and examples, including the boot, on an emulated processor.
const BUDGET: Duration = Duration::from_secs(9 * 60);

/// Builds package and examples, and runs this program in the guest. Returns whether all passed.
pub(crate) fn on_kernel(root: &Path) -> Result<bool> {
    let languages = examples::build_all(root)?;
    if !languages.iter().any(|name| name == "Python") {
        install(root)?;
    }
    Environment::at(&super::examples(root)).pip(&["install", "--quiet", "pytest"], &[])?;
    let lab = lab::build(root)?;
    let own = std::env::current_exe().context("find this program")?;
    let args: Vec<String> =
        ["python", "--in-guest"].map(str::to_owned).into_iter().chain(languages).collect();
    let limits = lab::Limits { time: BUDGET, memory: 2048, cpus: 2 };
    let out = root.join("target/python/guest");
    let code = lab::run(&lab, &own, &args, &out, limits, &mut |line| println!("{line}"))?;
    Ok(code == 0)
}

/// Runs the tests and examples; called in the guest.
pub(crate) fn in_guest(root: &Path, languages: &[String]) -> Result<bool> {
    // Without an address the kernel's node does not announce itself.
    let status = Command::new("tipc").args(["node", "set", "address", "1.1.1"]).status();
    anyhow::ensure!(status.context("run tipc")?.success(), "the kernel's node takes no address");
    let (mut passed, mut failed) = examples::run_on_kernel(root, languages)?;

    let mut pytest = Command::new(interpreter(root));
    pytest.args(["-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", "-k", "kernel", "tests"]);
    pytest.env("UTIPC_TEST_ENGINES", "kernel").env("PYTHONDONTWRITEBYTECODE", "1");
    let out = pytest.current_dir(root.join("crates/python")).stderr(Stdio::inherit()).output();
    let out = out.context("run pytest")?;
    let text = String::from_utf8_lossy(&out.stdout);
    print!("{text}");
    let summary = text.lines().rev().find(|line| line.contains(" in ")).unwrap_or_default();
    let (good, bad, _) = tally(summary);
    passed += good;
    failed += if out.status.success() { bad } else { bad.max(1) };
    println!("python-kernel: {passed} passed, {failed} failed");
    Ok(failed == 0)
}
