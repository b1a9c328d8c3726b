//! FIELD_LIST: values with the ids of a field dictionary. Spec: rssl.md §4.1.

use super::sets::{FieldSets, read_value};
use super::{DataType, Date, DateTime, Enum, Real, Time, int, uint};
use crate::wire::{Reader, Writer};
use crate::{Error, Named, Result};

const INFO: u8 = 0x1;
const SET_DATA: u8 = 0x2;
const SET_ID: u8 = 0x4;
const STANDARD: u8 = 0x8;

/// Dictionary and template of a field list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldListInfo {
    /// Dictionary id, -16384 to 16383; 1 if absent.
    pub dictionary: i16,
    /// Template of the record.
    pub list: u16,
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Field<'a> {
    /// Field id. The value of field 0 is the dictionary id of the following fields.
    pub id: i16,
    /// Value, in the form of its type in the dictionary; empty is blank.
    pub data: &'a [u8],
    /// Type in the set definition; [`DataType::UNKNOWN`] for a field that came with its id.
    pub set_type: DataType,
}

/// A field list, over borrowed bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldList<'a> {
    /// Dictionary and template, if present.
    pub info: Option<FieldListInfo>,
    definition: &'a [u8],
    set_data: &'a [u8],
    count: u16,
    standard: &'a [u8],
    /// Bytes of the whole list.
    len: usize,
}

impl<'a> FieldList<'a> {
    /// Reads everything before the fields. No bytes at all are an empty list.
    ///
    /// # Errors
    /// Cut short; [`Error::NoSet`] for a set that `sets` does not define.
    #[inline]
    pub fn decode(bytes: &'a [u8], sets: Option<&FieldSets<'a>>) -> Result<Self> {
        let mut list = Self::default();
        if bytes.is_empty() {
            return Ok(list);
        }
        list.len = bytes.len();
        let mut r = Reader::new(bytes);
        let flags = r.u8()?;
        if flags & INFO != 0 {
            let mut info = Reader::new(r.buf8().named("field list info")?);
            let dictionary = read_dictionary(&mut info).named("dictionary id")?;
            list.info = Some(FieldListInfo { dictionary, list: info.u16().named("field list number")? });
        }
        if flags & SET_DATA != 0 {
            let id = if flags & SET_ID != 0 { r.rb15().named("set id")? } else { 0 };
            list.definition = sets.map_or(Err(Error::NoSet(id)), |s| s.get(id))?;
            let n = if flags & STANDARD != 0 { usize::from(r.rb15().named("set length")?) } else { r.left() };
            list.set_data = r.bytes(n).named("set data")?;
        }
        if flags & STANDARD != 0 {
            list.count = r.u16().named("field count")?;
            list.standard = r.rest();
        }
        Ok(list)
    }

    /// Number of fields with ids, as announced: all fields, unless the list uses a set.
    #[inline]
    #[must_use]
    pub const fn standard_count(&self) -> u16 {
        self.count
    }

    /// The fields: those of the set first.
    #[inline]
    #[must_use]
    pub const fn entries(&self) -> Fields<'a> {
        Fields {
            definition: Reader::new(self.definition),
            set_data: Reader::new(self.set_data),
            rest: self.standard,
            left: self.count,
            end: self.len,
        }
    }

    /// The field `id`, the first if there are several; `None` also if an error comes before it.
    #[must_use]
    pub fn get(&self, id: i16) -> Option<&'a [u8]> {
        self.entries().map_while(Result::ok).find(|f| f.id == id).map(|f| f.data)
    }
}

/// Reads a signed number of one or two bytes, whose sign is in the second bit. Spec: rssl.md, "Conventions".
fn read_dictionary(r: &mut Reader<'_>) -> Result<i16> {
    let first = r.u8()?;
    if first & 0x80 == 0 {
        // Seven bits with a sign.
        return Ok(i16::from((first << 1).cast_signed() >> 1));
    }
    let value = u16::from_be_bytes([first, r.u8()?]);
    Ok((value << 1).cast_signed() >> 1)
}

fn write_dictionary(w: &mut Writer<'_>, value: i16) -> Result<()> {
    let [high, low] = value.to_be_bytes();
    match value {
        -64..64 => w.u8(low & 0x7F),
        -16384..16384 => w.bytes(&[high | 0x80, low]),
        _ => Err(Error::Malformed { what: "dictionary id", at: w.len() }),
    }
}

