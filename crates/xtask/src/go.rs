//! `cargo xtask go`: tests the Go package against the C library as a user installs it, without a network.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::install_c;

/// First version of Go that the modules accept, as in their `go.mod`.
const MINIMUM: (u32, u32) = (1, 24);

/// Folders of the modules: the package and its examples.
const MODULES: [&str; 2] = ["bindings/go", "examples/go"];

/// Reason why the package cannot be built and tested here, and the command that changes that.
pub(crate) fn obstacle(_: &Path) -> Option<(String, String)> {
    let Some(version) = version() else {
        return Some((
            "there is no go".into(),
            "install Go 1.24 or later (https://go.dev/doc/install) and add its bin folder to PATH".into(),
        ));
    };
    if number(&version).is_none_or(|number| number < MINIMUM) {
        return Some((format!("{version} is older than 1.24"), "install Go 1.24 or later".into()));
    }
    let missing = |tool: &&str| Command::new(tool).arg("--version").output().is_err();
    let tool = ["cc", "pkg-config"].into_iter().find(missing)?;
    Some((format!("there is no {tool}, which cgo needs"), "sudo apt install gcc pkg-config".into()))
}

/// The version of the installed Go: `go1.24.3`.
fn version() -> Option<String> {
    let out = Command::new("go").args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local").output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix("go")?.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The C library below `target/go`, and the commands that build programs against it.
#[derive(Debug)]
struct Site {
    root: PathBuf,
    library: PathBuf,
}

impl Site {
    fn new(root: &Path) -> Result<Self> {
        let prefix = crate::workspace::target(root).join("go/prefix");
        install_c::run(root, &install_c::Options::debug_below(&prefix))?;
        Ok(Self { root: root.to_path_buf(), library: prefix.join("lib") })
    }

    fn go(&self, module: &str, words: &[&str]) -> Command {
        let mut command = Command::new("go");
        command.args(words).current_dir(self.root.join(module));
        command.env("PKG_CONFIG_PATH", self.library.join("pkgconfig"));
        command.env("CGO_LDFLAGS", format!("-Wl,-rpath,{}", self.library.display()));
        // Neither modules nor other versions of Go are downloaded.
        command.env("GOTOOLCHAIN", "local").env("GOPROXY", "off").env("GOFLAGS", "-mod=readonly");
        command
    }
}

/// Runs every check of the package. Returns whether all passed.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let site = Site::new(root)?;
    crate::workspace::build(root, &["--package", "utipc-tools", "--bin", "utipcd"])?;
    let (mut passed, mut failed) = (0, 0);
    let mut count = |name: &str, ok: bool| {
        println!("{} {name}", if ok { "ok" } else { "FAILED" });
        if ok {
            passed += 1;
        } else {
            failed += 1;
        }
    };
    for module in MODULES {
        let out = Command::new("gofmt").args(["-l", "."]).current_dir(root.join(module)).output();
        let unformatted = out.context("run gofmt")?.stdout;
        print!("{}", String::from_utf8_lossy(&unformatted));
        count(&format!("gofmt of {module}"), unformatted.is_empty());
        let vetted = site.go(module, &["vet", "./..."]).status().context("run go vet")?;
        count(&format!("go vet of {module}"), vetted.success());
    }
    let mut tests = site.go(MODULES[0], &["test", "-race", "-count=1", "-timeout=5m", "-v", "./..."]);
    tests.env("UTIPC_TEST_DAEMON", crate::workspace::target(root).join("debug/utipcd"));
    let out = tests.output().context("run go test")?;
    let text = String::from_utf8_lossy(&out.stdout);
    print!("{text}{}", String::from_utf8_lossy(&out.stderr));
    let (right, wrong) = tally(&text);
    passed += right;
    failed += wrong;
    if !out.status.success() && wrong == 0 {
        failed += 1;
    }
    println!("go: {passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// Numbers of passed and failed tests, without their parts, in the output of `go test -v`.
fn tally(output: &str) -> (usize, usize) {
    let count = |start: &str| output.lines().filter(|line| line.starts_with(start)).count();
    (count("--- PASS: "), count("--- FAIL: "))
}

/// Folder of the built examples.
pub(crate) fn examples(root: &Path) -> PathBuf {
    crate::workspace::target(root).join("go/examples")
}

/// Builds the examples.
pub(crate) fn build_examples(root: &Path) -> Result<()> {
    let folder = examples(root);
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let site = Site::new(root)?;
    let status = site.go(MODULES[1], &["build", "-o"]).arg(&folder).arg("./...").status();
    if !status.context("run go build")?.success() {
        bail!("go cannot build the examples (its message is above)");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_compared_by_number() {
        assert_eq!(number("go1.24.3"), Some((1, 24)));
        assert_eq!(number("go1.26"), Some((1, 26)));
        assert_eq!(number("go1.25rc1"), Some((1, 25)));
        assert_eq!(number("devel go1.25-abc"), None);
        assert!(number("go1.9").unwrap() < MINIMUM);
    }

    #[test]
    fn parts_of_a_test_are_not_counted() {
        let output = "=== RUN   TestA\n--- PASS: TestA (0.01s)\n    --- PASS: TestA/x (0.00s)\n--- FAIL: TestB (0.00s)\n";
        assert_eq!(tally(output), (1, 1));
    }
}
