//! Words that have no place in a tracked file: tools that wrote text, paths of one machine, hosts of one registry.
//! Each is written in two pieces so that this file passes its own rule.

use super::{Finding, code};

/// Whole words, compared without case.
const AUTHORS: &[&str] = &[
    concat!("chat", "gpt"),
    concat!("co", "pilot"),
    concat!("clau", "de"),
    concat!("anth", "ropic"),
    concat!("open", "ai"),
    concat!("gem", "ini"),
    concat!("l", "lm"),
    concat!("ai ", "assistant"),
    concat!("language ", "model"),
    concat!("co-authored", "-by"),
];

/// Starts of absolute paths that exist on somebody's machine only.
const PATHS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("/t", "mp/"),
];

/// Where dependencies come from is each machine's own affair.
const REGISTRIES: &[&str] = &[
    concat!("spar", "se+"),
    concat!("art", "ifactory"),
    concat!("jf", "rog"),
    concat!("pypi", ".org/simple"),
    concat!("registry.npm", "js"),
    concat!("replace", "-with"),
];

/// The only registry that a lock file may name.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Findings for one file.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut note = |what: &str, word: &str| {
            found.push(Finding::new("word", format!("{path}:{number}"), format!("{what} `{word}`")));
        };
        let lower = line.to_lowercase();
        for word in AUTHORS.iter().filter(|w| code::has_word(&lower, w)) {
            note("names who or what wrote the text:", word);
        }
        for start in PATHS.iter().filter(|p| starts_path(line, p)) {
            note("a path of one machine:", start);
        }
        for host in REGISTRIES.iter().filter(|h| line.contains(*h)) {
            note("a registry of one machine:", host);
        }
        if line.contains("registry+") && line.starts_with("source") && !line.contains(CRATES_IO) {
            note("a registry of one machine:", line.trim());
        }
    }
    found
}

/// `start` followed by a name, and not itself the middle of a longer path.
fn starts_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        let before = line.get(..at).and_then(|s| s.chars().next_back());
        let after = line.get(at + start.len()..).and_then(|s| s.chars().next());
        let inside = before.is_some_and(|c| c.is_alphanumeric() || "._-}>*~)".contains(c));
        !inside && after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}
