//! Structured values in replies.

use serde::{Deserialize, Serialize};
use utipc_core::addr::{PortId, ServiceAddr};
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
