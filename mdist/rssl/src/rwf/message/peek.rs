//! Reads and changes messages at constant offsets, for distributors that pass them on.

use super::Class;
use crate::rwf::{DataType, Domain};
use crate::wire::Reader;
use crate::{Error, Named, Result};

/// Class, domain and stream of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head {
    /// Class.
    pub class: Class,
    /// Domain.
    pub domain: Domain,
    /// Stream id: positive if the consumer opened the stream, negative if the provider did.
    pub stream: i32,
}

/// Reads the class, domain and stream of a message, and nothing else.
///
/// # Errors
/// Fewer than eight bytes, or a class that does not exist.
#[inline]
pub const fn peek(message: &[u8]) -> Result<Head> {
    match message.first_chunk::<8>() {
        Some(&[_, _, class, domain, a, b, c, d]) => match Class::from_byte(class) {
            Ok(class) => Ok(Head { class, domain: Domain(domain), stream: i32::from_be_bytes([a, b, c, d]) }),
            Err(e) => Err(e),
        },
        None => Err(short(message)),
    }
}

/// Type and bytes of the payload; reads only the first bytes of the header.
///
/// # Errors
/// A header that is cut short, or a payload type that does not exist.
#[inline]
pub fn peek_payload(message: &[u8]) -> Result<(DataType, &[u8])> {
    let mut whole = Reader::new(message);
    let size = whole.u16().named("header size")?;
    let mut header = whole.inner(usize::from(size)).named("header")?;
    header.bytes(6).named("header")?;
    header.rb15().named("message flags")?;
    let bad = header.malformed("container type");
    let container = DataType::from_container_byte(header.u8().named("container type")?).ok_or(bad)?;
    Ok((container, whole.rest()))
}

/// Replaces the stream id of a message.
///
/// # Errors
/// Fewer than eight bytes.
#[inline]
pub fn set_stream(message: &mut [u8], stream: i32) -> Result<()> {
    match message.get_mut(4..8) {
        Some(place) => {
            place.copy_from_slice(&stream.to_be_bytes());
            Ok(())
        }
        None => Err(short(message)),
    }
}

#[cold]
const fn short(message: &[u8]) -> Error {
    Error::Short { what: "message", at: 0, need: 8, have: message.len() }
}
