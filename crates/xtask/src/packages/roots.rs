//! Clean Debian roots, and the checks in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::must;
use crate::process;

/// Time limit of the checks in one root.
const LIMIT: Duration = Duration::from_secs(300);

/// Time limit of what builds programs.
const CARGO: Duration = Duration::from_secs(600);

/// Time limit of booting a root.
const BOOT: Duration = Duration::from_secs(60);

/// Shell script that enters the root `$1` with the packages `$2` as /packages, and runs the other arguments there.
const ENTER: &str = r#"set -e; root=$1; packages=$2; shift 2
mount --bind "$root" "$root"
cd "$root"
mkdir -p packages
mount --bind "$packages" packages
for device in null zero full random urandom; do
  : > "dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
mount -t tmpfs -o mode=1777 none dev/shm 2>/dev/null || { mkdir -p dev/shm; mount -t tmpfs -o mode=1777 none dev/shm; }
mount -t tmpfs -o mode=755 none run
mount -t proc proc proc
ip link set lo up
exec chroot . "$@""#;

const SPACES: [&str; 8] =
    ["--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts", "--cgroup"];

/// Makes a root of a release and runs the checks of Debian packages and of rpms in it; returns how many passed and
/// failed.
pub(super) fn debian(
    project: &Path,
    place: &Path,
    release: &str,
    one: &Path,
    two: &Path,
) -> Result<(usize, usize)> {
    let root = place.join(release);
    println!("packages: downloading and unpacking a root of Debian {release}, about 60 MB");
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--mode=root", "--variant=minbase", release]).arg(&root);
    must(&mut make).context("make a Debian root (apt must reach a mirror)")?;
    for script in ["common.sh", "debian.sh", "systemd.sh"] {
        fs::copy(project.join("packaging/checks").join(script), place.join(script))
            .context("copy the checks")?;
    }
    let name = |folder: &Path| {
        folder.file_name().map(|name| Path::new("/packages").join(name)).context("a folder has a name")
    };
    let mut inside = enter(&root, place);
    inside.args(["sh", "/packages/debian.sh"]).arg(name(one)?).arg(name(two)?);
    let debs = process::checks(&mut inside, LIMIT, release)?;
    let rpms = rpm(project, place, release, &root, one)?;
    let booted = systemd(project, place, release, &root, &[name(one)?, name(two)?])?;
    fs::remove_dir_all(&root).context("remove the root")?;
    Ok((debs.0 + rpms.0 + booted.0, debs.1 + rpms.1 + booted.1))
}

/// Adds systemd to the root, boots it in namespaces of its own, and runs the checks of the unit there.
fn systemd(
    project: &Path,
    place: &Path,
    release: &str,
    root: &Path,
    packages: &[PathBuf],
) -> Result<(usize, usize)> {
    let mut install = Command::new("chroot");
    install.arg(root).args(["apt-get", "install", "--quiet", "--yes", "--no-install-recommends"]);
    install.args(["systemd", "systemd-sysv", "dbus", "python3"]).env("DEBIAN_FRONTEND", "noninteractive");
    fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf")).context("copy resolv.conf")?;
    // The root is made without lists of packages.
    must(Command::new("chroot").arg(root).args(["apt-get", "update", "--quiet"])).context("list packages")?;
    must(&mut install).context("install systemd into the root")?;
    let mut boot = Command::new("unshare");
    boot.args(SPACES).arg("sh").arg(project.join("packaging/checks/boot.sh")).arg(root).arg(place);
    let mut outer = boot.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("run unshare")?;
    let result = match booted(outer.id()) {
        Some(first) => {
            let mut inside = Command::new("nsenter");
            inside.arg("--target").arg(first.to_string());
            inside.args(["--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--root", "--wd"]);
            inside.args(["sh", "/packages/systemd.sh"]).args(packages);
            process::checks(&mut inside, LIMIT, release)
        }
        None => {
            println!("skipped: systemd in {release}: it does not start in namespaces of this machine");
            Ok((0, 0))
        }
    };
    // Its child is the first process of the namespaces, which end with it.
    outer.kill().context("end the booted root")?;
    outer.wait().context("reap the booted root")?;
    result
}

/// Waits until systemd, the child of process `outer`, answers; returns its process id.
fn booted(outer: u32) -> Option<u32> {
    let deadline = Instant::now() + BOOT;
    while Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(200));
        let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap_or_default();
        let Some(first) = children.split_whitespace().next().and_then(|id| id.parse().ok()) else { continue };
        let mut ask = Command::new("nsenter");
        ask.args(["--target", &format!("{first}"), "--mount", "--pid", "--ipc", "--root", "--wd"]);
        ask.args(["systemctl", "is-active", "multi-user.target"]);
        if ask.output().is_ok_and(|out| out.status.success()) {
            return Some(first);
        }
    }
    None
}

/// The command that runs its further arguments in the root.
fn enter(root: &Path, packages: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(SPACES).args(["sh", "-c", ENTER, "sh"]).arg(root).arg(packages);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LANG", "C.UTF-8");
    command
}

/// Installs and removes the rpms by `rpm --root`, whose scripts run in the root.
fn rpm(project: &Path, place: &Path, release: &str, root: &Path, one: &Path) -> Result<(usize, usize)> {
    if Command::new("rpm").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: rpm --root in {release}: no rpm (sudo apt-get install rpm)");
        return Ok((0, 0));
    }
    let mut command = Command::new("sh");
    command.arg(project.join("packaging/checks/rpm.sh")).arg(root).arg(one).arg(place.join("rpm-work"));
    process::checks(&mut command, LIMIT, release)
}

/// Runs the static programs and those of the container image.
pub(super) fn statics(project: &Path, place: &Path, packages: &Path) -> Result<(usize, usize)> {
    let mut command = Command::new("sh");
    command.arg(project.join("packaging/checks/static.sh")).arg(packages).arg(place.join("static-work"));
    process::checks(&mut command, LIMIT, "static programs")
}

/// Installs programs and shim with `cargo install` into an empty folder, and runs a program on the shim.
pub(super) fn cargo_install(project: &Path, place: &Path) -> Result<(usize, usize)> {
    let mut command = Command::new("sh");
    command
        .arg(project.join("packaging/checks/cargo.sh"))
        .arg(project)
        .arg(crate::workspace::target(project));
    process::checks(command.arg(place.join("cargo-work")), CARGO, "cargo install")
}
