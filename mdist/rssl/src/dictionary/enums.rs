//! Enumerated types of a dictionary: their values, and how to display them.

use std::collections::HashMap;

use super::Edition;

/// One value of an enumerated type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnumValue {
    /// The value in messages.
    pub value: u16,
    /// Display: text, or bytes of a terminal's own characters.
    pub display: Vec<u8>,
    /// Explanation; may be empty.
    pub meaning: String,
}

/// An enumerated type: its values, and the fields that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnumTable {
    /// Ids of the fields.
    pub fields: Vec<i16>,
    /// The values, by number.
    pub values: Vec<EnumValue>,
}

/// All enumerated types of a dictionary.
#[derive(Clone, Debug, Default)]
pub struct Enums {
    /// Identity and versions.
    pub edition: Edition,
    tables: Vec<EnumTable>,
    by_field: HashMap<i16, u32>,
}

impl Enums {
    /// The table of a field.
    #[must_use]
    pub fn table(&self, field: i16) -> Option<&EnumTable> {
        self.by_field.get(&field).and_then(|at| self.tables.get(*at as usize))
    }

    /// The display of a value of a field; `None` if the field or the value is unknown.
    #[must_use]
    pub fn display(&self, field: i16, value: u16) -> Option<&[u8]> {
        let values = &self.table(field)?.values;
        let at = values.binary_search_by_key(&value, |v| v.value).ok()?;
        values.get(at).map(|v| v.display.as_slice())
    }

    /// All tables.
    #[must_use]
    pub fn tables(&self) -> &[EnumTable] {
        &self.tables
    }

    /// Adds a table, or its values to the table of the same fields. Its fields use this table from now on; of values
    /// with the same number the first is kept.
    pub fn insert(&mut self, table: EnumTable) {
        let EnumTable { fields, mut values } = table;
        let first = fields.first().and_then(|field| self.by_field.get(field)).copied();
        let known =
            first.and_then(|at| self.tables.get_mut(at as usize)).filter(|known| known.fields == fields);
        if let Some(known) = known {
            known.values.append(&mut values);
            known.sort();
            return;
        }
        let at = self.tables.len() as u32;
        self.by_field.extend(fields.iter().map(|&field| (field, at)));
        let mut table = EnumTable { fields, values };
        table.sort();
        self.tables.push(table);
    }
}

impl EnumTable {
    fn sort(&mut self) {
        self.values.sort_by_key(|v| v.value);
        self.values.dedup_by_key(|v| v.value);
    }
}
