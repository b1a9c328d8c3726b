//! TIPC in user space: service addressing, reliable messaging and topology tracking, with no kernel module and no
//! privileges.
//!
//! A [`Node`] is a full member of a TIPC cluster that lives in this process. Programs that start one with no
//! arguments find each other on the same host; with a [bearer](Builder) they join a cluster of Linux kernel nodes and
//! utipc nodes.
//!
//! # A message to a service
//! A server *binds* a socket to a service address; a client sends to that address, wherever the server runs.
//!
//! ```
//! use utipc::{Node, Scope, ServiceAddress};
//!
//! # fn main() -> utipc::Result<()> {
//! let node = Node::start()?;
//! // A type of your choice, and an instance of it that no other program on this host serves.
//! let hello = ServiceAddress::new(18888, std::process::id());
//!
//! let server = node.rdm()?;
//! server.bind(hello, Scope::Cluster)?;
//!
//! let client = node.rdm()?;
//! client.send_to(b"Hello World", hello)?;
//!
//! let request = server.receive()?;
//! assert_eq!(request.data, b"Hello World");
//! server.send_to(b"Uh ?", request.source)?;
//! assert_eq!(client.receive()?.data, b"Uh ?");
//! # Ok(())
//! # }
//! ```
//!
//! # Where to go from here
//! | You want | Look at |
//! |---|---|
//! | a message to one server, to all servers, to a certain socket | [`Socket::send_to`] |
//! | a connection: by request, by its first data, with `Read` and `Write` | [`Connection`], [`Listener`] |
//! | one reply to each request, within a time limit | [`Requester`], [`Responder`] |
//! | names of services as constants that the compiler checks | [`Service`] |
//! | to learn which services, nodes and links exist, and of each change | [`Topology`] |
//! | to be the only socket at an address | [`Socket::bind_exclusive`] |
//! | a group whose members send to one another, in order, with flow control | [`Group`] |
//! | replicated state: one order of messages and views for all members | [`ordered::Ordered`] |
//! | timeouts, importance, non-blocking calls, why a call waits | [`Socket`] |
//! | a socket in a poll loop | [`Socket`'s `AsFd`](Socket#impl-AsFd-for-Socket) |
//! | async tasks of tokio instead of threads | `utipc::tokio`, with the feature `tokio` |
//! | UDP, Ethernet, identities, cluster number | [`Builder`] |
//!
//! # Threads
//! A call that waits runs the node's event loop on its own thread, so a message goes from the wire into the buffer of
//! that call without a thread switch. While no call is in progress, a background thread maintains links and bindings.

mod builder;
mod call;
mod connection;
pub mod daemon;
mod engine;
mod error;
mod exclusive;
mod group;
mod info;
pub mod manage;
mod node;
pub mod ordered;
mod origin;
mod request;
mod service;
mod socket;
mod time_limit;
#[cfg(feature = "tokio")]
pub mod tokio;
mod topology;

pub use builder::Builder;
pub use call::Call;
pub use connection::{Connection, Listener};
pub use engine::Engine;
pub use error::{Error, Result};
pub use group::{Group, GroupIncoming, Member, SentTo};
pub use info::{Counters, LinkInfo, LinkProperty, PeerInfo};
pub use node::Node;
pub use origin::Description;
pub use request::{Request, Requester, Responder};
pub use service::Service;
pub use socket::{Incoming, Socket};
pub use time_limit::Within;
pub use topology::{Change, Event, Events, SubscriptionId, Topology};

pub use utipc_client::{BusyPoll, Polled};
pub use utipc_client::{Error as DaemonError, Failure as DaemonFailure, Refusal as DaemonRefusal, Spin};
pub use utipc_core::addr::{
    Binding, ClusterId, Importance, NodeAddr, NodeId, PortId, Scope, ServiceAddr as ServiceAddress,
    ServiceRange,
};
pub use utipc_core::group::{
    GroupPolicy, GroupRequest, JOIN_TIME, JoinError, LeaveError, MemberInfo, MemberState, SlowCounters,
    SlowMember,
};
pub use utipc_core::socket::{
    AcceptError, BindError, ConnectError, Destination, EndpointStats as SocketStats, Errno, GroupMessage,
    GroupMessageKind, Method, OptionError, OptionValue, Received, RecvError, RecvOptions, Returned,
    SendError, SocketKind, SocketOption, State, StateError, WaitReason,
};
pub use utipc_core::stack::OpenError;
pub use utipc_core::topology::Filter;
pub use utipc_core::wire::ErrorCode;
pub use utipc_node::StartError;
pub use utipc_os::OsError;

/// Bearers, which carry frames between nodes: to implement one, or to wrap one in a middleware that loses, delays,
/// reorders or records frames in a test.
pub mod bearers {
    pub use utipc_node::bearers::*;
}
