//! ENUM: a number whose meaning is in a dictionary.

use core::fmt;

use super::{Short, uint};
use crate::{Error, Result};

/// Value of an enumerated field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Enum(pub u16);

impl Enum {
    /// Reads an ENUM of one or two bytes; `None` is blank.
    ///
    /// # Errors
    /// More than two bytes.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        match *bytes {
            [] => Ok(None),
            [a] => Ok(Some(Self(u16::from(a)))),
            [a, b] => Ok(Some(Self(u16::from_be_bytes([a, b])))),
            _ => Err(Error::Malformed { what: "ENUM", at: 0 }),
        }
    }

    /// The shortest form: one byte below 256.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> Short {
        uint::to_bytes(u64::from(self.0))
    }
}

impl fmt::Display for Enum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_two_byte_forms_round_trip() {
        assert_eq!(Enum::decode(&[]), Ok(None));
        assert_eq!(Enum::decode(&[0, 9]), Ok(Some(Enum(9))));
        for value in [0, 255, 256, 65535] {
            assert_eq!(Enum::decode(&Enum(value).to_bytes()), Ok(Some(Enum(value))));
        }
        assert!(Enum::decode(&[0; 3]).is_err());
    }
}
