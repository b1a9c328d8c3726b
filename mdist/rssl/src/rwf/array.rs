//! ARRAY: values of one type. Spec: rssl.md §3.1.

use core::fmt;

use super::{DataType, Qos, Value, int, uint};
use crate::wire::{Reader, Writer};
use crate::{Error, Named, Result};

/// Values of one primitive type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array<'a> {
    /// Type of the values.
    pub data_type: DataType,
    /// Bytes of each value; 0 if each value has its own length.
    pub item_len: u16,
    /// Number of values, as announced.
    pub count: u16,
    items: &'a [u8],
}

impl<'a> Array<'a> {
    /// Reads everything before the values.
    ///
    /// # Errors
    /// Cut short.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut r = Reader::new(bytes);
        let data_type = DataType(r.u8().named("array type")?);
        let item_len = r.ob16().named("array item length")?;
        let count = r.u16().named("array count")?;
        Ok(Self { data_type, item_len, count, items: r.rest() })
    }

    /// The values, each as its bytes; strings of fixed length with their padding.
    #[must_use]
    pub const fn items(&self) -> Items<'a> {
        Items { r: Reader::new(self.items), left: self.count, item_len: self.item_len }
    }
}

impl fmt::Display for Array<'_> {
    /// The values in brackets, up to the first that cannot be read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, item) in self.items().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            // An array in an array is not legal; decoding it would recurse without end.
            match item.and_then(|bytes| match self.data_type {
                DataType::ARRAY => Ok(Value::Buffer(bytes)),
                other => Value::decode(other, bytes),
            }) {
                Ok(value) => value.fmt(f)?,
                Err(e) => write!(f, "({e})")?,
            }
        }
        f.write_str("]")
    }
}

/// Values of an [`Array`]; ends after the first error.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    r: Reader<'a>,
    left: u16,
    item_len: u16,
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<&'a [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let item = if self.item_len == 0 { self.r.buf16() } else { self.r.bytes(usize::from(self.item_len)) };
        if item.is_err() {
            self.left = 0;
        }
        Some(item.named("array item"))
    }
}

/// Writes an array; the count is filled in by [`ArrayWriter::finish`]. Functions that write a whole array have the
/// errors of [`ArrayWriter::item`].
#[derive(Debug)]
pub struct ArrayWriter<'w, 'b> {
    w: &'w mut Writer<'b>,
    data_type: DataType,
    item_len: u16,
    count_at: usize,
    count: u16,
}

impl<'w, 'b> ArrayWriter<'w, 'b> {
    /// Begins an array of values of `item_len` bytes each; 0 if each has its own length.
    pub fn new(w: &'w mut Writer<'b>, data_type: DataType, item_len: u16) -> Result<Self> {
        w.u8(data_type.0)?;
        w.ob16(item_len)?;
        let count_at = w.len();
        w.u16(0)?;
        Ok(Self { w, data_type, item_len, count_at, count: 0 })
    }

    /// One value. In arrays of fixed length, integers are extended, buffers padded with zeros and strings with blanks.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooLong`] for a value longer than the fixed length, or more than 65535 values.
    pub fn item(&mut self, bytes: &[u8]) -> Result<()> {
        self.count = self.count.checked_add(1).ok_or(Error::TooLong {
            what: "array",
            len: usize::from(self.count) + 1,
            max: 65535,
        })?;
        if self.item_len == 0 {
            return self.w.buf16(bytes).named("array item");
        }
        let max = usize::from(self.item_len);
        let missing = max.checked_sub(bytes.len()).ok_or(Error::TooLong {
            what: "array item",
            len: bytes.len(),
            max,
        })?;
        let sign = bytes.first().is_some_and(|b| b & 0x80 != 0);
        let (before, fill) = match self.data_type {
            DataType::INT => (true, if sign { 0xFF } else { 0 }),
            DataType::UINT | DataType::ENUM => (true, 0),
            DataType::ASCII_STRING | DataType::UTF8_STRING | DataType::RMTES_STRING => (false, b' '),
            _ => (false, 0),
        };
        if !before {
            self.w.bytes(bytes)?;
        }
        for _ in 0..missing {
            self.w.u8(fill)?;
        }
        if before { self.w.bytes(bytes) } else { Ok(()) }
    }

