//! FLOAT: four bytes, IEEE 754.

use crate::{Error, Result};

/// Reads a FLOAT; `None` is blank.
///
/// # Errors
/// Neither 0 nor four bytes.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<Option<f32>> {
    match bytes.first_chunk::<4>() {
        Some(chunk) if bytes.len() == 4 => Ok(Some(f32::from_be_bytes(*chunk))),
        None if bytes.is_empty() => Ok(None),
        _ => Err(Error::Malformed { what: "FLOAT", at: 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        assert_eq!(decode(&1.5_f32.to_be_bytes()), Ok(Some(1.5)));
        assert_eq!(decode(&[]), Ok(None));
        assert!(decode(&[0; 3]).is_err() && decode(&[0; 9]).is_err());
    }
}
