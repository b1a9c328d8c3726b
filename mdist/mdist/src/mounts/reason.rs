//! Why a mount went: logged, counted and shown.

use super::output::Overflow;

/// Why a mount was cut, or left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Nothing came from the client for its ping time-out.
    #[error("nothing was heard for {seconds} s: the client or the way to it is gone")]
    Silent {
        /// The negotiated ping time-out.
        seconds: u64,
    },
    /// The client sent what the transport or RWF does not allow.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The client did not read fast enough.
    #[error(
        "output overflow: {0}; the client reads too slowly, or maxOutputBuffers and poolSize are too small"
    )]
    Overflow(#[from] Overflow),
    /// The login was refused.
    #[error("login refused: {0}")]
    LoginRefused(String),
    /// The transport's handshake was refused.
    #[error("connection refused: {0}")]
    Refused(String),
    /// The server had as many mounts as it may.
    #[error("the server has {most} mounts already, the most that max-mounts allows")]
    TooManyMounts {
        /// The number allowed.
        most: u32,
    },
    /// No login came in time.
    #[error("no login within {seconds} s of connecting")]
    NoLogin {
        /// The time allowed.
        seconds: u64,
    },
    /// The client closed the connection.
    #[error("closed by the client")]
    PeerClosed,
    /// The connection failed.
    #[error("connection lost: {0}")]
    Lost(String),
    /// An operator, or a rule of the server, cut it.
    #[error("cut by the server: {0}")]
    Forced(String),
    /// The server ends.
    #[error("the server shuts down")]
    ShutDown,
}

impl Reason {
    /// One word, as a label of counters.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Silent { .. } => "silent",
            Self::Protocol(_) => "protocol",
            Self::Overflow(_) => "overflow",
            Self::LoginRefused(_) => "login_refused",
            Self::Refused(_) => "refused",
            Self::TooManyMounts { .. } => "too_many_mounts",
            Self::NoLogin { .. } => "no_login",
            Self::PeerClosed => "peer_closed",
            Self::Lost(_) => "lost",
            Self::Forced(_) => "forced",
            Self::ShutDown => "shut_down",
        }
    }
}
