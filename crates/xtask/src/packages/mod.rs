//! `cargo xtask package` builds the packages; `cargo xtask packages` tests them: lintian, the systemd unit, and
//! installing, starting, upgrading, removing and purging them in clean Debian roots.

mod roots;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::{output, user_is_root};

/// Releases of Debian whose clean roots the packages are tested in.
const RELEASES: &[&str] = &["bookworm", "trixie"];

/// A version after that of the workspace, for upgrades.
const NEXT: &str = "999~upgrade";

/// Runs the program of packaging/builder, which builds packages. It is a workspace of its own, so that its dependencies
/// are built only here.
pub(crate) fn package(root: &Path, args: &[String]) -> Result<()> {
    let has = |option: &str| args.iter().any(|arg| arg == option);
    if !has("--no-build") {
        let profile = if has("--debug") { "debug" } else { "release" };
        crate::install_cpg::build(root, &crate::workspace::target(root).join(profile), has("--debug"))?;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--manifest-path"]).arg(root.join("packaging/builder/Cargo.toml"));
    command.arg("--target-dir").arg(crate::workspace::target(root).join("package-builder"));
    command.args(["--", "--root"]).arg(root).args(args).current_dir(root);
    if !command.status().context("run cargo")?.success() {
        bail!("the packages were not built (the message is above)");
    }
    Ok(())
}

/// Reason why the packages cannot be tested here, and the command that enables it.
pub(crate) fn obstacle() -> Option<(String, String)> {
    let has = |tool: &str, arg: &str| {
        Command::new(tool)
            .arg(arg)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    let missing = |tool: &str, package: &str| {
        Some((format!("no {tool}"), format!("sudo apt-get install {package} && cargo xtask test packages")))
    };
    if !user_is_root() {
        return Some(("only root makes Debian roots".into(), "sudo -E cargo xtask test packages".into()));
    }
    if !has("dpkg-deb", "--version") {
        return missing("dpkg-deb", "dpkg");
    }
    if !has("mmdebstrap", "--version") {
        return missing("mmdebstrap", "mmdebstrap");
    }
    if !has("strip", "--version") {
        return missing("strip", "binutils");
    }
    None
}

/// Counts of checks.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    /// Adds what a script has counted: passed and failed.
    fn add(&mut self, (passed, failed): (usize, usize)) {
        self.passed += passed;
        self.failed += failed;
    }

    /// Reports one check.
    fn note(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => {
                println!("ok {name}");
                self.passed += 1;
            }
            Err(why) => {
                println!("{why:#}\nfailed {name}");
                self.failed += 1;
            }
        }
    }
}

/// Builds the packages of two versions, and tests them. Debug builds do for most checks; static programs and the
/// container image are tested with `release` only. Returns whether all checks passed.
pub(crate) fn run(root: &Path, release: bool) -> Result<bool> {
    let place = crate::workspace::target(root).join("package-test");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).context("make target/package-test")?;
    let result = test(root, &place, release);
    // The roots take hundreds of MB.
    fs::remove_dir_all(&place).context("remove target/package-test")?;
    let tally = result?;
    println!("packages: {} passed, {} failed", tally.passed, tally.failed);
    Ok(tally.failed == 0)
}

fn test(root: &Path, place: &Path, release: bool) -> Result<Tally> {
    let (one, two, again) = (place.join("one"), place.join("two"), place.join("again"));
    let words = |out: &PathBuf, kinds: &str, more: &[&str]| {
        let out = out.to_string_lossy();
        let mut words = vec!["--only", kinds, "--out", &*out];
        words.extend((!release).then_some("--debug"));
        words.iter().chain(more).map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let kinds = if release { "deb,rpm,static,image,sbom" } else { "deb,rpm,sbom" };
    package(root, &words(&one, kinds, &[]))?;
    package(root, &words(&two, "deb", &["--no-build", "--version", NEXT]))?;
    package(root, &words(&again, kinds, &["--no-build"]))?;
    let mut tally = Tally::default();
    tally.note("the same commit gives the same packages", same(&one, &again));
    fs::remove_dir_all(&again).context("remove the second build")?;
    tally.note("lintian finds nothing", lintian(&one));
    tally.add(roots::cargo_install(root, place)?);
    if release {
        tally.add(roots::statics(root, place, &one)?);
    } else {
        println!(
            "skipped: static programs and container image: not in debug builds (cargo xtask packages --release)"
        );
    }
    for release in RELEASES {
        tally.add(roots::debian(root, place, release, &one, &two)?);
    }
    Ok(tally)
}

fn same(one: &Path, other: &Path) -> Result<()> {
    let sums = |folder: &Path| fs::read_to_string(folder.join("SHA256SUMS")).context("read the checksums");
    if sums(one)? != sums(other)? {
        bail!("{}\ndiffers from\n{}", sums(one)?, sums(other)?);
    }
    Ok(())
}

fn lintian(folder: &Path) -> Result<()> {
    if Command::new("lintian").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: lintian of the packages: not installed (sudo apt-get install lintian)");
        return Ok(());
    }
    let mut command = Command::new("lintian");
    command.args(["--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"]);
    for entry in fs::read_dir(folder).context("list the packages")? {
        let path = entry.context("list the packages")?.path();
        if path.extension().is_some_and(|end| end == "deb") {
            command.arg(path);
        }
    }
    let out = command.output().context("run lintian")?;
    let text = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        bail!("{text}");
    }
    Ok(())
}

/// Runs a command that must succeed.
fn must(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}
