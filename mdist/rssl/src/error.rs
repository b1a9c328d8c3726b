//! What can be wrong with bytes from a peer, or with a value that is to become bytes.

/// Shorthand of this crate.
pub type Result<T> = core::result::Result<T, Error>;

/// Why bytes were not understood, or a value could not be written. Offsets count from the start of the bytes that
/// were given to the decoder: a whole message, or the content of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end inside a field.
    #[error("{what} at byte {at} is cut short: {need} bytes needed, {have} there")]
    Short {
        /// The field.
        what: &'static str,
        /// Where it starts.
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
        /// Where it starts.
        at: usize,
    },
    /// A message class outside 1 to 8, or another than the caller asked for.
    #[error("message class {0} is not expected here")]
    Class(u8),
    /// Containers inside containers, deeper than [`crate::limits::MAX_DEPTH`].
    #[error("containers are nested deeper than {0} levels")]
    Depth(usize),
    /// A set-encoded entry refers to a definition that neither the container nor the caller has.
    #[error("no definition of set {0}; give the global sets, or send the definition with the container")]
    NoSet(u16),
    /// The output buffer is full: try again with a larger one.
    #[error("the output buffer is full")]
    Full,
    /// A value that its length field cannot express.
    #[error("{what} of {len} bytes, {max} are possible")]
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
    /// The same error, of the field `what`.
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

/// Names the field that a result is about.
pub trait Named {
    /// Puts `name` into the error, if it is one.
    #[must_use = "the result is to be looked at"]
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
