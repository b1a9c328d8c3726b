//! DOUBLE: eight bytes, IEEE 754.

use crate::{Error, Result};

/// Reads a DOUBLE; `None` is blank.
///
/// # Errors
/// Neither 0 nor eight bytes.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<Option<f64>> {
    match bytes.first_chunk::<8>() {
        Some(chunk) if bytes.len() == 8 => Ok(Some(f64::from_be_bytes(*chunk))),
        None if bytes.is_empty() => Ok(None),
        _ => Err(Error::Malformed { what: "DOUBLE", at: 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        assert_eq!(decode(&1.5_f64.to_be_bytes()), Ok(Some(1.5)));
        assert_eq!(decode(&[]), Ok(None));
        assert!(decode(&[0; 3]).is_err() && decode(&[0; 9]).is_err());
    }
}
