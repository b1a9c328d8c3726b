//! `cargo xtask install-c` builds and installs the C library with headers, pkg-config file and manual pages;
//! `install-cpg` does so with `libcpg.so.4`, Corosync's closed process groups on utipc, and its headers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::{Profile, copy, files, make_folder, root, target};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The number in the library's soname; crates/c/build.rs has it too.
const SONAME: &str = "libutipc.so.0";
/// The name that programs linked to Corosync's library look for.
const CPG_SONAME: &str = "libcpg.so.4";

#[derive(Args)]
pub(crate) struct Options {
    /// Folder for lib, include and share
    #[arg(long, default_value = "/usr/local")]
    prefix: PathBuf,
    /// Folder that is put before the prefix while copying, for those who make packages
    #[arg(long)]
    destdir: Option<PathBuf>,
    /// Installs a debug build
    #[arg(long)]
    debug: bool,
}

#[derive(Args)]
pub(crate) struct CpgOptions {
    /// Folder for lib/utipc and include
    #[arg(long, default_value = "/usr/local")]
    prefix: PathBuf,
    /// Installs a debug build
    #[arg(long)]
    debug: bool,
}

/// Installs a debug build of the C library below `target/PLACE`, for programs of tests; returns its folder `lib`.
pub(crate) fn below(place: &str) -> Result<PathBuf> {
    let prefix = target().join(place).join("prefix");
    c(&Options { prefix: prefix.clone(), destdir: None, debug: true })?;
    Ok(prefix.join("lib"))
}

/// Copies a debug build of the C library for /usr/local below another folder.
pub(crate) fn staged(before: &Path) -> Result<()> {
    c(&Options { prefix: "/usr/local".into(), destdir: Some(before.to_path_buf()), debug: true })
}

/// Builds and installs the C library.
pub(crate) fn c(options: &Options) -> Result<()> {
    let profile = Profile::chosen(options.debug).build("--package utipc-c")?;
    let prefix = std::path::absolute(&options.prefix).context("find the prefix")?;
    let to = match &options.destdir {
        Some(before) => before.join(prefix.strip_prefix("/").unwrap_or(&prefix)),
        None => prefix.clone(),
    };
    let lib = to.join("lib");
    let full = format!("libutipc.so.{VERSION}");
    copy(&profile.join("libutipc.so"), &lib.join(&full))?;
    copy(&profile.join("libutipc.a"), &lib.join("libutipc.a"))?;
    for (link, target) in [(SONAME, full.as_str()), ("libutipc.so", SONAME)] {
        // An older one is replaced.
        let _ = fs::remove_file(lib.join(link));
        symlink(target, lib.join(link)).with_context(|| format!("make {link} in {}", lib.display()))?;
    }
    headers("crates/c/include", &["utipc.h", "tipcc.h"], &to.join("include"))?;
    let text =
        fs::read_to_string(root().join("packaging/utipc.pc.in")).context("read packaging/utipc.pc.in")?;
    let text = text.replace("@PREFIX@", &prefix.to_string_lossy()).replace("@VERSION@", VERSION);
    let pc = lib.join("pkgconfig/utipc.pc");
    make_folder(&lib.join("pkgconfig"))?;
    fs::write(&pc, text).with_context(|| format!("write {}", pc.display()))?;
    let mut pages = 0;
    for section in ["man3", "man7"] {
        for page in files(&root().join("packaging/man").join(section), "")? {
            let name = page.file_name().context("a page has a name")?;
            copy(&page, &to.join("share/man").join(section).join(name))?;
            pages += 1;
        }
    }
    let below = to.display();
    println!("install-c: libutipc {VERSION}, headers, utipc.pc and {pages} manual pages are below {below}");
    if options.destdir.is_none() {
        let lib = lib.display();
        println!(
            "install-c: `sudo ldconfig` lets programs find the library, where {lib} is one of its folders"
        );
    }
    Ok(())
}

/// Builds and installs Corosync's groups. The library lies in a folder of its own, so that it does not replace
/// Corosync's.
pub(crate) fn cpg(options: &CpgOptions) -> Result<()> {
    let folder = options.prefix.join("lib/utipc");
    let library = link_cpg(&folder, Profile::chosen(options.debug))?;
    headers(
        "crates/cpg/include/corosync",
        &["cpg.h", "corotypes.h"],
        &options.prefix.join("include/corosync"),
    )?;
    println!("install-cpg: {} and headers are installed", library.display());
    println!("install-cpg: programs find it by LD_LIBRARY_PATH={}", folder.display());
    Ok(())
}

/// Builds Corosync's groups into `folder`; returns the library's path.
pub(crate) fn link_cpg(folder: &Path, profile: Profile) -> Result<PathBuf> {
    let archive = profile.build("--package utipc-cpg")?.join("libcpg.a");
    let versions = root().join("crates/cpg/libcpg.map");
    let text = fs::read_to_string(&versions).with_context(|| format!("read {}", versions.display()))?;
    let library = folder.join(CPG_SONAME);
    make_folder(folder)?;
    // Remove the old file instead of overwriting it, so that running programs keep it.
    let _ = fs::remove_file(&library);
    let mut command = Command::new("cc");
    command.arg("-shared").arg("-o").arg(&library);
    command.args([
        &format!("-Wl,-soname,{CPG_SONAME}"),
        "-Wl,--gc-sections",
        "-Wl,--strip-debug",
        "-Wl,-z,now",
    ]);
    // The threads of a node run in this library's code: it must not be unloaded.
    command.args(["-Wl,-z,nodelete", "-Wl,-z,defs"]);
    command.arg(format!("-Wl,--version-script={}", versions.display()));
    command.args(functions(&text).map(|name| format!("-Wl,--undefined={name}")));
    command.arg(&archive).args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"]);
    if !command.status().context("run cc (apt-get install gcc libc6-dev)")?.success() {
        bail!("cc cannot link {}", library.display());
    }
    Ok(library)
}

fn headers(from: &str, names: &[&str], to: &Path) -> Result<()> {
    names.iter().try_for_each(|name| copy(&root().join(from).join(name), &to.join(name)))
}

/// The functions that a version script exports.
fn functions(versions: &str) -> impl Iterator<Item = &str> {
    let lines = versions.lines().map(str::trim);
    lines.filter_map(|line| line.strip_suffix(';')).filter(|name| name.starts_with("cpg_"))
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
