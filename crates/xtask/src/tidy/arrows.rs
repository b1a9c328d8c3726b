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

/// The dependencies that a crate may have. A crate without an entry is a finding, because a new crate needs a
/// decision record.
struct Arrow {
    from: &'static str,
    /// Workspace crates.
    inside: &'static [&'static str],
    /// External crates; `None`: any.
    outside: Option<&'static [&'static str]>,
}

const fn arrow(
    from: &'static str,
    inside: &'static [&'static str],
    outside: Option<&'static [&'static str]>,
) -> Arrow {
    Arrow { from, inside, outside }
}

const ARROWS: &[Arrow] = &[
    arrow("utipc-core", &[], Some(&["aes-gcm", "graviola", "serde", "thiserror", "zeroize"])),
    arrow("rssl", &[], Some(&["flate2", "lz4_flex", "thiserror"])),
    arrow("utipc-os", &[], None),
    arrow("utipc-netns", &["utipc-os"], None),
    arrow("utipc-lanes", &["utipc-attach", "utipc-core", "utipc-os"], None),
    arrow("utipc-bench-kit", &["utipc-netns"], None),
    arrow("utipc-attach", &["utipc-core"], Some(&["postcard", "serde", "thiserror"])),
    arrow("utipc-manage", &[], Some(&["serde", "thiserror", "zeroize"])),
    arrow("utipc-node", &["utipc-attach", "utipc-core", "utipc-lanes", "utipc-manage", "utipc-os"], None),
    arrow("utipc-client", &["utipc-attach", "utipc-core", "utipc-lanes", "utipc-os"], None),
    arrow(
        "utipc",
        &["utipc-client", "utipc-node", "utipc-core", "utipc-manage", "utipc-os", "utipc-vsync"],
        None,
    ),
    arrow("utipc-preload", &["utipc-client", "utipc-core", "utipc-manage", "utipc-os"], None),
    arrow("utipc-c", &["utipc", "utipc-os"], None),
    arrow("utipc-cpg", &["utipc", "utipc-os"], None),
    arrow("utipc-python", &["utipc"], None),
    arrow("utipc-cli", &[], None),
    arrow("utipc-web", &[], Some(&["httparse", "rustix", "tracing"])),
    arrow("utipc-tools", &["utipc", "utipc-manage", "utipc-netns", "utipc-cli", "utipc-web", "mdist"], None),
    arrow(
        "utipc-lab",
        &[
            "utipc",
            "utipc-bench-kit",
            "utipc-cli",
            "utipc-manage",
            "utipc-netns",
            // Its hostile peers, for the soak.
            "utipc-sim",
            "utipc-tools",
        ],
        None,
    ),
    arrow("mdist", &["rssl", "utipc", "utipc-cli", "utipc-web"], None),
    arrow("mdist-load", &["rssl", "mdist", "utipc-bench-kit", "utipc-cli"], None),
    arrow("mdist-bench", &["mdist", "mdist-load", "utipc-bench-kit", "utipc-cli", "utipc-netns"], None),
    arrow("utipc-sim", &["utipc-core", "utipc-bench-kit"], None),
    arrow("utipc-vsync", &["utipc-core"], Some(&["thiserror"])),
    arrow("utipc-vsync-sim", &["utipc-core", "utipc-sim", "utipc-vsync"], None),
    arrow("utipc-fuzz", &["utipc-core", "utipc-manage", "utipc-vsync", "rssl", "mdist"], None),
    arrow("xtask", &[], None),
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
        let Some(arrow) = ARROWS.iter().find(|a| a.from == member.name) else {
            let why = "no arrow says what this crate may use (add it to ARROWS with a decision record)";
            found.push(Finding::new("dependency", &member.name, why));
            continue;
        };
        let in_tests = |want: &&String| !TEST_ARROWS.contains(&(member.name.as_str(), want.as_str()));
        for want in member.wants.iter().chain(member.wants_in_tests.iter().filter(in_tests)) {
            let ours = members.iter().any(|m| m.name == *want) || ARROWS.iter().any(|a| a.from == want);
            let allowed = if ours {
                arrow.inside.contains(&want.as_str()) || *want == member.name
            } else {
                arrow.outside.is_none_or(|list| list.contains(&want.as_str()))
            };
            if !allowed {
                let why = format!("must not depend on {want} (arrows point inward: ARCHITECTURE.md)");
                found.push(Finding::new("dependency", &member.name, why));
            }
        }
    }
    found
}
