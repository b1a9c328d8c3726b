//! Folders of the project, cargo, and folders for scratch files, which most chores need.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

/// The project's folder, as it was when xtask was built inside it.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The folder into which cargo builds: where it has built this program.
pub(crate) fn target() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let mut folders = own.ancestors();
    let profile = folders.find(|folder| folder.ends_with("debug") || folder.ends_with("release"));
    profile.and_then(Path::parent).map_or_else(|| root().join("target"), Path::to_path_buf)
}

/// A profile of cargo.
#[derive(Clone, Copy)]
pub(crate) enum Profile {
    Dev,
    /// Optimised, for people who build.
    Release,
    /// With link-time optimisation, for packages and published figures.
    Dist,
}

impl Profile {
    /// The development build, or what users build.
    pub(crate) fn chosen(debug: bool) -> Self {
        if debug { Self::Dev } else { Self::Release }
    }

    /// The folder of its programs.
    pub(crate) fn folder(self) -> PathBuf {
        target().join(match self {
            Self::Dev => "debug",
            Self::Release => "release",
            Self::Dist => "dist",
        })
    }

    /// Builds with these further words of `cargo build`; returns the folder of the programs.
    pub(crate) fn build(self, words: &str) -> Result<PathBuf> {
        let name = match self {
            Self::Dev => "dev",
            Self::Release => "release",
            Self::Dist => "dist",
        };
        build(&format!("--profile {name} {words}"))?;
        Ok(self.folder())
    }
}

/// A program of the development build.
pub(crate) fn built(program: &str) -> PathBuf {
    Profile::Dev.folder().join(program)
}

/// The cargo that runs this program, with these words, in the project's folder.
pub(crate) fn cargo(words: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words.split_whitespace()).current_dir(root());
    command
}

/// Runs `cargo build` with these words.
pub(crate) fn build(words: &str) -> Result<()> {
    let status = cargo("build --quiet").args(words.split_whitespace()).status();
    if !status.context("run cargo build")?.success() {
        bail!("cargo build {words} failed (its message is above)");
    }
    Ok(())
}

/// Builds the daemon and returns its path.
pub(crate) fn daemon() -> Result<PathBuf> {
    Ok(Profile::Dev.build("--package utipc-tools --bin utipcd")?.join("utipcd"))
}

/// The exit code of a chore.
pub(crate) fn verdict(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes a folder and those that lead to it.
pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("make {} (as root?)", folder.display()))
}

/// Makes an empty folder in place of one that an earlier run has left.
pub(crate) fn empty_folder(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    make_folder(folder)
}

/// Copies a file and makes the folder that it goes to. A program that runs keeps the file that was there.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    make_folder(to.parent().context("a file has a folder")?)?;
    let _ = fs::remove_file(to);
    fs::copy(from, to).with_context(|| format!("copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// The paths in a folder that end with `end`, sorted.
pub(crate) fn files(folder: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.to_string_lossy().ends_with(end));
    files.sort();
    Ok(files)
}

/// A folder that this user alone may enter, removed when this value is dropped. It is not below `target`, because paths
/// of sockets must be short.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let own = Self(std::env::temp_dir().join(format!("utipc-{name}-{}", std::process::id())));
        own.folder("").map(|_| own)
    }

    /// Makes a folder inside, for this user alone too.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.join(name);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.with_context(|| format!("make {}", path.display()))?;
        Ok(path)
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
