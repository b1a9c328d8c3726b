//! Dictionaries: names and types of fields, and the displays of their enumerated values. Loaded from the standard text
//! files, received over the wire, or built in.
//!
//! Spec: rssl.md §5.3

mod enums;
mod fields;
mod file;
mod merge;
mod small;
mod wire;

pub use enums::{EnumTable, EnumValue, Enums};
pub use fields::{FieldDef, FieldType, Fields};
pub use file::FileError;
pub use wire::{VERBOSITY_INFO, VERBOSITY_MINIMAL, VERBOSITY_NORMAL, VERBOSITY_VERBOSE};

use crate::rwf::{FieldName, Names};

/// Conventional name of the field dictionary.
pub const FIELD_DICTIONARY: &str = "RWFFld";
/// Conventional name of the dictionary of enumerated types.
pub const ENUM_DICTIONARY: &str = "RWFEnum";

/// Identity and versions of a dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edition {
    /// Dictionary id that field lists refer to; 1 is the default.
    pub id: i32,
    /// Version of the fields, or of the enumerated types as a whole ("major.minor.micro").
    pub version: String,
    /// Version of the real-time enumerated types; empty in field dictionaries.
    pub rt_version: String,
    /// Version of the display templates; empty in field dictionaries.
    pub dt_version: String,
}

impl Default for Edition {
    fn default() -> Self {
        Edition { id: 1, version: String::new(), rt_version: String::new(), dt_version: String::new() }
    }
}

/// Fields and enumerated types together.
#[derive(Clone, Debug, Default)]
pub struct Dictionary {
    /// The fields.
    pub fields: Fields,
    /// Displays of their enumerated values.
    pub enums: Enums,
}

impl Dictionary {
    /// The built-in dictionary: the fields of the load tools and of the public examples. It is not a replacement for a
    /// vendor's dictionary.
    #[must_use]
    pub fn small() -> Self {
        small::dictionary()
    }
}

impl Names for Dictionary {
    fn field(&self, id: i16) -> Option<FieldName<'_>> {
        self.fields.get(id).map(|def| FieldName { name: &def.name, data_type: def.data_type })
    }

    fn enumeration(&self, id: i16, value: u16) -> Option<&[u8]> {
        self.enums.display(id, value)
    }
}
