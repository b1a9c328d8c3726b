//! `cargo xtask python --kernel`: the Python package's tests and the examples of all languages on the kernel's own
//! TIPC, in the lab's machine.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::judge::Judge::Pytest;
use crate::process::succeeds;
use crate::step::{Site, Step, Tally};
use crate::workspace::target;
use crate::{examples, lab, python};

const ON_KERNEL: Step =
    Step::new("pytest", 9, Pytest, "{python} -m pytest -q --color=no -p no:cacheprovider -k kernel tests")
        .at("crates/python")
        .with(&[("UTIPC_TEST_ENGINES", "kernel"), ("PYTHONDONTWRITEBYTECODE", "1")]);

/// Time limit of all tests and examples on the kernel's TIPC, including the boot, on an emulated processor.
const BUDGET: Duration = Duration::from_secs(9 * 60);

/// Builds package and examples, and runs this program in the guest. Returns whether all passed.
pub(crate) fn run() -> Result<bool> {
    let languages = examples::build_for_kernel()?;
    if !languages.iter().any(|name| name == "Python") {
        python::install()?;
    }
    python::install_pytest()?;
    let args: Vec<String> =
        ["python", "--in-guest"].map(str::to_owned).into_iter().chain(languages).collect();
    let own = std::env::current_exe().context("find this program")?;
    let limits = lab::Limits { time: BUDGET, ..lab::Limits::default() };
    Ok(lab::show(&own, &args, &target().join("python/guest"), limits)? == 0)
}

/// Runs the tests and examples; called in the guest.
pub(crate) fn in_guest(languages: &[String]) -> Result<bool> {
    // Without an address the kernel's node does not announce itself.
    ensure!(succeeds("tipc node set address 1.1.1"), "the kernel's node takes no address");
    let mut tally = Tally::new("python-kernel");
    examples::run_on_kernel(languages, &mut tally)?;
    tally.step(&Site::new()?.with("{python}", python::interpreter()), &ON_KERNEL)?;
    Ok(tally.end())
}
