//! Links of the book's pages: those to files that are not in the book lead to the repository instead.
//!
//! mdbook passes the book to this program as JSON and takes it back.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pulldown_cmark::{Event, Options, Parser, Tag};
use serde_json::Value;

use crate::tidy::resolve;
use crate::workspace::root;

/// Where files are that are not in the book.
const REPOSITORY: &str = "https://github.com/utipc/utipc/blob/main";

/// Folder of the book's sources.
const SOURCES: &str = "docs";

/// Answers mdbook: `supports RENDERER` is true for all; otherwise the book is read from standard input.
pub(crate) fn filter(question: &[String]) -> Result<()> {
    if question.first().is_some_and(|word| word == "supports") {
        return Ok(());
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("read the book from mdbook")?;
    let (_context, mut book): (Value, Value) = serde_json::from_str(&text).context("parse mdbook's book")?;
    let mut known = BTreeSet::new();
    chapters(&mut book, &mut |path, _| {
        known.insert(Path::new(SOURCES).join(path));
    });
    let pages = Pages { root: &root(), known };
    chapters(&mut book, &mut |path, content| *content = pages.rewritten(path, content));
    println!("{book}");
    Ok(())
}

/// Calls `each` for every chapter with its source's path below the folder of sources.
fn chapters(value: &mut Value, each: &mut impl FnMut(&str, &mut String)) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|value| chapters(value, each)),
        Value::Object(all) => {
            let path = all.get("source_path").and_then(Value::as_str).map(str::to_owned);
            if let (Some(path), Some(Value::String(content))) = (path, all.get_mut("content")) {
                each(&path, content);
            }
            all.values_mut().for_each(|value| chapters(value, each));
        }
        _ => {}
    }
}

/// The pages of the book.
struct Pages<'a> {
    root: &'a Path,
    /// Their sources, relative to the root.
    known: BTreeSet<PathBuf>,
}

impl Pages<'_> {
    /// The page of this path with its links changed.
    fn rewritten(&self, path: &str, content: &str) -> String {
        let from = Path::new(SOURCES).join(path);
        let mut changes = Vec::new();
        for (event, range) in Parser::new_ext(content, Options::ENABLE_TABLES).into_offset_iter() {
            let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event else {
                continue;
            };
            let Some(target) = self.target(&from, &dest_url) else { continue };
            // The target stands at the end of the link's text.
            let place = content.get(range.clone()).and_then(|link| link.rfind(&format!("]({dest_url}")));
            let start = range.start + place.unwrap_or_default() + "](".len();
            if place.is_some() {
                changes.push((start..start + dest_url.len(), target));
            }
        }
        let mut text = content.to_owned();
        // From the end, so that the places before stay right.
        for (range, target) in changes.into_iter().rev() {
            text.replace_range(range, &target);
        }
        text
    }

    /// What a link of the page `from` becomes, if it changes.
    fn target(&self, from: &Path, link: &str) -> Option<String> {
        let (file, anchor) =
            link.split_once('#').map_or((link, String::new()), |(f, a)| (f, format!("#{a}")));
        if file.is_empty() || link.contains("://") || link.starts_with("mailto:") {
            return None;
        }
        let path = resolve(from, file)?;
        if self.known.contains(&path) {
            // mdbook makes index.html of a README, but does not change links to it.
            return file.strip_suffix("README.md").map(|folder| format!("{folder}index.md{anchor}"));
        }
        // mdbook copies files of other kinds.
        let is_copied = path.starts_with(SOURCES)
            && path.extension().is_some_and(|end| end != "md")
            && self.root.join(&path).is_file();
        (!is_copied).then(|| format!("{REPOSITORY}/{}{anchor}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_leave_the_book_lead_to_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let known = ["docs/README.md", "docs/operating/daemon.md", "docs/operating/README.md"];
        let pages = Pages { root: &root, known: known.map(PathBuf::from).into() };
        for (text, expected) in [
            ("[a](daemon.md#x) and [b](utipcd.toml)", "[a](daemon.md#x) and [b](utipcd.toml)"),
            ("[a](README.md#x)", "[a](index.md#x)"),
            ("[`a`](../../packaging/systemd/)", &format!("[`a`]({REPOSITORY}/packaging/systemd)")),
            (
                "[a](proxy.md), [b](../../README.md#c)",
                &format!("[a]({REPOSITORY}/docs/operating/proxy.md), [b]({REPOSITORY}/README.md#c)"),
            ),
            ("`[a](../x.md)` [b](#c) <https://example.org>", "`[a](../x.md)` [b](#c) <https://example.org>"),
        ] {
            assert_eq!(pages.rewritten("operating/README.md", text), expected);
        }
    }

    #[test]
    fn every_chapter_is_visited() {
        let mut book = serde_json::json!({"items": [
            {"Chapter": {"content": "one", "source_path": "a.md", "sub_items": [
                {"Chapter": {"content": "two", "source_path": "b.md", "sub_items": []}}]}},
            "Separator", {"PartTitle": "x"}]});
        let mut seen = Vec::new();
        chapters(&mut book, &mut |path, content| seen.push(format!("{path} {content}")));
        assert_eq!(seen, ["a.md one", "b.md two"]);
    }
}
