//! Errors in messages of upstreams, for which the hub rejects them.

/// A message that makes its sender unusable: the upstream's connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// The message cannot be decoded.
    #[error("malformed message: {0}")]
    Malformed(#[from] rssl::Error),
    /// A stream carries messages of two domains.
    #[error("a message on stream {stream} has another domain than the stream")]
    Domain {
        /// The stream.
        stream: i32,
    },
    /// A message of a class that only consumers send.
    #[error("a message on stream {stream} is of a class that only consumers send")]
    Class {
        /// The stream.
        stream: i32,
    },
    /// A publisher's first refresh does not name its item.
    #[error(
        "the first refresh on stream {stream} has no key with service id and name; publishers must send one"
    )]
    NoKey {
        /// The stream.
        stream: i32,
    },
    /// A publisher's item is of a service that the publisher's directory does not have.
    #[error(
        "the refresh on stream {stream} is of service {service}, which the publisher's directory does not have"
    )]
    Service {
        /// The stream.
        stream: i32,
        /// The service id in the key.
        service: u16,
    },
}
