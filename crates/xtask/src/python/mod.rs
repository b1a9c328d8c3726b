//! `cargo xtask python`: builds the wheel of the Python package, installs it into a clean environment, and
//! tests it there.
//!
//! Everything that is downloaded or built stays below `target/python`.

mod environment;
mod kernel;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

pub(crate) use environment::obstacle;
use environment::{Environment, tools};
pub(crate) use kernel::{in_guest, on_kernel};

/// Numbers of passed and failed checks.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    passed: usize,
    failed: usize,
}

impl Counts {
    /// Runs a program as one check, which passes if the program succeeds.
    fn check(&mut self, name: &str, command: &mut Command) -> Result<()> {
        println!("== {name}");
        if command.status().with_context(|| format!("run {name}"))?.success() {
            self.passed += 1;
        } else {
            println!("{name}: failed");
            self.failed += 1;
        }
        Ok(())
    }
}

/// Builds and installs the wheel, then runs every check of the package. Returns whether all passed.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let wheel = wheel(root)?;
    let place = root.join("target/python/clean");
    let clean = Environment::fresh(&place)?;
    // Without the package index, because the wheel must not depend on other packages.
    clean.pip(&["install", "--quiet", "--no-index"], &[&wheel])?;

    let mut counts = Counts::default();
    let package = root.join("crates/python");
    let home = Home::new()?;
    let readme = readme_program(&package)?;
    counts.check(
        "the program in its README",
        clean.python().args(["-c", &readme]).env("XDG_RUNTIME_DIR", &home.0).env("UTIPC_ENGINE", "embedded"),
    )?;

    clean.pip(&["install", "--quiet", "pytest", "mypy"], &[])?;
    pytest(&clean, &package, &daemon(root)?, &mut counts)?;
    let mut mypy = clean.module("mypy");
    mypy.args(["--strict", "tests", "python"]).current_dir(&package);
    for example in python_files(&root.join("examples/python"))? {
        mypy.arg(example);
    }
    counts.check("mypy --strict over package, tests and examples", &mut mypy)?;
    let mut stubs = clean.module("mypy.stubtest");
    stubs.args(["utipc", "--mypy-config-file", "pyproject.toml", "--allowlist", "tests/stubtest-allowlist"]);
    counts.check("the stubs agree with the package", stubs.current_dir(&package))?;

    println!("python: {} passed, {} failed", counts.passed, counts.failed);
    Ok(counts.failed == 0)
}

/// Builds the wheel and installs it for the examples.
pub(crate) fn install(root: &Path) -> Result<()> {
    let wheel = wheel(root)?;
    let environment = Environment::fresh(&examples(root))?;
    environment.pip(&["install", "--quiet", "--no-index"], &[&wheel])
}

/// The interpreter that can import the package, once it is installed.
pub(crate) fn interpreter(root: &Path) -> PathBuf {
    examples(root).join("bin/python")
}

fn examples(root: &Path) -> PathBuf {
    root.join("target/python/examples")
}

/// Builds the wheel.
pub(crate) fn wheel(root: &Path) -> Result<PathBuf> {
    let tools = tools(root)?;
    let wheels = root.join("target/python/wheels");
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels).context("remove the wheels of the last run")?;
    }
    let mut maturin = tools.program("maturin");
    maturin.args(["build", "--quiet", "--release", "--interpreter"]).arg(tools.interpreter());
    maturin.arg("--out").arg(&wheels).current_dir(root.join("crates/python"));
    let status = maturin.status().context("run maturin")?;
    let built = std::fs::read_dir(&wheels).context("read the folder of wheels")?;
    let mut built: Vec<_> = built.filter_map(|entry| Some(entry.ok()?.path())).collect();
    match (status.success(), built.pop()) {
        (true, Some(wheel)) => Ok(wheel),
        _ => bail!("maturin cannot build the wheel: {status}"),
    }
}

/// Builds the daemon.
fn daemon(root: &Path) -> Result<PathBuf> {
    crate::workspace::build(root, &["--package", "utipc-tools", "--bin", "utipcd"])?;
    Ok(crate::workspace::target(root).join("debug/utipcd"))
}

fn pytest(clean: &Environment, package: &Path, daemon: &Path, counts: &mut Counts) -> Result<()> {
    println!("== pytest");
    let mut pytest = clean.module("pytest");
    pytest.args(["-q", "-rs", "--color=no", "--doctest-modules", "--pyargs", "tests", "utipc", "utipc.aio"]);
    pytest.arg("-p").arg("no:cacheprovider").current_dir(package).env("UTIPC_TEST_DAEMON", daemon);
    pytest.env("PYTHONDONTWRITEBYTECODE", "1");
    let out = pytest.output().context("run pytest")?;
    let text = String::from_utf8_lossy(&out.stdout);
    print!("{text}{}", String::from_utf8_lossy(&out.stderr));
    let summary = text.lines().rev().find(|line| line.contains(" in ")).unwrap_or_default();
    let (passed, failed, skipped) = tally(summary);
    counts.passed += passed;
    counts.failed += failed;
    if skipped > 0 {
        println!("skipped: {skipped} tests in Python: the lines SKIPPED of the log say why");
    }
    if !out.status.success() && failed == 0 {
        counts.failed += 1;
    }
    Ok(())
}

/// Numbers of passed, failed and skipped tests in pytest's last line: `1 failed, 2 passed, 1 error in 0.1s`.
fn tally(summary: &str) -> (usize, usize, usize) {
    let words: Vec<&str> = summary.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let number = |names: &[&str]| {
        let counted = words.windows(2).filter(|pair| names.contains(&pair[1]));
        counted.filter_map(|pair| pair[0].parse::<usize>().ok()).sum()
    };
    (number(&["passed"]), number(&["failed", "error", "errors"]), number(&["skipped"]))
}

/// The program in the package's README.
fn readme_program(package: &Path) -> Result<String> {
    let text = std::fs::read_to_string(package.join("README.md")).context("read the package's README")?;
    let program = text.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    Ok(program.context("the package's README has no program")?.to_owned())
}

fn python_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "py"));
    files.sort();
    Ok(files)
}

/// A runtime directory for programs under test, so that they do not find a daemon of this user. It is removed
/// when this value is dropped. It is not below `target`, because paths of sockets must be short.
#[derive(Debug)]
pub(crate) struct Home(pub(crate) PathBuf);

impl Home {
    pub(crate) fn new() -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("utipc-xtask-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).context("make a runtime directory")?;
        Ok(Self(path))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pytests_last_line_is_counted() {
        assert_eq!(tally("112 passed in 9.87s"), (112, 0, 0));
        assert_eq!(tally("1 failed, 2 passed, 3 skipped, 1 error in 0.12s"), (2, 2, 3));
        assert_eq!(tally(""), (0, 0, 0));
    }
}