    /// Fills in the count.
    pub fn finish(self) -> Result<()> {
        self.w.set_u16(self.count_at, self.count)
    }
}

/// Writes an array of unsigned integers. Each has 1, 2, 4 or 8 bytes: the smallest length that all of them fit.
pub fn write_uints(w: &mut Writer<'_>, values: &[u64]) -> Result<()> {
    let most = values.iter().map(|v| uint::size(*v)).max().unwrap_or(1);
    let mut array = ArrayWriter::new(w, DataType::UINT, most.next_power_of_two() as u16)?;
    values.iter().try_for_each(|v| array.item(&uint::to_bytes(*v)))?;
    array.finish()
}

/// Writes an array of integers of `item_len` bytes each (1, 2, 4 or 8; 0 if each has its own length).
pub fn write_ints(w: &mut Writer<'_>, item_len: u16, values: &[i64]) -> Result<()> {
    let mut array = ArrayWriter::new(w, DataType::INT, item_len)?;
    values.iter().try_for_each(|v| array.item(&int::to_bytes(*v)))?;
    array.finish()
}

/// Writes an array of strings of type `data_type`, each with its length.
pub fn write_strings(w: &mut Writer<'_>, data_type: DataType, values: &[impl AsRef<[u8]>]) -> Result<()> {
    let mut array = ArrayWriter::new(w, data_type, 0)?;
    values.iter().try_for_each(|v| array.item(v.as_ref()))?;
    array.finish()
}

/// Writes an array of qualities of service.
pub fn write_qos(w: &mut Writer<'_>, values: &[Qos]) -> Result<()> {
    let mut array = ArrayWriter::new(w, DataType::QOS, 0)?;
    for value in values {
        let mut bytes = [0; 5];
        let mut item = Writer::new(&mut bytes);
        value.write(&mut item)?;
        array.item(item.written())?;
    }
    array.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::to_vec;

    fn items(bytes: &[u8]) -> Vec<Vec<u8>> {
        Array::decode(bytes).unwrap().items().map(|i| i.unwrap().to_vec()).collect()
    }

    #[test]
    fn arrays_round_trip() {
        let bytes = to_vec(|w| write_uints(w, &[5, 6])).unwrap();
        assert_eq!(bytes, [4, 1, 0, 2, 5, 6]);
        let bytes = to_vec(|w| write_uints(w, &[5, 0x1_0000])).unwrap();
        assert_eq!((bytes[1], items(&bytes)), (4, vec![vec![0, 0, 0, 5], vec![0, 1, 0, 0]]));
        let bytes = to_vec(|w| write_ints(w, 2, &[-2, 22])).unwrap();
        assert_eq!(bytes, [3, 2, 0, 2, 0xFF, 0xFE, 0, 22]);
        assert_eq!(Array::decode(&bytes).unwrap().to_string(), "[-2, 22]");
        let bytes = to_vec(|w| write_strings(w, DataType::ASCII_STRING, &["TRI", ""])).unwrap();
        assert_eq!(items(&bytes), [&b"TRI"[..], b""]);
        let bytes = to_vec(|w| write_qos(w, &[Qos::REALTIME_TICK])).unwrap();
        assert_eq!(bytes, [0x0C, 0, 0, 1, 1, 0x22]);
        let padded = to_vec(|w| {
            let mut a = ArrayWriter::new(w, DataType::ASCII_STRING, 4)?;
            a.item(b"ab")?;
            a.finish()
        });
        assert_eq!(items(&padded.unwrap()), [b"ab  "]);
    }

    #[test]
    fn values_that_do_not_fit_and_prefixes_are_errors() {
        assert!(to_vec(|w| write_ints(w, 1, &[300])).is_err());
        // The long form of the item length, and a count beyond the bytes.
        let array = Array::decode(&[4, 0xFE, 0, 1, 0, 3, 9]).unwrap();
        let found: Vec<_> = array.items().collect();
        assert_eq!((found.len(), found[0], found[1].is_err()), (2, Ok(&[9][..]), true));
        for n in 0..4 {
            assert!(Array::decode(&[4, 1, 0, 0][..n]).is_err());
        }
    }
}
