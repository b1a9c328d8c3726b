//! A cursor over an output buffer.

use crate::limits::{MAX_BUF15, MAX_ENTRY, MAX_MESSAGE};
use crate::{Error, Result};

/// Writes into a borrowed buffer. At its end every method that writes fails with [`Error::Full`]; its content is
/// incomplete then.
#[derive(Debug)]
pub struct Writer<'b> {
    buf: &'b mut [u8],
    len: usize,
}

macro_rules! integer {
    ($name:ident) => {
        /// A big-endian integer.
        #[inline]
        pub fn $name(&mut self, value: $name) -> Result<()> {
            self.array(value.to_be_bytes())
        }
    };
}

impl<'b> Writer<'b> {
    /// A writer at the start of `buf`.
    #[inline]
    #[must_use]
    pub const fn new(buf: &'b mut [u8]) -> Self {
        Self { buf, len: 0 }
    }

    /// Bytes written.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that still fit.
    #[inline]
    #[must_use]
    pub const fn left(&self) -> usize {
        self.buf.len() - self.len
    }

    /// The bytes written.
    #[inline]
    #[must_use]
    pub fn written(&self) -> &[u8] {
        self.buf.get(..self.len).unwrap_or_default()
    }

    /// Removes everything after the first `len` bytes.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    #[inline]
    fn array<const N: usize>(&mut self, value: [u8; N]) -> Result<()> {
        match self.buf.get_mut(self.len..).and_then(|rest| rest.first_chunk_mut::<N>()) {
            Some(place) => {
                *place = value;
                self.len += N;
                Ok(())
            }
            None => Err(Error::Full),
        }
    }

    integer!(u8);
    integer!(u16);
    integer!(u32);
    integer!(u64);
    integer!(i8);
    integer!(i16);
    integer!(i32);

    /// The next `n` bytes of the buffer.
    #[inline]
    fn place(&mut self, n: usize) -> Result<&mut [u8]> {
        let rest = self.buf.get_mut(self.len..).unwrap_or_default();
        match rest.get_mut(..n) {
            Some(place) => {
                self.len += n;
                Ok(place)
            }
            None => Err(Error::Full),
        }
    }

    /// Writes bytes unchanged.
    #[inline]
    pub fn bytes(&mut self, value: &[u8]) -> Result<()> {
        self.place(value.len())?.copy_from_slice(value);
        Ok(())
    }

    /// `N` bytes, and after them the `n` low bytes of `value`, big-endian; `n` is 1 to 8.
    #[inline]
    pub(crate) fn head_and_low_bytes<const N: usize>(
        &mut self,
        head: [u8; N],
        value: u64,
        n: usize,
    ) -> Result<()> {
        let low = (value << ((64 - 8 * n) & 63)).to_be_bytes();
        // With space for eight bytes this is one store; the bytes after `n` are overwritten later.
        let rest = self.buf.get_mut(self.len..).unwrap_or_default();
        if let Some((first, rest)) = rest.split_first_chunk_mut::<N>()
            && let Some(place) = rest.first_chunk_mut()
        {
            *first = head;
            *place = low;
            self.len += N + n;
            return Ok(());
        }
        self.array(head)?;
        self.bytes(low.get(..n).unwrap_or(&low))
    }

    /// `N` bytes that end with a one-byte length, and the bytes of that length, at most 253.
    #[inline]
    pub(crate) fn head_and_short<const N: usize>(&mut self, head: [u8; N], value: &[u8]) -> Result<()> {
        let place = self.place(N + value.len())?;
        if let Some((first, rest)) = place.split_first_chunk_mut::<N>() {
            *first = head;
            copy_short(rest, value);
        }
        Ok(())
    }

    /// Writes a number: one byte below 128, else two with the top bit set.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooLong`] above 32767.
    #[inline]
    pub fn rb15(&mut self, value: u16) -> Result<()> {
        if value < 0x80 {
            self.array([value.to_be_bytes()[1]])
        } else if value <= 0x7FFF {
            self.u16(value | 0x8000)
        } else {
            Err(too_long(usize::from(value), MAX_BUF15))
        }
    }

    /// Writes a number: one byte below 254, else 254 and two more.
    #[inline]
    pub fn ob16(&mut self, value: u16) -> Result<()> {
        let [high, low] = value.to_be_bytes();
        if value < 0xFE { self.array([low]) } else { self.array([0xFE, high, low]) }
    }

