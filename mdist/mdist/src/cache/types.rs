//! The types of fields, as far as they matter to the cache: fields with partial updates, and fields with containers.

use rssl::dictionary::Fields;
use rssl::rwf::{DataType, rmtes};
use std::sync::Arc;

/// First byte of the commands that edit a cached text.
pub(super) const ESCAPE: u8 = 0x1b;

/// Types of fields by id. Without a dictionary each value that begins like a partial update counts as one, and
/// containers in fields are cached as whole values.
#[derive(Clone, Debug, Default)]
pub struct FieldTypes {
    fields: Option<Arc<Fields>>,
}

impl FieldTypes {
    /// The types of a dictionary.
    #[must_use]
    pub fn new(fields: Arc<Fields>) -> Self {
        Self { fields: Some(fields) }
    }

    fn of(&self, id: i16) -> DataType {
        self.fields.as_ref().map_or(DataType::UNKNOWN, |fields| fields.data_type(id))
    }

    /// The type of the container in a field, if it has one.
    pub(super) fn container(&self, id: i16) -> Option<DataType> {
        Some(self.of(id)).filter(|t| t.is_container())
    }

    /// Whether this value edits the cached one instead of replacing it. Spec: rssl.md §3.2.
    pub(super) fn edits(&self, id: i16, value: &[u8]) -> bool {
        match self.of(id) {
            DataType::RMTES_STRING => rmtes::is_partial(value),
            // Values of other types may contain bytes that look like a command.
            DataType::UNKNOWN => value.first() == Some(&ESCAPE) && rmtes::is_partial(value),
            _ => false,
        }
    }
}
