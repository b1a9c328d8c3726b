//! Python's virtual environments below `target/python`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A virtual environment.
#[derive(Debug)]
pub(super) struct Environment {
    place: PathBuf,
}

impl Environment {
    /// An environment that already exists in `place`.
    pub(super) fn at(place: &Path) -> Self {
        Self { place: place.to_path_buf() }
    }

    /// Makes a new environment with pip and nothing else.
    pub(super) fn fresh(place: &Path) -> Result<Self> {
        let out = Command::new("python3").args(["-m", "venv", "--clear"]).arg(place).output();
        let out = out.context("run python3")?;
        if !out.status.success() {
            let text = [out.stdout, out.stderr].concat();
            bail!("python3 cannot make a virtual environment: {}", String::from_utf8_lossy(&text).trim());
        }
        Ok(Self { place: place.to_path_buf() })
    }

    pub(super) fn interpreter(&self) -> PathBuf {
        self.place.join("bin/python")
    }

    pub(super) fn python(&self) -> Command {
        let mut command = Command::new(self.interpreter());
        // A clean environment must not find packages of this machine.
        command.env_remove("PYTHONPATH").env_remove("PYTHONHOME");
        command
    }

    /// `python -m MODULE`.
    pub(super) fn module(&self, name: &str) -> Command {
        let mut command = self.python();
        command.args(["-m", name]);
        command
    }

    /// A program that a package has installed.
    pub(super) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.place.join("bin").join(name));
        command.env("VIRTUAL_ENV", &self.place);
        command
    }

    pub(super) fn pip(&self, words: &[&str], files: &[&Path]) -> Result<()> {
        let out = self.module("pip").args(["--disable-pip-version-check"]).args(words).args(files).output();
        let out = out.context("run pip")?;
        if !out.status.success() {
            bail!("pip {}: {}", words.join(" "), String::from_utf8_lossy(&out.stderr).trim());
        }
        Ok(())
    }
}

/// The environment with maturin, made once.
pub(super) fn tools(root: &Path) -> Result<Environment> {
    let place = root.join("target/python/tools");
    let ready = Environment::at(&place);
    if ready.program("maturin").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return Ok(ready);
    }
    let made = Environment::fresh(&place)?;
    made.pip(&["install", "--quiet", "maturin>=1.9.4,<2"], &[])?;
    Ok(made)
}

/// Reason why the package cannot be built and tested here, and the command that changes that.
pub(crate) fn obstacle(root: &Path) -> Option<(String, String)> {
    let recent = "import sys; sys.exit(sys.version_info < (3, 9))";
    match Command::new("python3").args(["-c", recent]).output() {
        Err(_) => {
            return Some(("there is no python3".into(), "sudo apt install python3 python3-venv".into()));
        }
        Ok(out) if !out.status.success() => {
            return Some(("python3 is older than 3.9".into(), "install Python 3.9 or later".into()));
        }
        Ok(_) => {}
    }
    let pip = Command::new("python3").args(["-c", "import ensurepip, venv"]).output();
    if !pip.is_ok_and(|out| out.status.success()) {
        return Some(("python3 has no venv and pip".into(), "sudo apt install python3-venv".into()));
    }
    let error = tools(root).err()?;
    let first = format!("{error:#}");
    let last = first.lines().last().unwrap_or_default().to_owned();
    Some((last, "python3 -m pip download maturin   (it must reach a package index)".into()))
}
