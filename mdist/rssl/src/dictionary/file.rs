//! The standard text files: field dictionaries ("RDMFieldDictionary") and enumerated types ("enumtype.def").

use super::{EnumTable, EnumValue, Enums, FieldDef, FieldType, Fields};
use crate::rwf::DataType;

/// Error in a dictionary file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct FileError {
    /// The line, from 1.
    pub line: usize,
    /// The fault.
    pub what: String,
}

/// The types of values by their names in files. Older names with a size mean the same as those without.
const DATA_TYPES: [(&str, DataType); 36] = [
    ("INT", DataType::INT),
    ("INT32", DataType::INT),
    ("INT64", DataType::INT),
    ("UINT", DataType::UINT),
    ("UINT32", DataType::UINT),
    ("UINT64", DataType::UINT),
    ("REAL", DataType::REAL),
    ("REAL32", DataType::REAL),
    ("REAL64", DataType::REAL),
    ("FLOAT", DataType::FLOAT),
    ("DOUBLE", DataType::DOUBLE),
    ("DATE", DataType::DATE),
    ("TIME", DataType::TIME),
    ("DATETIME", DataType::DATETIME),
    ("DATE_TIME", DataType::DATETIME),
    ("QOS", DataType::QOS),
    ("STATE", DataType::STATE),
    ("STATUS", DataType::STATE),
    ("ENUM", DataType::ENUM),
    ("ARRAY", DataType::ARRAY),
    ("BUFFER", DataType::BUFFER),
    ("ASCII_STRING", DataType::ASCII_STRING),
    ("UTF8_STRING", DataType::UTF8_STRING),
    ("RMTES_STRING", DataType::RMTES_STRING),
    ("OPAQUE", DataType::OPAQUE),
    ("XML", DataType::XML),
    ("FIELD_LIST", DataType::FIELD_LIST),
    ("ELEMENT_LIST", DataType::ELEMENT_LIST),
    ("ELEM_LIST", DataType::ELEMENT_LIST),
    ("ANSI_PAGE", DataType::ANSI_PAGE),
    ("FILTER_LIST", DataType::FILTER_LIST),
    ("VECTOR", DataType::VECTOR),
    ("MAP", DataType::MAP),
    ("SERIES", DataType::SERIES),
    ("MSG", DataType::MSG),
    ("JSON", DataType::JSON),
];

/// One line, parsed from the left.
struct Line<'a> {
    number: usize,
    left: &'a str,
}

impl<'a> Line<'a> {
    fn error(&self, what: impl Into<String>) -> FileError {
        FileError { line: self.number, what: what.into() }
    }

    /// The next word, up to white space.
    fn word(&mut self, what: &str) -> Result<&'a str, FileError> {
        let left = self.left.trim_start();
        let end = left.find(char::is_whitespace).unwrap_or(left.len());
        let (word, rest) = left.split_at(end);
        self.left = rest;
        if word.is_empty() { Err(self.error(format!("{what} is missing"))) } else { Ok(word) }
    }

    /// The next word as a number.
    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, FileError> {
        let word = self.word(what)?;
        word.parse().map_err(|_| self.error(format!("{what} is not a number in range: '{word}'")))
    }

    /// Text between two of `mark`.
    fn quoted(&mut self, mark: char, what: &str) -> Result<&'a str, FileError> {
        let inner = self.left.trim_start().strip_prefix(mark);
        let Some((text, rest)) = inner.and_then(|inner| inner.split_once(mark)) else {
            return Err(self.error(format!("{what} must be between two {mark}")));
        };
        self.left = rest;
        Ok(text)
    }
}

/// The lines of a file except comments and empty lines. `tag` is called with the name and the value of each
/// tag.
fn lines(text: &str, mut tag: impl FnMut(&str, &str)) -> Vec<Line<'_>> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("!tag") {
            let rest = rest.trim();
            let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            tag(name, value.trim());
        } else if !line.is_empty() && !line.starts_with('!') {
            found.push(Line { number: at + 1, left: line });
        }
    }
    found
}

