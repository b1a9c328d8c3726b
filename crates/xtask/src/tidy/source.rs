//! Rules for source files: `unsafe` only in some crates, no unfinished code, and a limit of lines.

use super::{Finding, code};

/// Crates that may have `unsafe` code, with their folders.
pub(crate) const MAY_BE_UNSAFE: &[(&str, &str)] = &[
    ("utipc-os", "crates/os/"),
    ("utipc-c", "crates/c/"),
    ("utipc-cpg", "crates/cpg/"),
    ("utipc-preload", "crates/preload/"),
    ("utipc-python", "crates/python/"),
];

/// The most lines of one source file.
const MAX_LINES: usize = 800;

/// Marks of unfinished or switched-off work in code, each in two pieces so that this file passes its own rule.
const UNFINISHED: &[&str] = &[concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[", "ignore")];

/// Marks of unfinished work in comments.
const NOTES: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X")];

/// Findings for one file.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let is_rust = path.ends_with(".rs");
    if !is_rust && ![".py", ".sh", ".c", ".h"].iter().any(|end| path.ends_with(end)) {
        return found;
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        found.push(Finding::new("length", path, format!("{lines} lines, more than {MAX_LINES}: split it")));
    }
    for (number, line) in (1..).zip(text.lines()) {
        for note in NOTES.iter().filter(|n| code::has_word(line, n)) {
            found.push(Finding::new("unfinished", format!("{path}:{number}"), format!("`{note}`")));
        }
    }
    if !is_rust {
        return found;
    }
    let unsafe_here = MAY_BE_UNSAFE.iter().any(|(_, folder)| path.starts_with(folder));
    for (number, line) in (1..).zip(code::only(text).lines()) {
        let place = || format!("{path}:{number}");
        if !unsafe_here && code::has_word(line, "unsafe") {
            found.push(Finding::new("unsafe", place(), "allowed in os, c, cpg, preload and python only"));
        }
        for mark in UNFINISHED.iter().filter(|m| line.contains(*m)) {
            found.push(Finding::new("unfinished", place(), format!("`{mark}`")));
        }
    }
    found
}
