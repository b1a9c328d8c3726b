//! Dictionaries on the wire: series of element lists, in parts. Spec: rssl.md §5.3

use super::{Edition, EnumTable, EnumValue, Enums, FieldDef, FieldType, Fields};
use crate::rwf::sets::{write_element_sets, write_value};
use crate::rwf::{
    Array, ArrayWriter, DataType, Element, ElementList, ElementListWriter, Series, SeriesWriter, int, uint,
};
use crate::wire::{Writer, to_vec};
use crate::{Error, Result};

/// Identity and versions only.
pub const VERBOSITY_INFO: u32 = 0;
/// The information needed to decode data.
pub const VERBOSITY_MINIMAL: u32 = 3;
/// Everything except meanings.
pub const VERBOSITY_NORMAL: u32 = 7;
/// Everything.
pub const VERBOSITY_VERBOSE: u32 = 15;

/// `Type` of the dictionaries.
const TYPE_FIELDS: i64 = 1;
const TYPE_ENUMS: i64 = 2;

/// Longest name or display, in bytes.
const LONGEST_TEXT: usize = 1024;
/// Limit of the bytes that an enum table's values take in one row, without their field ids: an entry of a
/// series has at most 65,535 bytes. Stock readers refuse a second row for the same fields, so a table is split
/// only if it is longer.
const ROW_ROOM: usize = 65_535 - 128;
/// Maximum number of tables accepted: one for each possible field.
const MAX_TABLES: usize = 1 << 16;
/// Count hints of this size and above are not sent, because stock encoders write them wrongly.
const HINT_LIMIT: usize = 16_384;

/// The columns of a row of a field dictionary, in their order.
const COLUMNS: [(&[u8], DataType); 9] = [
    (b"NAME", DataType::ASCII_STRING),
    (b"FID", DataType::INT_2),
    (b"RIPPLETO", DataType::INT_2),
    (b"TYPE", DataType::INT_1),
    (b"LENGTH", DataType::UINT_2),
    (b"RWFTYPE", DataType::UINT_1),
    (b"RWFLEN", DataType::UINT_2),
    (b"ENUMLENGTH", DataType::UINT_1),
    (b"LONGNAME", DataType::ASCII_STRING),
];
/// Number of columns, from the first of [`COLUMNS`], that are sent below normal verbosity.
const MINIMAL_COLUMNS: usize = 7;

impl Fields {
    /// The payloads (series) of the refreshes that transfer these fields: each at most `part` bytes long, unless a
    /// single row is longer. At least one refresh is returned.
    ///
    /// # Errors
    /// Names that are too long for a message.
    pub fn parts(&self, verbosity: u32, part: usize) -> Result<Vec<Vec<u8>>> {
        let columns = if verbosity >= VERBOSITY_NORMAL { &COLUMNS[..] } else { &COLUMNS[..MINIMAL_COLUMNS] };
        let mut rows = Vec::new();
        if verbosity > VERBOSITY_INFO {
            rows =
                self.iter().map(|def| to_vec(|w| write_row(w, def, columns))).collect::<Result<Vec<_>>>()?;
        }
        split(&rows, part, Some(columns), |w| summary(w, TYPE_FIELDS, &self.edition))
    }

    /// Adds the payload of one refresh of a field dictionary. Fields with known ids are replaced.
    ///
    /// # Errors
    /// Another kind of dictionary; rows without a name or an id, or with values out of range.
    pub fn take_part(&mut self, payload: &[u8]) -> Result<()> {
        let series = Series::decode(payload)?;
        take_summary(series.summary, TYPE_FIELDS, &mut self.edition)?;
        let sets = series.element_sets()?;
        for row in series.entries() {
            let mut def = FieldDef::default();
            for element in ElementList::decode(row?, Some(&sets))?.entries() {
                take_column(&mut def, &element?)?;
            }
            if def.id == 0 || def.name.is_empty() {
                return Err(wrong("dictionary row without id or name"));
            }
            self.insert(def);
        }
        Ok(())
    }
}

