//! RMTES: text of several character sets, with edits of cached text. Spec: rssl.md §3.2.

use core::fmt;

/// Shows the UTF-8 in some bytes; what is not UTF-8, and control characters, is escaped.
pub(super) struct Utf8<'a>(pub(super) &'a [u8]);

impl fmt::Display for Utf8<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() || c == '"' || c == '\\' {
                    write!(f, "{}", c.escape_default())?;
                } else {
                    fmt::Write::write_char(f, c)?;
                }
            }
            write!(f, "{}", chunk.invalid().escape_ascii())?;
        }
        Ok(())
    }
}
