//! Other programs of the project: in the folder of this one, or in a folder of PATH.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The program `name` in the folder of this program, else in PATH.
pub fn beside(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let neighbour = own.map(|own| own.with_file_name(name)).filter(|path| is_program(path));
    neighbour.or_else(|| find(name))
}

/// The file that `execvp` starts under this name.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0)
}

/// The command that makes the program `name` of the crate in `folder` available, for the remedy of an error: in
/// cargo's target folder the build of that package, else its installation.
///
/// # Errors
/// This program's own path is unknown.
pub fn remedy(name: &str, folder: &str) -> Result<String> {
    let own = std::env::current_exe().context("find this program's own path")?;
    let build = own.parent().unwrap_or(Path::new("/"));
    if !build.join(".fingerprint").is_dir() {
        return Ok(format!("install the package {name}, or in a source tree: cargo install --path {folder}"));
    }
    Ok(format!("cargo build{} -p {name}", utipc_cli::build_options(&own)))
}
