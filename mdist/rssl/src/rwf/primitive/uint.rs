//! UINT: one to eight bytes, unsigned.

use super::Short;
use crate::{Error, Result};

/// Reads a UINT; `None` is blank.
///
/// # Errors
/// More than eight bytes.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<Option<u64>> {
    match load(bytes) {
        Some(value) => Ok(Some(value)),
        None if bytes.is_empty() => Ok(None),
        None => Err(Error::Malformed { what: "UINT", at: 0 }),
    }
}

/// The value of one to eight bytes, by overlapping loads of fixed size instead of a loop.
#[inline]
pub(super) fn load(bytes: &[u8]) -> Option<u64> {
    let n = bytes.len();
    if n > 8 {
        return None;
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u64::from(u32::from_be_bytes(*first)), u64::from(u32::from_be_bytes(*last)));
        return Some(first << (8 * (n - 4)) | last);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<2>(), bytes.last_chunk::<2>()) {
        let (first, last) = (u64::from(u16::from_be_bytes(*first)), u64::from(u16::from_be_bytes(*last)));
        return Some(first << (8 * (n - 2)) | last);
    }
    bytes.first().map(|b| u64::from(*b))
}

/// Number of bytes of the shortest form: 1 to 8.
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
    fn shortest_forms_round_trip() {
        for (value, bytes) in [
            (0, &[0][..]),
            (255, &[0xFF]),
            (256, &[1, 0]),
            (0xFF_FFFF, &[0xFF, 0xFF, 0xFF]),
            (u64::MAX, &[255; 8]),
        ] {
            assert_eq!((&*to_bytes(value), decode(bytes)), (bytes, Ok(Some(value))));
        }
        for n in 1..=8 {
            let bytes = [1, 2, 3, 4, 5, 6, 7, 0xFE];
            assert_eq!(decode(&bytes[..n]), Ok(Some(0x0102_0304_0506_07FE >> (64 - 8 * n))));
        }
        assert_eq!(decode(&[]), Ok(None));
        assert_eq!(decode(&[0, 0, 5]), Ok(Some(5)));
        assert!(decode(&[0; 9]).is_err());
    }
}
