//! The error type of the public API: each variant names what failed, why, and the remedy.

use std::path::PathBuf;

use thiserror::Error;
use utipc_core::socket::{
    AcceptError, BindError, ConnectError, Errno, OptionError, RecvError, SendError, StateError, WaitReason,
};
use utipc_core::{ServiceRange, stack};
use utipc_node::StartError;

use crate::{Destination, Engine, NodeAddr};

/// Result of a call on utipc.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call failed. [`Error::errno`] gives the number that an AF_TIPC program would see.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The node did not start.
    #[error("cannot start the node: {0}")]
    Start(#[from] StartError),
    /// No socket could be opened.
    #[error("cannot open a socket: {0}")]
    Open(#[from] stack::OpenError),
    /// A binding was refused.
    #[error("cannot bind to {range}: {why}")]
    Bind {
        /// The service range.
        range: ServiceRange,
        /// The reason.
        why: BindError,
    },
    /// A binding could not be withdrawn.
    #[error("cannot unbind: {0}")]
    Unbind(BindError),
    /// The socket cannot listen.
    #[error("cannot listen: {0}")]
    Listen(StateError),
    /// No connection could be accepted.
    #[error("cannot accept: {0}")]
    Accept(AcceptError),
    /// The connection was not set up.
    #[error("cannot connect: {0}")]
    Connect(ConnectError),
    /// A message was not sent.
    #[error("cannot send{}: {why}", destination(.to))]
    Send {
        /// The destination, if the call named one.
        to: Option<Destination>,
        /// The reason.
        why: SendError,
    },
    /// Receiving failed.
    #[error("cannot receive: {0}")]
    Receive(RecvError),
    /// The connection could not be shut down.
    #[error("cannot shut down: {0}")]
    Shutdown(StateError),
    /// A socket option was refused.
    #[error("cannot set the option: {0}")]
    Option(OptionError),
    /// The call would have to wait, but the socket is non-blocking.
    #[error("{call} would block{} (wait until the socket is ready)", waiting(.reason))]
    WouldBlock {
        /// The name of the call.
        call: &'static str,
        /// The reason why the call would wait.
        reason: Option<WaitReason>,
    },
    /// The call ran out of time.
    #[error("{call} timed out{} (raise the timeout, or check the peer)", waiting(.reason))]
    TimedOut {
        /// The name of the call.
        call: &'static str,
        /// The reason why the call waited.
        reason: Option<WaitReason>,
    },
    /// The topology server ended the subscription.
    #[error(
        "the topology server of node {node} closed the connection (an invalid subscription, too many subscriptions, \
         unread events, or contact lost): subscribe again"
    )]
    TopologyClosed {
        /// The server's node.
        node: NodeAddr,
    },
    /// No link has this name.
    #[error("no link is named {0} (`Node::links` lists them)")]
    NoSuchLink(String),
    /// An argument is out of range.
    #[error("{what} is out of range ({remedy})")]
    OutOfRange {
        /// The argument.
        what: &'static str,
        /// Its range.
        remedy: &'static str,
    },
    /// The daemon has ended, and with it every socket that this process had there.
    #[error(
        "the daemon at {} has ended (close this socket; a new one attaches to the next daemon there)",
        socket.display()
    )]
    DaemonDied {
        /// The path of the daemon's socket.
        socket: PathBuf,
    },
    /// The daemon is absent, refuses this process, or its policy or limits forbid the call.
    #[error(transparent)]
    Daemon(utipc_client::Error),
    /// The embedded node belongs to the process from which this one was forked.
    #[error(
        "the embedded node stays in the process that started it (start a node after the fork, or attach to a daemon \
         with UTIPC_ENGINE=daemon: its sockets pass to forked children)"
    )]
    Forked,
    /// The chosen engine is not available or does not support the call.
    #[error("cannot use the {engine} engine: {why}")]
    Engine {
        /// The engine.
        engine: Engine,
        /// The reason and the remedy.
        why: String,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] utipc_os::OsError),
}

fn waiting(reason: &Option<WaitReason>) -> String {
    reason.as_ref().map_or_else(String::new, |reason| format!(" {reason}"))
}

fn destination(to: &Option<Destination>) -> String {
    match to {
        None => String::new(),
        Some(Destination::Service { addr, domain }) if domain.is_none() => format!(" to service {addr}"),
        Some(Destination::Service { addr, domain }) => format!(" to service {addr} on node {domain}"),
        Some(Destination::Range(range)) => format!(" to services {range}"),
        Some(Destination::Port(port)) => format!(" to socket {port}"),
    }
}

impl Error {
    /// The errno that an AF_TIPC program would see.
    ///
    /// ```
    /// # use utipc::{Node, Scope, ServiceAddress};
    /// # let node = Node::builder().isolated().start()?;
    /// let reserved = node.rdm()?.bind(ServiceAddress::new(7, 1), Scope::Cluster).unwrap_err();
    /// assert_eq!(reserved.errno(), 13); // EACCES
    /// # Ok::<(), utipc::Error>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Bind { why, .. } | Self::Unbind(why) => why.errno(),
            Self::Listen(why) | Self::Shutdown(why) => why.errno(),
            Self::Accept(why) => why.errno(),
            Self::Connect(why) => why.errno(),
            Self::Send { why, .. } => why.errno(),
            Self::Receive(why) => why.errno(),
            Self::Option(why) => why.errno(),
            Self::WouldBlock { .. } => Errno::Again,
            Self::TimedOut { call: "connect", .. } => Errno::TimedOut,
            Self::TimedOut { .. } => Errno::Again,
            Self::TopologyClosed { .. } | Self::DaemonDied { .. } => Errno::ConnectionReset,
            Self::Daemon(why) => return daemon_errno(why),
            Self::Engine { .. } | Self::Forked => Errno::NotSupported,
            Self::Start(_) | Self::Open(_) => Errno::NoMemory,
            Self::NoSuchLink(_) | Self::OutOfRange { .. } => Errno::Invalid,
            Self::System(error) => {
                return error.cause().raw_os_error().unwrap_or(Errno::NoMemory.number());
            }
        };
        errno.number()
    }

    /// True if the same call may succeed later: it would block, or ran out of time.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::WouldBlock { .. } | Self::TimedOut { .. })
    }
}

/// The errno for failures that only a daemon reports.
fn daemon_errno(why: &utipc_client::Error) -> i32 {
    use utipc_client::{Error, Failure};
    let errno = match why {
        Error::Refused { .. } | Error::Failed(Failure::NotAllowed { .. }) => Errno::Access,
        Error::Failed(Failure::Limit(_)) => Errno::NoMemory,
        Error::Failed(Failure::Overload) => Errno::NoBuffers,
        Error::System(error) => return error.cause().raw_os_error().unwrap_or(Errno::NoMemory.number()),
        Error::Absent(_) => Errno::HostUnreachable,
        Error::Died(_) => Errno::ConnectionReset,
        _ => Errno::Invalid,
    };
    errno.number()
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        use std::io::{Error as IoError, ErrorKind};
        let kind = match &error {
            Error::TimedOut { .. } => ErrorKind::TimedOut,
            other => IoError::from_raw_os_error(other.errno()).kind(),
        };
        IoError::new(kind, error)
    }
}
