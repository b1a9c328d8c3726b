//! RMTES and UTF-8 as readable text.

use core::fmt::{self, Write};

/// Shows RMTES text: ASCII, the second Latin set, and UTF-8 after its escape sequence. Characters of other sets, and
/// control characters, are shown as `\x` and two digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a>(pub &'a [u8]);

/// A set of characters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Set {
    Ascii,
    Latin,
    /// Katakana, Kanji, Chinese sets: not converted.
    Other,
}

/// The loaded sets, and which of them are selected for the lower and the upper half of the codes.
struct Sets {
    g: [Set; 4],
    lower: usize,
    upper: usize,
}

impl Sets {
    const fn get(&self, which: usize) -> Set {
        match which {
            0 => self.g[0],
            1 => self.g[1],
            2 => self.g[2],
            _ => self.g[3],
        }
    }

    /// Applies the escape sequence whose bytes after `ESC` begin `rest`, and returns their number; `None` if it is
    /// unknown.
    fn escape(&mut self, rest: &[u8]) -> Option<usize> {
        match *rest {
            [b'n', ..] => self.lower = 2,
            [b'o', ..] => self.lower = 3,
            [b'~', ..] => self.upper = 1,
            [b'}', ..] => self.upper = 2,
            [b'|', ..] => self.upper = 3,
            // Selection of control characters: only one set is known.
            [b'!', b'@', ..] | [b'"', b'0', ..] => return Some(2),
            [which @ b'('..=b'+', set, ..] => {
                *self.g.get_mut(usize::from(which - b'('))? = match (which, set) {
                    (_, b'B') => Set::Ascii,
                    (b')', b'1') => Set::Latin,
                    _ => Set::Other,
                };
                return Some(2);
            }
            [b'$', which @ b'('..=b'+', _, ..] => {
                *self.g.get_mut(usize::from(which - b'('))? = Set::Other;
                return Some(3);
            }
            [b'&', b'@', 0x1B, b'$', b'B', ..] => {
                *self.g.get_mut(0)? = Set::Other;
                return Some(5);
            }
            [b'&', b'@', 0x1B, b'$', which @ b')'..=b'+', b'B', ..] => {
                *self.g.get_mut(usize::from(which - b'('))? = Set::Other;
                return Some(6);
            }
            _ => return None,
        }
        Some(1)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sets = Sets { g: [Set::Ascii, Set::Latin, Set::Other, Set::Other], lower: 0, upper: 1 };
        let mut rest = self.0;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match byte {
                0x00 => {}
                0x1C => return Ok(()),
                0x0F => sets.lower = 0,
                0x0E => sets.lower = 1,
                0x1B if after.starts_with(b"%0") => {
                    return Utf8(after.get(2..).unwrap_or_default()).fmt(f);
                }
                0x1B => match sets.escape(after) {
                    Some(n) => rest = after.get(n..).unwrap_or_default(),
                    None => escaped(f, byte)?,
                },
                b' ' => f.write_char(' ')?,
                0x21..=0x7E => show(f, byte, sets.get(sets.lower))?,
                0xA1..=0xFE => show(f, byte, sets.get(sets.upper))?,
                0x8E | 0x8F => {
                    // One character of a set that is not converted.
                    escaped(f, byte)?;
                    if let Some((&shifted, after)) = rest.split_first() {
                        escaped(f, shifted)?;
                        rest = after;
                    }
                }
                _ => escaped(f, byte)?,
            }
        }
        Ok(())
    }
}

fn escaped(f: &mut fmt::Formatter<'_>, byte: u8) -> fmt::Result {
    write!(f, "\\x{byte:02x}")
}

fn show(f: &mut fmt::Formatter<'_>, byte: u8, set: Set) -> fmt::Result {
    match set {
        Set::Ascii => f.write_char(char::from(byte & 0x7F)),
        Set::Latin => latin(f, byte | 0x80),
        Set::Other => escaped(f, byte),
    }
}

/// The second Latin set: ISO 8859-1 except for some codes, a few of which are two characters (broker marks).
fn latin(f: &mut fmt::Formatter<'_>, byte: u8) -> fmt::Result {
    f.write_str(match byte {
        0xA4 => "_r",
        0xA6 => "_w",
        0xB4 => "_t",
        0xD0 => "_p",
        0xF0 => "_u",
        0xA8 => "\u{a4}",
        0xAC => "\u{215b}",
        0xAD => "\u{215c}",
        0xAE => "\u{215d}",
        0xAF => "\u{215e}",
        0xB8 => "\u{2407}",
        0xD7 => "\u{152}",
        0xDD => "\u{178}",
        0xDE => "\u{21e7}",
        0xF7 => "\u{153}",
        0xFD => "\u{ff}",
        0xFE => "\u{21e9}",
        other => return f.write_char(char::from(other)),
    })
}

/// Shows UTF-8; invalid bytes and control characters are shown as `\x` and two digits.
#[derive(Clone, Copy)]
pub(in crate::rwf) struct Utf8<'a>(pub(in crate::rwf) &'a [u8]);

impl fmt::Display for Utf8<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() {
                    let mut bytes = [0; 4];
                    c.encode_utf8(&mut bytes).bytes().try_for_each(|b| escaped(f, b))?;
                } else {
                    f.write_char(c)?;
                }
            }
            chunk.invalid().iter().try_for_each(|b| escaped(f, *b))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_sets_and_escapes_are_shown() {
        for (bytes, text) in [
            (&b"Plain \"text\""[..], "Plain \"text\""),
            (b"\xC4\xD6\xE9 \xA4\xAE", "\u{c4}\u{d6}\u{e9} _r\u{215d}"),
            (b"a\x1B%0\xE6\x97\xA5\xFF\x01", "a\u{65e5}\\xff\\x01"),
            (b"a\0b\x1Cc", "ab"),
            // Shifts: the second Latin set in the lower half, and back.
            (b"\x0Ed\x0Fd", "\u{e4}d"),
            (b"\x1B)B\xE1\x1B)1\xE1", "a\u{e1}"),
            // Kanji are not converted.
            (b"x\x1B$)G\xB1\xB2\x1B(Bz", "x\\xb1\\xb2z"),
            (b"\x1B&@\x1B$B0!\x1B(B!", "\\x30\\x21!"),
            (b"\x1B&@\x1B$)B\xB0\x8Eq\x1Bnq\x1B}", "\\xb0\\x8e\\x71\\x71"),
            // An unknown sequence, and one that is cut short.
            (b"\x1B[3`q\x1B", "\\x1b[3`q\\x1b"),
            (b"\x9B\x8E\xFF\x7F", "\\x9b\\x8e\\xff\\x7f"),
        ] {
            assert_eq!(Text(bytes).to_string(), text, "{}", bytes.escape_ascii());
        }
    }
}
