//! Corosync's test programs: their sources, headers and libraries, found or downloaded below `target/cpg`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::apt::{self, Apt, CACHE, LISTS};
use crate::process::output;
use crate::workspace::{files, make_folder, target};

/// The variable that names a folder with Corosync's sources.
const VARIABLE: &str = "UTIPC_COROSYNC";

/// Debian packages with the headers and libraries that the programs are compiled and linked with. The programs are
/// linked to Corosync's own library and run with ours.
const PACKAGES: &str =
    "libcpg-dev libcpg4 libcorosync-common-dev libcorosync-common4 libqb-dev libqb100 zlib1g-dev zlib1g";

/// Sources and what they need.
pub(crate) struct Sources {
    /// Corosync's sources.
    corosync: PathBuf,
    /// The unpacked packages.
    system: PathBuf,
}

impl Sources {
    /// Finds or downloads all.
    pub(crate) fn find() -> Result<Self> {
        let place = target().join("cpg");
        let system = place.join("system");
        if !system.join("usr/include/corosync/cpg.h").exists() {
            unpack(PACKAGES, &system)?;
        }
        let corosync = match std::env::var_os(VARIABLE) {
            Some(folder) => PathBuf::from(folder),
            None => download_sources(&place.join("source"))?,
        };
        if !corosync.join("test/testcpg.c").exists() {
            bail!("{} has no test/testcpg.c: set {VARIABLE} to Corosync's sources", corosync.display());
        }
        Ok(Self { corosync, system })
    }

    /// The folders with libraries that the programs need beside ours.
    pub(crate) fn libraries(&self) -> Result<Vec<PathBuf>> {
        Ok(files(&self.system.join("usr/lib"), "")?.into_iter().filter(|path| path.is_dir()).collect())
    }

    /// Compiles one of Corosync's test programs into `folder`, linked to Corosync's library.
    pub(crate) fn compile(&self, name: &str, folder: &Path) -> Result<()> {
        make_folder(folder)?;
        // Their configure script writes this file, of which these programs use nothing.
        fs::write(folder.join("config.h"), "").context("write config.h")?;
        let mut command = Command::new("cc");
        command.args(["-O2", "-pthread", "-w", "-o"]).arg(folder.join(name));
        command.arg(self.corosync.join("test").join(name).with_extension("c"));
        let includes = [folder.to_path_buf(), self.corosync.join("include"), self.system.join("usr/include")];
        command.args(includes.map(|include| format!("-I{}", include.display())));
        link_with(&mut command, &self.libraries()?);
        output(command.args(["-lcpg", "-lqb", "-lz"])).with_context(|| format!("compile {name}")).map(drop)
    }
}

/// Downloads Debian packages and unpacks them, without installing them. `into` appears when it is complete.
pub(super) fn unpack(packages: &str, into: &Path) -> Result<()> {
    let half = into.with_extension("half");
    eprintln!("cpg: downloading {packages}");
    let packages: Vec<_> = packages.split_whitespace().collect();
    let debs = Apt::default().download(&packages, &into.with_extension("debs"));
    for deb in debs.context("download Debian packages (apt-get update; set up for Debian 12)")? {
        apt::unpack(&deb, &half)?;
    }
    fs::rename(&half, into).context("name the unpacked packages")
}

/// Lets the linker find libraries, and those that they need, in these folders.
pub(super) fn link_with(command: &mut Command, folders: &[PathBuf]) {
    for folder in folders {
        command.arg("-L").arg(folder).arg(format!("-Wl,-rpath-link,{}", folder.display()));
    }
}

/// Downloads and unpacks the sources of Debian's package, which apt checks.
fn download_sources(place: &Path) -> Result<PathBuf> {
    let unpacked = place.join("corosync");
    if unpacked.exists() {
        return Ok(unpacked);
    }
    let list = ("Dir::Etc::sourcelist", "sources.list");
    let apt = Apt::new(place, &[list, ("Dir::Etc::sourceparts", "none"), LISTS, CACHE])?;
    let release = fs::read_to_string("/etc/os-release").context("read /etc/os-release")?;
    let code = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let code = code.context("this system has no code name (set up for Debian)")?;
    let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let source = format!("deb-src [signed-by={key}] http://deb.debian.org/debian {code} main\n");
    fs::write(place.join(list.1), source).context("write the list of sources")?;
    println!("cpg: downloading Corosync's sources");
    apt.get("update", &[])?;
    // Without the signature of the archive, which mirrors may lack. apt checks its hash.
    apt.get("source --download-only --tar-only", &["corosync"])?;
    let archive = files(place, "")?.into_iter().find(|path| path.to_string_lossy().contains(".orig.tar."));
    let archive = archive.context("apt-get source left no archive")?;
    let half = place.join("half");
    make_folder(&half)?;
    output(Command::new("tar").args(["--strip-components=1", "-xf"]).arg(archive).arg("-C").arg(&half))?;
    fs::rename(&half, &unpacked).context("name the sources")?;
    Ok(unpacked)
}
