//! `cargo xtask install-c`: builds the C library and installs it with headers, pkg-config file and manual
//! pages.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use clap::Args;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The number in the library's soname; crates/c/build.rs has it too.
const SONAME: &str = "libutipc.so.0";

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

impl Options {
    /// A debug build, for programs of tests.
    pub(crate) fn debug_below(prefix: &Path) -> Self {
        Self { prefix: prefix.to_path_buf(), destdir: None, debug: true }
    }

    /// A debug build for /usr/local, copied below another folder first.
    pub(crate) fn debug_staged(before: &Path) -> Self {
        Self { prefix: "/usr/local".into(), destdir: Some(before.to_path_buf()), debug: true }
    }
}

/// Builds and installs.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let built = build(root, options.debug)?;
    let prefix = std::path::absolute(&options.prefix).context("find the prefix")?;
    let to = match &options.destdir {
        Some(before) => before.join(prefix.strip_prefix("/").unwrap_or(&prefix)),
        None => prefix.clone(),
    };
    library(&built, &to.join("lib"))?;
    for header in ["utipc.h", "tipcc.h"] {
        copy(&root.join("crates/c/include").join(header), &to.join("include").join(header))?;
    }
    let template = root.join("packaging/utipc.pc.in");
    let text = fs::read_to_string(&template).with_context(|| format!("read {}", template.display()))?;
    let text = text.replace("@PREFIX@", &prefix.to_string_lossy()).replace("@VERSION@", VERSION);
    let pc = to.join("lib/pkgconfig/utipc.pc");
    make_room(&pc)?;
    fs::write(&pc, text).with_context(|| format!("write {}", pc.display()))?;
    let pages = manuals(root, &to)?;
    println!(
        "install-c: libutipc {VERSION}, headers, utipc.pc and {pages} manual pages are below {}",
        to.display()
    );
    if options.destdir.is_none() {
        println!(
            "install-c: `sudo ldconfig` lets programs find the library, where {} is one of its folders",
            to.join("lib").display()
        );
    }
    Ok(())
}

/// Builds the libraries; returns their folder.
fn build(root: &Path, debug: bool) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&cargo);
    command.args(["build", "--quiet", "--package", "utipc-c"]).current_dir(root);
    if !debug {
        command.arg("--release");
    }
    if !command.status().context("run cargo build")?.success() {
        bail!("cargo build --package utipc-c failed (its message is above)");
    }
    let out = Command::new(&cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("run cargo metadata")?;
    let about: serde_json::Value = serde_json::from_slice(&out.stdout).context("parse cargo metadata")?;
    let target = about["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(Path::new(target).join(if debug { "debug" } else { "release" }))
}

fn library(built: &Path, to: &Path) -> Result<()> {
    let full = format!("libutipc.so.{VERSION}");
    copy(&built.join("libutipc.so"), &to.join(&full))?;
    copy(&built.join("libutipc.a"), &to.join("libutipc.a"))?;
    for (link, target) in [(SONAME, full.as_str()), ("libutipc.so", SONAME)] {
        let link = to.join(link);
        if fs::symlink_metadata(&link).is_ok() {
            fs::remove_file(&link).with_context(|| format!("replace {}", link.display()))?;
        }
        symlink(target, &link).with_context(|| format!("make {}", link.display()))?;
    }
    Ok(())
}

/// Copies the manual pages of packaging/man; returns their number.
fn manuals(root: &Path, to: &Path) -> Result<usize> {
    let mut pages = 0;
    for section in ["man3", "man7"] {
        let Ok(folder) = fs::read_dir(root.join("packaging/man").join(section)) else { continue };
        for page in folder {
            let page = page.context("list the manual pages")?;
            copy(&page.path(), &to.join("share/man").join(section).join(page.file_name()))?;
            pages += 1;
        }
    }
    Ok(pages)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    make_room(to)?;
    // Remove the old file instead of overwriting it, so that running programs keep it.
    let _ = fs::remove_file(to);
    fs::copy(from, to).with_context(|| format!("copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn make_room(file: &Path) -> Result<()> {
    let folder = file.parent().context("a file has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("make {} (as root?)", folder.display()))
}