impl Fields {
    /// Reads a field dictionary file; bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// The first faulty line: a column that is missing or out of range, an unknown type, an id that is
    /// 0 or defined twice, a field to ripple to that does not exist.
    pub fn parse(text: &[u8]) -> Result<Self, FileError> {
        let text = String::from_utf8_lossy(text);
        let mut fields = Fields::default();
        let edition = &mut fields.edition;
        let lines = lines(&text, |name, value| match name {
            "Version" => value.clone_into(&mut edition.version),
            "DictionaryId" => edition.id = value.parse().unwrap_or(1),
            _ => {}
        });
        let mut ripples = Vec::new();
        for mut line in lines {
            let name = line.word("the field's name")?.to_owned();
            let long_name = line.quoted('"', "the DDE acronym")?.to_owned();
            let id: i16 = line.number("the field id")?;
            let to = line.word("the field to ripple to")?;
            let field_type = line.word("the field type")?;
            let field_type = FieldType::NAMES.iter().find(|(_, known)| *known == field_type);
            let Some((field_type, _)) = field_type.copied() else {
                return Err(line.error("the field type is unknown"));
            };
            let length = line.number("the length")?;
            let enum_length = enum_length(&mut line)?;
            let data_type = line.word("the RWF type")?;
            let Some((_, data_type)) = DATA_TYPES.into_iter().find(|(known, _)| *known == data_type) else {
                return Err(line.error(format!("the RWF type '{data_type}' is unknown")));
            };
            let data_length = line.number("the RWF length")?;
            if id == 0 {
                return Err(line.error("a field cannot have the id 0"));
            }
            if to != "NULL" {
                ripples.push((line.number, id, to.to_owned()));
            }
            let def = FieldDef {
                id,
                name,
                long_name,
                ripples_to: 0,
                field_type,
                length,
                enum_length,
                data_type,
                data_length,
            };
            if let Some(old) = fields.insert(def) {
                return Err(line.error(format!("field {id} is already defined, as {}", old.name)));
            }
        }
        for (line, id, to) in ripples {
            let Some(to) = fields.named(&to).map(|def| def.id) else {
                return Err(FileError {
                    line,
                    what: format!("the field to ripple to, {to}, does not exist"),
                });
            };
            fields.ripple(id, to);
        }
        Ok(fields)
    }
}

/// The length of displays in brackets, as in `3 ( 3 )`.
fn enum_length(line: &mut Line<'_>) -> Result<u8, FileError> {
    let Some(rest) = line.left.trim_start().strip_prefix('(') else { return Ok(0) };
    let Some((inner, rest)) = rest.split_once(')') else {
        return Err(line.error("the display length's bracket is not closed"));
    };
    line.left = rest;
    inner.trim().parse().map_err(|_| line.error("the display length is not a number below 256"))
}

impl Enums {
    /// Reads a file of enumerated types; bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// The first faulty line: a value outside a table, a display without its marks, a number out of
    /// range.
    pub fn parse(text: &[u8]) -> Result<Self, FileError> {
        let text = String::from_utf8_lossy(text);
        let mut enums = Enums::default();
        let edition = &mut enums.edition;
        let lines = lines(&text, |name, value| match name {
            "Version" => value.clone_into(&mut edition.version),
            "RT_Version" => value.clone_into(&mut edition.rt_version),
            "DT_Version" => value.clone_into(&mut edition.dt_version),
            "DictionaryId" => edition.id = value.parse().unwrap_or(1),
            _ => {}
        });
        let mut table = EnumTable::default();
        for mut line in lines {
            // A field's name may begin with a digit.
            let first = line.left.split_whitespace().next().unwrap_or_default();
            if first.bytes().all(|c| c.is_ascii_digit()) {
                if table.fields.is_empty() {
                    return Err(line.error("a value must follow the field it belongs to"));
                }
                table.values.push(value(&mut line)?);
                continue;
            }
            if !table.values.is_empty() {
                enums.insert(std::mem::take(&mut table));
            }
            line.word("the field's name")?;
            table.fields.push(line.number("the field id")?);
        }
        if !table.fields.is_empty() {
            enums.insert(table);
        }
        Ok(enums)
    }
}

