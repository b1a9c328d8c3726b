//! `utipc-shim` contains `libutipc_preload.so`. It writes the library to `../lib/utipc`, relative to its own folder,
//! unless it exists, and prints its path. `utipc run` calls it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const LIBRARY: &[u8] = include_bytes!(env!("UTIPC_SHIM"));

fn main() -> ExitCode {
    let path = match place() {
        Ok(path) => path,
        Err(error) => {
            eprintln!("utipc-shim: cannot find its own folder: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = write(&path) {
        eprintln!(
            "utipc-shim: cannot write {}: {error} (run utipc-shim once as the user who owns that folder)",
            path.display()
        );
        return ExitCode::FAILURE;
    }
    println!("{}", path.display());
    ExitCode::SUCCESS
}

fn place() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    Ok(folder.join("lib/utipc/libutipc_preload.so"))
}

/// Writes the library if this version of it is missing. Programs that use an older one keep it.
fn write(path: &Path) -> io::Result<()> {
    if fs::read(path).is_ok_and(|there| there == LIBRARY) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let new = folder.join(format!(".libutipc_preload.so.{}", std::process::id()));
    fs::write(&new, LIBRARY)?;
    fs::rename(&new, path).inspect_err(|_| drop(fs::remove_file(&new)))
}
