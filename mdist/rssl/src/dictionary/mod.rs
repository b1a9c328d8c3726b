//! Dictionaries: what the fields of field lists are called, which types they have, and what their enumerated values
//! stand for. Loaded from the standard text files, transferred over the wire, or the small one built in.
//!
//! Spec: rssl.md §5.3

mod enums;
mod fields;
mod file;
mod small;
mod wire;

pub use enums::{EnumTable, EnumValue, Enums};
pub use fields::{FieldDef, FieldType, Fields};
pub use file::FileError;
pub use wire::{VERBOSITY_INFO, VERBOSITY_MINIMAL, VERBOSITY_NORMAL, VERBOSITY_VERBOSE};

use crate::rwf::{FieldName, Names};

/// Conventional name of the field dictionary.
pub const FIELD_DICTIONARY: &str = "RWFFld";
/// Conventional name of the enumerated types.
pub const ENUM_DICTIONARY: &str = "RWFEnum";

/// Which edition of a dictionary it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edition {
    /// Number that field lists refer to; 1 unless they say otherwise.
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
    /// What their enumerated values stand for.
    pub enums: Enums,
}

impl Dictionary {
    /// The built-in dictionary: the fields that the load tools send and that the public examples ask for. Enough to
    /// read what those tools send, not a replacement for a vendor's dictionary.
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
