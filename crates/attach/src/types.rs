//! Larger values of the protocol.

use serde::{Deserialize, Serialize};
use utipc_core::addr::{Binding, NodeAddr, PortId, ServiceAddr};
use utipc_core::socket::{ConnectError, EndpointStats, Readiness, SocketKind, State, WaitReason};

/// A socket as its holder may see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketView {
    /// Kind.
    pub kind: SocketKind,
    /// State.
    pub state: State,
    /// The connection's other end.
    pub peer: Option<PortId>,
    /// The name by which the connection was set up.
    pub service: Option<ServiceAddr>,
    /// What it can do without blocking, the node's side of it.
    pub readiness: Readiness,
    /// Why the last call would have blocked.
    pub wait: Option<WaitReason>,
    /// The error that ended the connection; stays until taken.
    pub error: Option<ConnectError>,
    /// Counters, without what went by lanes.
    pub stats: EndpointStats,
    /// Bytes that one receive can yield now.
    pub available: u32,
    /// Its process: pid and user, 0 if the node's own.
    pub pid: u32,
    /// The user.
    pub uid: u32,
}

/// The node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// Address.
    pub address: NodeAddr,
    /// Whether it is settled.
    pub settled: bool,
    /// Identity, printed.
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
    /// There are more: ask again with as many to skip as were received.
    pub more: bool,
}
