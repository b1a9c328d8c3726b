//! What enumerated values stand for.

use std::collections::HashMap;

use super::Edition;

/// One value of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnumValue {
    /// The value in messages.
    pub value: u16,
    /// What is shown for it: text, or bytes of a terminal's own characters.
    pub display: Vec<u8>,
    /// Explanation; may be empty.
    pub meaning: String,
}

/// Values that one or more fields share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnumTable {
    /// Ids of these fields.
    pub fields: Vec<i16>,
    /// The values, by number.
    pub values: Vec<EnumValue>,
}

/// All tables of a dictionary.
#[derive(Clone, Debug, Default)]
pub struct Enums {
    /// Which edition.
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

    /// What is shown for a field's value.
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

    /// Adds a table, or adds to the one of the same fields. The fields that it names use it from now on; of values with
    /// one number the first stays.
    pub fn insert(&mut self, table: EnumTable) {
        let EnumTable { fields, mut values } = table;
        let first = fields.first().and_then(|field| self.by_field.get(field)).copied();
        let known =
            first.and_then(|at| self.tables.get_mut(at as usize)).filter(|known| known.fields == fields);
        if let Some(known) = known {
            known.values.append(&mut values);
            known.tidy();
            return;
        }
        let at = self.tables.len() as u32;
        self.by_field.extend(fields.iter().map(|&field| (field, at)));
        let mut table = EnumTable { fields, values };
        table.tidy();
        self.tables.push(table);
    }
}

impl EnumTable {
    fn tidy(&mut self) {
        self.values.sort_by_key(|v| v.value);
        self.values.dedup_by_key(|v| v.value);
    }
}
