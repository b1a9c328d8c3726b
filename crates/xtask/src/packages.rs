//! `cargo xtask package` builds the packages; `cargo xtask packages` tests them: lintian, the systemd unit, and
//! installing, starting, upgrading, removing and purging them in clean Debian roots.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::install;
use crate::judge::Judge::{Lines, Success};
use crate::needs::Skip;
use crate::process::{missing, output, succeeds, user_is_root};
use crate::running::{Output, Running};
use crate::step::{Site, Step, Tally};
use crate::workspace::{Profile, cargo, copy, empty_folder, files, root, target};

/// Releases of Debian whose clean roots the packages are tested in.
const RELEASES: &[&str] = &["bookworm", "trixie"];

/// A version after that of the workspace, for upgrades.
const NEXT: &str = "999~upgrade";

/// Time limit of booting a root.
const BOOT: Duration = Duration::from_secs(60);

/// Makes a root: `{release}` in the folder `{base}`. It is made without lists of packages.
const MAKE: Step = Step::new(
    "make a Debian root (apt must reach a mirror)",
    10,
    Success,
    "mmdebstrap --quiet --mode=root --variant=minbase {release} {base}",
);

/// The checks of Debian packages, in the root.
const DEBIAN: Step = Step::new(
    "Debian packages",
    5,
    Lines,
    "env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
     unshare --mount --pid --fork --kill-child --net --ipc --uts --cgroup sh -c {enter} sh {base} {place} \
     sh /packages/debian.sh /packages/one /packages/two",
);

/// Installs and removes the rpms by `rpm --root`, whose scripts run in the root.
const RPM: Step =
    Step::new("rpms", 5, Lines, "sh packaging/checks/rpm.sh {base} {place}/one {place}/rpm-work");

/// Adds systemd to the root, in which a copy of resolv.conf lets apt find its mirror.
const SYSTEMD: [Step; 2] = [
    Step::new("list packages", 5, Success, "chroot {base} apt-get update --quiet"),
    Step::new(
        "install systemd into the root",
        10,
        Success,
        "chroot {base} apt-get install --quiet --yes --no-install-recommends systemd systemd-sysv dbus python3",
    )
    .with(&[("DEBIAN_FRONTEND", "noninteractive")]),
];

/// Boots the root in namespaces of its own.
const START: &str = "unshare --mount --pid --fork --kill-child --net --ipc --uts --cgroup \
    sh {root}/packaging/checks/boot.sh {base} {place}";

/// The checks of the unit in the booted root, whose first process is `{first}`.
const UNIT: Step = Step::new(
    "the systemd unit",
    5,
    Lines,
    "nsenter --target {first} --mount --pid --net --ipc --uts --cgroup --root --wd \
     sh /packages/systemd.sh /packages/one /packages/two",
);

/// Runs the static programs and those of the container image.
const STATIC: Step =
    Step::new("static programs", 5, Lines, "sh packaging/checks/static.sh {place}/one {place}/static-work");

/// Installs programs and shim with `cargo install` into an empty folder, and runs a program on the shim.
const CARGO: Step =
    Step::new("cargo install", 10, Lines, "sh packaging/checks/cargo.sh {root} {target} {place}/cargo-work");

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

/// Runs the program of packaging/builder, which builds packages. It is a workspace of its own, so that its dependencies
/// are built only here.
pub(crate) fn package(args: &[String]) -> Result<()> {
    let has = |option: &str| args.iter().any(|arg| arg == option);
    if !has("--no-build") {
        let profile = if has("--debug") { Profile::Dev } else { Profile::Dist };
        install::link_cpg(&profile.folder(), profile)?;
    }
    let mut command = cargo("run --quiet --manifest-path packaging/builder/Cargo.toml --target-dir");
    command.arg(target().join("package-builder")).args(["--", "--root"]).arg(root()).args(args);
    ensure!(
        command.status().context("run cargo")?.success(),
        "the packages were not built (the message is above)"
    );
    Ok(())
}

/// Reason why the packages cannot be tested here, and the command that enables it.
pub(crate) fn obstacle() -> Option<Skip> {
    if !user_is_root() {
        return Some(Skip::new("only root makes Debian roots", "sudo -E cargo xtask test packages"));
    }
    let tools = [("dpkg-deb", "dpkg"), ("mmdebstrap", "mmdebstrap"), ("strip", "binutils")];
    let (tool, package) = tools.into_iter().find(|(tool, _)| !succeeds(&format!("{tool} --version")))?;
    let remedy = format!("sudo apt-get install {package} && cargo xtask test packages");
    Some(Skip::new(format!("no {tool}"), remedy))
}