/// Fields of a [`FieldList`]; ends after the first error.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    definition: Reader<'a>,
    set_data: Reader<'a>,
    rest: &'a [u8],
    left: u16,
    /// Offset of the end of `rest` in the list.
    end: usize,
}

impl<'a> Fields<'a> {
    #[inline]
    fn next_of_set(&mut self) -> Result<Field<'a>> {
        let id = self.definition.i16()?;
        let set_type = DataType(self.definition.u8()?);
        Ok(Field { id, data: read_value(&mut self.set_data, set_type).named("field of a set")?, set_type })
    }

    #[inline]
    fn next_standard(&mut self) -> Result<Field<'a>> {
        let (id, n, rest) = match *self.rest {
            [a, b, n, ref rest @ ..] if n < 0xFE => (i16::from_be_bytes([a, b]), usize::from(n), rest),
            [a, b, _, c, d, ref rest @ ..] => {
                (i16::from_be_bytes([a, b]), usize::from(u16::from_be_bytes([c, d])), rest)
            }
            _ => return Err(self.short("field", 3)),
        };
        match rest.split_at_checked(n) {
            Some((data, rest)) => {
                self.rest = rest;
                Ok(Field { id, data, set_type: DataType::UNKNOWN })
            }
            None => Err(self.short("value of a field", n)),
        }
    }

    #[cold]
    const fn short(&self, what: &'static str, need: usize) -> Error {
        Error::Short { what, at: self.end - self.rest.len(), need, have: self.rest.len() }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let field = if self.definition.is_empty() {
            self.left = self.left.checked_sub(1)?;
            self.next_standard()
        } else {
            self.next_of_set()
        };
        if field.is_err() {
            self.left = 0;
            self.definition = Reader::new(&[]);
        }
        Some(field)
    }
}

/// Methods that add a field of one type.
macro_rules! typed {
    ($($(#[$doc:meta])* $name:ident($type:ty) $bytes:ident;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(&mut self, id: i16, value: $type) -> Result<()> {
                self.field(id, &value.$bytes())
            }
        )*
    };
}

/// Writes a field list; the count is filled in by [`FieldListWriter::finish`]. The methods that add a field have the
/// errors of [`FieldListWriter::field`].
#[derive(Debug)]
pub struct FieldListWriter<'w, 'b> {
    w: &'w mut Writer<'b>,
    count_at: usize,
    count: u16,
}

impl<'w, 'b> FieldListWriter<'w, 'b> {
    /// Begins a list without dictionary and template.
    #[inline]
    pub fn new(w: &'w mut Writer<'b>) -> Result<Self> {
        w.u8(STANDARD)?;
        Self::begin(w)
    }

    /// Begins a list of the dictionary and template `info`.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Malformed`] for a dictionary outside -16384 to 16383.
    pub fn with_info(w: &'w mut Writer<'b>, info: FieldListInfo) -> Result<Self> {
        w.u8(STANDARD | INFO)?;
        write_info(w, info)?;
        Self::begin(w)
    }

