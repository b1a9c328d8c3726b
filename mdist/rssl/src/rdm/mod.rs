//! The administrative domains as values: logins, the source directory, and what requests for items carry.

pub mod directory;
pub mod items;
pub mod login;
pub mod posting;

use crate::rwf::{Element, ElementList};
use crate::{Error, Result};

/// Calls `f` with every element of a list.
fn elements<'a>(bytes: &'a [u8], mut f: impl FnMut(&Element<'a>) -> Result<()>) -> Result<()> {
    ElementList::decode(bytes, None)?.entries().try_for_each(|element| f(&element?))
}

/// The error "`what` is not as the domain demands".
const fn wrong(what: &'static str) -> Error {
    Error::Malformed { what, at: 0 }
}
