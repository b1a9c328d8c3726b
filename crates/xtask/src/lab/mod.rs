//! The interop lab: a virtual machine, discarded after each run, whose Linux kernel has TIPC.
//!
//! Kernel and tools are Debian packages, unpacked below `target/lab` and never installed. The machine's own file
//! system is the guest's, read-only below an overlay, so a script in the guest can run whatever was just built.

mod cpio;
mod initramfs;
mod packages;
mod vm;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

pub(crate) use vm::{Limits, run};

/// Number of the recipe. Increase it when the recipe changes, so that an older lab is rebuilt.
const RECIPE: &str = "2";

/// The files of a built lab.
pub(crate) struct Lab {
    /// The project's folder.
    root: PathBuf,
    /// `target/lab`.
    dir: PathBuf,
}

impl Lab {
    fn at(root: &Path) -> Self {
        Self { root: root.to_path_buf(), dir: root.join("target/lab") }
    }

    /// Folder of the unpacked tools that the machine lacks.
    fn tools(&self) -> PathBuf {
        self.dir.join("tools")
    }

    fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    fn initrd(&self) -> PathBuf {
        self.dir.join("initrd.cpio")
    }

    /// The guest's first program.
    fn init(&self) -> PathBuf {
        self.root.join("interop/guest/init")
    }

    fn stamp(&self) -> PathBuf {
        self.dir.join("built")
    }

    /// The path of a program: the machine's, or else the unpacked one.
    fn program(&self, name: &str) -> Option<PathBuf> {
        let unpacked = ["usr/bin", "usr/sbin", "bin", "sbin"].map(|d| self.tools().join(d));
        system_path().into_iter().chain(unpacked).map(|d| d.join(name)).find(|p| p.is_file())
    }

    /// A command that runs a program of the lab on this machine.
    pub(crate) fn command(&self, name: &str) -> Result<Command> {
        let program = self.program(name).with_context(|| format!("the lab has no {name}"))?;
        let mut command = Command::new(&program);
        if program.starts_with(self.tools()) {
            command.env("LD_LIBRARY_PATH", self.libraries());
        }
        Ok(command)
    }

    /// Folders of unpacked shared libraries, for `LD_LIBRARY_PATH`.
    fn libraries(&self) -> String {
        let dirs =
            ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib"].map(|d| self.tools().join(d));
        dirs.iter().filter(|d| d.is_dir()).map(|d| d.display().to_string()).collect::<Vec<_>>().join(":")
    }
}

/// The folders of PATH, and the two folders of system programs that a user's PATH often lacks.
fn system_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<_> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    dirs
}

/// Reason why this machine cannot build the lab, with the remedy; `None` if no reason is known.
pub(crate) fn obstacle() -> Option<String> {
    if std::env::consts::ARCH != "x86_64" {
        return Some(format!(
            "the lab boots Debian's amd64 kernel, this machine is {}",
            std::env::consts::ARCH
        ));
    }
    let missing = ["apt-get", "apt-cache", "dpkg-deb"]
        .into_iter()
        .find(|p| !system_path().iter().any(|d| d.join(p).is_file()));
    missing.map(|p| {
        format!("{p} is missing: the lab's kernel and tools are Debian packages (use Debian 12 or later)")
    })
}

/// Builds the lab, unless it is already built.
pub(crate) fn build(root: &Path) -> Result<Lab> {
    let lab = Lab::at(root);
    let init = std::fs::read_to_string(lab.init()).context("read interop/guest/init")?;
    let recipe = format!("{RECIPE}\n{init}");
    if std::fs::read_to_string(lab.stamp()).is_ok_and(|s| s == recipe) {
        return Ok(lab);
    }
    if let Some(why) = obstacle() {
        anyhow::bail!("cannot build the lab: {why}");
    }
    if lab.dir.exists() {
        std::fs::remove_dir_all(&lab.dir).context("remove the older lab")?;
    }
    std::fs::create_dir_all(&lab.dir).context("make target/lab")?;
    packages::fetch(&lab)?;
    initramfs::make(&lab)?;
    for folder in ["kernel", "debs"] {
        std::fs::remove_dir_all(lab.dir.join(folder))
            .with_context(|| format!("remove target/lab/{folder}"))?;
    }
    std::fs::write(lab.stamp(), recipe).context("write the lab's stamp")?;
    println!("lab: built in {}", lab.dir.display());
    Ok(lab)
}
