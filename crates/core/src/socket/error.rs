//! Why a call on a socket failed, and the classic number of each reason: one table, [`Errno`].

use thiserror::Error;

use super::uplink::{BindError, SubmitError};

/// The numbers that AF_TIPC programs know (Linux).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[expect(missing_docs, reason = "the variants are the classic names")]
pub enum Errno {
    Again = 11,
    NoMemory = 12,
    Access = 13,
    Exists = 17,
    Invalid = 22,
    Pipe = 32,
    DestAddrRequired = 89,
    MessageSize = 90,
    NoProtocolOption = 92,
    NotSupported = 95,
    AddressInUse = 98,
    AddressNotAvailable = 99,
    ConnectionAborted = 103,
    ConnectionReset = 104,
    NoBuffers = 105,
    IsConnected = 106,
    NotConnected = 107,
    TimedOut = 110,
    ConnectionRefused = 111,
    HostUnreachable = 113,
    Already = 114,
    InProgress = 115,
}

impl Errno {
    /// The number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }
}

/// A send failed. Spec: tipc.md §8.2, §8.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum SendError {
    /// Not now; ask `wait_reason`.
    #[error("the send would block (ask for the wait reason, wait until writable)")]
    WouldBlock,
    /// More than 66000 bytes.
    #[error("message of more than 66000 bytes (split it, or use a STREAM socket)")]
    MessageSize,
    /// No destination given, and the socket has none.
    #[error("no destination given and the socket is not connected")]
    DestinationRequired,
    /// Nobody is bound to the destination, or its node cannot be reached.
    #[error("no socket is bound to the destination, or its node is unreachable")]
    HostUnreachable,
    /// The destination cannot be used here: an invalid range, or a range for a connection.
    #[error("invalid destination (lower instance above upper, or a range for a connection)")]
    InvalidDestination,
    /// The connection is over, or this is a listener.
    #[error("the socket is shut down or listening")]
    Broken,
    /// The connection is not yet set up.
    #[error("not connected")]
    NotConnected,
    /// Connected, and a destination was given.
    #[error("the socket is connected already")]
    IsConnected,
    /// A bound socket cannot request a connection.
    #[error("a bound socket cannot request a connection (use another socket)")]
    BoundSocket,
    /// Group communication is not there yet.
    #[error("group communication is not yet supported")]
    NotSupported,
    /// The node's queues are full.
    #[error("no buffer space on this node")]
    NoBuffers,
    /// The connection request was refused.
    #[error("connection refused: the socket there does not listen")]
    Refused,
    /// The connection request was not answered in time.
    #[error("no answer within the connect timeout")]
    TimedOut,
    /// The peer did not answer probes.
    #[error("connection aborted: the peer does not answer probes")]
    Aborted,
}

impl SendError {
    /// The classic number.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::WouldBlock => Errno::Again,
            Self::MessageSize => Errno::MessageSize,
            Self::DestinationRequired => Errno::DestAddrRequired,
            Self::HostUnreachable => Errno::HostUnreachable,
            Self::InvalidDestination => Errno::Invalid,
            Self::Broken => Errno::Pipe,
            Self::NotConnected => Errno::NotConnected,
            Self::IsConnected => Errno::IsConnected,
            Self::BoundSocket | Self::NotSupported => Errno::NotSupported,
            Self::NoBuffers => Errno::NoBuffers,
            Self::Refused => Errno::ConnectionRefused,
            Self::TimedOut => Errno::TimedOut,
            Self::Aborted => Errno::ConnectionAborted,
        }
    }
}

impl From<SubmitError> for SendError {
    fn from(e: SubmitError) -> Self {
        match e {
            SubmitError::Unreachable => Self::HostUnreachable,
            SubmitError::TooLarge => Self::MessageSize,
            SubmitError::NoBuffers => Self::NoBuffers,
        }
    }
}

