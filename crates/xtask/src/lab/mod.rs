//! The interop lab: a virtual machine, discarded after each run, whose Linux kernel has TIPC.
//!
//! Kernel and tools are Debian packages, unpacked below `target/lab` and never installed. The machine's own file
//! system is the guest's, read-only below an overlay, so a script in the guest can run whatever was just built.

mod cpio;
mod initramfs;
mod vm;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::apt::{Apt, CACHE, LISTS, unpack};
use crate::needs::Skip;
use crate::process::find;
use crate::workspace::{empty_folder, root, target};

pub(crate) use vm::{Limits, run};

/// Number of the recipe. Increase it when the recipe changes, so that an older lab is rebuilt.
const RECIPE: &str = "2";

/// Programs that the lab needs, with the package that has each.
const PROGRAMS: [(&str, &str); 7] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("tcpdump", "tcpdump"),
    ("kmod", "kmod"),
    ("tipc", "iproute2"),
    ("tc", "iproute2"),
    ("python3", "python3"),
    ("tshark", "tshark"),
];

/// Never the machine's busybox, which may not be statically linked.
const BUSYBOX: &str = "busybox-static";

/// The package that always points to the newest kernel.
const KERNEL: &str = "linux-image-amd64";

/// The files of a built lab.
pub(crate) struct Lab {
    /// `target/lab`.
    dir: PathBuf,
}

impl Lab {
    /// Folder of the unpacked tools that the machine lacks.
    fn tools(&self) -> PathBuf {
        self.dir.join("tools")
    }

    /// The folders of unpacked programs that exist.
    fn folders(&self) -> Vec<PathBuf> {
        let all = ["usr/bin", "usr/sbin", "bin", "sbin"].map(|folder| self.tools().join(folder));
        all.into_iter().filter(|folder| folder.is_dir()).collect()
    }

    fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    fn initrd(&self) -> PathBuf {
        self.dir.join("initrd.cpio")
    }

    /// The path of a program: the machine's, or else the unpacked one.
    fn program(&self, name: &str) -> Option<PathBuf> {
        let unpacked =
            || self.folders().into_iter().map(|folder| folder.join(name)).find(|file| file.is_file());
        find(name).or_else(unpacked)
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
        joined(dirs.iter().filter(|d| d.is_dir()))
    }
}

/// Folders as a variable names them.
fn joined<'a>(folders: impl Iterator<Item = &'a PathBuf>) -> String {
    folders.map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":")
}

/// The guest's first program.
fn init() -> PathBuf {
    root().join("interop/guest/init")
}

/// Reason why this machine cannot build the lab.
fn foreign_machine() -> Option<String> {
    if std::env::consts::ARCH != "x86_64" {
        let own = std::env::consts::ARCH;
        return Some(format!("the lab boots Debian's amd64 kernel, this machine is {own}"));
    }
    let missing = ["apt-get", "apt-cache", "dpkg-deb"].into_iter().find(|program| find(program).is_none())?;
    Some(format!(
        "{missing} is missing: the lab's kernel and tools are Debian packages (use Debian 12 or later)"
    ))
}

/// Reason why there is no lab on this machine, which is built first if it can be.
pub(crate) fn obstacle() -> Option<Skip> {
    let why = foreign_machine().or_else(|| Some(format!("{:#}", build().err()?)))?;
    Some(Skip::new(why, "cargo xtask lab build"))
}

/// Builds the lab, unless it is already built.
pub(crate) fn build() -> Result<Lab> {
    let lab = Lab { dir: target().join("lab") };
    let stamp = lab.dir.join("built");
    let first = fs::read_to_string(init()).context("read interop/guest/init")?;
    let recipe = format!("{RECIPE}\n{first}");
    if fs::read_to_string(&stamp).is_ok_and(|text| text == recipe) {
        return Ok(lab);
    }
    if let Some(why) = foreign_machine() {
        bail!("cannot build the lab: {why}");
    }
    empty_folder(&lab.dir)?;
    fetch(&lab)?;
    initramfs::make(&lab)?;
    for folder in ["kernel", "apt"] {
        fs::remove_dir_all(lab.dir.join(folder)).with_context(|| format!("remove target/lab/{folder}"))?;
    }
    fs::write(&stamp, recipe).context("write the lab's stamp")?;
    println!("lab: built in {}", lab.dir.display());
    Ok(lab)
}

/// Runs a script in the lab, which is built first, and prints what it prints.
pub(crate) fn show(script: &Path, args: &[String], out: &Path, limits: Limits) -> Result<i32> {
    run(&build()?, script, args, out, limits, &mut |line| println!("{line}"))
}

/// Downloads kernel and tools, as far as the machine lacks them, and unpacks them.
fn fetch(lab: &Lab) -> Result<()> {
    let place = lab.dir.join("apt");
    let mut apt = Apt::new(&place, &[CACHE])?;
    if kernel(&apt).is_err() {
        println!("lab: this machine has no package lists; fetching them into {}", place.display());
        apt = Apt::new(&place, &[CACHE, LISTS])?;
        apt.get("update", &[])?;
    }
    let missing = PROGRAMS.into_iter().filter(|(program, _)| lab.program(program).is_none());
    let mut wanted: Vec<_> = missing.map(|(_, package)| package).collect();
    wanted.dedup();
    println!("lab: downloading {BUSYBOX} {}", wanted.join(" "));
    let mut tools = apt.download(&[BUSYBOX], &place.join("busybox"))?;
    if !wanted.is_empty() {
        tools.extend(apt.download_closure(&wanted)?);
    }
    tools.iter().try_for_each(|deb| unpack(deb, &lab.tools()))?;
    let kernel = kernel(&apt)?;
    println!("lab: downloading {kernel}");
    let debs = apt.download(&[&kernel], &place.join("kernel"))?;
    debs.iter().try_for_each(|deb| unpack(deb, &lab.dir.join("kernel")))
}

/// The package of the newest kernel.
fn kernel(apt: &Apt) -> Result<String> {
    let image = apt.depends(KERNEL)?.into_iter().find(|package| package.starts_with("linux-image-"));
    image.with_context(|| format!("{KERNEL} is not in this machine's package lists"))
}
