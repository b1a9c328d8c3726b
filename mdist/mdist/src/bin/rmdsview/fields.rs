//! The fields of an item, as text and as JSON.

use std::collections::BTreeMap;

use rssl::dictionary::Dictionary;
use rssl::rwf::rmtes::{Text, apply_to_vec};
use rssl::rwf::{DataType, Enum, Field, FieldList, Names as _, Value};
use serde_json::json;

/// Longest text of a field, bytes.
const MAX_TEXT: usize = 64 * 1024;

/// The texts of an item that updates may edit in part, by field id.
#[derive(Debug, Default)]
pub(super) struct Texts(BTreeMap<i16, Vec<u8>>);

impl Texts {
    /// Forgets all texts, because a new image begins.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The whole text after an update of a field.
    fn apply(&mut self, id: i16, data: &[u8]) -> &[u8] {
        let text = self.0.entry(id).or_default();
        if apply_to_vec(text, data, MAX_TEXT).is_err() {
            text.clear();
        }
        text
    }
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shown {
    /// Its id.
    pub(super) id: i16,
    /// Its name, or the id if the dictionary does not know it.
    pub(super) name: String,
    /// Its value, for people.
    pub(super) text: String,
    /// Its value, for programs.
    pub(super) json: serde_json::Value,
}

/// The fields of a field list.
///
/// # Errors
/// The list is malformed.
pub(super) fn decode(payload: &[u8], dictionary: &Dictionary, texts: &mut Texts) -> rssl::Result<Vec<Shown>> {
    let mut all = Vec::new();
    for field in FieldList::decode(payload, None)?.entries() {
        all.push(shown(&field?, dictionary, texts));
    }
    Ok(all)
}

fn shown(field: &Field<'_>, dictionary: &Dictionary, texts: &mut Texts) -> Shown {
    let known = dictionary.field(field.id);
    let data_type = known.map_or(field.set_type, |known| known.data_type);
    let name = known.map_or_else(|| field.id.to_string(), |known| known.name.to_owned());
    let (text, json) = match Value::decode(data_type, field.data) {
        Ok(Value::Rmtes(edit)) => text_of(&Text(texts.apply(field.id, edit)).to_string()),
        Ok(Value::Enum(Enum(value))) => match dictionary.enumeration(field.id, value) {
            Some(display) => text_of(Text(display).to_string().trim_end()),
            None => (value.to_string(), value.into()),
        },
        Ok(value) => shown_value(&value),
        Err(why) => (format!("(malformed: {why})"), json!(null)),
    };
    Shown { id: field.id, name, text, json }
}

fn text_of(text: &str) -> (String, serde_json::Value) {
    (text.to_owned(), text.into())
}

fn shown_value(value: &Value<'_>) -> (String, serde_json::Value) {
    let text = value.to_string();
    let number = |value: f64| serde_json::Number::from_f64(value).map_or(json!(null), Into::into);
    let json = match value {
        Value::Blank => json!(null),
        Value::Int(value) => (*value).into(),
        Value::UInt(value) => (*value).into(),
        Value::Float(value) => number(f64::from(*value)),
        Value::Double(value) => number(*value),
        // A real without decimals is a whole number.
        Value::Real(value) if value.is_finite() => {
            text.parse::<i64>().map_or_else(|_| number(value.to_f64()), Into::into)
        }
        Value::Ascii(bytes) | Value::Utf8(bytes) => return text_of(&String::from_utf8_lossy(bytes)),
        _ => text.clone().into(),
    };
    (text, json)
}

/// Whether the user wants to see a field: `wanted` are names and ids; empty: all.
pub(super) fn is_wanted(field: &Shown, wanted: &[String]) -> bool {
    let same = |text: &String| text.eq_ignore_ascii_case(&field.name) || text.parse() == Ok(field.id);
    wanted.is_empty() || wanted.iter().any(same)
}

/// Whether a payload is a field list.
pub(super) fn is_field_list(container: DataType) -> bool {
    container == DataType::FIELD_LIST
}

#[cfg(test)]
mod tests {
    use rssl::rwf::{FieldListWriter, Real};
    use rssl::wire::to_vec;

    use super::*;

    #[test]
    fn fields_have_names_values_and_whole_texts() {
        let list = |text: &[u8]| {
            to_vec(|w| {
                let mut list = FieldListWriter::new(w)?;
                list.real(22, Real::with_decimals(3991, 2))?;
                list.blank(25)?;
                list.real(30, Real::new(1700, 14))?;
                list.text(3, text)?;
                list.field(9_999, &[1, 2])?;
                list.finish()
            })
            .unwrap()
        };
        let (dictionary, mut texts) = (Dictionary::small(), Texts::default());
        let fields = decode(&list(b"Reuters"), &dictionary, &mut texts).unwrap();
        let seen: Vec<_> = fields.iter().map(|field| (field.name.as_str(), field.json.clone())).collect();
        assert_eq!(
            seen,
            [
                ("BID", json!(39.91)),
                ("ASK", json!(null)),
                ("BIDSIZE", json!(1700)),
                ("DSPLY_NAME", json!("Reuters")),
                ("9999", json!("0x0102"))
            ]
        );
        // Position 1, then a text: a partial update.
        let fields = decode(&list(b"\x1b[1`EU"), &dictionary, &mut texts).unwrap();
        assert_eq!(fields[3].text, "REUters");
        assert!(is_wanted(&fields[0], &["bid".into()]) && is_wanted(&fields[0], &["22".into()]));
        assert!(!is_wanted(&fields[1], &["BID".into()]));
    }
}