/// A receive failed. Spec: tipc.md §8.3, §8.10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum RecvError {
    /// Nothing there; ask `wait_reason`.
    #[error("nothing to receive yet")]
    WouldBlock,
    /// The buffer has no bytes.
    #[error("the receive buffer is empty (give at least one byte)")]
    EmptyBuffer,
    /// Not connected (any more).
    #[error("not connected")]
    NotConnected,
    /// The peer, or the way to it, died.
    #[error("connection reset: the peer closed it with data unread, died, or its node was lost")]
    ConnectionReset,
    /// The connection request was refused.
    #[error("connection refused: the socket there does not listen")]
    Refused,
    /// The connection request was not answered in time.
    #[error("no answer within the connect timeout")]
    TimedOut,
    /// The peer did not answer probes.
    #[error("connection aborted: the peer does not answer probes")]
    Aborted,
}

impl RecvError {
    /// The classic number.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::WouldBlock => Errno::Again,
            Self::EmptyBuffer => Errno::Invalid,
            Self::NotConnected => Errno::NotConnected,
            Self::ConnectionReset => Errno::ConnectionReset,
            Self::Refused => Errno::ConnectionRefused,
            Self::TimedOut => Errno::TimedOut,
            Self::Aborted => Errno::ConnectionAborted,
        }
    }
}

/// A connection was not set up, or broke while nobody was in a call; see [`super::Endpoint::take_error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ConnectError {
    /// The request is on its way already.
    #[error("connection setup is in progress already")]
    Already,
    /// Nobody accepted within the connect timeout.
    #[error("no answer within the connect timeout (raise it, or see whether the server accepts)")]
    TimedOut,
    /// The other side refused: no listener there.
    #[error("connection refused: the socket there does not listen")]
    Refused,
    /// The peer did not answer probes.
    #[error("connection aborted: the peer does not answer probes")]
    Aborted,
    /// The request could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
}

impl ConnectError {
    /// The classic number.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Already => Errno::Already,
            Self::TimedOut => Errno::TimedOut,
            Self::Refused => Errno::ConnectionRefused,
            Self::Aborted => Errno::ConnectionAborted,
            Self::Send(e) => e.errno(),
        }
    }
}

/// An accept failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum AcceptError {
    /// No request there.
    #[error("no connection request yet")]
    WouldBlock,
    /// Not a listener.
    #[error("the socket does not listen")]
    NotListening,
}

impl AcceptError {
    /// The classic number.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::WouldBlock => Errno::Again,
            Self::NotListening => Errno::Invalid,
        }
    }
}

/// The socket is in no state for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum StateError {
    /// The kind of socket makes no connections.
    #[error("the socket's kind makes no connections")]
    Connectionless,
    /// Connected or connecting.
    #[error("the socket is connected or connecting")]
    InUse,
    /// Not connected.
    #[error("not connected")]
    NotConnected,
}

impl StateError {
    /// The classic number.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Connectionless => Errno::NotSupported,
            Self::InUse => Errno::Invalid,
            Self::NotConnected => Errno::NotConnected,
        }
    }
}

/// An option was refused. Spec: tipc.md §8.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum OptionError {
    /// The value is missing, superfluous or out of range.
    #[error("invalid option value")]
    Invalid,
    /// The option cannot be set, or not on this kind of socket.
    #[error("this kind of socket has no such option, or it is read-only")]
    NoSuchOption,
    /// Group communication is not there yet.
    #[error("group communication is not yet supported")]
    NotSupported,
}

impl OptionError {
    /// The classic number.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Invalid => Errno::Invalid,
            Self::NoSuchOption => Errno::NoProtocolOption,
            Self::NotSupported => Errno::NotSupported,
        }
    }
}

impl BindError {
    /// The classic number.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Reserved => Errno::Access,
            Self::InvalidRange | Self::InvalidState | Self::NotBound => Errno::Invalid,
            Self::InUse | Self::TooMany => Errno::AddressInUse,
        }
    }
}
