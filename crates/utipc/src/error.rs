//! The error type of the public API: each variant names what failed, why, and the remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use utipc_core::group::{JoinError, LeaveError};
use utipc_core::socket::{
    AcceptError, BindError, ConnectError, Errno, OptionError, RecvError, SendError, StateError, WaitReason,
};
use utipc_core::{ServiceRange, stack};
use utipc_node::StartError;

use crate::ordered::OrderedError;
use crate::{Call, Description, Destination, Engine, NodeAddr, PortId};

/// Result of a call on utipc.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call failed. [`Error::errno`] gives the number that an AF_TIPC program would see.
///
/// `Debug` prints the same text as `Display`, because `fn main() -> utipc::Result<()>` prints errors with `Debug`.
///
/// ```
/// # use utipc::{Node, ServiceAddress};
/// # let node = Node::builder().isolated().start()?;
/// let error = node.rdm()?.send_to(b"hello", ServiceAddress::new(18888, 1)).unwrap_err();
/// assert!(error.is_unreachable());
/// assert_eq!(format!("{error:?}"), error.to_string());
/// # Ok::<(), utipc::Error>(())
/// ```
#[derive(Error)]
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
    /// Another socket is bound to a range that a program wants for itself.
    #[error(
        "cannot bind to {range} alone: socket {by} is bound there (end its program, or choose another address)"
    )]
    Taken {
        /// The service range.
        range: ServiceRange,
        /// The socket.
        by: PortId,
    },
    /// A binding could not be withdrawn.
    #[error("cannot unbind: {0}")]
    Unbind(BindError),
    /// The socket did not join a group.
    #[error("cannot join group {group}: {why}")]
    Join {
        /// The group.
        group: u32,
        /// The reason.
        why: JoinError,
    },
    /// The socket is in no group.
    #[error("cannot leave: {0}")]
    Leave(LeaveError),
    /// A call on an ordered group failed.
    #[error("{}", ordered(call, .why))]
    Ordered {
        /// The name of the call.
        call: &'static str,
        /// The reason.
        why: OrderedError,
    },
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
        /// The call.
        call: Call,
        /// The reason why the call would wait.
        reason: Option<WaitReason>,
    },
    /// The call ran out of time.
    #[error("{call} timed out{}{}", waiting(.reason), explanation(.node.as_deref()))]
    TimedOut {
        /// The call.
        call: Call,
        /// The reason why the call waited.
        reason: Option<WaitReason>,
        /// The node, unless the time was too short to conclude anything: its neighbours, or why it has none.
        node: Option<Box<Description>>,
    },
    /// Some nodes have not acknowledged the bindings of this node in time.
    #[error(
        "barrier timed out: {} this node's bindings (raise the time limit, or check the links to {})",
        lacking(.nodes), if nodes.len() == 1 { "it" } else { "them" }
    )]
    Awaited {
        /// These nodes, at most the first 64 with a daemon.
        nodes: Vec<NodeAddr>,
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
    /// The daemon has restarted, and this socket is attached to it again, with its bindings: see
    /// [`Error::is_resumed`].
    #[error(
        "the daemon at {} has restarted, and this socket is attached to it again: messages may have been lost (go on; \
         the socket has a new port)",
        socket.display()
    )]
    Resumed {
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
    /// Input or output of the program itself failed: a call through `Read`, `Write` or a file.
    #[error("{0}")]
    Io(#[source] io::Error),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn ordered(call: &str, why: &OrderedError) -> String {
    if why.is_waiting() { format!("{call} {why}") } else { format!("cannot {call}: {why}") }
}

fn waiting(reason: &Option<WaitReason>) -> String {
    reason.as_ref().map_or_else(String::new, |reason| format!(" {reason}"))
}

/// The nodes that a barrier waits for, the first of them by name.
fn lacking(nodes: &[NodeAddr]) -> String {
    let names: Vec<String> = nodes.iter().take(4).map(ToString::to_string).collect();
    match nodes.len() {
        1 => format!("node {} has not acknowledged", names.join("")),
        0..=4 => format!("nodes {} have not acknowledged", names.join(", ")),
        many => format!("nodes {} and {} others have not acknowledged", names.join(", "), many - 4),
    }
}

/// The node of a call that ran out of time, and the remedy.
fn explanation(node: Option<&Description>) -> String {
    let usual = "(raise the timeout, or check the peer)";
    match node {
        // It names its own remedy.
        Some(node) if node.neighbours == 0 && node.help.is_some() => format!("; this program is {node}"),
        Some(node) => format!("; engine {}, {} {usual}", node.engine, node.contact()),
        None => format!(" {usual}"),
    }
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
    /// Whether a socket of a node with [`Builder::resume`](crate::Builder::resume) reports that the daemon has
    /// restarted: messages in either direction may have been lost, and the socket has a new port. It reports this once,
    /// and goes on with its bindings, options and descriptor.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        matches!(self, Self::Resumed { .. })
    }

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
            Self::Taken { .. } => Errno::AddressInUse,
            Self::Join { why, .. } => why.errno(),
            Self::Leave(why) => why.errno(),
            Self::Ordered { why, .. } => why.errno(),
            Self::Listen(why) | Self::Shutdown(why) => why.errno(),
            Self::Accept(why) => why.errno(),
            Self::Connect(why) => why.errno(),
            Self::Send { why, .. } => why.errno(),
            Self::Receive(why) => why.errno(),
            Self::Option(why) => why.errno(),
            Self::WouldBlock { .. } => Errno::Again,
            Self::TimedOut { call: Call::Connect, .. } => Errno::TimedOut,
            Self::TimedOut { .. } | Self::Awaited { .. } => Errno::Again,
            // That of the network's reset, which no call of AF_TIPC has in Linux.
            Self::Resumed { .. } => return NETWORK_RESET,
            Self::TopologyClosed { .. } | Self::DaemonDied { .. } => Errno::ConnectionReset,
            Self::Daemon(why) => return daemon_errno(why),
            Self::Engine { .. } | Self::Forked => Errno::NotSupported,
            Self::Start(why) => return start_errno(why),
            Self::Open(_) => Errno::NoMemory,
            Self::NoSuchLink(_) | Self::OutOfRange { .. } => Errno::Invalid,
            Self::System(error) => {
                return error.cause().raw_os_error().unwrap_or(Errno::NoMemory.number());
            }
            Self::Io(error) => return error.raw_os_error().unwrap_or(IO_ERROR),
        };
        errno.number()
    }

    /// True if the same call may succeed later: it would block, or ran out of time.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::WouldBlock { .. } | Self::TimedOut { .. } | Self::Awaited { .. } => true,
            Self::Ordered { why, .. } => why.is_waiting(),
            _ => false,
        }
    }

    /// True if the call would have to wait, but the socket is non-blocking or the limit of [`Socket::within`] is zero.
    ///
    /// [`Socket::within`]: crate::Socket::within
    #[must_use]
    pub fn is_would_block(&self) -> bool {
        match self {
            Self::WouldBlock { .. } => true,
            Self::Ordered { why, .. } => why.is_would_block(),
            _ => false,
        }
    }

    /// True if a time limit has passed: the call's, the socket's or the connect timeout.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Awaited { .. } => true,
            Self::Ordered { why, .. } => why.is_waiting() && !why.is_would_block(),
            _ => self.ended_with(Errno::TimedOut),
        }
    }

    /// True if a connection request was refused: the socket there does not listen.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.ended_with(Errno::ConnectionRefused)
    }

    /// True if no socket is bound to the destination, or its node cannot be reached.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.ended_with(Errno::HostUnreachable)
    }

    /// Whether a connection or a message, not the daemon or the system, failed with this errno.
    fn ended_with(&self, errno: Errno) -> bool {
        match self {
            Self::Connect(why) => why.errno() == errno,
            Self::Send { why, .. } => why.errno() == errno,
            Self::Receive(why) => why.errno() == errno,
            _ => false,
        }
    }
}

