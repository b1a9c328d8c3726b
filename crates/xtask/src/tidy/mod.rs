//! `cargo xtask tidy`: checks rules of this project that neither the compiler nor clippy can check.
//!
//! Each rule is a pure function from text (or parsed metadata) to findings, and has a test in which it fails.

mod arrows;
mod code;
mod columns;
mod links;
mod lints;
mod portable;
mod source;
mod words;

#[cfg(test)]
mod tests;

use std::fmt;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::output;
use crate::workspace::root;

pub(crate) use links::resolve;

/// One broken rule at one place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    rule: &'static str,
    place: String,
    why: String,
}

impl Finding {
    fn new(rule: &'static str, place: impl Into<String>, why: impl Into<String>) -> Self {
        Self { rule, place: place.into(), why: why.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.rule, self.why)
    }
}

/// Checks the whole tree below `root` and fails if any rule is broken.
pub(crate) fn run() -> Result<()> {
    let root = root();
    let members = arrows::members()?;
    let mut findings = arrows::check(&members);

    let workspace =
        std::fs::read_to_string(root.join("Cargo.toml")).context("read the workspace's Cargo.toml")?;
    for member in &members {
        let manifest = std::fs::read_to_string(&member.manifest)
            .with_context(|| format!("read the manifest of {}", member.name))?;
        findings.extend(lints::check(&member.name, &manifest, &workspace));
    }

    let files = tracked()?;
    let mut links = links::Links::default();
    let mut read = 0usize;
    for file in &files {
        // Skip files that are not text, and deleted files, which git still lists.
        let Ok(text) = std::fs::read_to_string(root.join(file)) else {
            if root.join(file).exists() {
                links.add(file, "");
            }
            continue;
        };
        read += 1;
        findings.extend(portable::check(file, &text));
        findings.extend(columns::check(file, &text));
        findings.extend(source::check(file, &text));
        findings.extend(words::check(file, &text));
        links.add(file, &text);
    }
    findings.extend(links.check());
    if read < members.len() {
        bail!(
            "tidy read only {read} text files of {}: run it inside a git clone of the project",
            files.len()
        );
    }

    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} broken rules in {read} files", findings.len());
    }
    println!("tidy: {} crates, {read} files, no broken rule", members.len());
    Ok(())
}

/// Every file that git tracks or would add, relative to the root.
fn tracked() -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    Ok(output(&mut git)?.split('\0').filter(|file| !file.is_empty()).map(str::to_owned).collect())
}
