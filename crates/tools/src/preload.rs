//! Libraries that are preloaded into programs written for the kernel's TIPC, or for Corosync.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A library that takes the place of what the program was written for.
struct Library {
    file: &'static str,
    /// The remedy if it is missing.
    remedy: &'static str,
}

/// AF_TIPC sockets.
const SHIM: Library = Library {
    file: "libutipc_preload.so",
    remedy: "install the package utipc-preload; or cargo install --path packaging/shim; or build it, cargo build --release -p utipc-preload; or use --library",
};

/// Corosync's closed process groups. Programs look for a library of this name; the preloaded library has it.
const CPG: Library = Library {
    file: "libcpg.so.4",
    remedy: "install the package utipc-cpg; or build it, cargo xtask install-cpg, and use LD_LIBRARY_PATH",
};

/// The value of LD_PRELOAD, for the library that is `given` or installed.
///
/// # Errors
/// The library is missing, or its path cannot be expressed.
pub fn shim(given: Option<&Path>) -> Result<String> {
    preloaded(&library(given)?)
}

/// The value of LD_PRELOAD, for the installed library of closed process groups.
///
/// # Errors
/// As of [`shim`].
pub fn groups() -> Result<String> {
    preloaded(&beside(&CPG)?)
}

/// The value of LD_PRELOAD: libraries already in it come after this one.
fn preloaded(library: &Path) -> Result<String> {
    let library = library.to_str().filter(|path| !path.contains([' ', ':'])).with_context(|| {
        format!("{} has a space or colon in its path, which LD_PRELOAD cannot express", library.display())
    })?;
    Ok(match std::env::var("LD_PRELOAD") {
        Ok(others) if !others.is_empty() => format!("{library}:{others}"),
        _ => library.to_owned(),
    })
}

/// The library of AF_TIPC sockets that is `given`, or installed.
fn library(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        None => beside(&SHIM),
        Some(path) if path.exists() => resolved(path),
        Some(path) => bail!(
            "cannot find the library {} (name the path of {} with --library)",
            path.display(),
            SHIM.file
        ),
    }
}

/// A library next to this program, where cargo or packages put it.
fn beside(library: &Library) -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's own path")?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    if library.file == SHIM.file
        && let Some(path) = installed_by_cargo(directory)?
    {
        return resolved(&path);
    }
    // Where Debian and rpm put libraries of one architecture.
    let of_debian = format!("../lib/{}-linux-gnu/utipc", std::env::consts::ARCH);
    let places = ["", "../lib/utipc", &of_debian, "../lib64/utipc", "../lib", "deps"];
    let mut places = places.iter().map(|place| directory.join(place));
    match places.find_map(|place| Some(place.join(library.file)).filter(|path| path.exists())) {
        Some(path) => resolved(&path),
        None => bail!("{} is not beside this program ({})", library.file, library.remedy),
    }
}

fn resolved(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("cannot resolve {}", path.display()))
}

/// The library in the program `utipc-shim` next to this one, if `cargo install` has put it there.
fn installed_by_cargo(directory: &Path) -> Result<Option<PathBuf>> {
    let shim = directory.join("utipc-shim");
    if !shim.exists() {
        return Ok(None);
    }
    let out = Command::new(&shim).output().with_context(|| format!("cannot run {}", shim.display()))?;
    if !out.status.success() {
        bail!("{}", String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(Some(PathBuf::from(String::from_utf8_lossy(&out.stdout).trim_end())))
}
