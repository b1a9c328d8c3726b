//! INT: one to eight bytes, two's complement.

use super::{Short, uint};
use crate::{Error, Result};

/// Reads an INT; `None` is blank.
///
/// # Errors
/// More than eight bytes.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<Option<i64>> {
    match uint::load(bytes) {
        Some(value) => {
            let above = 64 - 8 * bytes.len();
            Ok(Some((value << above).cast_signed() >> above))
        }
        None if bytes.is_empty() => Ok(None),
        None => Err(Error::Malformed { what: "INT", at: 0 }),
    }
}

/// Number of bytes of the shortest form: 1 to 8.
#[inline]
#[must_use]
pub const fn size(value: i64) -> usize {
    (64 - (value ^ (value >> 63)).leading_zeros() as usize) / 8 + 1
}

/// The shortest form.
#[inline]
#[must_use]
pub fn to_bytes(value: i64) -> Short {
    Short::integer(value.cast_unsigned(), size(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_forms_round_trip() {
        for (value, bytes) in [
            (0, &[0][..]),
            (127, &[0x7F]),
            (128, &[0, 0x80]),
            (-1, &[0xFF]),
            (-128, &[0x80]),
            (-129, &[0xFF, 0x7F]),
            (i64::MAX, &[0x7F, 255, 255, 255, 255, 255, 255, 255]),
            (i64::MIN, &[0x80, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!((&*to_bytes(value), decode(bytes)), (bytes, Ok(Some(value))));
        }
        for n in 1..=8 {
            for first in [1, 0x81] {
                let bytes = [first, 2, 3, 4, 5, 6, 7, 0xFE];
                let value = i64::from_be_bytes(bytes) >> (64 - 8 * n);
                assert_eq!(decode(&bytes[..n]), Ok(Some(value)));
            }
        }
        assert_eq!(decode(&[]), Ok(None));
        assert_eq!(decode(&[0xFF, 0xFF, 0xFE]), Ok(Some(-2)));
        assert!(decode(&[0; 9]).is_err());
    }
}