fn write_row(w: &mut Writer<'_>, def: &FieldDef, columns: &[(&[u8], DataType)]) -> Result<()> {
    // Values of set 0 only.
    w.u8(0x02)?;
    for (name, data_type) in columns {
        let number = match *name {
            b"FID" => i64::from(def.id),
            b"RIPPLETO" => i64::from(def.ripples_to),
            b"TYPE" => i64::from(def.field_type as i8),
            b"LENGTH" => i64::from(def.length),
            b"RWFTYPE" => i64::from(def.data_type.0),
            b"RWFLEN" => i64::from(def.data_length),
            b"ENUMLENGTH" => i64::from(def.enum_length),
            b"NAME" => {
                write_value(w, *data_type, def.name.as_bytes())?;
                continue;
            }
            _ => {
                write_value(w, *data_type, def.long_name.as_bytes())?;
                continue;
            }
        };
        if data_type.base() == DataType::UINT {
            write_value(w, *data_type, &uint::to_bytes(number.unsigned_abs()))?;
        } else {
            write_value(w, *data_type, &int::to_bytes(number))?;
        }
    }
    Ok(())
}

fn take_column(def: &mut FieldDef, element: &Element<'_>) -> Result<()> {
    fn number<T: TryFrom<i64>>(element: &Element<'_>, what: &'static str) -> Result<T> {
        let number = if element.data_type == DataType::UINT {
            uint::decode(element.data)?.and_then(|n| i64::try_from(n).ok())
        } else {
            int::decode(element.data)?
        };
        number.and_then(|n| T::try_from(n).ok()).ok_or(wrong(what))
    }
    match element.name {
        b"NAME" => def.name = text(element.data)?,
        b"FID" => def.id = number(element, "FID")?,
        b"RIPPLETO" => def.ripples_to = number(element, "RIPPLETO")?,
        b"TYPE" => def.field_type = FieldType::from_number(number(element, "TYPE")?),
        b"LENGTH" => def.length = number(element, "LENGTH")?,
        b"RWFTYPE" => def.data_type = DataType(number(element, "RWFTYPE")?).base(),
        b"RWFLEN" => def.data_length = number(element, "RWFLEN")?,
        b"ENUMLENGTH" => def.enum_length = number(element, "ENUMLENGTH")?,
        b"LONGNAME" => def.long_name = text(element.data)?,
        _ => {}
    }
    Ok(())
}

impl Enums {
    /// The payloads (series) of the refreshes that transfer these tables: each at most `part` bytes long, unless a
    /// single table is longer. At least one refresh is returned.
    ///
    /// # Errors
    /// Displays that are too long for a message.
    pub fn parts(&self, verbosity: u32, part: usize) -> Result<Vec<Vec<u8>>> {
        let mut rows = Vec::new();
        if verbosity > VERBOSITY_INFO {
            for table in self.tables() {
                let mut values = table.values.as_slice();
                while !values.is_empty() {
                    let (row, rest) = values.split_at(row_len(table.fields.len(), values, verbosity));
                    rows.push(to_vec(|w| write_table(w, &table.fields, row, verbosity))?);
                    values = rest;
                }
            }
        }
        split(&rows, part, None, |w| summary(w, TYPE_ENUMS, &self.edition))
    }

    /// Adds the payload of one refresh of a dictionary of enumerated types. The values of a table for the same
    /// fields as a known one are added to the known one.
    ///
    /// # Errors
    /// Another kind of dictionary; tables without fields or values, or with values out of range.
    pub fn take_part(&mut self, payload: &[u8]) -> Result<()> {
        let series = Series::decode(payload)?;
        take_summary(series.summary, TYPE_ENUMS, &mut self.edition)?;
        let sets = series.element_sets()?;
        for row in series.entries() {
            let table = take_table(&ElementList::decode(row?, Some(&sets))?)?;
            if self.tables().len() >= MAX_TABLES {
                return Err(Error::TooLong { what: "enum tables", len: MAX_TABLES + 1, max: MAX_TABLES });
            }
            self.insert(table);
        }
        Ok(())
    }
}

