//! Keys as an operator or a peer hands them over. Spec: tipc.md §12.1.

use core::fmt;

use thiserror::Error;
use zeroize::Zeroizing;

/// The only algorithm that TIPC nodes accept.
pub const ALGORITHM: &str = "gcm(aes)";
/// Length of an algorithm's name in a message, bytes, NUL padded.
pub const ALGORITHM_LEN: usize = 32;
/// Salt at the end of a key, bytes.
pub(super) const SALT: usize = 4;
/// The longest key with its salt, bytes.
pub const MAX_KEY: usize = 32 + SALT;

/// Which nodes send under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All nodes of the cluster.
    Cluster,
    /// One node; the others only receive with it.
    PerNode,
}

impl Mode {
    /// The number in a key distribution message.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Cluster => 1,
            Self::PerNode => 2,
        }
    }

    /// The mode with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Cluster),
            2 => Some(Self::PerNode),
            _ => None,
        }
    }
}

/// Reason why a key is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Another algorithm than AES-GCM.
    #[error("unknown algorithm (only \"gcm(aes)\" is supported)")]
    Algorithm,
    /// Not 16, 24 or 32 bytes of key and 4 of salt.
    #[error("a key of {0} bytes (20, 28 or 36 are needed: AES key and 4 bytes of salt)")]
    Length(usize),
    /// Not a hexadecimal number with an even number of digits.
    #[error("not a hexadecimal key (an even number of digits, with or without 0x)")]
    Hex,
}

/// AES key and salt; overwritten with zeros when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Zeroizing<Vec<u8>>);

impl Key {
    /// A key of 16, 24 or 32 bytes followed by 4 bytes of salt.
    ///
    /// # Errors
    /// [`KeyError::Length`].
    pub fn new(bytes: &[u8]) -> Result<Self, KeyError> {
        match bytes.len() {
            20 | 28 | 36 => Ok(Self(Zeroizing::new(bytes.to_vec()))),
            other => Err(KeyError::Length(other)),
        }
    }

    /// A key for the algorithm with this name.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn for_algorithm(name: &[u8], bytes: &[u8]) -> Result<Self, KeyError> {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        if name == ALGORITHM.as_bytes() { Self::new(bytes) } else { Err(KeyError::Algorithm) }
    }

    /// A key as a hexadecimal number, with or without `0x`.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
        let (pairs, []) = digits.as_chunks::<2>() else { return Err(KeyError::Hex) };
        let digit = |d: u8| char::from(d).to_digit(16).map(|d| d as u8);
        let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        Self::new(&Zeroizing::new(bytes.ok_or(KeyError::Hex)?))
    }

    /// Key and salt.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The AES key, and the salt.
    pub(super) fn parts(&self) -> (&[u8], [u8; SALT]) {
        self.0.split_last_chunk::<SALT>().map_or((&[], [0; SALT]), |(key, salt)| (key, *salt))
    }
}

impl fmt::Debug for Key {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key of {} bits", (self.0.len() - SALT) * 8)
    }
}
