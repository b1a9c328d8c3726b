//! Rules: links between files of the tree lead to an existing file, and to an existing heading if they name one. The
//! book's contents list each page of its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::Finding;

/// The contents of the book.
const CONTENTS: &str = "docs/SUMMARY.md";

/// Folder whose pages are all in the book.
const BOOK: &str = "docs";

/// The Markdown files of the tree, and every path that a link may name.
#[derive(Default)]
pub(crate) struct Links {
    /// Files and folders, relative to the root.
    paths: BTreeSet<PathBuf>,
    /// Anchors of each Markdown file.
    anchors: BTreeMap<PathBuf, BTreeSet<String>>,
    /// Links as (file, line, target).
    links: Vec<(PathBuf, usize, String)>,
}

impl Links {
    /// Notes that `path` exists, and reads its links and headings if it is Markdown.
    pub(crate) fn add(&mut self, path: &str, text: &str) {
        let path = PathBuf::from(path);
        self.paths.extend(path.ancestors().map(Path::to_path_buf));
        if path.extension().is_some_and(|end| end == "md") {
            self.read(&path, text);
        }
    }

    fn read(&mut self, path: &Path, text: &str) {
        let mut anchors = BTreeSet::new();
        let mut heading: Option<String> = None;
        let mut line_of = LineOf { text, at: 0, line: 1 };
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let slug = slug(&heading.take().unwrap_or_default());
                    let same = (1..).map(|n| format!("{slug}-{n}"));
                    let free = std::iter::once(slug.clone()).chain(same).find(|s| !anchors.contains(s));
                    anchors.extend(free);
                }
                Event::Text(part) | Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    self.links.push((
                        path.to_path_buf(),
                        line_of.offset(range.start),
                        dest_url.into_string(),
                    ));
                }
                _ => {}
            }
        }
        self.anchors.insert(path.to_path_buf(), anchors);
    }

    /// Findings for the links of all files.
    pub(crate) fn check(&self) -> Vec<Finding> {
        let dead = |(from, line, target): &(PathBuf, usize, String)| {
            let why = self.dead(from, target)?;
            Some(Finding::new("link", format!("{}:{line}", from.display()), format!("`{target}`: {why}")))
        };
        let mut findings: Vec<Finding> = self.links.iter().filter_map(dead).collect();
        findings.extend(self.missing_pages());
        findings
    }

    /// Findings for pages that the book's contents do not list.
    fn missing_pages(&self) -> Vec<Finding> {
        let contents = Path::new(CONTENTS);
        if !self.anchors.contains_key(contents) {
            return Vec::new(); // no book
        }
        let listed: BTreeSet<PathBuf> = self
            .links
            .iter()
            .filter(|(from, ..)| from == contents)
            .filter_map(|(_, _, target)| resolve(contents, target))
            .collect();
        let pages = self.anchors.keys().filter(|page| page.starts_with(BOOK) && *page != contents);
        pages
            .filter(|page| !listed.contains(*page))
            .map(|page| {
                Finding::new("book", page.display().to_string(), format!("{CONTENTS} does not list it"))
            })
            .collect()
    }

    /// Reason why a link leads nowhere, if it does. Links to other sites are not followed.
    fn dead(&self, from: &Path, target: &str) -> Option<&'static str> {
        if target.contains("://") || target.starts_with("mailto:") {
            return None;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = if file.is_empty() { from.to_path_buf() } else { resolve(from, file)? };
        if !self.paths.contains(&path) {
            return Some("no such file");
        }
        let known = self.anchors.get(&path).is_none_or(|known| known.contains(anchor));
        (!anchor.is_empty() && !known).then_some("no such heading")
    }
}

/// The path from the root that `target` means in the file `from`.
pub(crate) fn resolve(from: &Path, target: &str) -> Option<PathBuf> {
    let mut path = from.parent()?.to_path_buf();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    Some(path)
}

/// The anchor that the usual renderers give to a heading.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// Finds the line numbers of offsets, which must be given in rising order.
struct LineOf<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl LineOf<'_> {
    fn offset(&mut self, offset: usize) -> usize {
        if offset < self.at {
            (self.at, self.line) = (0, 1);
        }
        self.line += self.text.get(self.at..offset).unwrap_or_default().matches('\n').count();
        self.at = offset;
        self.line
    }
}
