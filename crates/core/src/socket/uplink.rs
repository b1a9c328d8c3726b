//! What an endpoint may ask of its node.

use thiserror::Error;

use super::types::Method;
use crate::addr::{NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use crate::wire::Message;

/// Answer to an anycast lookup. Spec: tipc.md §1.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The socket, or 0 if `node` has to do the lookup.
    pub port: u32,
    /// The node to send to.
    pub node: NodeAddr,
    /// Lookup scope for the message header: 2 cluster, 3 node.
    pub scope: u8,
}

/// A message was taken over by the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is on its way.
    Done,
    /// It is on its way, and the link to this node is full: send it nothing more until the wake-up for it
    /// ([`super::Endpoint::wakeup`]). [`NodeAddr::NONE`] stands for the broadcast link.
    Congested(NodeAddr),
}

/// A message was not taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// No link leads to the destination node, or no socket is bound to the destination range.
    #[error("destination unreachable")]
    Unreachable,
    /// The message is larger than the path can carry.
    #[error("message too large")]
    TooLarge,
    /// The node's queues are full.
    #[error("no buffer space")]
    NoBuffers,
}

/// A binding could not be made or withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum BindError {
    /// The service type is reserved (below 64).
    #[error("service type below 64 is reserved (bind a type of 64 or above)")]
    Reserved,
    /// `lower` is above `upper`.
    #[error("invalid range: lower instance above upper")]
    InvalidRange,
    /// The socket is connected, or the port unknown.
    #[error("a connected or closed socket cannot be bound")]
    InvalidState,
    /// The same socket already holds this binding, or its keys are used up.
    #[error("address in use")]
    InUse,
    /// The node holds as many bindings as it may.
    #[error("too many bindings on this node")]
    TooMany,
    /// There is no such binding to withdraw.
    #[error("no such binding")]
    NotBound,
}

/// The node of an endpoint. Messages submitted for the own node may not be handed to the same endpoint before the
/// call in progress has returned.
pub trait Uplink {
    /// Address of this node; [`NodeAddr::NONE`] while there is none.
    fn own_node(&self) -> NodeAddr;
    /// Anycast lookup of `to`, limited to `domain` (0: everywhere). `None`: nobody is bound. Spec: tipc.md §1.4.
    fn resolve(&mut self, to: ServiceAddr, domain: NodeAddr) -> Option<Resolved>;
    /// Capability bits of a node ([`crate::limits::capability`]); the own node has all.
    fn capabilities(&self, node: NodeAddr) -> u16;
    /// Largest message to `node` that is not fragmented, bytes; for the own node the largest message there is.
    fn mss(&self, node: NodeAddr) -> usize;
    /// True for the own node and for nodes with a working link.
    fn is_reachable(&self, node: NodeAddr) -> bool;
    /// Memory for a message of `size` bytes, header included; what it holds is of no interest.
    fn memory(&mut self, size: usize) -> Vec<u8> {
        Vec::with_capacity(size)
    }
    /// Takes back a message that was read.
    fn recycle(&mut self, message: Message) {
        drop(message);
    }
    /// Sends a message to node `to` (a 24-byte header does not tell it; [`NodeAddr::NONE`] is this node); the link
    /// selector is its origin port.
    ///
    /// # Errors
    /// See [`SubmitError`]; the message is gone then.
    fn submit(&mut self, to: NodeAddr, msg: Message) -> Result<Submitted, SubmitError>;
    /// Sends a multicast to every socket bound in the range of its header, local ones included.
    ///
    /// # Errors
    /// See [`SubmitError`]; [`SubmitError::Unreachable`] if nobody is bound.
    fn submit_multicast(&mut self, msg: Message) -> Result<Submitted, SubmitError>;
    /// The method for all multicasts of `port` from now on; `None` leaves the choice to the node.
    fn multicast_method(&mut self, port: u32, forced: Option<Method>);
    /// Binds `port` to a range.
    ///
    /// # Errors
    /// See [`BindError`].
    fn bind(&mut self, port: u32, range: ServiceRange, scope: Scope) -> Result<(), BindError>;
    /// Withdraws one binding of `port`, or all of them.
    ///
    /// # Errors
    /// [`BindError::NotBound`] if there is none such.
    fn unbind(&mut self, port: u32, which: Option<(ServiceRange, Scope)>) -> Result<(), BindError>;
    /// `port` is connected to `peer`: when contact with the peer's node is lost, the endpoint gets a message from
    /// the peer with error NO_NODE.
    fn introduce(&mut self, port: u32, peer: PortId);
    /// `port` is not connected any more.
    fn forget(&mut self, port: u32);
}
