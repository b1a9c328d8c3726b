//! `cargo xtask book`: makes the book of `docs` with mdbook, and checks that every link in it leads to a file.

pub(crate) mod links;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::root;

/// Pages of mdbook's own, whose links are those of other pages.
const COPIES: [&str; 3] = ["print.html", "404.html", "toc.html"];

/// Makes the book and checks it. mdbook may warn of nothing.
pub(crate) fn run() -> Result<()> {
    let out = Command::new("mdbook").args(["build", "docs"]).current_dir(root()).output();
    let out = out.context("run mdbook (cargo install mdbook)")?;
    let said = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() || said.lines().any(|line| line.contains("WARN") || line.contains("ERROR")) {
        bail!("mdbook build docs: {}\n{said}", out.status);
    }
    let book = root().join("target/book");
    let pages = pages(&book)?;
    let mut dead = BTreeSet::new();
    for page in pages.iter().filter(|page| COPIES.iter().all(|copy| !page.ends_with(copy))) {
        let text = fs::read_to_string(page).with_context(|| format!("read {}", page.display()))?;
        for target in targets(&text).filter(|target| is_dead(page, target)) {
            dead.insert(format!("{}: {target}", page.strip_prefix(&book).unwrap_or(page).display()));
        }
    }
    if !dead.is_empty() {
        bail!("links that lead nowhere:\n{}", dead.into_iter().collect::<Vec<_>>().join("\n"));
    }
    println!("book: {} pages in {}", pages.len(), book.display());
    Ok(())
}

/// All HTML files below a folder.
fn pages(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
            let path = entry.context("list the book")?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "html") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// What the links, pictures and scripts of a page name.
fn targets(html: &str) -> impl Iterator<Item = &str> {
    let after = |mark: &'static str| html.split(mark).skip(1).filter_map(|rest| rest.split('"').next());
    after(" href=\"").chain(after(" src=\""))
}

fn is_dead(page: &Path, target: &str) -> bool {
    let file = target.split(['#', '?']).next().unwrap_or_default();
    let is_elsewhere = target.contains("://") || target.starts_with("mailto:") || target.starts_with("data:");
    let here = page.parent().unwrap_or(Path::new("/"));
    !file.is_empty() && !is_elsewhere && !here.join(file).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_a_page_are_found() {
        let html = r##"<a href="a.html#x">a</a> <img alt="" src="b.png"> <a href="#here">"##;
        assert_eq!(targets(html).collect::<Vec<_>>(), ["a.html#x", "#here", "b.png"]);
    }

    #[test]
    fn dead_links_are_those_to_files_that_do_not_exist() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page.html");
        for alive in ["main.rs#x", "book/mod.rs", "#x", "https://example.org/x", "../Cargo.toml"] {
            assert!(!is_dead(&page, alive), "{alive}");
        }
        assert!(is_dead(&page, "other.rs") && is_dead(&page, "other.rs#x"));
    }
}
