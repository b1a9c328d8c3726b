//! Small values as bytes, without a caller's buffer.

use core::ops::Deref;

/// Up to 16 bytes of an encoded value; used as a slice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Short {
    bytes: [u8; 16],
    len: u8,
}

impl Short {
    /// The `n` low bytes of `value`, big-endian; `n` is 1 to 8.
    #[inline]
    pub(super) fn integer(value: u64, n: usize) -> Self {
        let mut short = Self::default();
        let moved = value << ((64 - 8 * n) & 63);
        if let Some(place) = short.bytes.first_chunk_mut() {
            *place = moved.to_be_bytes();
        }
        short.len = n as u8;
        short
    }

    /// Puts one byte in front of at most 15 bytes.
    #[inline]
    pub(super) fn after(mut self, first: u8) -> Self {
        self.bytes.copy_within(0..15, 1);
        self.bytes[0] = first;
        self.len = (self.len + 1).min(16);
        self
    }

    /// A copy of the first 16 bytes of `value`.
    #[inline]
    pub(super) fn copy(value: &[u8]) -> Self {
        let mut short = Self::default();
        for (to, from) in short.bytes.iter_mut().zip(value) {
            *to = *from;
            short.len += 1;
        }
        short
    }
}

impl Deref for Short {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Short {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
