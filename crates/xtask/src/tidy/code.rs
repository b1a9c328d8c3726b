//! Rust source with its comments and literals blanked, so that rules look at code only.

/// Returns the text with comments, strings and characters replaced by spaces; line numbers stay the same.
pub(crate) fn only(source: &str) -> String {
    let text: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while let Some(&c) = text.get(at) {
        let end = literal_end(&text, at);
        if end == at {
            out.push(c);
            at += 1;
            continue;
        }
        for &skipped in text.get(at..end).unwrap_or_default() {
            out.push(if skipped == '\n' { '\n' } else { ' ' });
        }
        at = end;
    }
    out
}

/// The end of the comment or literal that starts at `at`; `at` itself if none starts there.
fn literal_end(text: &[char], at: usize) -> usize {
    let is = |i: usize, c: char| text.get(i) == Some(&c);
    let until = |from: usize, stop: &dyn Fn(usize) -> bool| {
        (from..text.len()).find(|&i| stop(i)).unwrap_or(text.len())
    };
    if is(at, '/') && is(at + 1, '/') {
        return until(at, &|i| is(i, '\n'));
    }
    if is(at, '/') && is(at + 1, '*') {
        return block_comment_end(text, at);
    }
    if is(at, '"') {
        return quoted_end(text, at, '"');
    }
    let after_name = at > 0 && text.get(at - 1).is_some_and(|c| c.is_alphanumeric() || *c == '_');
    if is(at, 'r') && !after_name {
        let hashes = until(at + 1, &|i| !is(i, '#')) - (at + 1);
        if is(at + 1 + hashes, '"') {
            let closes = |i: usize| is(i, '"') && (1..=hashes).all(|h| is(i + h, '#'));
            return (until(at + 2 + hashes, &closes) + 1 + hashes).min(text.len());
        }
    }
    // 'x' and '\n' are characters, 'a without a closing quote is a lifetime.
    if is(at, '\'') && (is(at + 1, '\\') || is(at + 2, '\'')) {
        return quoted_end(text, at, '\'');
    }
    at
}

fn quoted_end(text: &[char], at: usize, quote: char) -> usize {
    let mut i = at + 1;
    while let Some(&c) = text.get(i) {
        if c == quote {
            return i + 1;
        }
        i += if c == '\\' { 2 } else { 1 };
    }
    text.len()
}

fn block_comment_end(text: &[char], at: usize) -> usize {
    let mut depth = 0usize;
    let mut i = at;
    while i < text.len() {
        match (text.get(i), text.get(i + 1)) {
            (Some('/'), Some('*')) => {
                depth += 1;
                i += 2;
            }
            (Some('*'), Some('/')) => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    text.len()
}

/// Whether `word` stands in `line` with no letter, digit or underscore beside it.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|s| s.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|s| s.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}