/// Number of values in one row with this many fields; at least one.
fn row_len(fields: usize, values: &[EnumValue], verbosity: u32) -> usize {
    let text = |len: usize| len + if len < 0xfe { 1 } else { 3 };
    let mut bytes = 2 * fields;
    let fits = values.iter().take_while(|value| {
        bytes += 2 + text(value.display.len());
        if verbosity >= VERBOSITY_VERBOSE {
            bytes += text(value.meaning.len());
        }
        bytes <= ROW_ROOM
    });
    fits.count().max(1)
}

fn write_table(w: &mut Writer<'_>, fields: &[i16], values: &[EnumValue], verbosity: u32) -> Result<()> {
    let mut list = ElementListWriter::new(w)?;
    let fields: Vec<i64> = fields.iter().map(|id| i64::from(*id)).collect();
    list.array_int("FIDS", 2, &fields)?;
    list.container("VALUE", DataType::ARRAY, |w| {
        let mut array = ArrayWriter::new(w, DataType::ENUM, 2)?;
        values.iter().try_for_each(|value| array.item(&value.value.to_be_bytes()))?;
        array.finish()
    })?;
    let ascii = values.iter().all(|value| value.display.is_ascii());
    let kind = if ascii { DataType::ASCII_STRING } else { DataType::RMTES_STRING };
    list.container("DISPLAY", DataType::ARRAY, |w| {
        let mut array = ArrayWriter::new(w, kind, 0)?;
        values.iter().try_for_each(|value| array.item(&value.display))?;
        array.finish()
    })?;
    if verbosity >= VERBOSITY_VERBOSE {
        let meanings: Vec<&str> = values.iter().map(|value| value.meaning.as_str()).collect();
        list.array_ascii("MEANING", &meanings)?;
    }
    list.finish()
}

fn take_table(list: &ElementList<'_>) -> Result<EnumTable> {
    let mut table = EnumTable::default();
    let (mut numbers, mut displays, mut meanings) = (Vec::new(), Vec::new(), Vec::new());
    for element in list.entries() {
        let element = element?;
        if element.data_type != DataType::ARRAY {
            continue;
        }
        let items = Array::decode(element.data)?.items();
        match element.name {
            b"FIDS" | b"FID" => {
                for item in items {
                    let id = int::decode(item?)?.and_then(|id| i16::try_from(id).ok());
                    table.fields.push(id.ok_or(wrong("FIDS"))?);
                }
            }
            b"VALUE" | b"VALUES" => {
                for item in items {
                    let value = uint::decode(item?)?.and_then(|value| u16::try_from(value).ok());
                    numbers.push(value.ok_or(wrong("VALUE"))?);
                }
            }
            b"DISPLAY" | b"DISPLAYS" => {
                for item in items {
                    displays.push(bounded(item?)?.to_vec());
                }
            }
            b"MEANING" => {
                for item in items {
                    meanings.push(text(item?)?);
                }
            }
            _ => {}
        }
    }
    if table.fields.is_empty() || numbers.len() != displays.len() {
        return Err(wrong("enum table"));
    }
    meanings.resize(numbers.len(), String::new());
    let values = numbers.into_iter().zip(displays).zip(meanings);
    table.values = values.map(|((value, display), meaning)| EnumValue { value, display, meaning }).collect();
    Ok(table)
}

