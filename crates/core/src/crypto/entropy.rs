//! Random keys from a secret that the owner of the node provides.

use zeroize::Zeroizing;

use super::aead::Aead;
use super::key::{Key, KeyError, MAX_KEY};

/// Generates unpredictable keys from the system's randomness: parts of the key stream of AES-256.
#[derive(Debug)]
pub(super) struct Entropy {
    aead: Aead,
    drawn: u64,
}

impl Entropy {
    /// `secret`: 36 bytes of the system's randomness.
    pub(super) fn new(secret: &[u8; MAX_KEY]) -> Result<Self, KeyError> {
        Ok(Self { aead: Aead::new(&Key::new(secret)?), drawn: 0 })
    }

    /// A random number.
    pub(super) fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.drawn += 1;
        self.aead.seal(self.aead.nonce(0, self.drawn), &[], &mut bytes);
        u64::from_be_bytes(bytes)
    }

    /// A new key of the same length as another one.
    pub(super) fn key_like(&mut self, template: &Key) -> Result<Key, KeyError> {
        let mut bytes = Zeroizing::new(vec![0; template.bytes().len()]);
        self.drawn += 1;
        self.aead.seal(self.aead.nonce(0, self.drawn), &[], &mut bytes);
        Key::new(&bytes)
    }
}
