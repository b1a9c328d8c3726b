//! Builds the packages of `packaging/packages.toml`: .deb, .rpm, static tarballs, a container image, checksums and the
//! list of components. The same commit gives the same bytes.

mod deb;
mod image;
mod manifest;
mod notices;
mod rpms;
mod sbom;
mod stage;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};

use manifest::Manifest;
use stage::{gzip, printed, stage, tar};
use tree::{Content, Site};

/// Maximum bytes of the static daemon and of the container image (release builds).
const DAEMON_MOST: usize = 5_000_000;
const IMAGE_MOST: usize = 12_000_000;

/// Builds the packages of packaging/packages.toml into target/package
#[derive(Debug, Parser)]
#[command(name = "cargo xtask package", bin_name = "cargo xtask package")]
struct Args {
    /// Kinds of packages; all by default
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Kind::value_variants().to_vec())]
    only: Vec<Kind>,
    /// Architectures of static programs and images
    #[arg(long, value_delimiter = ',', default_values = ["x86_64", "aarch64"])]
    arch: Vec<String>,
    /// Version; by default the workspace's
    #[arg(long)]
    version: Option<String>,
    /// Use debug builds, for tests
    #[arg(long)]
    debug: bool,
    /// Build nothing: package existing builds
    #[arg(long)]
    no_build: bool,
    /// Folder for the packages [default: target/package]
    #[arg(long)]
    out: Option<PathBuf>,
    /// The project's folder
    #[arg(long, default_value = ".", hide = true)]
    root: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Deb,
    Rpm,
    Static,
    Image,
    Sbom,
}

/// Shared by all packages of one run.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// Version as Debian writes it.
    pub(crate) version: String,
    /// Version as rpm writes it.
    pub(crate) rpm_version: String,
    pub(crate) deb_arch: &'static str,
    pub(crate) rpm_arch: &'static str,
    /// Time of the last commit, or SOURCE_DATE_EPOCH; seconds.
    pub(crate) time: u64,
    /// The same as e-mail writes it, and as JSON does.
    pub(crate) date: String,
    pub(crate) created: String,
}

/// The script `PREFIX.NAME`, if it exists.
pub(crate) fn scripts(root: &Path, prefix: Option<&str>, name: &str) -> Result<Option<String>> {
    let Some(prefix) = prefix else { return Ok(None) };
    let path = root.join(format!("{prefix}.{name}"));
    if !path.exists() {
        return Ok(None);
    }
    fs::read_to_string(&path).map(Some).with_context(|| format!("read {}", path.display()))
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("package: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let root = args.root.canonicalize().context("find the project's folder")?;
    let manifest = Manifest::read(&root)?;
    let release = release(&root, args)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let out = args.out.clone().unwrap_or_else(|| root.join("target/package"));
    let work = target.join("package-work");
    for folder in [&out, &work] {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
        }
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let wants = |kind| args.only.contains(&kind);
    let profile = if args.debug { "debug" } else { "dist" };
    let built = target.join(profile);
    let notices = gzip(notices::build(&root, &manifest.build.crates)?.as_bytes())?;
    let project = manifest.project.clone();
    let site =
        Site { root, work, statics: built.clone(), built, names: Vec::new(), notices, project, release };
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    if wants(Kind::Deb) || wants(Kind::Rpm) {
        for words in manifest.build.native.iter().filter(|_| !args.no_build) {
            build(&site.root, args.debug, words, None)?;
        }
        let (debian, other) = (site.with_folders(true), site.with_folders(false));
        for package in &manifest.package {
            if wants(Kind::Deb) {
                files.push(deb::build(package, &debian)?);
            }
            if wants(Kind::Rpm) {
                files.push(rpms::build(package, &other)?);
            }
        }
    }
    if wants(Kind::Static) || wants(Kind::Image) {
        for arch in &args.arch {
            let triple = format!("{arch}-unknown-linux-musl");
            for words in manifest.build.statics.iter().filter(|_| !args.no_build) {
                build(&site.root, args.debug, words, Some(&triple))?;
            }
            let site = Site { statics: target.join(&triple).join(profile), ..site.with_folders(false) };
            if wants(Kind::Static) {
                files.push(tarball(&manifest, &site, &triple, args.debug)?);
            }
            if wants(Kind::Image) {
                let go_arch = if arch == "x86_64" { "amd64" } else { "arm64" };
                let made = image::build(&manifest.image, &site, go_arch)?;
                at_most(&made.0, made.1.len(), IMAGE_MOST, args.debug)?;
                files.push(made);
            }
        }
    }
    if wants(Kind::Sbom) {
        files.push(sbom::build(&manifest.build.crates, &site)?);
    }
    fs::remove_dir_all(&site.work).with_context(|| format!("remove {}", site.work.display()))?;
    write(&out, files)
}

fn write(out: &Path, mut files: Vec<(String, Vec<u8>)>) -> Result<()> {
    files.sort();
    let mut sums = String::new();
    for (name, bytes) in &files {
        fs::write(out.join(name), bytes).with_context(|| format!("write {name}"))?;
        sums.push_str(&format!("{}  {name}\n", image::hex(bytes)));
        println!("package: {:>8.1} kB  {name}", bytes.len() as f64 / 1e3);
    }
    fs::write(out.join("SHA256SUMS"), sums).context("write SHA256SUMS")?;
    println!("package: {} files and SHA256SUMS in {}", files.len(), out.display());
    Ok(())
}

/// Builds with cargo, for this machine or for a static target.
fn build(root: &Path, debug: bool, words: &str, triple: Option<&str>) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet"]).args(words.split_whitespace()).current_dir(root);
    if !debug {
        command.args(["--profile", "dist"]);
    }
    if let Some(triple) = triple {
        // The toolchain's own linker and start files: no C compiler for the target is needed.
        let name = triple.to_uppercase().replace('-', "_");
        command.args(["--target", triple]).env(format!("CARGO_TARGET_{name}_LINKER"), "rust-lld");
        // One unit with all crates: utipcd is a sixth smaller, and needs that to stay below its limit.
        command.env("CARGO_PROFILE_DIST_LTO", "fat").env("CARGO_PROFILE_DIST_CODEGEN_UNITS", "1");
    }
    if !command.status().context("run cargo build")?.success() {
        let remedy =
            triple.map_or(String::new(), |t| format!("; the target may be missing: rustup target add {t}"));
        bail!("cargo build {words} failed (its message is above{remedy})");
    }
    Ok(())
}

