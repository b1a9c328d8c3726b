//! `cargo xtask clean-root`: tests the Python wheel and the C library in a Debian root file system that has
//! nothing else of the project.
//!
//! The wheel, the installed C library, the daemon and the examples are copied into the root, and
//! `packaging/clean-root/checks.sh` installs, builds and runs them there. The root has namespaces of its own
//! for mounts, processes, network and the rest, which end with its first process. Files are written to memory,
//! so that the root on the disk does not change.

mod base;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{install_c, process, python};

/// The oldest C library with which programs built on Debian 12 run. README.md and docs/python.md state it too.
const GLIBC: &str = "2.34";

/// Time limit of all checks together.
const LIMIT: Duration = Duration::from_secs(300);

/// Shell script that makes `$1` the root, with a copy of `$2` as /opt/parcel, and runs the other arguments as a
/// command there. The machine's own files cannot be reached from it. Folders that are written are in memory,
/// all others are read-only.
const ENTER: &str = r#"set -e; base=$1; parcel=$2; shift 2
mount --bind "$base" "$base"
mount -o remount,bind,ro "$base"
cd "$base"
mount -t tmpfs none mnt
cp -dR --preserve=mode etc/. mnt/
mount --bind mnt etc
umount mnt
for place in dev run opt root usr/local; do mount -t tmpfs -o mode=755 none "$place"; done
mount -t tmpfs -o mode=1777 none tmp
for device in null zero full random urandom; do
  : > "dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/shm opt/parcel opt/outside
mount -t tmpfs -o mode=1777 none dev/shm
cp -dR --preserve=mode "$parcel/." opt/parcel/
mount -t proc proc proc
ip link set lo up
pivot_root . opt/outside
exec chroot . sh -c 'umount -l /opt/outside && rmdir /opt/outside && exec "$@"' sh "$@""#;

const SPACES: [&str; 8] =
    ["--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts", "--cgroup"];

/// The command `unshare` with namespaces that this user may make: as root directly, otherwise inside a user
/// namespace.
fn unshare() -> Result<Command, String> {
    let mut why = String::new();
    for users in [&[][..], &["--user", "--map-root-user"]] {
        let mut command = Command::new("unshare");
        command.args(users).args(SPACES);
        let mut probe = Command::new("unshare");
        probe.args(users).args(SPACES);
        // Try everything that the root needs, because some machines refuse some of it.
        probe.args(["sh", "-c", "mount -t proc proc /proc && mount -t tmpfs none /mnt && ip link set lo up"]);
        match probe.output() {
            Ok(out) if out.status.success() => return Ok(command),
            Ok(out) => why = String::from_utf8_lossy(&out.stderr).trim().to_owned(),
            Err(error) => return Err(format!("no unshare: {error}")),
        }
    }
    Err(format!("no namespaces of mounts, processes and network: {why}"))
}

/// Reason why these checks cannot run here, and the command that enables them.
pub(crate) fn obstacle(root: &Path) -> Option<(String, String)> {
    let has = |tool: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
        folders.into_iter().any(|folder| folder.join(tool).is_file())
    };
    if let Some(missing) = ["apt-get", "dpkg-deb"].iter().find(|tool| !has(tool)) {
        let remedy = "run it on Debian 12 or later".to_owned();
        return Some((format!("no {missing}: the clean root is made of Debian's packages"), remedy));
    }
    let tools = [("unshare", "util-linux"), ("pivot_root", "util-linux"), ("ip", "iproute2"), ("tar", "tar")];
    if let Some((tool, package)) = tools.iter().find(|(tool, _)| !has(tool)) {
        return Some((format!("no {tool}"), format!("sudo apt-get install {package}")));
    }
    if let Err(why) = unshare() {
        let remedy = "run it as root, or: sudo sysctl user.max_user_namespaces=10000 kernel.apparmor_restrict_unprivileged_userns=0";
        return Some((why, remedy.into()));
    }
    if let Some(obstacle) = python::obstacle(root) {
        return Some(obstacle);
    }
    let why = base::build(&place(root)).err()?;
    Some((format!("{why:#}"), "cargo xtask clean-root   (apt must reach a mirror)".into()))
}

fn place(root: &Path) -> PathBuf {
    root.join("target/clean-root")
}

/// Builds the wheel and the C library, copies them into the root and checks them there. Returns whether all
/// checks passed.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let base = base::build(&place(root))?;
    let parcel = parcel(root)?;
    let mut command = unshare().map_err(anyhow::Error::msg)?;
    command.args(["sh", "-c", ENTER, "sh"]).arg(&base).arg(&parcel);
    command.args(["sh", "/opt/parcel/checks.sh", "/opt/parcel"]).arg(root).arg(GLIBC);
    command.env_clear().env("HOME", "/root").env("LANG", "C.UTF-8");
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    // Python's compiled library goes here because the root is read-only. Otherwise every interpreter would
    // compile it again.
    command.env("PYTHONPYCACHEPREFIX", "/opt/pycache");
    let (passed, failed) = process::checks(&mut command, LIMIT, "the clean root")?;
    println!("clean-root: {passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// Makes the folder of all files that are copied into the root.
fn parcel(root: &Path) -> Result<PathBuf> {
    let parcel = root.join("target/clean-root/parcel");
    if parcel.exists() {
        fs::remove_dir_all(&parcel).context("remove the last parcel")?;
    }
    let wheel = python::wheel(root)?;
    install_c::run(root, &install_c::Options::debug_staged(&parcel.join("c")))?;
    crate::workspace::build(root, &["--package", "utipc-tools", "--bin", "utipc", "--bin", "utipcd"])?;
    crate::workspace::build(root, &["--package", "utipc-preload"])?;
    let built = crate::workspace::target(root).join("debug");
    for (file, folder) in [
        (wheel, "wheel"),
        (built.join("utipc"), "bin"),
        (built.join("utipcd"), "bin"),
        (built.join("libutipc_preload.so"), "bin"),
        (root.join("packaging/clean-root/checks.sh"), ""),
    ] {
        copy(&file, &parcel.join(folder))?;
    }
    for language in ["c", "python"] {
        let folder = root.join("examples").join(language);
        for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
            let file = entry.context("list the examples")?.path();
            if file.is_file() {
                copy(&file, &parcel.join("examples").join(language))?;
            }
        }
    }
    Ok(parcel)
}

fn copy(file: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let name = file.file_name().context("a file has a name")?;
    if !fs::exists(file).unwrap_or(false) {
        bail!("{} was not built", file.display());
    }
    fs::copy(file, folder.join(name)).with_context(|| format!("copy {}", file.display()))?;
    Ok(())
}
