//! UINT: one to eight bytes, unsigned.

use super::Short;
use crate::{Error, Result};

/// Reads it; `None` is blank.
///
/// # Errors
/// More than eight bytes.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<Option<u64>> {
    match bytes {
        [] => Ok(None),
        _ if bytes.len() <= 8 => Ok(Some(bytes.iter().fold(0, |v, &b| v << 8 | u64::from(b)))),
        _ => Err(Error::Malformed { what: "UINT", at: 0 }),
    }
}

/// Bytes of the shortest form: 1 to 8.
#[inline]
#[must_use]
pub const fn size(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(8)
}

/// The shortest form.
#[inline]
#[must_use]
pub fn to_bytes(value: u64) -> Short {
    Short::integer(value, size(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_forms_come_back() {
        for (value, bytes) in [
            (0, &[0][..]),
            (255, &[0xFF]),
            (256, &[1, 0]),
            (0xFF_FFFF, &[0xFF, 0xFF, 0xFF]),
            (u64::MAX, &[255; 8]),
        ] {
            assert_eq!((&*to_bytes(value), decode(bytes)), (bytes, Ok(Some(value))));
        }
        assert_eq!(decode(&[]), Ok(None));
        assert_eq!(decode(&[0, 0, 5]), Ok(Some(5)));
        assert!(decode(&[0; 9]).is_err());
    }
}
