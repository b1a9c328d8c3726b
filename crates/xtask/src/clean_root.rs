//! `cargo xtask clean-root`: tests the Python wheel and the C library in a Debian root file system that has nothing
//! else of the project.
//!
//! The root is of the machine's own release, with the required packages, Python, a C compiler and pkg-config. The
//! packages are unpacked and their scripts do not run, so that neither root nor a namespace is needed to make it. The
//! wheel, the installed C library, the daemon and the examples are copied into it, and `packaging/clean-root/checks.sh`
//! installs, builds and runs them there. The root has namespaces of its own for mounts, processes, network and the
//! rest, which end with its first process. Files are written to memory, so that the root on the disk does not change.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::apt::{Apt, CACHE, LISTS, STATUS, unpack};
use crate::judge::Judge;
use crate::needs::Skip;
use crate::process::find;
use crate::step::Tally;
use crate::workspace::{build, built, copy, empty_folder, files, make_folder, root, target};
use crate::{install, python};

/// The oldest C library with which programs built on Debian 12 run. README.md and docs/python.md state it too.
const GLIBC: &str = "2.34";

/// Time limit of all checks together.
const LIMIT: Duration = Duration::from_secs(300);

/// The installed packages: a minimal system and a programmer's tools.
const PACKAGES: &[&str] =
    &["?essential", "?priority(required)", "python3-venv", "gcc", "libc6-dev", "pkg-config"];

/// Number of the recipe. Increase it when the recipe changes, so that an older root is rebuilt.
const RECIPE: &str = "1";

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

/// Options of `unshare` for a root with its own namespaces.
const SPACES: [&str; 8] =
    ["--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts", "--cgroup"];

/// What the root needs, tried before because some machines refuse some of it.
const PROBE: &str = "mount -t proc proc /proc && mount -t tmpfs none /mnt && ip link set lo up";

/// The command `unshare` with namespaces that this user may make: as root directly, otherwise inside a user
/// namespace.
fn unshare() -> Result<Command, String> {
    let mut why = String::new();
    for users in [&[][..], &["--user", "--map-root-user"]] {
        let command = || {
            let mut command = Command::new("unshare");
            command.args(users).args(SPACES);
            command
        };
        match command().args(["sh", "-c", PROBE]).output() {
            Ok(out) if out.status.success() => return Ok(command()),
            Ok(out) => why = String::from_utf8_lossy(&out.stderr).trim().to_owned(),
            Err(error) => return Err(format!("no unshare: {error}")),
        }
    }
    Err(format!("no namespaces of mounts, processes and network: {why}"))
}

/// Reason why these checks cannot run here, and the command that enables them.
pub(crate) fn obstacle() -> Option<Skip> {
    if let Some(missing) = ["apt-get", "dpkg-deb"].iter().find(|tool| find(tool).is_none()) {
        let reason = format!("no {missing}: the clean root is made of Debian's packages");
        return Some(Skip::new(reason, "run it on Debian 12 or later"));
    }
    let tools = [("unshare", "util-linux"), ("pivot_root", "util-linux"), ("ip", "iproute2"), ("tar", "tar")];
    if let Some((tool, package)) = tools.iter().find(|(tool, _)| find(tool).is_none()) {
        return Some(Skip::new(format!("no {tool}"), format!("sudo apt-get install {package}")));
    }
    if let Err(why) = unshare() {
        let remedy = "run it as root, or: sudo sysctl user.max_user_namespaces=10000 kernel.apparmor_restrict_unprivileged_userns=0";
        return Some(Skip::new(why, remedy));
    }
    python::obstacle().or_else(|| {
        let why = base(&place()).err()?;
        Some(Skip::new(format!("{why:#}"), "cargo xtask clean-root   (apt must reach a mirror)"))
    })
}

fn place() -> PathBuf {
    target().join("clean-root")
}

/// Builds the wheel and the C library, copies them into the root and checks them there. Returns whether all
/// checks passed.
pub(crate) fn run() -> Result<bool> {
    let base = base(&place())?;
    let parcel = place().join("parcel");
    fill(&parcel)?;
    let mut command = unshare().map_err(anyhow::Error::msg)?;
    command.args(["sh", "-c", ENTER, "sh"]).arg(&base).arg(&parcel);
    command.args(["sh", "/opt/parcel/checks.sh", "/opt/parcel"]).arg(root()).arg(GLIBC);
    command.env_clear().env("HOME", "/root").env("LANG", "C.UTF-8");
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    // Python's compiled library goes here because the root is read-only. Otherwise every interpreter would
    // compile it again.
    command.env("PYTHONPYCACHEPREFIX", "/opt/pycache");
    let mut tally = Tally::new("clean-root");
    tally.run("the clean root", &mut command, LIMIT, Judge::Lines)?;
    Ok(tally.end())
}

/// Fills the folder of all files that are copied into the root.
fn fill(parcel: &Path) -> Result<()> {
    empty_folder(parcel)?;
    let wheel = python::wheel()?;
    install::staged(&parcel.join("c"))?;
    build("--package utipc-tools --bin utipc --bin utipcd")?;
    build("--package utipc-preload")?;
    let programs = ["utipc", "utipcd", "libutipc_preload.so"].map(|name| (built(name), "bin"));
    let checks = root().join("packaging/clean-root/checks.sh");
    let mut all: Vec<_> = programs.into_iter().chain([(wheel, "wheel"), (checks, "")]).collect();
    for language in ["examples/c", "examples/python"] {
        all.extend(files(&root().join(language), "")?.into_iter().map(|file| (file, language)));
    }
    for (file, folder) in all.iter().filter(|(file, _)| !file.is_dir()) {
        copy(file, &parcel.join(folder).join(file.file_name().context("a file has a name")?))?;
    }
    Ok(())
}

/// Returns the folder of the root, and makes the root first if it does not exist. That downloads about 105 MB,
/// and takes 410 MB of disk space.
fn base(place: &Path) -> Result<PathBuf> {
    let root = place.join("root");
    let stamp = place.join("built");
    let recipe = format!("{RECIPE} {}", PACKAGES.join(" "));
    if fs::read_to_string(&stamp).is_ok_and(|text| text == recipe) {
        return Ok(root);
    }
    empty_folder(place)?;
    println!("clean-root: downloading and unpacking a Debian root into {}", root.display());
    let apt = Apt::new(&place.join("apt"), &[LISTS, CACHE, STATUS])?;
    apt.get("update", &[])?;
    let packages = apt.download_closure(PACKAGES)?;
    // Debian 12 has these folders in /usr, but packages may still use the old paths.
    for folder in ["bin", "sbin", "lib", "lib64"] {
        make_folder(&root.join("usr").join(folder))?;
        symlink(format!("usr/{folder}"), root.join(folder)).context("make the root")?;
    }
    packages.iter().try_for_each(|package| unpack(package, &root))?;
    configure(&root)?;
    fs::remove_dir_all(place.join("apt")).context("remove the packages")?;
    fs::write(&stamp, recipe).context("write the root's stamp")?;
    Ok(root)
}

/// Creates the files that the packages' scripts would create and that the checks need.
fn configure(root: &Path) -> Result<()> {
    for (name, program) in [("cc", "gcc"), ("awk", "mawk")] {
        symlink(program, root.join("usr/bin").join(name)).with_context(|| format!("make {name}"))?;
    }
    for folder in ["mnt", "opt", "usr/local"] {
        make_folder(&root.join(folder))?;
    }
    for list in ["passwd", "group"] {
        let master = root.join("usr/share/base-passwd").join(format!("{list}.master"));
        copy(&master, &root.join("etc").join(list))?;
    }
    Ok(())
}
