//! The code blocks of Markdown pages.

/// A block between two fences.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    /// The last heading of level two above it.
    pub(crate) heading: &'a str,
    /// What follows the first fence, as `text`.
    pub(crate) kind: &'a str,
    /// Number of the line of the first fence.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// All blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut heading): (Vec<Block<'_>>, &str) = (Vec::new(), "");
    let mut is_inside = false;
    for (line, text) in (1..).zip(page.lines()) {
        match (is_inside, text.strip_prefix("```")) {
            (false, Some(kind)) => blocks.push(Block { heading, kind, line, text: String::new() }),
            (false, None) => heading = text.strip_prefix("## ").unwrap_or(heading),
            (true, Some(_)) => {}
            (true, None) => {
                if let Some(block) = blocks.last_mut() {
                    block.text += text;
                    block.text.push('\n');
                }
            }
        }
        is_inside ^= text.starts_with("```");
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_heading_kind_and_line() {
        let page = "# A\n```sh\none\n## two\n```\n## B\nwords\n```text\nout\n```\n";
        let [first, second] = &blocks(page)[..] else { panic!("{:?}", blocks(page)) };
        assert_eq!(*first, Block { heading: "", kind: "sh", line: 2, text: "one\n## two\n".into() });
        assert_eq!(*second, Block { heading: "B", kind: "text", line: 8, text: "out\n".into() });
    }
}
