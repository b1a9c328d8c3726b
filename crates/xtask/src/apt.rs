//! Debian packages, downloaded by the machine's apt, which checks their signatures, and unpacked: nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::output;
use crate::workspace::{files, make_folder};

/// Files of apt's state, and where they are below the folder of a state of its own.
pub(crate) const LISTS: (&str, &str) = ("Dir::State::Lists", "lists");
pub(crate) const CACHE: (&str, &str) = ("Dir::Cache", "cache");
pub(crate) const STATUS: (&str, &str) = ("Dir::State::status", "status");

/// apt with the machine's state, or with parts of its own.
#[derive(Debug, Default)]
pub(crate) struct Apt {
    options: Vec<String>,
    place: PathBuf,
}

impl Apt {
    /// apt with these parts of its state below `place`. As its list of installed packages an empty one is made.
    pub(crate) fn new(place: &Path, parts: &[(&str, &str)]) -> Result<Self> {
        for folder in ["lists/partial", "cache/archives/partial"] {
            make_folder(&place.join(folder))?;
        }
        fs::write(place.join(STATUS.1), "").context("make apt's list of installed packages")?;
        // Without locks and as this user, because only this process uses these folders.
        let fixed = ["Debug::NoLocking=1".to_owned(), "APT::Sandbox::User=".to_owned()];
        let parts = parts.iter().map(|(option, path)| format!("{option}={}", place.join(path).display()));
        Ok(Self { options: fixed.into_iter().chain(parts).collect(), place: place.to_path_buf() })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(self.options.iter().flat_map(|option| ["-o", option]));
        command.env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Runs `apt-get` in the folder of its state.
    pub(crate) fn get(&self, words: &str, packages: &[&str]) -> Result<()> {
        let mut command = self.command("apt-get");
        command.arg("-qq").args(words.split_whitespace()).args(packages);
        output(command.current_dir(&self.place)).map(drop)
    }

    /// The packages on which one depends.
    pub(crate) fn depends(&self, package: &str) -> Result<Vec<String>> {
        let text = output(self.command("apt-cache").args(["depends", package]))?;
        let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(names.map(str::to_owned).collect())
    }

    /// Downloads packages with all that they need beyond the installed ones; returns their files. It needs [`CACHE`].
    pub(crate) fn download_closure(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        self.get("install --yes --no-install-recommends --download-only", packages)?;
        files(&self.place.join("cache/archives"), ".deb")
    }

    /// Downloads these packages only, into an empty folder; returns their files.
    pub(crate) fn download(&self, packages: &[&str], into: &Path) -> Result<Vec<PathBuf>> {
        make_folder(into)?;
        let mut command = self.command("apt-get");
        output(command.args(["download", "-qq"]).args(packages).current_dir(into))?;
        files(into, ".deb")
    }
}

/// Unpacks a package. Links to folders that are there stay: Debian's `/bin` is one.
pub(crate) fn unpack(package: &Path, into: &Path) -> Result<()> {
    make_folder(into)?;
    let mut read = Command::new("dpkg-deb");
    let mut read =
        read.arg("--fsys-tarfile").arg(package).stdout(Stdio::piped()).spawn().context("run dpkg-deb")?;
    let content = read.stdout.take().context("dpkg-deb has no output")?;
    let mut write = Command::new("tar");
    write.args(["--extract", "--no-same-owner", "--keep-directory-symlink", "--directory"]).arg(into);
    let written = write.stdin(content).status().context("run tar")?;
    if !read.wait().context("wait for dpkg-deb")?.success() || !written.success() {
        bail!("cannot unpack {}", package.display());
    }
    Ok(())
}
