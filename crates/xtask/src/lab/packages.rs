//! Downloads and unpacks kernel and tools as Debian packages. The machine's own apt downloads them and checks
//! their signatures.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Lab;
use crate::process::output;

/// Programs that the lab needs, with the package that has each.
const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("tcpdump", "tcpdump"),
    ("kmod", "kmod"),
    ("tipc", "iproute2"),
    ("tc", "iproute2"),
    ("python3", "python3"),
    ("tshark", "tshark"),
];

/// The package that always points to the newest kernel.
const KERNEL: &str = "linux-image-amd64";

/// Downloads and unpacks what the machine lacks.
pub(crate) fn fetch(lab: &Lab) -> Result<()> {
    let apt = Apt::new(lab)?;
    // Never the machine's busybox, which may not be statically linked.
    let mut wanted = vec!["busybox-static"];
    wanted.extend(PROGRAMS.iter().filter(|(p, _)| lab.program(p).is_none()).map(|(_, package)| *package));
    wanted.dedup();
    let mut packages = apt.closure(&wanted)?;
    if !packages.iter().any(|p| p == "busybox-static") {
        packages.push("busybox-static".into());
    }
    let tools = apt.download(&packages)?;
    for deb in &tools {
        unpack(deb, &lab.tools())?;
    }
    let kernel = apt.kernel()?;
    for deb in apt.download(&[kernel])? {
        unpack(&deb, &lab.dir.join("kernel"))?;
    }
    Ok(())
}

fn unpack(deb: &Path, into: &Path) -> Result<()> {
    output(Command::new("dpkg-deb").arg("-x").arg(deb).arg(into)).map(|_| ())
}

/// apt, with the machine's package lists, or with downloaded lists if the machine has none.
struct Apt {
    options: Vec<String>,
    debs: PathBuf,
}

impl Apt {
    fn new(lab: &Lab) -> Result<Self> {
        let debs = lab.dir.join("debs");
        std::fs::create_dir_all(&debs).context("make target/lab/debs")?;
        let mut apt = Self { options: Vec::new(), debs };
        if apt.kernel().is_ok() {
            return Ok(apt);
        }
        let state = lab.dir.join("apt");
        std::fs::create_dir_all(state.join("lists/partial")).context("make target/lab/apt")?;
        std::fs::create_dir_all(state.join("cache/archives/partial")).context("make target/lab/apt")?;
        for (option, folder) in [("Dir::State::Lists", "lists"), ("Dir::Cache", "cache")] {
            apt.options.push("-o".into());
            apt.options.push(format!("{option}={}", state.join(folder).display()));
        }
        println!("lab: this machine has no package lists; fetching them into {}", state.display());
        output(apt.command("apt-get").arg("update"))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(&self.options).env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// The package of the newest kernel.
    fn kernel(&self) -> Result<String> {
        let text = output(self.command("apt-cache").args(["depends", KERNEL]))?;
        let image = text
            .lines()
            .filter_map(|l| l.trim().strip_prefix("Depends: "))
            .find(|p| p.starts_with("linux-image-"));
        image.map(str::to_owned).with_context(|| format!("{KERNEL} is not in this machine's package lists"))
    }

    /// The packages `wanted` and their dependencies, without those that the machine has.
    fn closure(&self, wanted: &[&str]) -> Result<Vec<String>> {
        let mut command = self.command("apt-get");
        command.args(["install", "--no-install-recommends", "--print-uris", "-y", "-qq"]).args(wanted);
        let text = output(&mut command)?;
        Ok(text.lines().filter_map(package_of).map(str::to_owned).collect())
    }

    fn download(&self, packages: &[String]) -> Result<Vec<PathBuf>> {
        if packages.is_empty() {
            return Ok(Vec::new());
        }
        println!("lab: downloading {}", packages.join(" "));
        output(self.command("apt-get").args(["download", "-qq"]).args(packages).current_dir(&self.debs))?;
        let files = std::fs::read_dir(&self.debs).context("list target/lab/debs")?;
        let files: Vec<_> = files.flatten().map(|f| f.path()).collect();
        packages
            .iter()
            .map(|package| {
                let start = format!("{package}_");
                let of =
                    |f: &&PathBuf| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&start));
                match files.iter().find(of) {
                    Some(file) => Ok(file.clone()),
                    None => bail!("apt-get download left no file for {package}"),
                }
            })
            .collect()
    }
}

/// The package in a line of `apt-get --print-uris`: `'URI' name_version_arch.deb size hash`.
fn package_of(line: &str) -> Option<&str> {
    let file = line.strip_prefix('\'')?.split_once("' ")?.1.split(' ').next()?;
    file.strip_suffix(".deb")?.split('_').next()
}

#[cfg(test)]
mod tests {
    use super::package_of;

    #[test]
    fn packages_are_read_from_apts_list() {
        let line = "'http://deb.example/pool/b/busybox-static_1%3a1.35_amd64.deb' busybox-static_1%3a1.35_amd64.deb 928188 MD5Sum:f6";
        assert_eq!(package_of(line), Some("busybox-static"));
        assert_eq!(package_of("Reading package lists..."), None);
        assert_eq!(package_of("'http://deb.example/x' x.tar.gz 1 MD5Sum:f6"), None);
    }
}
