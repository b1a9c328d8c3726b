//! The one error type of the public API: each variant names what failed, why and what to do.

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

/// Why a call failed. [`Error::errno`] gives the number that an AF_TIPC program would see.
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
        /// What was to be bound.
        range: ServiceRange,
        /// Why.
        why: BindError,
    },
    /// A binding was not withdrawn.
    #[error("cannot unbind: {0}")]
    Unbind(BindError),
    /// The socket does not listen.
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
        /// Where to, if the call said so.
        to: Option<Destination>,
        /// Why.
        why: SendError,
    },
    /// Nothing could be received.
    #[error("cannot receive: {0}")]
    Receive(RecvError),
    /// The connection is not there to be shut down.
    #[error("cannot shut down: {0}")]
    Shutdown(StateError),
    /// An option was refused.
    #[error("cannot set the option: {0}")]
    Option(OptionError),
    /// The call would have to wait and may not.
    #[error("{call} would block{} (wait until the socket is ready)", waiting(.reason))]
    WouldBlock {
        /// Which call.
        call: &'static str,
        /// What it would wait for.
        reason: Option<WaitReason>,
    },
    /// The call has waited as long as it may.
    #[error("{call} timed out{} (raise the timeout, or look at the one who is waited for)", waiting(.reason))]
    TimedOut {
        /// Which call.
        call: &'static str,
        /// What it waited for.
        reason: Option<WaitReason>,
    },
    /// The topology server ended the subscription.
    #[error(
        "the topology server of node {node} closed the connection (an invalid subscription, too many of them, \
         events that were not read, or contact lost): subscribe again"
    )]
    TopologyClosed {
        /// Whose server.
        node: NodeAddr,
    },
    /// No such link.
    #[error("no link is named {0} (`Node::links` lists them)")]
    NoSuchLink(String),
    /// A number is out of its range.
    #[error("{what} is out of range ({remedy})")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// The range.
        remedy: &'static str,
    },
    /// The daemon has ended, and with it every socket that this process had of it.
    #[error(
        "the daemon at {} has ended (close this socket; a new one attaches to the next daemon there)",
        socket.display()
    )]
    DaemonDied {
        /// Its socket.
        socket: PathBuf,
    },
    /// The daemon is not there, does not take this process in, or its policy or limits forbid the call.
    #[error(transparent)]
    Daemon(utipc_client::Error),
    /// The node belongs to the process from which this one was forked.
    #[error(
        "the embedded node stays with the process that started it, not with its forked child (start a node after the fork, \
         or attach to a daemon, UTIPC_ENGINE=daemon: its sockets pass to children)"
    )]
    Forked,
    /// The engine that was asked for cannot do what was asked of it.
    #[error("cannot use the {engine} engine: {why}")]
    Engine {
        /// Which engine.
        engine: Engine,
        /// Why, and what to do.
        why: String,
    },
    /// The system refused.
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
    /// The number that an AF_TIPC program would find in `errno`.
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

    /// True if the same call may succeed later: it would block, or has waited as long as it may.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::WouldBlock { .. } | Self::TimedOut { .. })
    }
}

/// The number for what only a daemon can refuse.
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
