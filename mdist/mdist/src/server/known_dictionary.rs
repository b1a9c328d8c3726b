//! The dictionary that a program uses and gives out: from files, else from its sources, else the built-in one.

use std::sync::Arc;

use rssl::dictionary::{Dictionary, ENUM_DICTIONARY, FIELD_DICTIONARY};

use crate::cache::FieldTypes;
use crate::dictionaries::{Dictionaries, Half};
use crate::hub::Hub;

/// Where one half of the dictionary comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The small built-in dictionary: replaced by that of a source.
    BuiltIn,
    /// A configured file: never replaced.
    File,
    /// One or more sources, merged.
    Sources,
}

/// The dictionary of a program.
#[derive(Debug)]
pub(super) struct KnownDictionary {
    dictionary: Dictionary,
    fields: Origin,
    enums: Origin,
    /// What the program sends to consumers and publishers.
    given_out: Arc<Dictionaries>,
    warned: bool,
}

impl KnownDictionary {
    /// `from_files`: whether the fields and the enumerated types were read from files.
    pub(super) fn new(
        dictionary: Dictionary,
        from_files: (bool, bool),
        given_out: Arc<Dictionaries>,
    ) -> Self {
        let origin = |file| if file { Origin::File } else { Origin::BuiltIn };
        let (fields, enums) = (origin(from_files.0), origin(from_files.1));
        Self { dictionary, fields, enums, given_out, warned: false }
    }

    /// What it has now.
    pub(super) fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// Learns a dictionary of the source `from`; returns whether this one has changed.
    pub(super) fn learn(&mut self, from: &str, half: Half, hub: &mut Hub) -> bool {
        let name = half.name();
        let (origin, ours, theirs) = match &half {
            Half::Fields(fields) => (self.fields, &self.dictionary.fields.edition, &fields.edition),
            Half::Enums(enums) => (self.enums, &self.dictionary.enums.edition, &enums.edition),
        };
        if origin == Origin::File {
            if theirs.is_newer_than(ours) {
                tracing::warn!(
                    "{from} provides version {} of {name}, and the configured file is version {}: the file is used",
                    theirs.version,
                    ours.version
                );
            }
            return false;
        }
        let changed = match half {
            Half::Fields(fields) if origin == Origin::BuiltIn => {
                self.dictionary.fields = fields;
                true
            }
            Half::Fields(fields) => self.dictionary.fields.merge(fields),
            Half::Enums(enums) if origin == Origin::BuiltIn => {
                self.dictionary.enums = enums;
                true
            }
            Half::Enums(enums) => self.dictionary.enums.merge(enums),
        };
        if !changed {
            return false;
        }
        if name == FIELD_DICTIONARY {
            self.fields = Origin::Sources;
            hub.set_types(FieldTypes::new(Arc::new(self.dictionary.fields.clone())));
        } else {
            self.enums = Origin::Sources;
        }
        tracing::info!("{name} is now version {} of {from}", self.version(name));
        if let Err(why) = self.given_out.replace(&self.dictionary) {
            tracing::error!("cannot encode the dictionary of {from}: {why}; consumers get the one before");
        }
        true
    }

    fn version(&self, name: &str) -> &str {
        let edition = if name == FIELD_DICTIONARY {
            &self.dictionary.fields.edition
        } else {
            &self.dictionary.enums.edition
        };
        if edition.version.is_empty() { &edition.dt_version } else { &edition.version }
    }

    /// The halves that sinks need: all that are not built in.
    pub(super) fn halves(&self) -> Vec<Half> {
        let fields = (self.fields != Origin::BuiltIn).then(|| Half::Fields(self.dictionary.fields.clone()));
        let enums = (self.enums != Origin::BuiltIn).then(|| Half::Enums(self.dictionary.enums.clone()));
        fields.into_iter().chain(enums).collect()
    }

    /// Warns, once, that consumers of the known services get the built-in dictionary. Returns the warning.
    pub(super) fn warn_if_built_in(&mut self) -> Option<String> {
        let halves = [(self.fields, FIELD_DICTIONARY), (self.enums, ENUM_DICTIONARY)];
        let built_in: Vec<_> = halves
            .into_iter()
            .filter(|(origin, _)| *origin == Origin::BuiltIn)
            .map(|(_, name)| name)
            .collect();
        if built_in.is_empty() || std::mem::replace(&mut self.warned, true) {
            return None;
        }
        let text = format!(
            "no source provides {}: consumers get the small built-in dictionary, which lacks most fields (set dictionary.fields and dictionary.enums)",
            built_in.join(" and ")
        );
        tracing::warn!("{text}");
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use rssl::dictionary::{EnumTable, EnumValue, Enums, FieldDef, Fields};

    use super::*;
    use crate::hub;

    fn known(from_files: (bool, bool)) -> KnownDictionary {
        let small = Dictionary::small();
        let given_out = Arc::new(Dictionaries::of(&small, 6144).unwrap());
        KnownDictionary::new(small, from_files, given_out)
    }

    fn fields(version: &str, names: &[(i16, &str)]) -> Half {
        let mut fields = Fields::default();
        fields.edition.version = version.into();
        for (id, name) in names {
            fields.insert(FieldDef { id: *id, name: (*name).into(), ..FieldDef::default() });
        }
        Half::Fields(fields)
    }

    fn enums(display: &str) -> Half {
        let mut enums = Enums::default();
        let value = EnumValue { value: 1, display: display.into(), ..EnumValue::default() };
        enums.insert(EnumTable { fields: vec![4], values: vec![value] });
        Half::Enums(enums)
    }

    #[test]
    fn source_replaces_the_built_in_dictionary_and_others_are_merged() {
        let (mut known, mut hub) =
            (known((false, false)), Hub::new(hub::Options::default(), FieldTypes::default()));
        assert!(known.halves().is_empty());
        assert!(known.learn("one", fields("4.1", &[(215, "PROD_PERM")]), &mut hub));
        assert_eq!(known.dictionary.fields.len(), 1, "the built-in fields are not mixed in");
        assert!(known.learn("two", fields("4.0", &[(216, "OTHER"), (215, "OLD_NAME")]), &mut hub));
        assert_eq!(known.dictionary.fields.named("PROD_PERM").unwrap().id, 215);
        assert_eq!((known.dictionary.fields.len(), known.version(FIELD_DICTIONARY)), (2, "4.1"));
        assert!(!known.learn("two", fields("4.0", &[(216, "OTHER")]), &mut hub), "nothing new");
        assert!(known.learn("two", enums("EUR"), &mut hub));
        assert_eq!(known.halves().len(), 2);
        assert_eq!(known.warn_if_built_in(), None);
    }

    #[test]
    fn file_is_never_replaced() {
        let (mut known, mut hub) =
            (known((true, false)), Hub::new(hub::Options::default(), FieldTypes::default()));
        let count = known.dictionary.fields.len();
        assert!(!known.learn("one", fields("99.0", &[(215, "PROD_PERM")]), &mut hub));
        assert_eq!(known.dictionary.fields.len(), count);
        assert!(known.learn("one", enums("EUR"), &mut hub));
    }

    #[test]
    fn use_of_the_built_in_dictionary_is_reported_once() {
        let mut known = known((true, false));
        let text = known.warn_if_built_in().unwrap();
        assert!(text.starts_with("no source provides RWFEnum: consumers get the small built-in"), "{text}");
        assert_eq!(known.warn_if_built_in(), None);
    }
}
