//! Errors of the core, by cause.

use thiserror::Error;

/// Bytes that are not a valid TIPC message, or not of the expected kind; the sender of the frame is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer bytes than the smallest header, or than the header that the message claims.
    #[error("truncated: {have} bytes, {need} needed")]
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes present.
        have: usize,
    },
    /// Header size outside 24 to 60 bytes, or too small for the user and type.
    #[error("header of {have} bytes where {need} are needed")]
    HeaderSize {
        /// Bytes needed.
        need: usize,
        /// Bytes claimed.
        have: usize,
    },
    /// Not protocol version 2.
    #[error("version {0} instead of 2")]
    Version(u8),
    /// Message size below its header, above the limit, or beyond the bytes received.
    #[error("message size {size} does not fit a header of {header} and {have} bytes received")]
    Size {
        /// Size claimed by the message.
        size: usize,
        /// Size of its header.
        header: usize,
        /// Bytes received.
        have: usize,
    },
    /// A user that is not accepted on this path.
    #[error("user {0} is not legal here")]
    User(u8),
    /// A type that the user does not have.
    #[error("user {user} has no type {kind}")]
    Type {
        /// Message user.
        user: u8,
        /// Message type.
        kind: u8,
    },
    /// A media address of unknown type, or a broadcast or multicast address.
    #[error("bad media address")]
    MediaAddress,
    /// A payload that violates a rule of its record; the text names the rule.
    #[error("malformed {0}")]
    Malformed(&'static str),
}
