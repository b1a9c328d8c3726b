//! Structured values in replies: sockets, the node, its bindings.

use serde::{Deserialize, Serialize};
use utipc_core::addr::{Binding, NodeAddr, PortId, ServiceAddr};
use utipc_core::socket::{ConnectError, EndpointStats, SocketKind, State, WaitReason};

/// State and counters of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketView {
    /// Kind.
    pub kind: SocketKind,
    /// State.
    pub state: State,
    /// The peer of the connection.
    pub peer: Option<PortId>,
    /// The service by which the connection was set up.
    pub service: Option<ServiceAddr>,
    /// The reason why the last call would block.
    pub wait: Option<WaitReason>,
    /// The error that ended the connection, until it is taken.
    pub error: Option<ConnectError>,
    /// Counters, not counting messages in lanes.
    pub stats: EndpointStats,
}

/// Address, identity and bearers of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// Address.
    pub address: NodeAddr,
    /// Whether the address is final.
    pub settled: bool,
    /// Identity, as text.
    pub identity: String,
    /// Bearers.
    pub bearers: Vec<BearerEntry>,
}

/// A bearer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BearerEntry {
    /// Name, `media:name`.
    pub name: String,
}

/// Part of the binding table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingPage {
    /// Some bindings.
    pub bindings: Vec<Binding>,
    /// Whether more follow: repeat the request, with the number of bindings received so far as `skip`.
    pub more: bool,
}
