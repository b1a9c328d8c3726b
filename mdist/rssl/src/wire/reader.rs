//! A cursor over received bytes.

use crate::{Error, Result};

/// Reads from the front of borrowed bytes. Every read is checked, and fails with [`Error::Short`] at their end.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// Offset of the end of `rest` in the original bytes.
    end: usize,
}

macro_rules! integer {
    ($name:ident, $bytes:literal) => {
        /// A big-endian integer.
        #[inline]
        pub fn $name(&mut self) -> Result<$name> {
            match self.rest.split_first_chunk::<$bytes>() {
                Some((bytes, rest)) => {
                    self.rest = rest;
                    Ok($name::from_be_bytes(*bytes))
                }
                None => Err(self.short($bytes)),
            }
        }
    };
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, end: bytes.len() }
    }

    /// Bytes not read yet.
    #[inline]
    #[must_use]
    pub const fn left(&self) -> usize {
        self.rest.len()
    }

    /// Whether all bytes were read.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Offset of the next byte in the original bytes.
    #[inline]
    #[must_use]
    pub const fn at(&self) -> usize {
        self.end - self.rest.len()
    }

    /// The unread bytes, which stay unread.
    #[inline]
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    integer!(u8, 1);
    integer!(u16, 2);
    integer!(u32, 4);
    integer!(u64, 8);
    integer!(i8, 1);
    integer!(i16, 2);
    integer!(i32, 4);

    /// The next `n` bytes.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(n) {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(bytes)
            }
            None => Err(self.short(n)),
        }
    }

    /// A reader of the next `n` bytes, which counts offsets as this one does.
    #[inline]
    pub fn inner(&mut self, n: usize) -> Result<Self> {
        let end = self.at() + n;
        Ok(Self { rest: self.bytes(n)?, end })
    }

    /// A number of 0 to 32767: one byte below 128, or two with the top bit set.
    #[inline]
    pub fn rb15(&mut self) -> Result<u16> {
        match *self.rest {
            [b, ref rest @ ..] if b < 0x80 => {
                self.rest = rest;
                Ok(u16::from(b))
            }
            [b, c, ref rest @ ..] => {
                self.rest = rest;
                Ok(u16::from_be_bytes([b & 0x7F, c]))
            }
            [_] => Err(self.short(2)),
            [] => Err(self.short(1)),
        }
    }

    /// A number of 0 to 65535: one byte below 254, or 254 (or 255) and two more.
    #[inline]
    pub fn ob16(&mut self) -> Result<u16> {
        match *self.rest {
            [b, ref rest @ ..] if b < 0xFE => {
                self.rest = rest;
                Ok(u16::from(b))
            }
            [_, b, c, ref rest @ ..] => {
                self.rest = rest;
                Ok(u16::from_be_bytes([b, c]))
            }
            [] => Err(self.short(1)),
            _ => Err(self.short(3)),
        }
    }

    /// A number of 0 to 2^30 - 1, in one to four bytes; the top two bits of the first give their number.
    #[inline]
    pub fn rb30(&mut self) -> Result<u32> {
        match *self.rest {
            [a, ref rest @ ..] if a < 0x40 => {
                self.rest = rest;
                Ok(u32::from(a))
            }
            [a, b, ref rest @ ..] if a & 0xC0 == 0x80 => {
                self.rest = rest;
                Ok(u32::from_be_bytes([0, 0, a & 0x3F, b]))
            }
            [a, b, c, ref rest @ ..] if a & 0xC0 == 0x40 => {
                self.rest = rest;
                Ok(u32::from_be_bytes([0, a & 0x3F, b, c]))
            }
            [a, b, c, d, ref rest @ ..] if a >= 0xC0 => {
                self.rest = rest;
                Ok(u32::from_be_bytes([a & 0x3F, b, c, d]))
            }
            [] => Err(self.short(1)),
            [a, ..] if a & 0xC0 == 0x80 => Err(self.short(2)),
            [a, ..] if a & 0xC0 == 0x40 => Err(self.short(3)),
            _ => Err(self.short(4)),
        }
    }

    /// Bytes after a length of one byte.
    #[inline]
    pub fn buf8(&mut self) -> Result<&'a [u8]> {
        let n = self.u8()?;
        self.bytes(usize::from(n))
    }

    /// Bytes after a [`Reader::rb15`] length.
    #[inline]
    pub fn buf15(&mut self) -> Result<&'a [u8]> {
        let n = self.rb15()?;
        self.bytes(usize::from(n))
    }

    /// Bytes after a [`Reader::ob16`] length.
    #[inline]
    pub fn buf16(&mut self) -> Result<&'a [u8]> {
        let n = self.ob16()?;
        self.bytes(usize::from(n))
    }

    /// A [`Reader::inner`] after a [`Reader::rb15`] length.
    #[inline]
    pub fn inner15(&mut self) -> Result<Self> {
        let n = self.rb15()?;
        self.inner(usize::from(n))
    }

    /// The error "the next byte has a value that is not allowed".
    #[cold]
    #[must_use]
    pub const fn malformed(&self, what: &'static str) -> Error {
        Error::Malformed { what, at: self.at() }
    }

    #[cold]
    const fn short(&self, need: usize) -> Error {
        Error::Short { what: "field", at: self.at(), need, have: self.rest.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_every_form_are_read() {
        let mut r = Reader::new(&[0x7F, 0x80, 0x05, 0xFF, 0xFF]);
        assert_eq!((r.rb15(), r.rb15(), r.rb15()), (Ok(0x7F), Ok(5), Ok(0x7FFF)));
        let mut r = Reader::new(&[0xFD, 0xFE, 0, 6, 0xFF, 1, 2]);
        assert_eq!((r.ob16(), r.ob16(), r.ob16()), (Ok(0xFD), Ok(6), Ok(0x102)));
        let mut r = Reader::new(&[0x3F, 0x80, 0x40, 0x40, 0x40, 0, 0xC0, 0x40, 0, 0]);
        assert_eq!((r.rb30(), r.rb30()), (Ok(63), Ok(64)));
        assert_eq!((r.rb30(), r.rb30()), (Ok(0x4000), Ok(0x40_0000)));
        assert!(r.is_empty());
    }

    #[test]
    fn truncated_lengths_are_errors_with_their_offset() {
        let mut r = Reader::new(&[1, 0xFE, 0]);
        r.u8().unwrap();
        assert_eq!(r.ob16(), Err(Error::Short { what: "field", at: 1, need: 3, have: 2 }));
        let mut r = Reader::new(&[0x80]);
        assert!(r.rb15().is_err());
        for cut in [&[0x80u8][..], &[0x40, 0], &[0xC0, 0, 0], &[]] {
            assert!(Reader::new(cut).rb30().is_err());
        }
    }

    #[test]
    fn inner_readers_keep_the_offsets_of_the_outer() {
        let mut r = Reader::new(&[9, 2, 7, 8, 5]);
        r.u8().unwrap();
        let mut inner = r.inner15().unwrap();
        assert_eq!(
            (inner.at(), inner.u8(), inner.at(), inner.u8(), inner.is_empty()),
            (2, Ok(7), 3, Ok(8), true)
        );
        assert_eq!((r.at(), r.u8()), (4, Ok(5)));
        assert!(Reader::new(&[5, 1]).inner15().is_err());
    }
}
