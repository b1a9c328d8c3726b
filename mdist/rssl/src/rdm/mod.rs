//! Messages of the administrative domains as values: logins, the source directory, payloads of item requests, posts.

pub mod directory;
pub mod items;
pub mod login;
pub mod posting;

use crate::rwf::{Element, ElementList};
use crate::{Error, Result};

/// Calls `f` for every element of a list.
fn elements<'a>(bytes: &'a [u8], mut f: impl FnMut(&Element<'a>) -> Result<()>) -> Result<()> {
    ElementList::decode(bytes, None)?.entries().try_for_each(|element| f(&element?))
}

/// The error that `what` is malformed.
const fn wrong(what: &'static str) -> Error {
    Error::Malformed { what, at: 0 }
}