/// The errno ENETRESET of Linux.
const NETWORK_RESET: i32 = 102;

/// The errno EIO, for input and output errors without a number.
const IO_ERROR: i32 = 5;

/// The errno of a node that did not start: that of the system, as ENODEV for a device that is absent and EADDRINUSE for
/// a port in use.
fn start_errno(why: &StartError) -> i32 {
    use utipc_node::bearers::BearerError;
    use utipc_node::key_file::KeyFileError;
    let system = |cause: &io::Error| cause.raw_os_error().unwrap_or(Errno::NoMemory.number());
    match why {
        StartError::Os(error) | StartError::Bearer(BearerError::Os(error)) => system(error.cause()),
        StartError::Thread(cause) => system(cause),
        StartError::KeyFile(KeyFileError::Unreadable { error, .. }) => system(error),
        StartError::KeyFile(KeyFileError::Owner { .. } | KeyFileError::Open(_)) => Errno::Access.number(),
        StartError::KeyFile(_) | StartError::Key(_) => Errno::Invalid.number(),
        StartError::Bearer(BearerError::Config { .. }) | StartError::Property(_) => Errno::Invalid.number(),
        _ => Errno::NoMemory.number(),
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
        Error::Silent(_) => Errno::TimedOut,
        _ => Errno::Invalid,
    };
    errno.number()
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Io(error) => return error,
            ref late if late.is_timeout() => io::ErrorKind::TimedOut,
            ref other => io::Error::from_raw_os_error(other.errno()).kind(),
        };
        io::Error::new(kind, error)
    }
}

