//! Corosync's test programs: their sources, headers and libraries, found or downloaded below `target/cpg`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::output;

/// The variable that names a folder with Corosync's sources.
pub(crate) const VARIABLE: &str = "UTIPC_COROSYNC";

/// Debian packages with the headers and libraries that the programs are compiled and linked with. The programs are
/// linked to Corosync's own library and run with ours.
const PACKAGES: &[&str] = &[
    "libcpg-dev",
    "libcpg4",
    "libcorosync-common-dev",
    "libcorosync-common4",
    "libqb-dev",
    "libqb100",
    "zlib1g-dev",
    "zlib1g",
];

/// Sources and what they need.
pub(crate) struct Sources {
    /// Corosync's sources.
    corosync: PathBuf,
    /// The unpacked packages.
    system: PathBuf,
}

impl Sources {
    /// Finds or downloads all.
    pub(crate) fn find(root: &Path) -> Result<Self> {
        let place = root.join("target/cpg");
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
        let lib = self.system.join("usr/lib");
        let folders = fs::read_dir(&lib).with_context(|| format!("list {}", lib.display()))?;
        Ok(folders.flatten().map(|folder| folder.path()).filter(|path| path.is_dir()).collect())
    }

    /// Compiles one of Corosync's test programs into `folder`, linked to Corosync's library.
    pub(crate) fn compile(&self, name: &str, folder: &Path) -> Result<PathBuf> {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        // Their configure script writes this file, of which these programs use nothing.
        fs::write(folder.join("config.h"), "").context("write config.h")?;
        let program = folder.join(name);
        let mut command = Command::new("cc");
        command.args(["-O2", "-pthread", "-w", "-o"]).arg(&program);
        command.arg(self.corosync.join("test").join(name).with_extension("c"));
        for include in [folder.to_path_buf(), self.corosync.join("include"), self.system.join("usr/include")]
        {
            command.arg("-I").arg(include);
        }
        link_with(&mut command, &self.libraries()?);
        command.args(["-lcpg", "-lqb", "-lz"]);
        output(&mut command).with_context(|| format!("compile {name}"))?;
        Ok(program)
    }
}

/// Downloads Debian packages and unpacks them, without installing them. `into` appears when it is complete.
pub(super) fn unpack(packages: &[&str], into: &Path) -> Result<()> {
    let beside = |name: &str| into.with_extension(name);
    let (debs, half) = (beside("debs"), beside("half"));
    fs::create_dir_all(&debs).with_context(|| format!("make {}", debs.display()))?;
    eprintln!("cpg: downloading {}", packages.join(" "));
    output(Command::new("apt-get").args(["download", "-qq"]).args(packages).current_dir(&debs))
        .context("download Debian packages (apt-get update; set up for Debian 12)")?;
    for deb in fs::read_dir(&debs).context("list the packages")?.flatten() {
        output(Command::new("dpkg-deb").arg("-x").arg(deb.path()).arg(&half))?;
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
    for folder in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(place.join(folder)).with_context(|| format!("make {}", place.display()))?;
    }
    let release = fs::read_to_string("/etc/os-release").context("read /etc/os-release")?;
    let code = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let code = code.context("this system has no code name (set up for Debian)")?;
    let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let list = place.join("sources.list");
    fs::write(&list, format!("deb-src [signed-by={key}] http://deb.debian.org/debian {code} main\n"))
        .context("write the list of sources")?;
    println!("cpg: downloading Corosync's sources");
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.arg("-qq").current_dir(place);
        for (option, path) in [
            ("Dir::Etc::sourcelist", &list),
            ("Dir::Etc::sourceparts", &place.join("none")),
            ("Dir::State::Lists", &place.join("lists")),
            ("Dir::Cache", &place.join("cache")),
        ] {
            command.arg("-o").arg(format!("{option}={}", path.display()));
        }
        output(command.args(words))
    };
    apt(&["update"])?;
    // Without the signature of the archive, which mirrors may lack. apt checks its hash.
    apt(&["source", "--download-only", "--tar-only", "corosync"])?;
    let mut files = fs::read_dir(place).context("list the sources")?.flatten().map(|entry| entry.path());
    let archive = files
        .find(|path| path.to_string_lossy().contains(".orig.tar."))
        .context("apt-get source left no archive")?;
    let half = place.join("half");
    fs::create_dir_all(&half).with_context(|| format!("make {}", half.display()))?;
    output(Command::new("tar").args(["--strip-components=1", "-xf"]).arg(archive).arg("-C").arg(&half))?;
    fs::rename(&half, &unpacked).context("name the sources")?;
    Ok(unpacked)
}
