//! Errors of socket calls, and the classic error number of each: one table, [`Errno`].

use thiserror::Error;

use super::uplink::{BindError, SubmitError};

/// Error numbers of Linux, as AF_TIPC programs know them.
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
    /// The send would block; see `wait_reason`.
    #[error("the send would block (ask for the wait reason, wait until writable)")]
    WouldBlock,
    /// More than 66000 bytes.
    #[error("message of more than 66000 bytes (split it, or use a STREAM socket)")]
    MessageSize,
    /// No destination was given, and the socket has none.
    #[error("no destination given and the socket is not connected (name one, or connect first)")]
    DestinationRequired,
    /// No socket is bound to the destination, or its node is unreachable.
    #[error(
        "no socket is bound to the destination, or its node is unreachable (start its server, or wait for it, as \
         `wait_for_service` does)"
    )]
    HostUnreachable,
    /// The destination is not valid here: an invalid range, or a range for a connection.
    #[error("invalid destination (lower instance above upper, or a range for a connection)")]
    InvalidDestination,
    /// The connection has ended, or the socket is a listener.
    #[error("the socket is shut down or listening (use another socket)")]
    Broken,
    /// The connection is not set up yet.
    #[error("not connected (connect first)")]
    NotConnected,
    /// A destination was given on a connected socket.
    #[error("the socket is connected already (use another socket)")]
    IsConnected,
    /// A bound socket cannot request a connection.
    #[error("a bound socket cannot request a connection (use another socket)")]
    BoundSocket,
    /// Group communication is not supported yet.
    #[error("group communication is not yet supported")]
    NotSupported,
    /// The node's queues are full.
    #[error("no buffer space on this node")]
    NoBuffers,
    /// The connection request was refused.
    #[error("connection refused: the socket there does not listen (let the server listen before it binds)")]
    Refused,
    /// The connection request was not answered in time.
    #[error("no answer within the connect timeout (raise it, or see whether the server accepts)")]
    TimedOut,
    /// The peer did not answer probes.
    #[error("connection aborted: the peer does not answer probes (connect again)")]
    Aborted,
    /// A member has evicted the socket from its group.
    #[error("evicted from the group: the socket held other members up (leave the group and join again)")]
    Evicted,
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
            Self::Aborted | Self::Evicted => Errno::ConnectionAborted,
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
    /// Nothing to receive; see `wait_reason`.
    #[error("nothing to receive yet")]
    WouldBlock,
    /// The buffer has no room for a single byte.
    #[error("the receive buffer is empty (give at least one byte)")]
    EmptyBuffer,
    /// Not connected, or not any more.
    #[error("not connected (connect first)")]
    NotConnected,
    /// The peer or the path to it failed.
    #[error(
        "connection reset: the peer closed it with data unread, died, or its node was lost (connect again)"
    )]
    ConnectionReset,
    /// The connection request was refused.
    #[error("connection refused: the socket there does not listen (let the server listen before it binds)")]
    Refused,
    /// The connection request was not answered in time.
    #[error("no answer within the connect timeout (raise it, or see whether the server accepts)")]
    TimedOut,
    /// The peer did not answer probes.
    #[error("connection aborted: the peer does not answer probes (connect again)")]
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

/// A connection could not be set up, or broke between calls; see [`super::Endpoint::take_error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ConnectError {
    /// The request is already in progress.
    #[error("connection setup is in progress already")]
    Already,
    /// The connection was not accepted within the connect timeout.
    #[error("no answer within the connect timeout (raise it, or see whether the server accepts)")]
    TimedOut,
    /// Refused: the destination socket does not listen.
    #[error("connection refused: the socket there does not listen (let the server listen before it binds)")]
    Refused,
    /// The peer did not answer probes.
    #[error("connection aborted: the peer does not answer probes (connect again)")]
    Aborted,
    /// The request could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The socket is in a group, and sends to its members only.
    #[error("the socket is in a group (leave it, or use another socket)")]
    InGroup,
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
            Self::InGroup => Errno::Invalid,
            Self::Send(e) => e.errno(),
        }
    }
}

/// An accept failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum AcceptError {
    /// There is no connection request.
    #[error("no connection request yet")]
    WouldBlock,
    /// Not a listener.
    #[error("the socket does not listen (call listen first)")]
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

/// The socket's state does not allow the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum StateError {
    /// Sockets of this kind are connectionless.
    #[error("sockets of this kind do not make connections")]
    Connectionless,
    /// Connected or connecting.
    #[error("the socket is connected or connecting")]
    InUse,
    /// Not connected.
    #[error("not connected (connect first)")]
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
    /// This kind of socket does not have the option.
    #[error("this kind of socket has no such option")]
    NoSuchOption,
    /// A group is joined by a call of its own: its request does not fit the value of an option.
    #[error("a group is not joined by setting an option (call `join`)")]
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
            Self::Reserved | Self::InGroup => Errno::Access,
            Self::InvalidRange | Self::InvalidState | Self::NotBound => Errno::Invalid,
            Self::InUse | Self::TooMany => Errno::AddressInUse,
        }
    }
}