fn value(line: &mut Line<'_>) -> Result<EnumValue, FileError> {
    let value = line.number("the value")?;
    let display = if line.left.trim_start().starts_with('#') {
        let digits = line.quoted('#', "the display")?;
        hex(digits).ok_or_else(|| line.error("the display must have two hexadecimal digits for each byte"))?
    } else {
        line.quoted('"', "the display")?.as_bytes().to_vec()
    };
    Ok(EnumValue { value, display, meaning: line.left.trim().to_owned() })
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[u8] = b"!tag Type 1\n!tag Version 1.2.3\n!tag DictionaryId 7\n!comment\n\
        BID \"BEST BID\" 22 BID_1 PRICE 17 REAL64 7\n\
        BID_1   \"BID BEFORE\" 23 NULL PRICE 17 REAL 7\r\n\n\
        TICK    \"UP (OR DOWN)\" -115 NULL ENUMERATED 2 ( 1 ) ENUM 1\n";

    #[test]
    fn field_dictionary_files_are_parsed() {
        let fields = Fields::parse(FIELDS).unwrap();
        assert_eq!((fields.edition.id, fields.edition.version.as_str(), fields.len()), (7, "1.2.3", 3));
        let bid = fields.named("BID").unwrap();
        assert_eq!((bid.id, bid.ripples_to, bid.long_name.as_str()), (22, 23, "BEST BID"));
        assert_eq!((fields.data_type(22), fields.data_type(24)), (DataType::REAL, DataType::UNKNOWN));
        let tick = fields.get(-115).unwrap();
        assert_eq!((tick.enum_length, tick.field_type, tick.data_length), (1, FieldType::Enumerated, 1));
        assert_eq!(fields.data_type(-115), DataType::ENUM);
    }

    #[test]
    fn errors_name_the_line() {
        let head = "A \"A\" 1 NULL PRICE 17 REAL 7\n";
        for (line, part) in [
            ("B B 2 NULL PRICE 17 REAL 7", "between two"),
            ("B \"B\" x NULL PRICE 17 REAL 7", "field id"),
            ("B \"B\" 40000 NULL PRICE 17 REAL 7", "field id"),
            ("B \"B\" 0 NULL PRICE 17 REAL 7", "id 0"),
            ("B \"B\" 1 NULL PRICE 17 REAL 7", "already defined, as A"),
            ("B \"B\" 2 C PRICE 17 REAL 7", "does not exist"),
            ("B \"B\" 2 NULL COST 17 REAL 7", "field type"),
            ("B \"B\" 2 NULL PRICE ( 3 REAL 7", "length"),
            ("B \"B\" 2 NULL ENUMERATED 3 ( 3 ENUM 7", "not closed"),
            ("B \"B\" 2 NULL ENUMERATED 3 ( 999 ) ENUM 7", "below 256"),
            ("B \"B\" 2 NULL PRICE 17 NUMBER 7", "'NUMBER' is unknown"),
            ("B \"B\" 2 NULL PRICE 17 REAL", "RWF length is missing"),
        ] {
            let error = Fields::parse(format!("! comment\n{head}{line}\n").as_bytes()).unwrap_err();
            assert_eq!(error.line, 3, "{line}");
            assert!(error.what.contains(part), "{error}");
        }
    }

    #[test]
    fn enum_files_are_parsed_and_errors_name_the_line() {
        let text =
            b"!tag RT_Version 4.1\n!tag DT_Version 2.0\nA 4\n52W 9\n! VALUE\n  1 \"ASE\"  American (old)\n\
            0 \"   \" \n 7 #DEfe# arrow\nC 14\n 2 \"x\" \n";
        let enums = Enums::parse(text).unwrap();
        assert_eq!((enums.edition.rt_version.as_str(), enums.edition.dt_version.as_str()), ("4.1", "2.0"));
        assert_eq!(enums.tables().len(), 2);
        assert_eq!(enums.display(9, 1), Some(&b"ASE"[..]));
        assert_eq!(enums.display(4, 0), Some(&b"   "[..]));
        assert_eq!(enums.display(4, 7), Some(&[0xde, 0xfe][..]));
        assert_eq!((enums.display(4, 2), enums.display(14, 2)), (None, Some(&b"x"[..])));
        assert_eq!(enums.table(9).unwrap().values[1].meaning, "American (old)");
        for (text, line) in
            [("1 \"a\"", 1), ("A 4\n1 a", 2), ("A 4\n1 #1#", 2), ("A x", 1), ("A 4\n70000 \"a\"", 2)]
        {
            assert_eq!(Enums::parse(text.as_bytes()).unwrap_err().line, line, "{text}");
        }
    }
}
