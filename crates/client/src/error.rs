//! The error of every call of this crate.

use std::path::PathBuf;

use thiserror::Error;
use utipc_attach::{Failure, Refusal};
use utipc_os::OsError;

/// Why a call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No daemon answers at any of the paths.
    #[error("no daemon answers at {} (start one with `utipcd`, or name its socket in UTIPC_SOCKET)", paths(.0))]
    Absent(Vec<PathBuf>),
    /// The daemon at `path` refuses to attach this process.
    #[error("the daemon at {} refuses this process: {}", path.display(), refusal(cause))]
    Refused {
        /// The daemon's socket.
        path: PathBuf,
        /// The daemon's reason.
        cause: Refusal,
    },
    /// The daemon closes the connection during the handshake.
    #[error(
        "the daemon at {} closes the connection during the handshake (too many processes attach at once, or it is out of \
         descriptors or shutting down: try again, or see its log)",
        .0.display()
    )]
    HungUp(PathBuf),
    /// A forked child has inherited a socket that the daemon could not share.
    #[error(
        "the daemon at {} could not share this socket between the parent and its forked child (its limit \
         of descriptors is reached, it did not answer at the fork, or a signal handler forked: open sockets after the \
         fork)",
        .0.display()
    )]
    NotShared(PathBuf),
    /// The daemon does not answer in time. A request that it had not begun has no effect.
    #[error("the daemon at {} does not answer (is utipcd stopped? `kill -CONT` lets it continue; try again)", .0.display())]
    Silent(PathBuf),
    /// The daemon has ended, and with it all sockets of this attachment.
    #[error("the daemon at {} has ended (close this socket; a new one attaches to the next daemon there)", .0.display())]
    Died(PathBuf),
    /// The daemon at `path` has restarted, and the socket is attached to it again. See [`Error::is_resumed`].
    #[error(
        "the daemon at {} has restarted, and this socket is attached to it again: messages may have been lost (go on; \
         the socket has a new port)",
        .0.display()
    )]
    Resumed(PathBuf),
    /// The process that answers is not a utipc daemon, or breaks the protocol.
    #[error("{} is not a utipc daemon of this version (check which program listens there)", .0.display())]
    Nonsense(PathBuf),
    /// A signal was handled while the call waited.
    #[error("interrupted by a signal")]
    Interrupted,
    /// The daemon has refused the request.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A system call has failed.
    #[error(transparent)]
    System(#[from] OsError),
}

impl Error {
    /// Whether no daemon answers, so that the caller may go on without one.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent(_))
    }

    /// Whether the socket has lost its daemon and is attached to the next one. Messages may have been lost, and its
    /// port is another one; it is to be used on.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        matches!(self, Self::Resumed(_))
    }
}

fn paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" or ")
}

fn refusal(cause: &Refusal) -> String {
    match cause {
        Refusal::Version { release } => format!(
            "it is of release {release}, which does not understand release {} (update the older one)",
            env!("CARGO_PKG_VERSION")
        ),
        Refusal::NotAllowed { uid } => {
            format!("its policy does not allow user {uid} (see `policy` in its configuration)")
        }
        Refusal::TooMany => "it serves as many processes as its limit allows (raise `limits.processes` in its configuration, or end some)".to_owned(),
        Refusal::TooManyOfUser { uid, limit } => format!(
            "user {uid} has {limit} attached processes, its limit (end some, or raise `limits.processes_per_user` in the daemon's configuration)"
        ),
        other => format!("{other:?}"),
    }
}
