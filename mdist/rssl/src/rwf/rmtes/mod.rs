//! RMTES: text in several character sets, with partial updates of cached text. Spec: rssl.md §3.2.
//!
//! A cache keeps the raw bytes and applies edits to them ([`apply`]); [`Text`] shows them.

mod partial;
mod text;

pub use partial::{apply, apply_to_vec, is_partial};
pub use text::Text;
pub(super) use text::Utf8;