/// Builds the packages of two versions, and tests them. Debug builds do for most checks; static programs and the
/// container image are tested with `release` only. Returns whether all checks passed.
pub(crate) fn run(release: bool) -> Result<bool> {
    let place = target().join("package-test");
    empty_folder(&place)?;
    let result = test(&place, release);
    // The roots take hundreds of MB.
    fs::remove_dir_all(&place).context("remove target/package-test")?;
    Ok(result?.end())
}

fn test(place: &Path, release: bool) -> Result<Tally> {
    let has_rpm = missing(&["rpmbuild"]).is_none();
    let more = if release { "sbom,static,image" } else { "sbom" };
    let kinds = format!("{}{more}", if has_rpm { "deb,rpm," } else { "deb," });
    for (out, kinds, more) in [
        ("one", &*kinds, &[][..]),
        ("two", "deb", &["--no-build", "--version", NEXT]),
        ("again", &kinds, &["--no-build"]),
    ] {
        let out = place.join(out).display().to_string();
        let debug = (!release).then_some("--debug");
        let words = ["--only", kinds, "--out", &*out].into_iter().chain(debug).chain(more.iter().copied());
        package(&words.map(str::to_owned).collect::<Vec<_>>())?;
    }
    let mut tally = Tally::new("packages");
    tally.note("the same commit gives the same packages", same(&place.join("one"), &place.join("again")));
    fs::remove_dir_all(place.join("again")).context("remove the second build")?;
    lintian(&place.join("one"), &mut tally)?;
    let site = Site::new()?.with("{place}", place).with("{enter}", ENTER);
    tally.step(&site, &CARGO)?;
    if release {
        tally.step(&site, &STATIC)?;
    } else {
        println!(
            "skipped: static programs and container image: not in debug builds (cargo xtask packages --release)"
        );
    }
    for script in ["common.sh", "debian.sh", "systemd.sh"] {
        copy(&root().join("packaging/checks").join(script), &place.join(script))?;
    }
    for release in RELEASES {
        let base = place.join(release);
        println!("packages: downloading and unpacking a root of Debian {release}, about 60 MB");
        let site = site.clone().with("{release}", release).with("{base}", &base);
        must(&site, &MAKE)?;
        tally.step(&site, &DEBIAN)?;
        if has_rpm {
            tally.step(&site, &RPM)?;
        } else {
            println!("skipped: rpm --root in {release}: no rpm (sudo apt-get install rpm)");
        }
        fs::copy("/etc/resolv.conf", base.join("etc/resolv.conf")).context("copy resolv.conf")?;
        SYSTEMD.iter().try_for_each(|step| must(&site, step))?;
        // Its child is the first process of the namespaces, which end with it.
        let outer = Running::start(&mut site.command(START), Output::Standard)?;
        match booted(outer.id()) {
            Some(first) => drop(tally.step(&site.with("{first}", first.to_string()), &UNIT)?),
            None => {
                println!("skipped: systemd in {release}: it does not start in namespaces of this machine");
            }
        }
        drop(outer);
        fs::remove_dir_all(&base).context("remove the root")?;
    }
    Ok(tally)
}

/// Runs a step that is no test, but must succeed.
fn must(site: &Site, step: &Step) -> Result<()> {
    output(&mut site.command_of(step)).map(drop).context(step.name)
}

fn same(one: &Path, other: &Path) -> Result<String> {
    let sums = |folder: &Path| fs::read_to_string(folder.join("SHA256SUMS")).context("read the checksums");
    if sums(one)? != sums(other)? {
        bail!("{}\ndiffers from\n{}", sums(one)?, sums(other)?);
    }
    Ok(String::new())
}

fn lintian(folder: &Path, tally: &mut Tally) -> Result<()> {
    let mut command = Command::new("lintian");
    command.args(["--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"]);
    if missing(&["lintian"]).is_some() {
        println!("skipped: lintian of the packages: not installed (sudo apt-get install lintian)");
        // As a check that passed, so that counts do not depend on the machine.
        tally.note("lintian finds nothing", Ok(String::new()));
        return Ok(());
    }
    let limit = Duration::from_secs(600);
    tally.run("lintian finds nothing", command.args(files(folder, ".deb")?), limit, Success).map(drop)
}

/// Waits until systemd, the child of process `outer`, answers; returns its process id.
fn booted(outer: u32) -> Option<u32> {
    let deadline = Instant::now() + BOOT;
    while Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(200));
        let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap_or_default();
        let Some(first) = children.split_whitespace().next().and_then(|id| id.parse().ok()) else { continue };
        let enter = format!("nsenter --target {first} --mount --pid --ipc --root --wd");
        if succeeds(&format!("{enter} systemctl is-active multi-user.target")) {
            return Some(first);
        }
    }
    None
}
