//! The fields of a dictionary, by id and by name.

use std::collections::{BTreeMap, HashMap};

use super::Edition;
use crate::rwf::DataType;

/// The type of a field before RWF, which some programs use for formatting. Spec: rssl.md §5.3
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i8)]
pub enum FieldType {
    /// Unknown.
    #[default]
    None = -1,
    /// Time with seconds.
    TimeSeconds = 0,
    /// Integer.
    Integer = 1,
    /// Number.
    Numeric = 2,
    /// Date.
    Date = 3,
    /// Price.
    Price = 4,
    /// Text.
    Alphanumeric = 5,
    /// Enumerated.
    Enumerated = 6,
    /// Time without seconds.
    Time = 7,
    /// Bits.
    Binary = 8,
    /// Text longer than 255 characters.
    LongAlphanumeric = 9,
    /// Bytes.
    Opaque = 10,
}

impl FieldType {
    /// All types with their names in dictionary files.
    pub(super) const NAMES: [(FieldType, &'static str); 13] = [
        (FieldType::None, "NONE"),
        (FieldType::TimeSeconds, "TIME_SECONDS"),
        (FieldType::Integer, "INTEGER"),
        (FieldType::Numeric, "NUMERIC"),
        (FieldType::Date, "DATE"),
        (FieldType::Price, "PRICE"),
        (FieldType::Alphanumeric, "ALPHANUMERIC"),
        (FieldType::Enumerated, "ENUMERATED"),
        (FieldType::Time, "TIME"),
        (FieldType::Binary, "BINARY"),
        (FieldType::LongAlphanumeric, "LONG_ALPHANUMERIC"),
        (FieldType::LongAlphanumeric, "ALPHANUM_XTND"),
        (FieldType::Opaque, "OPAQUE"),
    ];

    /// The type of a number on the wire; [`FieldType::None`] for unknown numbers.
    #[must_use]
    pub fn from_number(number: i64) -> Self {
        let found = Self::NAMES.iter().find(|(kind, _)| i64::from(*kind as i8) == number);
        found.map_or(FieldType::None, |(kind, _)| *kind)
    }
}

/// One field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldDef {
    /// Id; never 0.
    pub id: i16,
    /// Name, such as `BID`.
    pub name: String,
    /// Long name ("DDE acronym").
    pub long_name: String,
    /// The field that gets the previous value when this one changes; 0 for none.
    pub ripples_to: i16,
    /// Type before RWF.
    pub field_type: FieldType,
    /// Longest value as text, in characters.
    pub length: u16,
    /// Longest display of an enumerated value, in characters; 0 for other types.
    pub enum_length: u8,
    /// Type of the values.
    pub data_type: DataType,
    /// Longest value, in bytes.
    pub data_length: u16,
}

/// The fields of a dictionary.
#[derive(Clone, Debug)]
pub struct Fields {
    /// Identity and versions.
    pub edition: Edition,
    /// Type by id (as unsigned), for decoders.
    types: Box<[DataType]>,
    defs: BTreeMap<i16, FieldDef>,
    ids: HashMap<String, i16>,
}

impl Default for Fields {
    fn default() -> Self {
        let types = vec![DataType::UNKNOWN; 1 << 16].into_boxed_slice();
        Fields { edition: Edition::default(), types, defs: BTreeMap::new(), ids: HashMap::new() }
    }
}

impl Fields {
    /// The type of a field's values; `DataType::UNKNOWN` if the field does not exist.
    #[inline]
    #[must_use]
    pub fn data_type(&self, id: i16) -> DataType {
        self.types.get(usize::from(id.cast_unsigned())).copied().unwrap_or(DataType::UNKNOWN)
    }

    /// A field by its id.
    #[must_use]
    pub fn get(&self, id: i16) -> Option<&FieldDef> {
        self.defs.get(&id)
    }

    /// A field by its name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&FieldDef> {
        self.ids.get(name).and_then(|id| self.defs.get(id))
    }

    /// All fields, by id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &FieldDef> {
        self.defs.values()
    }

    /// Number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.defs.len()
    }

    /// Whether the dictionary has no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.defs.is_empty()
    }

    /// Adds a field; returns the field of the same id that it replaces.
    pub fn insert(&mut self, def: FieldDef) -> Option<FieldDef> {
        if let Some(place) = self.types.get_mut(usize::from(def.id.cast_unsigned())) {
            *place = def.data_type;
        }
        let id = def.id;
        let name = def.name.clone();
        let old = self.defs.insert(id, def);
        if let Some(old) = &old
            && self.ids.get(&old.name) == Some(&id)
        {
            self.ids.remove(&old.name);
        }
        self.ids.insert(name, id);
        old
    }

    /// Sets the field that a field ripples to, which a file may define later.
    pub(super) fn ripple(&mut self, id: i16, to: i16) {
        if let Some(def) = self.defs.get_mut(&id) {
            def.ripples_to = to;
        }
    }
}
