//! Errors of decoding and encoding.

/// Result of this crate.
pub type Result<T> = core::result::Result<T, Error>;

/// Reason why decoding or encoding failed.
///
/// Offsets count from the start of the bytes given to the decoder: a whole message, or the content of one
/// container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end inside a field.
    #[error("{what} at byte {at} is cut short: {need} bytes needed, {have} left")]
    Short {
        /// The field.
        what: &'static str,
        /// Offset at which it starts.
        at: usize,
        /// Bytes it needs.
        need: usize,
        /// Bytes that are left.
        have: usize,
    },
    /// A value that the protocol does not allow.
    #[error("{what} at byte {at} has a value that is not allowed")]
    Malformed {
        /// The field.
        what: &'static str,
        /// Offset at which it starts.
        at: usize,
    },
    /// A message class outside 1 to 8, or not the requested one.
    #[error("message class {0} is not expected here")]
    Class(u8),
    /// Containers inside containers, deeper than [`crate::limits::MAX_DEPTH`].
    #[error("containers are nested deeper than {0} levels")]
    Depth(usize),
    /// A set-encoded entry refers to a definition that the container does not have.
    #[error("no definition of set {0}; send the definition with the container")]
    NoSet(u16),
    /// The output buffer is full: try again with a larger one.
    #[error("the output buffer is full")]
    Full,
    /// A value longer than its length field allows.
    #[error("{what} of {len} bytes is too long: {max} are possible")]
    TooLong {
        /// The field.
        what: &'static str,
        /// Bytes it has.
        len: usize,
        /// Bytes it may have.
        max: usize,
    },
}

impl Error {
    /// The same error for the field `name`.
    #[must_use]
    pub const fn named(self, name: &'static str) -> Self {
        match self {
            Self::Short { at, need, have, .. } => Self::Short { what: name, at, need, have },
            Self::Malformed { at, .. } => Self::Malformed { what: name, at },
            Self::TooLong { len, max, .. } => Self::TooLong { what: name, len, max },
            other => other,
        }
    }
}

/// Adds the name of a field to errors.
pub trait Named {
    /// Names the field in the error, if this is one.
    #[must_use = "the result may be an error"]
    fn named(self, name: &'static str) -> Self;
}

impl<T> Named for Result<T> {
    #[inline]
    fn named(self, name: &'static str) -> Self {
        match self {
            Ok(v) => Ok(v),
            Err(e) => Err(e.named(name)),
        }
    }
}
