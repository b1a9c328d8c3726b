//! Rule: every crate inherits the workspace's lints. A crate that may have `unsafe` code cannot inherit
//! `forbid(unsafe_code)`, so it repeats all other lints.

use std::collections::BTreeMap;

use super::{Finding, source};

type Table<'a> = BTreeMap<(&'a str, &'a str), &'a str>;

/// Parses lines `[section]` and `key = value`, the part of TOML that lint tables use.
fn table(manifest: &str) -> Table<'_> {
    let mut section = "";
    let mut table = Table::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name;
        } else if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            table.insert((section, key.trim()), value.trim());
        }
    }
    table
}

/// Findings for the manifest of crate `name`.
pub(crate) fn check(name: &str, manifest: &str, workspace: &str) -> Vec<Finding> {
    let own = table(manifest);
    if own.get(&("lints", "workspace")) == Some(&"true") {
        return Vec::new();
    }
    if !source::MAY_BE_UNSAFE.iter().any(|(crate_name, _)| *crate_name == name) {
        return vec![Finding::new("lints", name, "add `[lints] workspace = true` to its Cargo.toml")];
    }
    let mut found = Vec::new();
    for ((section, lint), level) in table(workspace) {
        let Some(group) = section.strip_prefix("workspace.") else { continue };
        if !group.starts_with("lints.") || lint == "unsafe_code" {
            continue;
        }
        if own.get(&(group, lint)) != Some(&level) {
            found.push(Finding::new("lints", name, format!("[{group}] must repeat `{lint} = {level}`")));
        }
    }
    found
}
