//! Replies of the daemon.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utipc_core::addr::{NodeAddr, PortId};
use utipc_core::group::{JoinError, LeaveError, MemberInfo};
use utipc_core::socket::{
    AcceptError, BindError, ConnectError, GroupMessage, OptionError, Received, RecvError, SendError,
    StateError,
};

use crate::types::SocketView;

/// Maximum number of nodes in a [`Reply::Awaited`].
pub const MAX_AWAITED: usize = 64;
/// Maximum number of members in a [`Reply::GroupMembers`]: about 10 KiB.
pub const MAX_GROUP_MEMBERS: usize = 256;

/// The reply to a [`crate::Request`]. Add new variants at the end: the order is the encoding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is described at its request")]
pub enum Reply {
    /// The request is done.
    Done,
    /// The request has failed.
    Failed(Failure),
    Opened {
        port: u32,
    },
    Accepted {
        port: u32,
        peer: PortId,
    },
    Number(u32),
    /// Bytes taken, and the local receivers to which this process has lanes. The daemon has not delivered the message
    /// to these: the process writes it into their lanes. If the list of an anycast is not empty, it has no other
    /// receiver.
    Sent {
        bytes: u32,
        lanes: Vec<u32>,
    },
    Received(Received),
    Socket(Box<SocketView>),
    Error(Option<ConnectError>),
    Claimed {
        port: u32,
    },
    Found(Option<PortId>),
    /// Netlink messages follow as payload: all, or the part of a list before `next`. Repeat the request from `next` on.
    Managed {
        next: Option<u64>,
    },
    /// As `Received`, of a member of the socket's group. The payload of an event is an event of the topology server.
    ReceivedInGroup(Received, GroupMessage),
    /// The peers that have not acknowledged yet, at most the first [`crate::MAX_AWAITED`] of them; none: the barrier is
    /// reached.
    Awaited {
        number: u32,
        nodes: Vec<NodeAddr>,
    },
    /// As `ReceivedInGroup`; earlier messages of the member are missing. Only for sockets that joined with a policy.
    ReceivedAfterLoss(Received, GroupMessage),
    /// Members in the order of their addresses, at most [`MAX_GROUP_MEMBERS`]; those of this node have no node.
    GroupMembers(Vec<MemberInfo>),
}

/// The reason why a request has failed.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Failure {
    /// The attachment holds no socket with this port.
    #[error("this process holds no socket with port {0}")]
    NoSocket(u32),
    /// The daemon's policy does not allow it.
    #[error("the daemon's policy does not allow user {uid} to {what} (see `policy` in its configuration)")]
    NotAllowed {
        /// The user.
        uid: u32,
        /// The refused action.
        what: String,
    },
    /// A limit of the daemon is reached.
    #[error("a limit of the daemon is reached: {0}")]
    Limit(String),
    /// The receiver's queue is full.
    #[error("the receiver's queue is full")]
    Overload,
    /// The state of the socket or the lane does not allow it.
    #[error("not possible in this state")]
    State,
    /// See the type.
    #[error(transparent)]
    Bind(BindError),
    /// See the type.
    #[error(transparent)]
    Call(StateError),
    /// See the type.
    #[error(transparent)]
    Connect(ConnectError),
    /// See the type.
    #[error(transparent)]
    Accept(AcceptError),
    /// See the type.
    #[error(transparent)]
    Option(OptionError),
    /// See the type.
    #[error(transparent)]
    Send(SendError),
    /// See the type.
    #[error(transparent)]
    Receive(RecvError),
    /// See the type.
    #[error(transparent)]
    Join(JoinError),
    /// See the type.
    #[error(transparent)]
    Leave(LeaveError),
}
