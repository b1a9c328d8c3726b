//! `cargo xtask go`: tests the Go package against the C library as a user installs it, without a network.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::install;
use crate::judge::Judge::{GoTest, Silence, Success};
use crate::needs::Skip;
use crate::process::{missing, output};
use crate::step::{Plan, Site, Step};
use crate::workspace::{make_folder, target};

/// First version of Go that the modules accept, as in their `go.mod`.
const MINIMUM: (u32, u32) = (1, 24);

/// The C library of the tests, and no downloads, neither of modules nor of other versions of Go.
const ENV: &[(&str, &str)] = &[
    ("PKG_CONFIG_PATH", "{library}/pkgconfig"),
    ("CGO_LDFLAGS", "-Wl,-rpath,{library}"),
    ("GOTOOLCHAIN", "local"),
    ("GOPROXY", "off"),
    ("GOFLAGS", "-mod=readonly"),
    ("UTIPC_TEST_DAEMON", "{built}/utipcd"),
];

const PLAN: Plan = Plan {
    name: "go",
    builds: &["--package utipc-tools --bin utipcd"],
    steps: &[
        Step::new("gofmt of bindings/go", 5, Silence, "gofmt -l .").at("bindings/go"),
        Step::new("go vet of bindings/go", 5, Success, "go vet ./...").at("bindings/go").with(ENV),
        Step::new("gofmt of examples/go", 5, Silence, "gofmt -l .").at("examples/go"),
        Step::new("go vet of examples/go", 5, Success, "go vet ./...").at("examples/go").with(ENV),
        Step::new("go test", 10, GoTest, "go test -race -count=1 -timeout=5m -v ./...")
            .at("bindings/go")
            .with(ENV),
    ],
};

const EXAMPLES: Step =
    Step::new("go build", 5, Success, "go build -o {out} ./...").at("examples/go").with(ENV);

/// Reason why the package cannot be built and tested here, and the command that changes that.
pub(crate) fn obstacle() -> Option<Skip> {
    let Ok(version) = output(Command::new("go").args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local"))
    else {
        let remedy = "install Go 1.24 or later (https://go.dev/doc/install) and add its bin folder to PATH";
        return Some(Skip::new("there is no go", remedy));
    };
    if number(version.trim()).is_none_or(|number| number < MINIMUM) {
        let reason = format!("{} is older than 1.24", version.trim());
        return Some(Skip::new(reason, "install Go 1.24 or later"));
    }
    let tool = missing(&["cc", "pkg-config"])?;
    Some(Skip::new(format!("there is no {tool}, which cgo needs"), "sudo apt install gcc pkg-config"))
}

/// The number in `go1.24.3`.
fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix("go")?.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn site() -> Result<Site> {
    Ok(Site::new()?.with("{library}", install::below("go")?))
}

/// Runs every check of the package. Returns whether all passed.
pub(crate) fn run() -> Result<bool> {
    Ok(PLAN.run(&site()?)?.end())
}

/// Builds the examples; returns their folder.
pub(crate) fn build_examples() -> Result<PathBuf> {
    let out = target().join("go/examples");
    make_folder(&out)?;
    output(&mut site()?.with("{out}", &out).command_of(&EXAMPLES))?;
    Ok(out)
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
}
