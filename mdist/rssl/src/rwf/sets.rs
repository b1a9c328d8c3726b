//! Set definitions: the ids and types of the entries of a set, so that only values are sent. Spec: rssl.md §4.3.
//!
//! Containers carry *local* definitions (ids 0 to 15). *Global* ones (16 and up) of dictionaries are not supported.

use super::DataType;
use crate::limits::MAX_LOCAL_SETS;
use crate::wire::{Reader, Writer};
use crate::{Error, Named, Result};

/// The entries of each local set; `None` if it is not defined.
#[derive(Clone, Copy, Debug, Default)]
struct Table<'a>([Option<&'a [u8]>; MAX_LOCAL_SETS]);

impl<'a> Table<'a> {
    fn decode(bytes: &'a [u8], skip_entry: impl Fn(&mut Reader<'a>) -> Result<()>) -> Result<Self> {
        let mut table = Self::default();
        if bytes.is_empty() {
            return Ok(table);
        }
        let mut r = Reader::new(bytes);
        r.u8().named("set definition flags")?;
        for _ in 0..r.u8().named("set definition count")? {
            let bad = r.malformed("set id");
            let id = r.rb15().named("set id")?;
            let entries = r.u8().named("set entry count")?;
            let from = r;
            for _ in 0..entries {
                skip_entry(&mut r)?;
            }
            let n = from.left() - r.left();
            *table.0.get_mut(usize::from(id)).ok_or(bad)? = from.rest().get(..n);
        }
        Ok(table)
    }

    fn get(&self, id: u16) -> Result<&'a [u8]> {
        self.0.get(usize::from(id)).copied().flatten().ok_or(Error::NoSet(id))
    }
}

macro_rules! sets {
    ($(#[$doc:meta])* $name:ident, $skip:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name<'a>(Table<'a>);

        impl<'a> $name<'a> {
            /// Reads the definitions of a container; no bytes mean no definitions.
            ///
            /// # Errors
            /// Cut short, or an id above 15.
            pub fn decode(definitions: &'a [u8]) -> Result<Self> {
                Table::decode(definitions, $skip).map(Self)
            }

            /// Entries of a set, as on the wire.
            #[inline]
            pub(super) fn get(&self, id: u16) -> Result<&'a [u8]> {
                self.0.get(id)
            }
        }
    };
}

sets!(
    /// Definitions that field lists refer to.
    FieldSets,
    |r: &mut Reader<'a>| r.bytes(3).named("set entry").map(drop)
);
sets!(
    /// Definitions that element lists refer to.
    ElementSets,
    |r: &mut Reader<'a>| {
        r.buf15().named("set entry name")?;
        r.u8().named("set entry type").map(drop)
    }
);

/// Writes definitions of sets of fields, to be carried in a container.
///
/// # Errors
/// [`Error::Full`], [`Error::TooLong`] for more than 255 sets or entries.
pub fn write_field_sets(w: &mut Writer<'_>, sets: &[(u16, &[(i16, DataType)])]) -> Result<()> {
    write_head(w, sets.len())?;
    for (id, fields) in sets {
        write_set_head(w, *id, fields.len())?;
        for (fid, data_type) in *fields {
            w.i16(*fid)?;
            w.u8(data_type.0)?;
        }
    }
    Ok(())
}

/// A set of elements: its id, and name and type of each entry.
pub type ElementSet<'a> = (u16, &'a [(&'a [u8], DataType)]);

/// Writes definitions of sets of elements, to be carried in a container.
///
/// # Errors
/// [`Error::Full`], [`Error::TooLong`] for more than 255 sets or entries or a name that is too long.
pub fn write_element_sets(w: &mut Writer<'_>, sets: &[ElementSet<'_>]) -> Result<()> {
    write_head(w, sets.len())?;
    for (id, elements) in sets {
        write_set_head(w, *id, elements.len())?;
        for (name, data_type) in *elements {
            w.buf15(name).named("element name")?;
            w.u8(data_type.0)?;
        }
    }
    Ok(())
}

fn write_head(w: &mut Writer<'_>, sets: usize) -> Result<()> {
    w.u8(0)?;
    w.u8(u8::try_from(sets).map_err(|_| Error::TooLong { what: "set definitions", len: sets, max: 255 })?)
}

fn write_set_head(w: &mut Writer<'_>, id: u16, entries: usize) -> Result<()> {
    w.rb15(id).named("set id")?;
    w.u8(u8::try_from(entries).map_err(|_| Error::TooLong { what: "set", len: entries, max: 255 })?)
}

/// Reads one value of a set. Its length is fixed by its type, or precedes it.
#[inline]
pub(super) fn read_value<'a>(r: &mut Reader<'a>, data_type: DataType) -> Result<&'a [u8]> {
    let n = match data_type.0 {
        0..64 | 128.. => return r.buf16(),
        64 | 65 => 1,
        66 | 67 => 2,
        68 | 69 | 72 | 76 => 4,
        70 | 71 | 73 | 84 => 8,
        74 | 75 => match *r.rest() {
            [hint, ..] if hint & 0x20 != 0 => 1,
            [hint, ..] => {
                1 + (usize::from(hint >> 6) + 1) * if data_type == DataType::REAL_4RB { 1 } else { 2 }
            }
            [] => 1,
        },
        77 => 3,
        78 => 5,
        79 | 83 => 7,
        80 => 9,
        81 => 11,
        82 => 12,
        _ => return Err(r.malformed("set entry type")),
    };
    r.bytes(n)
}

