//! Partial updates of cached text: move the cursor to byte n, repeat the last byte n times.

use crate::{Error, Result};

const ESC: u8 = 0x1B;

/// One command of an edit.
enum EditCommand<'a> {
    /// Overwrites the bytes at the cursor.
    Write(&'a [u8]),
    /// Moves the cursor to this byte of the cached value.
    MoveTo(usize),
    /// Writes the byte before the cursor this many times more.
    Repeat(usize),
}

/// `ESC [ digits`, then a back-quote or a `b`: the command and what follows it.
fn command(bytes: &[u8]) -> Option<(EditCommand<'static>, &[u8])> {
    let mut rest = bytes.strip_prefix(&[ESC, b'['])?;
    let mut n = 0usize;
    while let Some((digit @ b'0'..=b'9', after)) = rest.split_first() {
        n = n.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
        rest = after;
    }
    match rest.split_first()? {
        (b'`', after) => Some((EditCommand::MoveTo(n), after)),
        (b'b', after) => Some((EditCommand::Repeat(n), after)),
        _ => None,
    }
}

/// The commands of an edit; an escape sequence that is not a command is written as it is.
struct EditCommands<'a>(&'a [u8]);

impl<'a> Iterator for EditCommands<'a> {
    type Item = EditCommand<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((edit, rest)) = command(self.0) {
            self.0 = rest;
            return Some(edit);
        }
        let (_, tail) = self.0.split_first()?;
        let n = 1 + tail.iter().position(|b| *b == ESC).unwrap_or(tail.len());
        let (text, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(EditCommand::Write(text))
    }
}

/// Whether a value edits the cached one instead of replacing it: a command comes before any switch to UTF-8.
#[must_use]
pub fn is_partial(value: &[u8]) -> bool {
    let mut rest = value;
    while let Some(at) = rest.iter().position(|b| *b == ESC) {
        rest = rest.get(at..).unwrap_or_default();
        if command(rest).is_some() {
            return true;
        }
        if rest.get(1) == Some(&b'%') {
            return false;
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    false
}

/// Applies `value` to the first `len` bytes of `cached`, and returns the new length. A value that is not an edit
/// replaces the cached one; an edit that begins with a command never shortens it; a gap is filled with blanks.
///
/// # Errors
/// [`Error::Full`] if the result does not fit `cached`, which is then unchanged.
pub fn apply(cached: &mut [u8], len: usize, value: &[u8]) -> Result<usize> {
    let len = len.min(cached.len());
    if !is_partial(value) {
        cached.get_mut(..value.len()).ok_or(Error::Full)?.copy_from_slice(value);
        return Ok(value.len());
    }
    let new = edited_len(len, value);
    if new > cached.len() {
        return Err(Error::Full);
    }
    if let Some(gap) = cached.get_mut(len..new.max(len)) {
        gap.fill(b' ');
    }
    let mut cursor = 0usize;
    for edit in EditCommands(value) {
        match edit {
            EditCommand::MoveTo(to) => cursor = to,
            EditCommand::Write(text) => {
                let end = cursor + text.len();
                cached.get_mut(cursor..end).ok_or(Error::Full)?.copy_from_slice(text);
                cursor = end;
            }
            EditCommand::Repeat(n) => {
                let last = cursor.checked_sub(1).and_then(|at| cached.get(at)).copied();
                if let Some(last) = last {
                    cached.get_mut(cursor..cursor + n).ok_or(Error::Full)?.fill(last);
                    cursor += n;
                }
            }
        }
    }
    Ok(new)
}

/// Length after an edit of `len` cached bytes. Saturates instead of overflowing.
fn edited_len(len: usize, value: &[u8]) -> usize {
    let (mut cursor, mut most) = (0usize, 0usize);
    for edit in EditCommands(value) {
        match edit {
            EditCommand::MoveTo(to) => cursor = to,
            EditCommand::Write(text) => cursor = cursor.saturating_add(text.len()),
            EditCommand::Repeat(_) if cursor == 0 => {}
            EditCommand::Repeat(n) => cursor = cursor.saturating_add(n),
        }
        most = most.max(cursor);
    }
    if command(value).is_some() { most.max(len) } else { most }
}

/// Like [`apply`], on a vector that grows to at most `max` bytes.
///
/// # Errors
/// [`Error::TooLong`] if the result is longer than `max`; `cached` is then unchanged.
pub fn apply_to_vec(cached: &mut Vec<u8>, value: &[u8], max: usize) -> Result<()> {
    let new = if is_partial(value) { edited_len(cached.len(), value) } else { value.len() };
    if new > max {
        return Err(Error::TooLong { what: "RMTES text", len: new, max });
    }
    let old = cached.len();
    cached.resize(new.max(old), b' ');
    let n = apply(cached, old, value)?;
    cached.truncate(n);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(cached: &str, value: &[u8]) -> String {
        let mut cache = cached.as_bytes().to_vec();
        apply_to_vec(&mut cache, value, 100).unwrap();
        String::from_utf8(cache).unwrap()
    }

    #[test]
    fn edits_change_cached_text_in_place() {
        for (cached, value, result) in [
            ("abcdefghi", &b"new"[..], "new"),
            ("abcdefghi", b"\x1B[3`jkl", "abcjklghi"),
            ("abcdefghi", b"\x1B[0`X\x1B[4b\x1B[8`Y", "XXXXXfghY"),
            ("abc", b"\x1B[5`xy", "abc  xy"),
            ("abc", b"\x1B[1`\x1B[3b", "aaaa"),
            ("abc", b"\x1B[3b", "abc"),
            // A command that is not first: the value begins at byte 0 and ends where it ends.
            ("abcdefghi", b"12\x1B[4`Z", "12cdZ"),
            ("abc", b"", ""),
            // An escape sequence that is not a command is text.
            ("abcdef", b"\x1B[1`\x1B(B", "a\x1B(Bef"),
            ("abc", b"\x1B%0\xC3\xA4", "\x1B%0\u{e4}"),
            ("abc", b"\x1B[9", "\x1B[9"),
        ] {
            assert_eq!(applied(cached, value), result, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn commands_before_utf8_make_a_value_partial() {
        for value in [&b"\x1B[3`x"[..], b"\x1B[`x", b"ab\x1B[2b", b"\x1B(B\x1B[2`"] {
            assert!(is_partial(value));
        }
        for value in [&b""[..], b"abc", b"\x1B[3x", b"\x1B[3", b"\x1B%0\x1B[3`x", b"\x1B"] {
            assert!(!is_partial(value));
        }
    }

    #[test]
    fn results_beyond_the_limit_leave_the_cache_unchanged() {
        let mut cache = *b"abcdef";
        for value in
            [&b"\x1B[99999999999999999999999`x"[..], b"\x1B[1`\x1B[99999999999999999999b", b"\x1B[6`x"]
        {
            assert_eq!(apply(&mut cache, 6, value), Err(Error::Full));
            let mut vec = b"abcdef".to_vec();
            assert!(matches!(apply_to_vec(&mut vec, value, 6), Err(Error::TooLong { .. })));
            assert_eq!((&cache, vec.as_slice()), (b"abcdef", &b"abcdef"[..]));
        }
        assert_eq!(apply(&mut cache, 6, b"1234567"), Err(Error::Full));
        assert_eq!(apply(&mut cache, 2, b"\x1B[4`x"), Ok(5));
        assert_eq!(&cache[..5], b"ab  x");
    }
}