impl Site {
    /// The same with the folders of Debian or of other distributions.
    fn with_folders(&self, is_debian: bool) -> Self {
        let Release { version, rpm_version, deb_arch, .. } = &self.release;
        let lib = if *deb_arch == "arm64" { "usr/lib/aarch64-linux-gnu" } else { "usr/lib/x86_64-linux-gnu" };
        let [lib, python, zsh] = match is_debian {
            true => [lib, "usr/lib/python3/dist-packages", "usr/share/zsh/vendor-completions"],
            false => ["usr/lib64", "usr/lib/utipc/python3", "usr/share/zsh/site-functions"],
        };
        let full = if is_debian { version.clone() } else { format!("{rpm_version}-1") };
        let names = vec![
            ("lib", lib.to_owned()),
            ("python", python.to_owned()),
            ("zsh", zsh.to_owned()),
            ("version", full),
            ("upstream", upstream(version).to_owned()),
        ];
        Self { names, ..self.clone() }
    }
}

/// The version without what a distribution adds.
fn upstream(version: &str) -> &str {
    version.split(['~', '+', '-']).next().unwrap_or(version)
}

fn tarball(manifest: &Manifest, site: &Site, triple: &str, debug: bool) -> Result<(String, Vec<u8>)> {
    let release = &site.release;
    let tree = site.tree(&manifest.tarball.files)?;
    for (path, entry) in &tree {
        if let (true, Content::Bytes(bytes)) = (path.ends_with("bin/utipcd"), &entry.content) {
            at_most(&format!("utipcd for {triple}"), bytes.len(), DAEMON_MOST, debug)?;
        }
    }
    let name = format!("utipc-{}-{}", release.version, triple.replace("-unknown", ""));
    let folder = site.work.join("static").join(triple);
    stage(&tree, &folder.join(&name))?;
    Ok((format!("{name}.tar.gz"), gzip(&tar(&folder, release.time)?)?))
}

/// Refuses what is larger than promised; debug builds are.
fn at_most(what: &str, bytes: usize, most: usize, debug: bool) -> Result<()> {
    if bytes > most && !debug {
        bail!("{what} has {bytes} bytes, more than {most}");
    }
    println!("package: {what}: {bytes} bytes");
    Ok(())
}

fn release(root: &Path, args: &Args) -> Result<Release> {
    let text = fs::read_to_string(root.join("Cargo.toml")).context("read Cargo.toml")?;
    let cargo: toml::Table = text.parse().context("parse Cargo.toml")?;
    let own = cargo["workspace"]["package"]["version"].as_str().context("the workspace has no version")?;
    let version = args.version.clone().unwrap_or_else(|| own.to_owned());
    let time = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(given) => given.parse().context("SOURCE_DATE_EPOCH is not a number of seconds")?,
        Err(_) => printed(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root))?
            .parse()
            .context("git log printed no time (set SOURCE_DATE_EPOCH)")?,
    };
    let date = |format: &str| {
        printed(Command::new("date").args(["-u", "-d", &format!("@{time}"), format]).env("LC_ALL", "C"))
    };
    let (deb_arch, rpm_arch) = match std::env::consts::ARCH {
        "x86_64" => ("amd64", "x86_64"),
        "aarch64" => ("arm64", "aarch64"),
        other => bail!("packages for {other} are not set up (use --only static,image,sbom)"),
    };
    let (date, created) = (date("+%a, %d %b %Y %H:%M:%S +0000")?, date("+%Y-%m-%dT%H:%M:%SZ")?);
    Ok(Release { rpm_version: version.replace('-', "~"), version, deb_arch, rpm_arch, time, date, created })
}