    /// Begins a list whose first values are those of the set `set`, written by `f` with
    /// [`super::sets::write_value`].
    ///
    /// # Errors
    /// Those of `f`, and as [`FieldListWriter::with_info`].
    pub fn with_set(
        w: &'w mut Writer<'b>,
        info: Option<FieldListInfo>,
        set: u16,
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<Self> {
        w.u8(STANDARD | SET_DATA | SET_ID | if info.is_some() { INFO } else { 0 })?;
        if let Some(info) = info {
            write_info(w, info)?;
        }
        w.rb15(set).named("set id")?;
        w.nested15(f).named("set data")?;
        Self::begin(w)
    }

    #[inline]
    fn begin(w: &'w mut Writer<'b>) -> Result<Self> {
        let count_at = w.len();
        w.u16(0)?;
        Ok(Self { w, count_at, count: 0 })
    }

    #[inline]
    fn one_more(&mut self) -> Result<()> {
        if self.count == u16::MAX {
            return Err(Error::TooLong { what: "field list", len: 65536, max: 65535 });
        }
        self.count += 1;
        Ok(())
    }

    /// Adds a field of any type from its encoded value.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooLong`] for a value above 65535 bytes or more than 65535 fields.
    #[inline]
    pub fn field(&mut self, id: i16, bytes: &[u8]) -> Result<()> {
        self.one_more()?;
        let [a, b] = id.to_be_bytes();
        if bytes.len() < 0xFE {
            return self.w.head_and_short([a, b, bytes.len() as u8], bytes);
        }
        self.w.i16(id)?;
        self.w.buf16(bytes).named("field")
    }

    /// Adds a field that was read from another list, whether it came with its id or from a set.
    #[inline]
    pub fn copy(&mut self, field: &Field<'_>) -> Result<()> {
        self.field(field.id, field.data)?;
        if matches!(field.set_type, DataType::REAL_4RB | DataType::REAL_8RB) {
            // In set forms the two top bits of the hint are the length; in plain ones they are 0.
            if let Some(&hint) = field.data.first() {
                let at = self.w.len() - field.data.len();
                self.w.set_u8(at, hint & 0x3F)?;
            }
        }
        Ok(())
    }

    /// A blank field.
    #[inline]
    pub fn blank(&mut self, id: i16) -> Result<()> {
        self.field(id, &[])
    }

    /// UINT.
    #[inline]
    pub fn uint(&mut self, id: i16, value: u64) -> Result<()> {
        self.one_more()?;
        let [a, b] = id.to_be_bytes();
        let n = uint::size(value);
        self.w.head_and_low_bytes([a, b, n as u8], value, n)
    }

    /// INT.
    #[inline]
    pub fn int(&mut self, id: i16, value: i64) -> Result<()> {
        self.one_more()?;
        let [a, b] = id.to_be_bytes();
        let n = int::size(value);
        self.w.head_and_low_bytes([a, b, n as u8], value.cast_unsigned(), n)
    }

    /// REAL.
    #[inline]
    pub fn real(&mut self, id: i16, value: Real) -> Result<()> {
        if !value.is_finite() {
            return self.field(id, &value.to_bytes());
        }
        self.one_more()?;
        let [a, b] = id.to_be_bytes();
        let n = int::size(value.mantissa);
        self.w.head_and_low_bytes([a, b, n as u8 + 1, value.hint], value.mantissa.cast_unsigned(), n)
    }

    typed! {
        /// FLOAT.
        float(f32) to_be_bytes;
        /// DOUBLE.
        double(f64) to_be_bytes;
        /// ENUM.
        enumeration(Enum) to_bytes;
        /// DATE.
        date(Date) to_bytes;
        /// TIME.
        time(Time) to_bytes;
        /// DATETIME.
        date_time(DateTime) to_bytes;
    }

    /// Any string, or a buffer.
    #[inline]
    pub fn text(&mut self, id: i16, value: impl AsRef<[u8]>) -> Result<()> {
        self.field(id, value.as_ref())
    }

    /// A field whose value `f` writes: an array, a state, a container.
    ///
    /// # Errors
    /// Those of `f`, and as [`FieldListWriter::field`].
    pub fn nested(&mut self, id: i16, f: impl FnOnce(&mut Writer<'b>) -> Result<()>) -> Result<()> {
        self.one_more()?;
        self.w.i16(id)?;
        self.w.nested16(f).named("field")
    }

    /// Number of fields written so far.
    #[inline]
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Fills in the count.
    #[inline]
    pub fn finish(self) -> Result<()> {
        self.w.set_u16(self.count_at, self.count)
    }
}

fn write_info(w: &mut Writer<'_>, info: FieldListInfo) -> Result<()> {
    let at = w.len();
    w.u8(0)?;
    write_dictionary(w, info.dictionary)?;
    w.u16(info.list)?;
    w.set_u8(at, (w.len() - at - 1) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rwf::sets::{write_field_sets, write_value};
    use crate::wire::to_vec;

    fn fields(bytes: &[u8]) -> Vec<(i16, Vec<u8>)> {
        let list = FieldList::decode(bytes, None).unwrap();
        list.entries().map(|f| f.map(|f| (f.id, f.data.to_vec())).unwrap()).collect()
    }

    #[test]
    fn field_list_round_trips() {
        let long = [b'x'; 300];
        let bytes = to_vec(|w| {
            let mut list = FieldListWriter::with_info(w, FieldListInfo { dictionary: 1, list: 99 })?;
            list.real(22, Real::with_decimals(3990, 2))?;
            list.uint(30, 9)?;
            list.int(-5, -129)?;
            list.blank(25)?;
            list.real(26, Real::new(0, crate::rwf::hint::NOT_A_NUMBER))?;
            list.text(3, long)?;
            list.nested(4, |w| w.u8(7))?;
            list.enumeration(5, Enum(300))?;
            list.double(6, 1.0)?;
            assert_eq!(list.count(), 9);
            list.finish()
        })
        .unwrap();
        assert_eq!(bytes[..16], [0x09, 3, 1, 0, 99, 0, 9, 0, 22, 3, 12, 0x0F, 0x96, 0, 30, 1]);
        let list = FieldList::decode(&bytes, None).unwrap();
        assert_eq!((list.info, list.standard_count()), (Some(FieldListInfo { dictionary: 1, list: 99 }), 9));
        assert_eq!(
            (list.get(25), list.get(-5), list.get(77)),
            (Some(&[][..]), Some(&[0xFF, 0x7F][..]), None)
        );
        let found = fields(&bytes);
        assert_eq!((found[5].1.len(), &found[6], &found[7]), (300, &(4, vec![7]), &(5, vec![1, 44])));
        assert_eq!(found[8], (6, 1f64.to_be_bytes().to_vec()));
    }

    #[test]
    fn every_form_of_an_empty_list_is_read() {
        for bytes in [&[][..], &[0], &[8, 0, 0], &[9, 3, 1, 0, 0, 0, 0], &[9, 5, 1, 0, 0, 9, 9, 0, 0]] {
            assert_eq!(fields(bytes), []);
        }
    }

    #[test]
    fn dictionary_ids_round_trip_up_to_their_limits() {
        for dictionary in [0, 1, -1, 63, 64, -64, -65, 16383, -16384] {
            let info = FieldListInfo { dictionary, list: 0 };
            let bytes = to_vec(|w| FieldListWriter::with_info(w, info)?.finish()).unwrap();
            assert_eq!(FieldList::decode(&bytes, None).unwrap().info, Some(info));
        }
        let beyond = FieldListInfo { dictionary: 16384, list: 0 };
        assert!(to_vec(|w| FieldListWriter::with_info(w, beyond)?.finish()).is_err());
    }

    #[test]
    fn set_values_come_first_and_copy_to_plain_fields() {
        let definition = [(22, DataType::REAL_4RB), (30, DataType::UINT_2), (3, DataType::ASCII_STRING)];
        let definitions = to_vec(|w| write_field_sets(w, &[(7, &definition)])).unwrap();
        let sets = FieldSets::decode(&definitions).unwrap();
        let real = Real::with_decimals(3990, 2);
        let bytes = to_vec(|w| {
            let mut list = FieldListWriter::with_set(w, None, 7, |w| {
                write_value(w, DataType::REAL_4RB, &real.to_bytes())?;
                write_value(w, DataType::UINT_2, &[9])?;
                write_value(w, DataType::ASCII_STRING, b"abc")
            })?;
            list.uint(31, 4)?;
            list.finish()
        })
        .unwrap();
        assert_eq!(FieldList::decode(&bytes, None).unwrap_err(), Error::NoSet(7));
        let list = FieldList::decode(&bytes, Some(&sets)).unwrap();
        let plain = to_vec(|w| {
            let mut out = FieldListWriter::new(w)?;
            list.entries().try_for_each(|f| out.copy(&f?))?;
            out.finish()
        })
        .unwrap();
        assert_eq!(
            fields(&plain),
            [(22, real.to_bytes().to_vec()), (30, vec![0, 9]), (3, b"abc".to_vec()), (31, vec![4])]
        );
        // Set data without standard fields continues to the end of the list; set 0 needs no id.
        let definitions = to_vec(|w| write_field_sets(w, &[(0, &definition[1..2])])).unwrap();
        let sets = FieldSets::decode(&definitions).unwrap();
        let list = FieldList::decode(&[2, 1, 2], Some(&sets)).unwrap();
        assert_eq!(list.get(30), Some(&[1, 2][..]));
        let cut = FieldList::decode(&[2, 1], Some(&sets)).unwrap();
        assert_eq!(cut.entries().map(|f| f.is_err()).collect::<Vec<_>>(), [true]);
    }

    #[test]
    fn every_prefix_is_an_error() {
        let bytes = [0x09, 3, 1, 0, 99, 0, 2, 0, 22, 3, 12, 0x0F, 0x96, 0, 25, 0xFE, 0, 2, 1, 2];
        for n in 1..bytes.len() {
            let all =
                FieldList::decode(&bytes[..n], None).and_then(|l| l.entries().collect::<Result<Vec<_>>>());
            assert!(all.is_err());
        }
        let cut = FieldList::decode(&bytes[..15], None).unwrap().entries().last().unwrap();
        assert_eq!(cut, Err(Error::Short { what: "field", at: 13, need: 3, have: 2 }));
        // Long form of a short length.
        assert_eq!(fields(&bytes)[1], (25, vec![1, 2]));
    }
}
