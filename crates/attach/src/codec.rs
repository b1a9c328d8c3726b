//! Encoding of messages: a postcard value, then the payload unchanged.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Longest packet on an attachment, bytes: the largest message with its envelope.
pub const MAX_PACKET: usize = 66_000 + 4096;

/// The bytes are not a message of the agreed version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a message of this protocol version (library and daemon differ, or the sender is broken)")]
pub struct BadMessage;

/// Appends `message`, then `payload`, to `out`.
pub fn encode<T: Serialize>(message: &T, payload: &[u8], out: &mut Vec<u8>) {
    // Writing to a vector fails only for sequences of unknown length, which no message has.
    if let Ok(bytes) = postcard::to_extend(message, core::mem::take(out)) {
        *out = bytes;
    }
    out.extend_from_slice(payload);
}

/// Decodes the message at the start of `packet`; returns it and the payload behind it.
///
/// # Errors
/// [`BadMessage`].
pub fn decode<T: DeserializeOwned>(packet: &[u8]) -> Result<(T, &[u8]), BadMessage> {
    if packet.len() > MAX_PACKET {
        return Err(BadMessage);
    }
    postcard::take_from_bytes(packet).map_err(|_| BadMessage)
}
