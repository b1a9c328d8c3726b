//! Errors of the transport.

/// Result of the transport's operations.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of a connection. Close the connection after it, because the bytes that follow cannot be interpreted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The first bytes are not a connect request.
    #[error("the peer does not speak RSSL (first bytes {0:02x?}); connect an RSSL program to this port")]
    NotRssl([u8; 4]),
    /// The peer speaks HTTP or WebSocket.
    #[error(
        "the peer speaks HTTP; tunnelling and WebSocket are not offered on this port, use the socket type"
    )]
    Http,
    /// A handshake message contradicts itself.
    #[error("malformed {message}: {what}")]
    Handshake {
        /// Name of the message of the handshake.
        message: &'static str,
        /// The field that is wrong.
        what: &'static str,
    },
    /// An unsupported version of the connection protocol.
    #[error("connection version number {0:#x} is not one of RIPC 10 to 14")]
    Version(u32),
    /// A frame is longer than the negotiated size.
    #[error("a frame of {len} bytes exceeds the {max} agreed for this connection")]
    FrameTooLong {
        /// Length in the frame's header.
        len: usize,
        /// Longest frame allowed.
        max: usize,
    },
    /// A frame's header is impossible.
    #[error("malformed frame (flags {flags:#04x}): {what}")]
    Frame {
        /// The frame's flag byte.
        flags: u8,
        /// The fault.
        what: &'static str,
    },
    /// A compressed frame without agreed compression, or that cannot be expanded.
    #[error("compressed frame: {0}")]
    Compressed(&'static str),
    /// A message to send is empty or too long.
    #[error("a message of {len} bytes cannot be sent: it must have 1 to {max}")]
    MessageLength {
        /// Its length.
        len: usize,
        /// Longest message that can be sent.
        max: usize,
    },
    /// The channel is not open yet, or has failed.
    #[error("the connection is not open")]
    NotOpen,
}
