//! Node identities as attributes.

use crate::attribute::{Nest, Writer};
use crate::errno::Errno;
use crate::family::net;

/// Writes an identity as two numbers in its byte order.
pub(crate) fn write(out: &mut Writer<'_>, identity: Option<&[u8; 16]>) {
    if let Some((first, rest)) = identity.and_then(|id| id.split_first_chunk::<8>()) {
        out.bytes(net::NODEID, first);
        out.bytes(net::NODEID_W1, rest);
    }
}

/// Reads the identity in a nest; `None` if it has none.
pub(crate) fn read(nest: Nest<'_>) -> Result<Option<[u8; 16]>, Errno> {
    let Some(first) = nest.u64(net::NODEID)? else { return Ok(None) };
    let second = nest.u64(net::NODEID_W1)?.ok_or(Errno::INVALID)?;
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&first.to_ne_bytes());
    identity[8..].copy_from_slice(&second.to_ne_bytes());
    Ok(Some(identity))
}
