//! What the daemon answers.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utipc_core::addr::PortId;
use utipc_core::socket::{
    AcceptError, BindError, ConnectError, OptionError, Received, RecvError, SendError, StateError,
};

use crate::types::{BindingPage, NodeEntry, SocketView};

/// The answer to a [`crate::Request`]. New ones are added at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is described at its request")]
pub enum Reply {
    /// It is done.
    Done,
    /// It is not.
    Failed(Failure),
    Opened {
        port: u32,
    },
    Accepted {
        port: u32,
        peer: PortId,
    },
    Number(u32),
    /// Bytes that were taken; and the local sockets that the message was for, to which lanes lead: it has not gone there.
    /// The process writes it into these lanes itself; an anycast has then gone nowhere else.
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
    Node(NodeEntry),
    /// Neighbours and links as the printed JSON of their types, in a list: for people and tools, not for machines in a
    /// hurry.
    Peers(Vec<u8>),
    Links(Vec<u8>),
    Bindings(BindingPage),
    Sockets(Vec<(u32, SocketView)>),
    /// As printed JSON, like `Peers`.
    Counters(Vec<u8>),
    /// Netlink messages follow as payload: all, or the part of a list before `next`, which is to be asked for from there.
    Managed {
        next: Option<u64>,
    },
}

/// Why a command was not done.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Failure {
    /// The attachment holds no such socket.
    #[error("this process holds no socket with port {0}")]
    NoSocket(u32),
    /// The daemon's policy.
    #[error("the daemon's policy does not allow user {uid} to {what} (see `policy` in its configuration)")]
    NotAllowed {
        /// The user.
        uid: u32,
        /// What was asked.
        what: String,
    },
    /// A limit of the daemon.
    #[error("the daemon's limit of {0} is reached")]
    Limit(String),
    /// The receiver's queue is full.
    #[error("the receiver's queue is full")]
    Overload,
    /// The command makes no sense now.
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
    /// There is no such link.
    #[error("no link is called {0} (the names are those of the list of links)")]
    NoLink(String),
}