impl From<io::Error> for Error {
    /// Gives back the error of a call that went through `Read`, `Write` or [`crate::tokio`]; any other becomes
    /// [`Error::Io`].
    fn from(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(Self::Io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(why: SendError) -> Error {
        Error::Send { to: None, why }
    }

    #[test]
    fn predicates_name_the_cause() {
        let names = |error: &Error| {
            let all = [
                (error.is_refused(), "refused"),
                (error.is_unreachable(), "unreachable"),
                (error.is_timeout(), "timeout"),
                (error.is_would_block(), "would block"),
            ];
            all.into_iter().filter_map(|(is, name)| is.then_some(name)).collect::<Vec<_>>().join(", ")
        };
        let late = |call| Error::TimedOut { call, reason: None, node: None };
        let table = [
            (Error::Connect(ConnectError::Refused), "refused"),
            (Error::Receive(RecvError::Refused), "refused"),
            (sent(SendError::Refused), "refused"),
            (Error::Connect(ConnectError::Send(SendError::HostUnreachable)), "unreachable"),
            (sent(SendError::HostUnreachable), "unreachable"),
            (Error::Connect(ConnectError::TimedOut), "timeout"),
            (sent(SendError::TimedOut), "timeout"),
            (late(Call::Connect), "timeout"),
            (late(Call::Receive), "timeout"),
            (Error::Awaited { nodes: vec![NodeAddr(1)] }, "timeout"),
            (Error::WouldBlock { call: Call::Receive, reason: None }, "would block"),
            (Error::Daemon(utipc_client::Error::Absent(Vec::new())), ""),
            (Error::Accept(AcceptError::NotListening), ""),
        ];
        for (error, expected) in table {
            assert_eq!(names(&error), expected, "{error}");
        }
    }

    #[test]
    fn barrier_names_the_nodes_that_have_not_answered() {
        let text = |count| Error::Awaited { nodes: (1..=count).map(NodeAddr).collect() }.to_string();
        let remedy = "(raise the time limit, or check the links to";
        assert_eq!(
            text(1),
            format!("barrier timed out: node 1 has not acknowledged this node's bindings {remedy} it)")
        );
        assert_eq!(
            text(2),
            format!(
                "barrier timed out: nodes 1, 2 have not acknowledged this node's bindings {remedy} them)"
            )
        );
        assert!(text(9).contains("nodes 1, 2, 3, 4 and 5 others have"), "{}", text(9));
    }

    #[test]
    fn io_errors_carry_the_original_error() {
        let there: io::Error = Error::Connect(ConnectError::Refused).into();
        assert_eq!(there.kind(), io::ErrorKind::ConnectionRefused);
        assert!(Error::from(there).is_refused());
        let other = Error::from(io::Error::from(io::ErrorKind::UnexpectedEof));
        assert!(matches!(other, Error::Io(_)) && other.errno() == IO_ERROR);
        assert_eq!(io::Error::from(other).kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn debug_prints_cause_and_remedy() {
        let text = format!("{:?}", Error::NoSuchLink("a-b".to_owned()));
        assert_eq!(text, "no link is named a-b (`Node::links` lists them)");
    }
}
