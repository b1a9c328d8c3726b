//! The expected output of each example, from `examples/README.md`.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::blocks::blocks;

/// Blocks of lines by the name of the program.
#[derive(Debug)]
pub(super) struct Page(BTreeMap<String, Vec<Vec<String>>>);

impl Page {
    /// Takes every code block of the kind `text`, by the heading of level two above it.
    pub(super) fn parse(text: &str) -> Self {
        let mut programs: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
        for block in blocks(text).into_iter().filter(|block| block.kind == "text") {
            let lines = block.text.lines().map(str::to_owned).collect();
            programs.entry(block.heading.to_owned()).or_default().push(lines);
        }
        Self(programs)
    }

    /// One block of a program.
    pub(super) fn block(&self, program: &str, number: usize) -> Result<&[String]> {
        match self.0.get(program).and_then(|blocks| blocks.get(number)) {
            Some(block) => Ok(block),
            None => bail!("examples/README.md does not say what {program} prints (block {})", number + 1),
        }
    }
}

/// Values of the placeholders `NODE` and `OTHER`, as far as they are known: the same throughout a program.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(BTreeMap<&'static str, String>);

/// The placeholders, and whether each stands for the same value everywhere.
const PLACEHOLDERS: [(&str, bool); 3] = [("NODE", true), ("OTHER", true), ("PORT", false)];

impl Names {
    /// The value of a placeholder.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether the line matches a line of the page. Remembers the values of its placeholders.
    pub(super) fn fits(&mut self, pattern: &str, line: &str) -> bool {
        let mut names = self.clone();
        let fits = names.walk(pattern, line);
        if fits {
            *self = names;
        }
        fits
    }

    fn walk(&mut self, pattern: &str, line: &str) -> bool {
        let first =
            PLACEHOLDERS.iter().filter_map(|(name, one)| Some((pattern.find(name)?, *name, *one))).min();
        let Some((at, name, one)) = first else { return pattern == line };
        let (before, after) = (&pattern[..at], &pattern[at + name.len()..]);
        let Some(rest) = line.strip_prefix(before) else { return false };
        let digit = |c: char| if one { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
        let len = rest.find(|c| !digit(c)).unwrap_or(rest.len());
        let (value, rest) = rest.split_at(len);
        if value.is_empty() {
            return false;
        }
        if one && self.0.entry(name).or_insert_with(|| value.to_owned()) != value {
            return false;
        }
        self.walk(after, rest)
    }

    /// Compares all lines in order; the error shows the first that differs.
    pub(super) fn compare(&mut self, page: &[String], lines: &[String]) -> Result<()> {
        for (number, pattern) in page.iter().enumerate() {
            let line = lines.get(number).map_or("", String::as_str);
            if !self.fits(pattern, line) {
                bail!("line {}: the page says\n    {pattern}\nthe program says\n    {line}", number + 1);
            }
        }
        if let Some(more) = lines.get(page.len()) {
            bail!("the program says more than the page:\n    {more}");
        }
        Ok(())
    }

    /// As [`Self::compare`], but the lines may come in any order.
    pub(super) fn compare_set(&mut self, page: &[String], lines: &[String]) -> Result<()> {
        let mut lines = lines.to_vec();
        for pattern in page {
            match lines.iter().position(|line| self.clone().fits(pattern, line)) {
                Some(place) => {
                    let line = lines.remove(place);
                    self.fits(pattern, &line);
                }
                None => bail!("the page says\n    {pattern}\nthe program says\n    {}", lines.join("\n    ")),
            }
        }
        if lines.is_empty() { Ok(()) } else { bail!("the program says more:\n    {}", lines.join("\n    ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Examples\n```sh\ncargo\n```\n## one\nwords\n```text\nnode NODE is up\n```\nand\n```text\n\
                        to OTHER:PORT\nback to OTHER:PORT\n```\n## two\n```text\nx\n```\n";

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn blocks_are_found_by_program() {
        let page = Page::parse(TEXT);
        assert_eq!(page.block("one", 0).unwrap(), ["node NODE is up"]);
        assert_eq!(page.block("one", 1).unwrap(), ["to OTHER:PORT", "back to OTHER:PORT"]);
        assert_eq!(page.block("two", 0).unwrap(), ["x"]);
        assert!(page.block("two", 1).is_err() && page.block("Examples", 0).is_err());
    }

    #[test]
    fn node_stands_for_one_value_and_port_for_any() {
        let page = Page::parse(TEXT);
        let block = page.block("one", 1).unwrap();
        let mut names = Names::default();
        names.compare(block, &lines("to ab12:7\nback to ab12:8")).unwrap();
        assert_eq!(names.get("OTHER"), Some("ab12"));
        for wrong in [
            "to ab12:7\nback to ab13:7",
            "to ab12:7",
            "to ab12:7\nback to ab12:7\nmore",
            "to :7\nback to ab12:7",
            "to ab12:a\nback to ab12:7",
            "to ab12:7 \nback to ab12:7",
        ] {
            assert!(Names::default().compare(block, &lines(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_may_come_in_any_order_but_must_all_match() {
        let block = lines("link to node OTHER is up\nnode OTHER is up");
        Names::default().compare_set(&block, &lines("node a is up\nlink to node a is up")).unwrap();
        assert!(Names::default().compare_set(&block, &lines("node a is up\nlink to node b is up")).is_err());
        assert!(Names::default().compare_set(&block, &lines("node a is up")).is_err());
    }
}
