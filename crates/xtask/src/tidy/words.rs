//! Rule: words that the glossary replaces, and that have no other use here, do not occur, also not in names.

use super::Finding;

/// A word and what to write instead. Each word is in two pieces so that this file passes its own rule.
const REPLACED: &[(&str, &str)] = &[
    (concat!("a", "new"), "again"),
    (concat!("ex", "pel"), "evict"),
    (concat!("he", "ed"), "the action: read, follow, check"),
    (concat!("heri", "tage"), "inheritance"),
    (concat!("ki", "ck"), "evict"),
    (concat!("me", "nd"), "recover, reconnect or resynchronise"),
    (concat!("part", "ner"), "peer"),
    (concat!("snif", "fer"), "tap"),
    (concat!("who", "ever"), "the subject itself"),
];

/// The file that lists such words.
const GLOSSARY: &str = "docs/glossary.md";

/// Findings for one file.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    if path == GLOSSARY {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for word in line.split(|c: char| !c.is_ascii_alphabetic()) {
            let is = |(old, _): &&(&str, &str)| {
                word.eq_ignore_ascii_case(old)
                    || word.strip_suffix('s').is_some_and(|w| w.eq_ignore_ascii_case(old))
            };
            if let Some((_, new)) = REPLACED.iter().find(is) {
                found.push(Finding::new(
                    "words",
                    format!("{path}:{number}"),
                    format!("`{word}`: write {new}"),
                ));
            }
        }
    }
    found
}
