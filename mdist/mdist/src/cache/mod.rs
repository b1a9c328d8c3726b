//! The cache: the last values of items, built from refreshes and updates and sent as refreshes.
//!
//! It does no I/O, and is used by one thread at a time.
//!
//! A [`Record`] holds one item, a [`Cache`] the state that records share: layouts of field lists, the types of fields,
//! limits and reused memory. The domain of an item does not matter, only its containers: field and element lists, maps,
//! vectors, series and filter lists are cached entry by entry, other types as the last whole value. Set-encoded entries
//! are emitted as plain ones.
//!
//! An error leaves the record as it was, or without an image if a nested value outgrew what the wire can carry. The
//! record then differs from the publisher's data: clear it, and request the image again.
//!
//! Where the wire format leaves a choice: an update of an entry that was never added to a map or vector adds it;
//! updates append to a series as further parts do; fields are not rippled, which consumers do.
//!
//! `node` and the files of the containers import each other, because containers nest: a node is one of the containers,
//! and the entries of each container are nodes.

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
pub use record::{Record, is_plain_update};
pub use types::FieldTypes;

use fields::Scratch;
use layout::Layouts;

/// Result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// An error when a message is applied to a record, or an image is built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The payload does not follow the wire format.
    #[error(transparent)]
    Wire(#[from] rssl::Error),
    /// The record would outgrow a limit.
    #[error("the item would have more than {limit} {what}; raise the cache's limit or turn its cache off")]
    Limit {
        /// The limited quantity.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The payload has another container type than the image.
    #[error("a payload of {got} cannot change an image of {have}; the image is asked for again")]
    Container {
        /// Container type of the image.
        have: rssl::rwf::DataType,
        /// Container type of the payload.
        got: rssl::rwf::DataType,
    },
    /// A field list that switches dictionaries in the middle (field 0), which a cache of values by field id cannot
    /// keep.
    #[error("a field list that switches its dictionary cannot be cached; turn the cache of its service off")]
    DictionarySwitch,
}

/// Limits of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, tables included. Bytes received since the last measurement count in full.
    pub bytes: usize,
    /// Entries of all containers together; fields of nested field lists do not count.
    pub entries: usize,
}

impl Default for Limits {
    /// 8 MiB and 262,144 entries: the deepest order books and the longest symbol lists fit, a runaway publisher does
    /// not.
    fn default() -> Self {
        Self { bytes: 8 << 20, entries: 1 << 18 }
    }
}

/// The state that all records share. One per hub.
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
    /// Creates a cache. Without a dictionary `types` is [`FieldTypes::default`].
    #[must_use]
    pub fn new(types: FieldTypes, limits: Limits) -> Self {
        Self { types, limits, ..Self::default() }
    }

    /// Replaces the types of fields: a dictionary arrived after the first items.
    pub fn set_types(&mut self, types: FieldTypes) {
        self.types = types;
        self.layouts.clear();
    }

    /// Number of field-list layouts in use, and their memory in bytes.
    #[must_use]
    pub fn layouts(&self) -> (usize, usize) {
        self.layouts.size()
    }
}
