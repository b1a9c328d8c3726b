//! `cargo xtask install-cpg`: builds `libcpg.so.4`, Corosync's closed process groups on utipc, and installs it with its
//! headers.
//!
//! The library lies in a folder of its own, `lib/utipc`, so that it does not replace Corosync's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

/// The name that programs linked to Corosync's library look for.
const SONAME: &str = "libcpg.so.4";

#[derive(Args)]
pub(crate) struct Options {
    /// Folder for lib/utipc and include
    #[arg(long, default_value = "/usr/local")]
    prefix: PathBuf,
    /// Installs a debug build
    #[arg(long)]
    debug: bool,
}

/// Builds and installs.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let library = build(root, &options.prefix.join("lib/utipc"), options.debug)?;
    for header in ["cpg.h", "corotypes.h"] {
        let to = options.prefix.join("include/corosync").join(header);
        make_room(&to)?;
        fs::copy(root.join("crates/cpg/include/corosync").join(header), &to)
            .with_context(|| format!("copy {}", to.display()))?;
    }
    println!("install-cpg: {} and headers are installed", library.display());
    println!(
        "install-cpg: programs find it by LD_LIBRARY_PATH={}",
        library.parent().unwrap_or(root).display()
    );
    Ok(())
}

/// Builds the library into `folder`; returns its path.
pub(crate) fn build(root: &Path, folder: &Path, debug: bool) -> Result<PathBuf> {
    let profile = if debug { "debug" } else { "release" };
    let words: &[&str] = if debug { &[] } else { &["--release"] };
    crate::workspace::build(root, &[&["--package", "utipc-cpg"], words].concat())?;
    let archive = crate::workspace::target(root).join(profile).join("libcpg.a");
    let library = folder.join(SONAME);
    make_room(&library)?;
    // Remove the old file instead of overwriting it, so that running programs keep it.
    let _ = fs::remove_file(&library);
    link(&archive, &root.join("crates/cpg/libcpg.map"), &library)?;
    Ok(library)
}

/// Links the archive to a shared library with the functions of a version script.
fn link(archive: &Path, versions: &Path, library: &Path) -> Result<()> {
    let text = fs::read_to_string(versions).with_context(|| format!("read {}", versions.display()))?;
    let mut command = Command::new("cc");
    command.arg("-shared").arg("-o").arg(library);
    command.args([&format!("-Wl,-soname,{SONAME}"), "-Wl,--gc-sections", "-Wl,--strip-debug", "-Wl,-z,now"]);
    // The threads of a node run in this library's code: it must not be unloaded.
    command.args(["-Wl,-z,nodelete", "-Wl,-z,defs"]);
    command.arg(format!("-Wl,--version-script={}", versions.display()));
    command.args(functions(&text).map(|name| format!("-Wl,--undefined={name}")));
    command.arg(archive).args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"]);
    let status = command.status().context("run cc (apt-get install gcc libc6-dev)")?;
    if !status.success() {
        bail!("cc cannot link {}", library.display());
    }
    Ok(())
}

/// The functions that a version script exports.
fn functions(versions: &str) -> impl Iterator<Item = &str> {
    let lines = versions.lines().map(str::trim);
    lines.filter_map(|line| line.strip_suffix(';')).filter(|name| name.starts_with("cpg_"))
}

fn make_room(file: &Path) -> Result<()> {
    let folder = file.parent().context("a file has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("make {} (as root?)", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_a_version_script_are_found() {
        let text = "V_1 {\n\tglobal:\n\t\tcpg_join;\n\t\tcpg_leave;\n\tlocal:\n\t\t*;\n};\n";
        assert_eq!(functions(text).collect::<Vec<_>>(), ["cpg_join", "cpg_leave"]);
    }
}