    /// Writes a number of one to four bytes; the top two bits of the first give their number.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooLong`] at 2^30 and above.
    #[inline]
    pub fn rb30(&mut self, value: u32) -> Result<()> {
        let [a, b, c, d] = value.to_be_bytes();
        match value {
            0..0x40 => self.array([d]),
            0x40..0x4000 => self.array([c | 0x80, d]),
            0x4000..0x40_0000 => self.array([b | 0x40, c, d]),
            0x40_0000..0x4000_0000 => self.array([a | 0xC0, b, c, d]),
            _ => Err(too_long(value as usize, 0x3FFF_FFFF)),
        }
    }

    /// Bytes after a length of one byte.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooLong`] above 255 bytes.
    #[inline]
    pub fn buf8(&mut self, value: &[u8]) -> Result<()> {
        let n = u8::try_from(value.len()).map_err(|_| too_long(value.len(), 0xFF))?;
        self.u8(n)?;
        self.bytes(value)
    }

    /// Bytes after a [`Writer::rb15`] length.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooLong`] above 32767 bytes.
    #[inline]
    pub fn buf15(&mut self, value: &[u8]) -> Result<()> {
        let n = u16::try_from(value.len()).map_err(|_| too_long(value.len(), MAX_BUF15))?;
        self.rb15(n)?;
        self.bytes(value)
    }

    /// Bytes after a [`Writer::ob16`] length.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooLong`] above 65535 bytes.
    #[inline]
    pub fn buf16(&mut self, value: &[u8]) -> Result<()> {
        let n = u16::try_from(value.len()).map_err(|_| too_long(value.len(), MAX_ENTRY))?;
        self.ob16(n)?;
        self.bytes(value)
    }

    /// The bytes that `f` writes, after their length in the two-byte form of [`Writer::rb15`].
    ///
    /// # Errors
    /// Those of `f`; [`Error::Full`]; [`Error::TooLong`] above 32767 bytes.
    #[inline]
    pub fn nested15(&mut self, f: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let at = self.len;
        self.u16(0)?;
        f(self)?;
        let n = self.length_from(at + 2, MAX_BUF15)?;
        self.patch(at, (n | 0x8000).to_be_bytes())
    }

    /// The bytes that `f` writes, after their length in the three-byte form of [`Writer::ob16`].
    ///
    /// # Errors
    /// Those of `f`; [`Error::Full`]; [`Error::TooLong`] above 65535 bytes.
    #[inline]
    pub fn nested16(&mut self, f: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let at = self.len;
        self.array([0xFE, 0, 0])?;
        f(self)?;
        let n = self.length_from(at + 3, MAX_ENTRY)?;
        self.patch(at + 1, n.to_be_bytes())
    }

    /// The bytes that `f` writes, after their length as a plain 16-bit integer: the header of a message.
    ///
    /// # Errors
    /// Those of `f`; [`Error::Full`]; [`Error::TooLong`] above 65535 bytes.
    #[inline]
    pub fn nested_header(&mut self, f: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let at = self.len;
        self.u16(0)?;
        f(self)?;
        let n = self.length_from(at + 2, MAX_ENTRY)?;
        self.patch(at, n.to_be_bytes())
    }

    /// Overwrites the 16-bit integer at offset `at`: a count that is known only at the end.
    ///
    /// # Errors
    /// [`Error::Full`] if nothing was written there.
    #[inline]
    pub fn set_u16(&mut self, at: usize, value: u16) -> Result<()> {
        self.patch(at, value.to_be_bytes())
    }

    /// Overwrites the byte at offset `at`.
    ///
    /// # Errors
    /// [`Error::Full`] if nothing was written there.
    #[inline]
    pub fn set_u8(&mut self, at: usize, value: u8) -> Result<()> {
        self.patch(at, [value])
    }

    #[inline]
    fn length_from(&self, start: usize, max: usize) -> Result<u16> {
        // A closure may truncate the writer below its own start.
        let n = self.len.checked_sub(start).ok_or(Error::Full)?;
        if n > max { Err(too_long(n, max)) } else { u16::try_from(n).map_err(|_| too_long(n, max)) }
    }

    #[inline]
    fn patch<const N: usize>(&mut self, at: usize, value: [u8; N]) -> Result<()> {
        let written = self.buf.get_mut(..self.len).and_then(|b| b.get_mut(at..));
        *written.and_then(|b| b.first_chunk_mut::<N>()).ok_or(Error::Full)? = value;
        Ok(())
    }
}

