//! The wire format between source ends and sink ends; the same on every backbone. All numbers are big-endian.
//!
//! Input is untrusted: each decoder checks everything that it reads, and its error names the wrong field.

mod framing;
mod packet;
mod record;

use rssl::wire::Reader;

pub use self::framing::Records;
pub(crate) use self::packet::mark_unordered;
pub use self::packet::{Entry, Header, Part};
pub(crate) use self::record::answer;
pub use self::record::{Answer, AnswerKind, Record};
use super::FeedId;

/// Version of this format; both ends must have the same.
pub const VERSION: u16 = 6;
/// Longest packet, bytes: below the longest message of TIPC (66,000).
pub const MAX_PACKET: usize = 60_000;
/// Longest record, bytes. Images are records too.
pub const MAX_RECORD: usize = 16 << 20;
/// Length of a packet's header, bytes.
pub const HEADER: usize = 36;
/// Stream of messages about a feed's service; items have positive ones.
pub const SERVICE_STREAM: i32 = -1;
/// First byte of a credit.
const CREDIT_MARK: u8 = 0xCD;
/// Maximum number of feeds of one source.
pub const MAX_FEEDS: usize = 1024;

/// Reason why input cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// It ends too early.
    #[error("{what} on the backbone is cut short: {why}")]
    Short {
        /// The structure that was decoded.
        what: &'static str,
        /// The field that is cut short.
        why: rssl::Error,
    },
    /// A field has a value that is not allowed.
    #[error(
        "{what} on the backbone has an unknown {field} {value} (does the peer run another version of mdist?)"
    )]
    Unknown {
        /// The structure that was decoded.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

type Result<T> = std::result::Result<T, WireError>;

fn short(what: &'static str) -> impl FnOnce(rssl::Error) -> WireError {
    move |why| WireError::Short { what, why }
}

/// Encodes a credit: mark, feed, position.
#[must_use]
pub fn encode_credit(feed: FeedId, position: u64) -> [u8; 13] {
    let mut out = [CREDIT_MARK; 13];
    out[1..5].copy_from_slice(&feed.0.to_be_bytes());
    out[5..13].copy_from_slice(&position.to_be_bytes());
    out
}

/// Decodes feed and position of a credit.
///
/// # Errors
/// The bytes are not a credit.
pub fn decode_credit(bytes: &[u8]) -> Result<(FeedId, u64)> {
    const WHAT: &str = "a credit";
    let mut r = Reader::new(bytes);
    let mark = r.u8().map_err(short(WHAT))?;
    if mark != CREDIT_MARK {
        return Err(WireError::Unknown { what: WHAT, field: "mark", value: mark.into() });
    }
    Ok((FeedId(r.u32().map_err(short(WHAT))?), r.u64().map_err(short(WHAT))?))
}

#[cfg(test)]
mod tests;
