//! Last values of an item, built from refreshes and updates and given out as a refresh. Pure; one thread at a time.
//!
//! A [`Record`] holds one item, a [`Cache`] what records share: layouts of field lists, the types of fields, limits and
//! memory that is used again. Nothing here depends on the domain of an item, only on its containers: field and element
//! lists, maps, vectors, series and filter lists are kept entry by entry, anything else as the last whole value.
//! Set-encoded entries are given out as plain ones.
//!
//! An error leaves the record as it was (or, where a value deep inside outgrows what the wire can carry, without an
//! image). The record is then no longer what the publisher has: clear it, and ask for the image again.
//!
//! Decisions where the wire leaves room: an update of a map's or vector's entry that never was added adds it; entries of
//! a series are appended by updates as by further parts; fields do not ripple, which is left to consumers.

mod elements;
mod fields;
mod filters;
mod image;
mod layout;
mod map;
mod node;
mod record;
mod series;
mod table;
#[cfg(test)]
mod tests;
mod types;
mod vector;

pub use image::{Image, PartView};
pub use record::Record;
pub use types::FieldTypes;

use fields::Scratch;
use layout::Layouts;

/// Shorthand of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a message was not applied to a record, or an image could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The payload does not follow the wire format.
    #[error(transparent)]
    Wire(#[from] rssl::Error),
    /// The record would outgrow a limit.
    #[error("the item would have more than {limit} {what}; raise the cache's limit or turn its cache off")]
    Limit {
        /// What there would be too many of.
        what: &'static str,
        /// As many are allowed.
        limit: usize,
    },
    /// The payload is of another container type than the image.
    #[error("a payload of {got} cannot change an image of {have}; the image is asked for again")]
    Container {
        /// Type in the cache.
        have: rssl::rwf::DataType,
        /// Type that came.
        got: rssl::rwf::DataType,
    },
    /// A field list that switches dictionaries in the middle (field 0), which a cache of values by field id cannot keep.
    #[error("a field list that switches its dictionary cannot be cached; turn the cache of its service off")]
    DictionarySwitch,
}

/// Limits of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, tables included; what came since they were last measured counts in full.
    pub bytes: usize,
    /// Entries of all containers together, fields of nested field lists not counted.
    pub entries: usize,
}

impl Default for Limits {
    /// 8 MiB and 262,144 entries: the deepest order books and the longest symbol lists fit, a runaway publisher does not.
    fn default() -> Self {
        Self { bytes: 8 << 20, entries: 1 << 18 }
    }
}

/// What records have in common. One per hub.
#[derive(Debug, Default)]
pub struct Cache {
    layouts: Layouts,
    types: FieldTypes,
    limits: Limits,
    scratch: Scratch,
    out: Vec<u8>,
    message: Vec<u8>,
}

impl Cache {
    /// With what is known of field types; without a dictionary [`FieldTypes::default`].
    #[must_use]
    pub fn new(types: FieldTypes, limits: Limits) -> Self {
        Self { types, limits, ..Self::default() }
    }

    /// Learns the types of fields: a dictionary arrived after the first items.
    pub fn set_types(&mut self, types: FieldTypes) {
        self.types = types;
        self.layouts.renew();
    }

    /// Field-list layouts in use and the memory they take, in bytes.
    #[must_use]
    pub fn layouts(&self) -> (usize, usize) {
        self.layouts.size()
    }
}