/// Copies `from` to `to`, which has the same length. Values are short: two overlapping moves cost less than a call.
#[inline]
fn copy_short(to: &mut [u8], from: &[u8]) {
    if let (Some(a), Some(b)) = (from.first_chunk::<8>(), from.last_chunk::<8>())
        && from.len() <= 16
    {
        if let Some(place) = to.first_chunk_mut::<8>() {
            *place = *a;
        }
        if let Some(place) = to.last_chunk_mut::<8>() {
            *place = *b;
        }
    } else if from.len() > 16 {
        to.copy_from_slice(from);
    } else {
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from;
        }
    }
}

#[cold]
const fn too_long(len: usize, max: usize) -> Error {
    Error::TooLong { what: "field", len, max }
}

/// Returns the bytes that `f` writes to a buffer that grows up to [`MAX_MESSAGE`] bytes. If the buffer is too small,
/// `f` is called again from the start.
///
/// # Errors
/// Those of `f`; [`Error::TooLong`] if it writes more than [`MAX_MESSAGE`] bytes.
pub fn to_vec(mut f: impl FnMut(&mut Writer<'_>) -> Result<()>) -> Result<Vec<u8>> {
    let mut buf = vec![0; 1024];
    loop {
        let mut w = Writer::new(&mut buf);
        match f(&mut w) {
            Ok(()) => {
                let n = w.len();
                buf.truncate(n);
                return Ok(buf);
            }
            Err(Error::Full) if buf.len() < MAX_MESSAGE => {
                let n = (buf.len() * 8).min(MAX_MESSAGE);
                buf.resize(n, 0);
            }
            Err(Error::Full) => {
                return Err(Error::TooLong { what: "message", len: MAX_MESSAGE + 1, max: MAX_MESSAGE });
            }
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reader;
    use super::*;

    #[test]
    fn lengths_round_trip() {
        for v in [0, 1, 0x7F, 0x80, 0xFD, 0xFE, 0xFF, 0x100, 0x7FFF] {
            let b = to_vec(|w| w.rb15(v)).unwrap();
            assert_eq!(Reader::new(&b).rb15(), Ok(v));
        }
        for v in [0, 1, 0xFD, 0xFE, 0xFF, 0x100, 0xFFFF] {
            let b = to_vec(|w| w.ob16(v)).unwrap();
            assert_eq!(Reader::new(&b).ob16(), Ok(v));
        }
        for v in [0, 0x3F, 0x40, 0x3FFF, 0x4000, 0x3F_FFFF, 0x40_0000, 0x3FFF_FFFF] {
            let b = to_vec(|w| w.rb30(v)).unwrap();
            assert_eq!(Reader::new(&b).rb30(), Ok(v));
        }
        assert!(to_vec(|w| w.rb15(0x8000)).is_err());
        assert!(to_vec(|w| w.rb30(0x4000_0000)).is_err());
    }

    #[test]
    fn nested_parts_are_preceded_by_their_length() {
        assert_eq!(to_vec(|w| w.nested15(|w| w.u8(7))).unwrap(), [0x80, 1, 7]);
        assert_eq!(to_vec(|w| w.nested16(|w| w.u8(7))).unwrap(), [0xFE, 0, 1, 7]);
        assert_eq!(to_vec(|w| w.nested_header(|w| w.u8(7))).unwrap(), [0, 1, 7]);
        let long = vec![0; 0x8000];
        assert!(matches!(to_vec(|w| w.nested15(|w| w.bytes(&long))), Err(Error::TooLong { .. })));
    }

    #[test]
    fn full_buffers_are_errors_and_to_vec_grows() {
        let mut small = [0; 3];
        let mut w = Writer::new(&mut small);
        assert_eq!((w.u16(1), w.u16(2), w.left()), (Ok(()), Err(Error::Full), 1));
        assert_eq!(w.set_u16(2, 5), Err(Error::Full));
        let big = vec![3; 100_000];
        assert_eq!(to_vec(|w| w.bytes(&big)).unwrap(), big);
        let endless = to_vec(|w| {
            loop {
                w.u64(0)?;
            }
        });
        assert!(matches!(endless, Err(Error::TooLong { what: "message", .. })));
    }
}
