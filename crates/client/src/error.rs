//! Why a call on a daemon's socket failed.

use std::path::PathBuf;

use thiserror::Error;
use utipc_attach::{Failure, Refusal};
use utipc_os::OsError;

/// Why a call failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody answers at any of the places.
    #[error("no daemon answers at {} (start one with `utipcd`, or name its socket in UTIPC_SOCKET)", paths(.0))]
    Absent(Vec<PathBuf>),
    /// The daemon does not take this process in.
    #[error("the daemon at {} refuses this process: {}", path.display(), refusal(why))]
    Refused {
        /// Its socket.
        path: PathBuf,
        /// Why.
        why: Refusal,
    },
    /// The daemon ends the connection before it has said a word.
    #[error(
        "the daemon at {} hangs up on this process without a word (too many processes attach at once, or it is out of \
         descriptors or about to end: try again, or look into its log)",
        .0.display()
    )]
    HungUp(PathBuf),
    /// A forked child has inherited a socket that the daemon could not share.
    #[error(
        "the daemon at {} could not share this socket between the parent and its forked child (it is of an older release, \
         or its limit of descriptors is reached: open sockets after the fork)",
        .0.display()
    )]
    NotShared(PathBuf),
    /// The daemon has ended, and with it every socket that this process had of it.
    #[error("the daemon at {} has ended (close this socket; a new one attaches to the next daemon there)", .0.display())]
    Died(PathBuf),
    /// What answers is not the daemon that it says it is.
    #[error("{} is not a utipc daemon of this version (see what listens there)", .0.display())]
    Nonsense(PathBuf),
    /// A signal was handled while the call waited.
    #[error("interrupted by a signal")]
    Interrupted,
    /// The command was not done.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The system refused.
    #[error(transparent)]
    System(#[from] OsError),
}

impl Error {
    /// True if nobody answers: whoever can do without a daemon may.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent(_))
    }
}

fn paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" or ")
}

fn refusal(why: &Refusal) -> String {
    match why {
        Refusal::Version { release } => format!(
            "it is of release {release}, which does not understand release {} (bring the older one up to date)",
            env!("CARGO_PKG_VERSION")
        ),
        Refusal::NotAllowed { uid } => {
            format!("its policy does not allow user {uid} (see `policy` in its configuration)")
        }
        Refusal::TooMany => "it serves as many processes as it may (raise its limit, or end some)".to_owned(),
        other => format!("{other:?}"),
    }
}
