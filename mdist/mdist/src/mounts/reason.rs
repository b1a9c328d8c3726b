//! Reasons for closing mounts, for the log, the metrics and `/disconnects`.

use super::slow_consumer::Overflow;

/// Reason why a mount is closed: disconnected by the server, or lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The consumer sent nothing for its ping time-out.
    #[error("nothing was heard for {seconds} s: the consumer or the network to it is gone")]
    Silent {
        /// The negotiated ping time-out.
        seconds: u64,
    },
    /// The consumer sent something that the transport or RWF does not allow.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The consumer did not read fast enough.
    #[error(
        "output overflow: {0}; the consumer reads too slowly, or maxOutputBuffers and poolSize are too small"
    )]
    Overflow(#[from] Overflow),
    /// The login was refused.
    #[error("login refused: {0}")]
    LoginRefused(String),
    /// The transport's handshake was refused.
    #[error("connection refused: {0}")]
    Refused(String),
    /// The server has as many mounts as it may have.
    #[error("the server has {most} mounts already, the most that max-mounts allows")]
    TooManyMounts {
        /// The limit.
        most: u32,
    },
    /// The connection had not logged in when others took its place.
    #[error("no login before {newer} newer connections (max-pending, max-pending-per-address)")]
    Evicted {
        /// Connections without a login that are newer, at least.
        newer: usize,
    },
    /// The consumer did not log in in time.
    #[error("no login within {seconds} s of connecting")]
    NoLogin {
        /// The limit, in seconds.
        seconds: u64,
    },
    /// The consumer closed the connection.
    #[error("closed by the consumer")]
    PeerClosed,
    /// The connection failed.
    #[error("connection lost: {0}")]
    Lost(String),
    /// An operator or a rule of the server disconnected it.
    #[error("disconnected by the server: {0}")]
    Forced(String),
    /// The server shuts down.
    #[error("the server shuts down")]
    ShutDown,
}

impl Reason {
    /// The label of its counter.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Silent { .. } => "silent",
            Self::Protocol(_) => "protocol",
            Self::Overflow(_) => "overflow",
            Self::LoginRefused(_) => "login_refused",
            Self::Refused(_) => "refused",
            Self::TooManyMounts { .. } => "too_many_mounts",
            Self::Evicted { .. } => "crowded",
            Self::NoLogin { .. } => "no_login",
            Self::PeerClosed => "peer_closed",
            Self::Lost(_) => "lost",
            Self::Forced(_) => "forced",
            Self::ShutDown => "shut_down",
        }
    }
}
