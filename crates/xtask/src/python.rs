//! `cargo xtask python`: builds the wheel of the Python package, installs it into a clean environment, and tests it
//! there.
//!
//! Everything that is downloaded or built stays below `target/python`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::blocks::blocks;
use crate::judge::Judge::{Pytest, Success};
use crate::judge::before;
use crate::needs::Skip;
use crate::process::{missing, output};
use crate::step::{Site, Step, Tally};
use crate::workspace::{Scratch, daemon, empty_folder, files, root, target};

/// A clean environment must not find packages of this machine.
const README: Step = Step::new("the program in its README", 2, Success, "{python} -c {readme}").with(&[
    ("PYTHONPATH", ""),
    ("PYTHONHOME", ""),
    ("XDG_RUNTIME_DIR", "{home}"),
    ("UTIPC_ENGINE", "embedded"),
]);

const ENV: &[(&str, &str)] = &[
    ("PYTHONPATH", ""),
    ("PYTHONHOME", ""),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("UTIPC_TEST_DAEMON", "{built}/utipcd"),
];

const PYTEST: Step = Step::new(
    "pytest",
    15,
    Pytest,
    "{python} -m pytest -q -rs --color=no --doctest-modules --pyargs tests utipc utipc.aio -p no:cacheprovider",
)
.at("crates/python")
.with(ENV);

const TYPES: [Step; 2] = [
    Step::new(
        "mypy --strict over package, tests and examples",
        10,
        Success,
        "{python} -m mypy --strict tests python {root}/examples/python",
    )
    .at("crates/python")
    .with(ENV),
    Step::new(
        "the stubs agree with the package",
        10,
        Success,
        "{python} -m mypy.stubtest utipc --mypy-config-file pyproject.toml --allowlist tests/stubtest-allowlist",
    )
    .at("crates/python")
    .with(ENV),
];

/// A virtual environment below `target/python`.
struct Environment(PathBuf);

impl Environment {
    fn at(name: &str) -> Self {
        Self(target().join("python").join(name))
    }

    /// Makes a new environment with pip and nothing else.
    fn fresh(name: &str) -> Result<Self> {
        let new = Self::at(name);
        output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&new.0))
            .context("python3 cannot make a virtual environment")?;
        Ok(new)
    }

    fn interpreter(&self) -> PathBuf {
        self.0.join("bin/python")
    }

    /// A program that a package has installed.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.0.join("bin").join(name));
        command.env("VIRTUAL_ENV", &self.0);
        command
    }

    fn pip(&self, words: &[&Path]) -> Result<()> {
        let mut pip = Command::new(self.interpreter());
        pip.args(["-m", "pip", "--disable-pip-version-check", "install", "--quiet"]);
        pip.args(words).env_remove("PYTHONPATH").env_remove("PYTHONHOME");
        let out = pip.output().context("run pip")?;
        ensure!(
            out.status.success(),
            "pip install {words:?}: {}",
            String::from_utf8_lossy(&out.stderr).trim()
        );
        Ok(())
    }

    /// Installs the wheel without the package index, because it must not depend on other packages.
    fn install(&self, wheel: &Path) -> Result<()> {
        self.pip(&["--no-index".as_ref(), wheel])
    }
}

/// The environment with maturin, made once.
fn tools() -> Result<Environment> {
    let ready = Environment::at("tools");
    if ready.program("maturin").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return Ok(ready);
    }
    let made = Environment::fresh("tools")?;
    made.pip(&["maturin>=1.9.4,<2".as_ref()])?;
    Ok(made)
}

/// Reason why the package cannot be built and tested here, and the command that changes that.
pub(crate) fn obstacle() -> Option<Skip> {
    if missing(&["python3"]).is_some() {
        return Some(Skip::new("there is no python3", "sudo apt install python3 python3-venv"));
    }
    let python = |program: &str| {
        Command::new("python3").args(["-c", program]).output().is_ok_and(|out| out.status.success())
    };
    if !python("import sys; sys.exit(sys.version_info < (3, 9))") {
        return Some(Skip::new("python3 is older than 3.9", "install Python 3.9 or later"));
    }
    if !python("import ensurepip, venv") {
        return Some(Skip::new("python3 has no venv and pip", "sudo apt install python3-venv"));
    }
    let error = format!("{:#}", tools().err()?);
    let last = error.lines().last().unwrap_or_default();
    Some(Skip::new(last, "python3 -m pip download maturin   (it must reach a package index)"))
}

/// Builds and installs the wheel, then runs every check of the package. Returns whether all passed.
pub(crate) fn run() -> Result<bool> {
    let clean = Environment::fresh("clean")?;
    clean.install(&wheel()?)?;
    daemon()?;
    let home = Scratch::new("python")?;
    let readme =
        std::fs::read_to_string(root().join("crates/python/README.md")).context("read the README")?;
    let program = blocks(&readme).into_iter().find(|block| block.kind == "python");
    let site = Site::new()?
        .with("{python}", clean.interpreter())
        .with("{home}", &home.0)
        .with("{readme}", program.context("the package's README has no program")?.text);
    let mut tally = Tally::new("python");
    tally.step(&site, &README)?;
    clean.pip(&["pytest".as_ref(), "mypy".as_ref()])?;
    let printed = tally.step(&site, &PYTEST)?;
    let summary = printed.lines().rev().find(|line| line.contains(" in ")).unwrap_or_default();
    if let Some(skipped) = before(summary, &["skipped"]) {
        println!("skipped: {skipped} tests in Python: the lines SKIPPED of the log say why");
    }
    for step in &TYPES {
        tally.step(&site, step)?;
    }
    Ok(tally.end())
}

/// Builds the wheel and installs it for the examples.
pub(crate) fn install() -> Result<()> {
    Environment::fresh("examples")?.install(&wheel()?)
}

/// Installs pytest for tests beside the examples.
pub(crate) fn install_pytest() -> Result<()> {
    Environment::at("examples").pip(&["pytest".as_ref()])
}

/// The interpreter that can import the package, once it is installed.
pub(crate) fn interpreter() -> PathBuf {
    Environment::at("examples").interpreter()
}

/// Builds the wheel.
pub(crate) fn wheel() -> Result<PathBuf> {
    let tools = tools()?;
    let wheels = target().join("python/wheels");
    empty_folder(&wheels)?;
    let mut maturin = tools.program("maturin");
    maturin.args(["build", "--quiet", "--release", "--interpreter"]).arg(tools.interpreter());
    let status = maturin.arg("--out").arg(&wheels).current_dir(root().join("crates/python")).status();
    let status = status.context("run maturin")?;
    match files(&wheels, ".whl")?.pop() {
        Some(wheel) if status.success() => Ok(wheel),
        _ => bail!("maturin cannot build the wheel: {status}"),
    }
}