/// Writes one value of a set, with the size of its type or after its length. Integers of fixed size are
/// extended, REAL is converted to the form of the set; other values must have their size.
///
/// # Errors
/// [`Error::Full`], [`Error::TooLong`] for a value that does not fit.
pub fn write_value(w: &mut Writer<'_>, data_type: DataType, bytes: &[u8]) -> Result<()> {
    let (size, fill) = match data_type {
        DataType::INT_1 | DataType::INT_2 | DataType::INT_4 | DataType::INT_8 => {
            (1 << ((data_type.0 - 64) / 2), bytes.first().is_some_and(|b| b & 0x80 != 0))
        }
        DataType::UINT_1 | DataType::UINT_2 | DataType::UINT_4 | DataType::UINT_8 => {
            (1 << ((data_type.0 - 65) / 2), false)
        }
        DataType::REAL_4RB => return write_real(w, bytes, &[1, 2, 3, 4]),
        DataType::REAL_8RB => return write_real(w, bytes, &[2, 4, 6, 8]),
        other if !other.is_set_type() => return w.buf16(bytes).named("set entry"),
        _ => {
            let at = w.len();
            w.bytes(bytes)?;
            let mut r = Reader::new(bytes);
            // Only a value of exactly its size leaves nothing unread.
            return match read_value(&mut r, data_type) {
                Ok(_) if r.is_empty() => Ok(()),
                _ => Err(Error::Malformed { what: "set entry", at }),
            };
        }
    };
    extend(w, bytes, size, fill)
}

fn extend(w: &mut Writer<'_>, bytes: &[u8], size: usize, negative: bool) -> Result<()> {
    let missing = size.checked_sub(bytes.len()).ok_or(Error::TooLong {
        what: "set entry",
        len: bytes.len(),
        max: size,
    })?;
    for _ in 0..missing {
        w.u8(if negative { 0xFF } else { 0 })?;
    }
    w.bytes(bytes)
}

fn write_real(w: &mut Writer<'_>, bytes: &[u8], sizes: &[usize; 4]) -> Result<()> {
    let Some((hint, mantissa)) = bytes.split_first() else { return w.u8(0x20) };
    if hint & 0x20 != 0 {
        return w.u8(hint & 0x3F);
    }
    let (code, size) = (0u8..)
        .zip(sizes)
        .find(|(_, size)| **size >= mantissa.len())
        .ok_or(Error::TooLong { what: "mantissa", len: mantissa.len(), max: sizes[3] })?;
    w.u8(hint & 0x1F | code << 6)?;
    extend(w, mantissa, *size, mantissa.first().is_some_and(|b| b & 0x80 != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rwf::{Real, Value, int};
    use crate::wire::to_vec;

    #[test]
    fn definitions_round_trip() {
        let fields = [(22, DataType::REAL_4RB), (-3, DataType::ASCII_STRING)];
        let bytes = to_vec(|w| write_field_sets(w, &[(0, &fields), (15, &[])])).unwrap();
        let sets = FieldSets::decode(&bytes).unwrap();
        assert_eq!(sets.get(0), Ok(&[0, 22, 74, 0xFF, 0xFD, 17][..]));
        assert_eq!(
            (sets.get(15), sets.get(1), sets.get(99)),
            (Ok(&[][..]), Err(Error::NoSet(1)), Err(Error::NoSet(99)))
        );
        for n in 1..bytes.len() {
            assert!(FieldSets::decode(&bytes[..n]).is_err());
        }
        let bytes = to_vec(|w| write_element_sets(w, &[(3, &[(b"NAME", DataType::INT_2)])])).unwrap();
        assert_eq!(ElementSets::decode(&bytes).unwrap().get(3), Ok(&b"\x04NAME\x42"[..]));
        assert!(FieldSets::decode(&[0, 1, 16, 0]).is_err());
    }

    #[test]
    fn values_of_every_set_type_round_trip() {
        for id in 64..=84 {
            let data_type = DataType(id);
            let value: Vec<u8> = match data_type.base() {
                DataType::INT => int::to_bytes(-2).to_vec(),
                DataType::UINT => vec![200],
                DataType::REAL => Real::with_decimals(-129, 2).to_bytes().to_vec(),
                _ => {
                    let n = [4, 8, 0, 0, 4, 3, 5, 7, 9, 11, 12, 7, 8][usize::from(id) - 72];
                    vec![1; n]
                }
            };
            let bytes = to_vec(|w| write_value(w, data_type, &value)).unwrap();
            let mut r = Reader::new(&bytes);
            let back = read_value(&mut r, data_type).unwrap();
            assert!(r.is_empty());
            assert_eq!(Value::decode(data_type, back), Value::decode(data_type.base(), &value));
        }
        assert_eq!(to_vec(|w| write_value(w, DataType::REAL_8RB, &[])).unwrap(), [0x20]);
        assert_eq!(to_vec(|w| write_value(w, DataType::REAL_4RB, &[0x0C, 1, 0])).unwrap(), [0x4C, 1, 0]);
        assert!(to_vec(|w| write_value(w, DataType::INT_1, &[1, 0])).is_err());
        assert!(to_vec(|w| write_value(w, DataType::DATE_4, &[1, 0])).is_err());
        assert!(read_value(&mut Reader::new(&[0; 9]), DataType(90)).is_err());
        assert!(read_value(&mut Reader::new(&[]), DataType::REAL_4RB).is_err());
    }
}
