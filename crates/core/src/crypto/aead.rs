//! AES-GCM over libraries: the cipher of a key, and its nonces (decision 30). Spec: tipc.md §12.2, §12.3.

use aes_gcm::aead::consts::U12;
use aes_gcm::aes::Aes192;
use aes_gcm::{AeadInOut, Aes128Gcm, Aes256Gcm, AesGcm, KeyInit};
use zeroize::Zeroizing;

use super::key::{Key, SALT};

/// Size of the authentication tag, bytes.
pub(super) const TAG: usize = 16;

/// A nonce: varied salt and sequence number.
type Nonce = [u8; 12];

/// The expanded key; the libraries overwrite it when it is dropped.
enum Cipher {
    /// A key of 128 or 256 bits on a processor with the instructions that the fast library needs.
    Fast(fast::Cipher),
    Short(Box<Aes128Gcm>),
    Medium(Box<AesGcm<Aes192, U12>>),
    Long(Box<Aes256Gcm>),
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod fast {
    use super::{Nonce, TAG};

    pub(super) struct Cipher(Box<graviola::aead::AesGcm>);

    impl Cipher {
        pub(super) fn new(key: &[u8]) -> Option<Self> {
            let usable = matches!(key.len(), 16 | 32) && graviola::util::is_cpu_supported();
            usable.then(|| Self(Box::new(graviola::aead::AesGcm::new(key))))
        }

        pub(super) fn seal(&self, nonce: &Nonce, header: &[u8], text: &mut [u8]) -> Option<[u8; TAG]> {
            let mut tag = [0; TAG];
            self.0.encrypt(nonce, header, text, &mut tag);
            Some(tag)
        }

        pub(super) fn open(&self, nonce: &Nonce, header: &[u8], text: &mut [u8], tag: &[u8; TAG]) -> bool {
            self.0.decrypt(nonce, header, text, tag).is_ok()
        }
    }
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod fast {
    use super::{Nonce, TAG};

    pub(super) enum Cipher {}

    impl Cipher {
        pub(super) fn new(_: &[u8]) -> Option<Self> {
            None
        }

        pub(super) fn seal(&self, _: &Nonce, _: &[u8], _: &mut [u8]) -> Option<[u8; TAG]> {
            match *self {}
        }

        pub(super) fn open(&self, _: &Nonce, _: &[u8], _: &mut [u8], _: &[u8; TAG]) -> bool {
            match *self {}
        }
    }
}

/// A key ready for use.
pub struct Aead {
    cipher: Cipher,
    salt: [u8; SALT],
    fingerprint: u64,
}

impl core::fmt::Debug for Aead {
    /// Omits the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Aead")
    }
}

impl Aead {
    /// Expands a key.
    #[must_use]
    pub fn new(key: &Key) -> Self {
        let (bytes, salt) = key.parts();
        let cipher = fast::Cipher::new(bytes).map_or_else(|| portable(bytes), Cipher::Fast);
        let mut aead = Self { cipher, salt, fingerprint: 0 };
        // No frame has the number 0.
        let tag = aead.seal(aead.nonce(0, 0), &[], &mut []).unwrap_or_default();
        aead.fingerprint = tag.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        aead
    }

    /// A number that tells this key from others and does not disclose it.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    #[cfg(test)]
    pub(super) fn portable(key: &Key) -> Self {
        let (bytes, salt) = key.parts();
        Self { cipher: portable(bytes), salt, fingerprint: 0 }
    }

    /// The nonce of a frame: the salt varied by the bytes of a node address from the lowest on, then the number.
    #[must_use]
    pub fn nonce(&self, variation: u32, seqno: u64) -> Nonce {
        let mut nonce = Nonce::default();
        let salt = self.salt.iter().zip(variation.to_le_bytes()).map(|(salt, byte)| salt ^ byte);
        let bytes = salt.chain(seqno.to_be_bytes());
        nonce.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        nonce
    }

    /// Encrypts `text` in place; returns the tag over `header` and the result. `None` if the text is longer than the
    /// algorithm allows.
    pub fn seal(&self, nonce: Nonce, header: &[u8], text: &mut [u8]) -> Option<[u8; TAG]> {
        let number = &nonce.into();
        let tag = match &self.cipher {
            Cipher::Fast(cipher) => return cipher.seal(&nonce, header, text),
            Cipher::Short(cipher) => cipher.encrypt_inout_detached(number, header, text.into()),
            Cipher::Medium(cipher) => cipher.encrypt_inout_detached(number, header, text.into()),
            Cipher::Long(cipher) => cipher.encrypt_inout_detached(number, header, text.into()),
        };
        tag.ok().map(Into::into)
    }

    /// Decrypts `text` in place; false if the tag is not that of `header` and `text`, which is then meaningless.
    #[must_use]
    pub fn open(&self, nonce: Nonce, header: &[u8], text: &mut [u8], tag: [u8; TAG]) -> bool {
        let (number, expected) = (&nonce.into(), &tag.into());
        let opened = match &self.cipher {
            Cipher::Fast(cipher) => return cipher.open(&nonce, header, text, &tag),
            Cipher::Short(cipher) => cipher.decrypt_inout_detached(number, header, text.into(), expected),
            Cipher::Medium(cipher) => cipher.decrypt_inout_detached(number, header, text.into(), expected),
            Cipher::Long(cipher) => cipher.decrypt_inout_detached(number, header, text.into(), expected),
        };
        opened.is_ok()
    }
}

fn portable(key: &[u8]) -> Cipher {
    if let Ok(cipher) = Aes128Gcm::new_from_slice(key) {
        Cipher::Short(Box::new(cipher))
    } else if let Ok(cipher) = AesGcm::new_from_slice(key) {
        Cipher::Medium(Box::new(cipher))
    } else {
        let whole: Zeroizing<[u8; 32]> = Zeroizing::new(key.first_chunk().copied().unwrap_or_default());
        Cipher::Long(Box::new(Aes256Gcm::new((&*whole).into())))
    }
}
