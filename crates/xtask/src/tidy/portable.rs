//! Rules that keep the tree usable on every machine: no absolute path of one user, no registry but crates.io.

use super::Finding;

/// Folders that are different, or missing, on other machines.
const PRIVATE_FOLDERS: &[&str] = &["/home/", "/root/", "/Users/", "/work/", "/tmp/"];

/// The only registry that a lock file may name.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Names of registries, and settings that direct cargo, pip or npm to one, which are valid on one machine only.
const REGISTRIES: &[&str] =
    &["sparse+", "replace-with", "pypi.org/simple", "registry.npmjs", "artifactory", "jfrog"];

/// This file and its tests, which contain the forbidden texts.
const EXEMPT: &[&str] = &["crates/xtask/src/tidy/portable.rs", "crates/xtask/src/tidy/tests.rs"];

/// Findings for one file.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    if EXEMPT.contains(&path) {
        return found;
    }
    for (number, line) in (1..).zip(text.lines()) {
        let place = || format!("{path}:{number}");
        for folder in PRIVATE_FOLDERS.iter().filter(|folder| names_path_below(line, folder)) {
            found.push(Finding::new("path", place(), format!("`{folder}…` exists on one machine only")));
        }
        for registry in REGISTRIES.iter().filter(|registry| line.contains(*registry)) {
            found.push(Finding::new(
                "registry",
                place(),
                format!("`{registry}` is a registry of one machine"),
            ));
        }
        if line.contains("registry+") && line.starts_with("source") && !line.contains(CRATES_IO) {
            found.push(Finding::new("registry", place(), "only crates.io is allowed"));
        }
    }
    found
}

/// Whether `line` contains a path that begins with `folder` and a name.
fn names_path_below(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line.get(..at).and_then(|s| s.chars().next_back());
        let after = line.get(at + folder.len()..).and_then(|s| s.chars().next());
        let inside = before.is_some_and(|c| c.is_alphanumeric() || "._-}>*~)".contains(c));
        !inside && after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}
