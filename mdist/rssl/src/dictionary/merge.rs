//! Combining the dictionaries of several sources. The definitions of the higher version win; the other dictionary adds
//! what is missing.

use super::{Edition, EnumTable, Enums, Fields};

impl Edition {
    /// Whether this version is higher than the other, compared number by number.
    #[must_use]
    pub fn is_newer_than(&self, other: &Edition) -> bool {
        let numbers = |edition: &Edition| {
            [&edition.version, &edition.dt_version, &edition.rt_version].map(|version| {
                version.split('.').map(|number| number.trim().parse().unwrap_or(0)).collect::<Vec<u64>>()
            })
        };
        numbers(self) > numbers(other)
    }
}

impl Fields {
    /// Merges the fields of another dictionary into these, and returns whether these have changed. A field that both
    /// define, by id or name, comes from the higher version; if equal, from this dictionary.
    pub fn merge(&mut self, mut other: Fields) -> bool {
        let newer = other.edition.is_newer_than(&self.edition);
        if newer {
            std::mem::swap(self, &mut other);
        }
        let mut changed = newer;
        for def in other.iter() {
            if self.get(def.id).is_none() && self.named(&def.name).is_none() {
                self.insert(def.clone());
                changed = true;
            }
        }
        changed
    }
}

impl Enums {
    /// Merges the tables of another dictionary into these, and returns whether these have changed. The values of a
    /// field for which both have a table come from the higher version; if equal, from this dictionary.
    pub fn merge(&mut self, mut other: Enums) -> bool {
        let newer = other.edition.is_newer_than(&self.edition);
        if newer {
            std::mem::swap(self, &mut other);
        }
        let mut changed = newer;
        for EnumTable { fields, values } in other.tables() {
            let fields: Vec<i16> = fields.iter().copied().filter(|id| self.table(*id).is_none()).collect();
            if !fields.is_empty() {
                self.insert(EnumTable { fields, values: values.clone() });
                changed = true;
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EnumValue, FieldDef};
    use super::*;
    use crate::rwf::DataType;

    fn edition(version: &str) -> Edition {
        Edition { version: version.into(), ..Edition::default() }
    }

    fn fields(version: &str, defs: &[(i16, &str, DataType)]) -> Fields {
        let mut fields = Fields::default();
        fields.edition = edition(version);
        for (id, name, data_type) in defs {
            fields.insert(FieldDef {
                id: *id,
                name: (*name).into(),
                data_type: *data_type,
                ..FieldDef::default()
            });
        }
        fields
    }

    fn enums(version: &str, tables: &[(&[i16], &str)]) -> Enums {
        let mut enums = Enums::default();
        enums.edition = edition(version);
        for (fields, display) in tables {
            let value = EnumValue { value: 1, display: display.as_bytes().to_vec(), ..EnumValue::default() };
            enums.insert(EnumTable { fields: fields.to_vec(), values: vec![value] });
        }
        enums
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (newer, older) in [("4.10.2", "4.9.30"), ("4.20.18", ""), ("1.0.1", "1.0")] {
            assert!(edition(newer).is_newer_than(&edition(older)), "{newer} {older}");
            assert!(!edition(older).is_newer_than(&edition(newer)), "{newer} {older}");
        }
        assert!(!edition("4.2").is_newer_than(&edition("4.2")));
        let of_types = |version: &str| Edition { dt_version: version.into(), ..Edition::default() };
        assert!(of_types("16.11").is_newer_than(&of_types("16.2")));
    }

    #[test]
    fn fields_of_the_higher_version_win_and_the_other_adds_to_them() {
        let old = fields(
            "4.2",
            &[
                (22, "BID", DataType::REAL),
                (30, "BIDSIZE", DataType::REAL),
                (215, "PROD_PERM", DataType::UINT),
            ],
        );
        let new = fields("4.10", &[(22, "BID", DataType::INT), (-31, "BIDSIZE", DataType::UINT)]);
        for (mut first, second, changed) in
            [(old.clone(), new.clone(), true), (new.clone(), old.clone(), true)]
        {
            assert_eq!(first.merge(second.clone()), changed);
            assert_eq!((first.edition.version.as_str(), first.len()), ("4.10", 3));
            assert_eq!((first.data_type(22), first.data_type(215)), (DataType::INT, DataType::UINT));
            // A name is never given to two fields.
            assert_eq!((first.named("BIDSIZE").unwrap().id, first.get(30)), (-31, None));
            assert!(!first.merge(second), "the same dictionary again changes nothing");
        }
        let mut equal = fields("4.2", &[(22, "BID", DataType::INT)]);
        equal.merge(old);
        assert_eq!((equal.data_type(22), equal.len()), (DataType::INT, 3));
    }

    #[test]
    fn tables_of_the_higher_version_win_and_the_other_adds_to_them() {
        let old = enums("1.2", &[(&[4, 15], "old"), (&[8], "kept")]);
        let new = enums("1.10", &[(&[4], "new")]);
        for (mut first, second) in [(old.clone(), new.clone()), (new, old)] {
            assert!(first.merge(second.clone()));
            assert_eq!(first.display(4, 1), Some(&b"new"[..]));
            assert_eq!(first.display(15, 1), Some(&b"old"[..]));
            assert_eq!(first.display(8, 1), Some(&b"kept"[..]));
            assert!(!first.merge(second));
        }
    }
}
