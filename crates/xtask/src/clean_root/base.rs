//! Makes a Debian root file system of the machine's own release. It has the required packages, Python, a C
//! compiler and pkg-config, and nothing else.
//!
//! The packages are downloaded by the machine's apt, which checks their signatures, and unpacked. Their scripts
//! do not run, so that neither root nor a namespace is needed. Files that these scripts would have made and
//! that the checks need are made here.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::output;

/// The installed packages: a minimal system and a programmer's tools.
const PACKAGES: &[&str] =
    &["?essential", "?priority(required)", "python3-venv", "gcc", "libc6-dev", "pkg-config"];

/// Number of the recipe. Increase it when the recipe changes, so that an older root is rebuilt.
const RECIPE: &str = "1";

/// Returns the folder of the root, and makes the root first if it does not exist. That downloads about 105 MB,
/// and takes 410 MB of disk space.
pub(super) fn build(place: &Path) -> Result<PathBuf> {
    let root = place.join("root");
    let stamp = place.join("built");
    let recipe = format!("{RECIPE} {}", PACKAGES.join(" "));
    if fs::read_to_string(&stamp).is_ok_and(|text| text == recipe) {
        return Ok(root);
    }
    if place.exists() {
        fs::remove_dir_all(place).context("remove the older root")?;
    }
    println!("clean-root: downloading and unpacking a Debian root into {}", root.display());
    let packages = download(&place.join("apt"))?;
    // Debian 12 has these folders in /usr, but packages may still use the old paths.
    for folder in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(root.join("usr").join(folder)).context("make the root")?;
        symlink(format!("usr/{folder}"), root.join(folder)).context("make the root")?;
    }
    for package in &packages {
        unpack(package, &root)?;
    }
    configure(&root)?;
    fs::remove_dir_all(place.join("apt")).context("remove the packages")?;
    fs::write(&stamp, recipe).context("write the root's stamp")?;
    Ok(root)
}

/// Downloads all packages that a new system needs, and returns their files. apt gets a state of its own, in
/// which nothing is installed.
fn download(state: &Path) -> Result<Vec<PathBuf>> {
    for folder in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(state.join(folder)).context("make folders for apt")?;
    }
    fs::write(state.join("status"), "").context("make apt's list of installed packages")?;
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        for (option, file) in
            [("Dir::State::Lists", "lists"), ("Dir::Cache", "cache"), ("Dir::State::status", "status")]
        {
            command.arg("-o").arg(format!("{option}={}", state.join(file).display()));
        }
        // Without locks and as this user, because only this process uses these folders.
        command.args(["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=", "-qq"]).args(words);
        command.env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
        output(&mut command)
    };
    apt(&["update"])?;
    let install = ["install", "--yes", "--no-install-recommends", "--download-only"];
    apt(&[&install[..], PACKAGES].concat())?;
    let files = fs::read_dir(state.join("cache/archives")).context("list the packages")?;
    let files = files.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(files.filter(|file| file.extension().is_some_and(|end| end == "deb")).collect())
}

fn unpack(package: &Path, root: &Path) -> Result<()> {
    let mut read = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()
        .context("run dpkg-deb")?;
    let content = read.stdout.take().context("dpkg-deb has no output")?;
    let mut write = Command::new("tar");
    write.args(["--extract", "--no-same-owner", "--keep-directory-symlink", "--directory"]).arg(root);
    let written = write.stdin(content).status().context("run tar")?;
    if !read.wait().context("wait for dpkg-deb")?.success() || !written.success() {
        bail!("cannot unpack {}", package.display());
    }
    Ok(())
}

/// Creates the files that the packages' scripts would create.
fn configure(root: &Path) -> Result<()> {
    for (name, program) in [("cc", "gcc"), ("awk", "mawk")] {
        symlink(program, root.join("usr/bin").join(name)).with_context(|| format!("make {name}"))?;
    }
    for folder in ["mnt", "opt", "usr/local"] {
        fs::create_dir_all(root.join(folder)).with_context(|| format!("make {folder}"))?;
    }
    for list in ["passwd", "group"] {
        let master = root.join("usr/share/base-passwd").join(format!("{list}.master"));
        fs::copy(&master, root.join("etc").join(list)).with_context(|| format!("make etc/{list}"))?;
    }
    Ok(())
}