/// Divides rows into series of at most `part` bytes; the first has the summary.
fn split(
    rows: &[Vec<u8>],
    part: usize,
    columns: Option<&[(&[u8], DataType)]>,
    summary: impl Fn(&mut Writer<'_>) -> Result<()>,
) -> Result<Vec<Vec<u8>>> {
    let mut parts = Vec::new();
    let mut left = rows;
    loop {
        let first = parts.is_empty();
        let head = |series: &mut SeriesWriter<'_, '_>| {
            if let Some(columns) = columns {
                series.sets(|w| write_element_sets(w, &[(0, columns)]))?;
            }
            if first {
                series.summary(&summary)?;
                if rows.len() < HINT_LIMIT {
                    series.hint(rows.len() as u32)?;
                }
            }
            Ok(())
        };
        let mut size = to_vec(|w| {
            let mut series = SeriesWriter::new(w, DataType::ELEMENT_LIST)?;
            head(&mut series)?;
            series.finish()
        })?
        .len();
        let fits = left.iter().take(usize::from(u16::MAX)).take_while(|row| {
            // Each entry has a length of three bytes.
            size += row.len() + 3;
            size <= part
        });
        let (now, later) = left.split_at(fits.count().max(1).min(left.len()));
        parts.push(to_vec(|w| {
            let mut series = SeriesWriter::new(w, DataType::ELEMENT_LIST)?;
            head(&mut series)?;
            now.iter().try_for_each(|row| series.entry(|w| w.bytes(row)))?;
            series.finish()
        })?);
        left = later;
        if left.is_empty() {
            return Ok(parts);
        }
    }
}

fn summary(w: &mut Writer<'_>, kind: i64, edition: &Edition) -> Result<()> {
    let mut list = ElementListWriter::new(w)?;
    list.int("Type", kind)?;
    list.int("DictionaryId", edition.id.into())?;
    if kind == TYPE_ENUMS {
        list.ascii("RT_Version", &edition.rt_version)?;
        list.ascii("DT_Version", &edition.dt_version)?;
    }
    list.ascii("Version", if edition.version.is_empty() { &edition.dt_version } else { &edition.version })?;
    list.finish()
}

fn take_summary(summary: Option<&[u8]>, kind: i64, edition: &mut Edition) -> Result<()> {
    for element in ElementList::decode(summary.unwrap_or_default(), None)?.entries() {
        let element = element?;
        let number = || int::decode(element.data).ok().flatten();
        match element.name {
            b"Type" if number() != Some(kind) => return Err(wrong("dictionary type")),
            b"DictionaryId" => edition.id = number().and_then(|id| i32::try_from(id).ok()).unwrap_or(1),
            b"Version" => edition.version = text(element.data)?,
            b"RT_Version" => edition.rt_version = text(element.data)?,
            b"DT_Version" => edition.dt_version = text(element.data)?,
            _ => {}
        }
    }
    Ok(())
}

fn bounded(bytes: &[u8]) -> Result<&[u8]> {
    let len = bytes.len();
    if len > LONGEST_TEXT {
        return Err(Error::TooLong { what: "text of a dictionary", len, max: LONGEST_TEXT });
    }
    Ok(bytes)
}

fn text(bytes: &[u8]) -> Result<String> {
    bounded(bytes).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

const fn wrong(what: &'static str) -> Error {
    Error::Malformed { what, at: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dictionary::Dictionary;

    fn all(fields: &Fields) -> Vec<FieldDef> {
        fields.iter().cloned().collect()
    }

    #[test]
    fn dictionaries_round_trip_in_parts_of_any_size() {
        let Dictionary { fields, enums } = Dictionary::small();
        for part in [0, 500, 2000, 1 << 20] {
            for verbosity in [VERBOSITY_NORMAL, VERBOSITY_VERBOSE] {
                let parts = fields.parts(verbosity, part).unwrap();
                let mut back = Fields::default();
                parts.iter().for_each(|part| back.take_part(part).unwrap());
                assert_eq!((all(&back), &back.edition), (all(&fields), &fields.edition));
                let long = parts.iter().filter(|bytes| bytes.len() > part).count();
                assert!(long == 0 || part == 0, "{long} parts are too long");

                let parts = enums.parts(verbosity, part).unwrap();
                let mut back = Enums::default();
                parts.iter().for_each(|part| back.take_part(part).unwrap());
                assert_eq!(back.edition, enums.edition);
                if verbosity == VERBOSITY_VERBOSE {
                    assert_eq!(back.tables(), enums.tables());
                }
                assert_eq!(back.display(15, 840), Some(&b"USD"[..]));
            }
        }
    }

    #[test]
    fn lower_verbosity_leaves_columns_out() {
        let Dictionary { fields, enums } = Dictionary::small();
        let mut back = Fields::default();
        back.take_part(&fields.parts(VERBOSITY_MINIMAL, 1 << 20).unwrap()[0]).unwrap();
        assert_eq!((back.len(), back.get(22).unwrap().long_name.as_str()), (fields.len(), ""));
        for payload in
            [fields.parts(VERBOSITY_INFO, 1000).unwrap(), enums.parts(VERBOSITY_INFO, 1000).unwrap()].concat()
        {
            let series = Series::decode(&payload).unwrap();
            assert!(series.count == 0 && series.summary.is_some());
        }
    }

    #[test]
    fn plain_rows_and_other_column_names_are_read() {
        let payload = to_vec(|w| {
            let mut series = SeriesWriter::new(w, DataType::ELEMENT_LIST)?;
            series.entry(|w| {
                let mut list = ElementListWriter::new(w)?;
                list.int("FID", -5)?;
                list.ascii("NAME", "X")?;
                list.uint("RWFTYPE", 7)?;
                list.finish()
            })?;
            series.finish()
        });
        let mut fields = Fields::default();
        fields.take_part(&payload.unwrap()).unwrap();
        assert_eq!(fields.data_type(-5), DataType::REAL);
        let payload = to_vec(|w| {
            let mut series = SeriesWriter::new(w, DataType::ELEMENT_LIST)?;
            for value in [3, 1] {
                series.entry(|w| {
                    let mut list = ElementListWriter::new(w)?;
                    list.array_int("FID", 2, &[4, 5])?;
                    list.container("VALUES", DataType::ARRAY, |w| {
                        let mut array = ArrayWriter::new(w, DataType::ENUM, 0)?;
                        array.item(&[value])?;
                        array.finish()
                    })?;
                    list.array_ascii("DISPLAYS", &["X"])?;
                    list.finish()
                })?;
            }
            series.finish()
        });
        let mut enums = Enums::default();
        enums.take_part(&payload.unwrap()).unwrap();
        assert_eq!((enums.tables().len(), enums.tables()[0].values.len()), (1, 2), "one table in two rows");
        assert_eq!(enums.display(5, 1), Some(&b"X"[..]));
    }

    #[test]
    fn malformed_payloads_are_refused() {
        let Dictionary { fields, enums } = Dictionary::small();
        let parts = fields.parts(VERBOSITY_NORMAL, 1 << 20).unwrap();
        assert!(Enums::default().take_part(&parts[0]).is_err());
        assert!(Fields::default().take_part(&enums.parts(VERBOSITY_NORMAL, 1 << 20).unwrap()[0]).is_err());
        for n in 1..parts[0].len() {
            assert!(Fields::default().take_part(&parts[0][..n]).is_err(), "{n}");
        }
    }

    #[test]
    fn tables_longer_than_an_entry_take_several_rows() {
        let mut enums = Enums::default();
        let value = |value| EnumValue { value, display: vec![b'd'; 30], meaning: "m".repeat(30) };
        enums.insert(EnumTable { fields: vec![4], values: (0..5000).map(value).collect() });
        // At most 1,021 of 64 bytes go into a row.
        assert_eq!(row_len(1, enums.tables()[0].values.as_slice(), VERBOSITY_VERBOSE), (ROW_ROOM - 2) / 64);
        assert_eq!(row_len(1, enums.tables()[0].values.as_slice(), VERBOSITY_NORMAL), (ROW_ROOM - 2) / 33);
        let mut back = Enums::default();
        for part in enums.parts(VERBOSITY_VERBOSE, 10_000).unwrap() {
            back.take_part(&part).unwrap();
        }
        assert_eq!(back.tables(), enums.tables());
    }
}
