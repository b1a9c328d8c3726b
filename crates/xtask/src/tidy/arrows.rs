//! Rules for dependencies between crates: the arrows of ARCHITECTURE.md, which all point inward.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Finding;
use crate::process::output;
use crate::workspace::cargo;

/// A workspace member and the dependencies in its manifest.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) manifest: PathBuf,
    /// Names of dependencies that are part of the crate (normal, build).
    pub(crate) wants: Vec<String>,
    /// Names of dependencies of its tests and examples only.
    pub(crate) wants_in_tests: Vec<String>,
}

/// Each crate, the crates of the workspace that it may use, and the others (`*`: any). A crate without an entry is a
/// finding, because a new crate needs a decision record.
const ARROWS: &[(&str, &str, &str)] = &[
    ("utipc-core", "", "aes-gcm graviola serde thiserror zeroize"),
    ("rssl", "", "flate2 lz4_flex thiserror"),
    ("utipc-os", "", "*"),
    ("utipc-netns", "utipc-os", "*"),
    ("utipc-lanes", "utipc-attach utipc-core utipc-os", "*"),
    ("utipc-bench-kit", "utipc-netns", "*"),
    ("utipc-attach", "utipc-core", "postcard serde thiserror"),
    ("utipc-manage", "", "serde thiserror zeroize"),
    ("utipc-node", "utipc-attach utipc-core utipc-lanes utipc-manage utipc-os", "*"),
    ("utipc-client", "utipc-attach utipc-core utipc-lanes utipc-os", "*"),
    ("utipc", "utipc-client utipc-node utipc-core utipc-manage utipc-os utipc-vsync", "*"),
    ("utipc-preload", "utipc-client utipc-core utipc-manage utipc-os", "*"),
    ("utipc-c", "utipc utipc-os", "*"),
    ("utipc-cpg", "utipc utipc-os", "*"),
    ("utipc-python", "utipc", "*"),
    ("utipc-cli", "", "*"),
    ("utipc-web", "", "httparse rustix tracing"),
    ("utipc-tools", "utipc utipc-manage utipc-netns utipc-cli utipc-web mdist", "*"),
    // Hostile peers of the simulator, for the soak.
    ("utipc-lab", "utipc utipc-bench-kit utipc-cli utipc-manage utipc-netns utipc-sim utipc-tools", "*"),
    ("mdist", "rssl utipc utipc-cli utipc-web", "*"),
    ("mdist-load", "rssl mdist utipc-bench-kit utipc-cli", "*"),
    ("mdist-bench", "mdist mdist-load utipc-bench-kit utipc-cli utipc-netns", "*"),
    ("utipc-sim", "utipc-core utipc-bench-kit", "*"),
    ("utipc-vsync", "utipc-core", "thiserror"),
    ("utipc-vsync-sim", "utipc-core utipc-sim utipc-vsync", "*"),
    ("utipc-fuzz", "utipc-core utipc-manage utipc-vsync rssl mdist", "*"),
    ("xtask", "", "*"),
];

/// Dependencies between crates of the workspace that only tests may have.
const TEST_ARROWS: &[(&str, &str)] = &[
    ("mdist", "mdist-load"),
    ("mdist", "utipc-netns"),
    ("utipc-node", "utipc-netns"),
    ("utipc", "utipc-netns"),
];

/// Asks cargo for the members of the workspace.
pub(crate) fn members() -> Result<Vec<Member>> {
    let text = output(&mut cargo("metadata --no-deps --format-version 1"))?;
    let meta: Value = serde_json::from_str(&text).context("parse cargo metadata")?;
    parse(&meta).context("cargo metadata has no list of packages")
}

fn parse(meta: &Value) -> Option<Vec<Member>> {
    let text = |v: &Value| v.as_str().map(str::to_owned);
    meta["packages"]
        .as_array()?
        .iter()
        .map(|p| {
            let dependencies = p["dependencies"].as_array()?;
            let (tests, own): (Vec<_>, Vec<_>) = dependencies.iter().partition(|d| d["kind"] == "dev");
            let names = |list: Vec<&Value>| list.iter().map(|d| text(&d["name"])).collect::<Option<Vec<_>>>();
            Some(Member {
                name: text(&p["name"])?,
                manifest: PathBuf::from(p["manifest_path"].as_str()?),
                wants: names(own)?,
                wants_in_tests: names(tests)?,
            })
        })
        .collect()
}

/// Findings for every dependency that no arrow allows.
pub(crate) fn check(members: &[Member]) -> Vec<Finding> {
    let mut found = Vec::new();
    for member in members {
        let Some((_, inside, outside)) = ARROWS.iter().find(|(from, ..)| *from == member.name) else {
            let why = "no arrow says what this crate may use (add it to ARROWS with a decision record)";
            found.push(Finding::new("dependency", &member.name, why));
            continue;
        };
        let in_tests = |want: &&String| !TEST_ARROWS.contains(&(member.name.as_str(), want.as_str()));
        for want in member.wants.iter().chain(member.wants_in_tests.iter().filter(in_tests)) {
            let ours =
                members.iter().any(|m| m.name == *want) || ARROWS.iter().any(|(from, ..)| from == want);
            let is_in = |list: &str| list == "*" || list.split(' ').any(|name| name == want);
            let allowed = if ours { is_in(inside) || *want == member.name } else { is_in(outside) };
            if !allowed {
                let why = format!("must not depend on {want} (arrows point inward: ARCHITECTURE.md)");
                found.push(Finding::new("dependency", &member.name, why));
            }
        }
    }
    found
}
