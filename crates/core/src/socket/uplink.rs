//! The interface through which an endpoint calls its node.

use thiserror::Error;

use super::types::Method;
use crate::addr::{Importance, NodeAddr, PortId, Scope, ServiceAddr, ServiceRange};
use crate::quota::UserId;
use crate::wire::{GroupControl, Message};

/// Result of an anycast lookup. Spec: tipc.md §1.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The socket's port, or 0 if `node` must do the lookup.
    pub port: u32,
    /// The node to send to.
    pub node: NodeAddr,
    /// Lookup scope for the message header: 2 cluster, 3 node.
    pub scope: u8,
}

/// The node has accepted a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The message is on its way.
    Done,
    /// The message is on its way, and the link to this node is congested: send nothing more to it until its wake-up
    /// ([`super::Endpoint::wakeup`]). [`NodeAddr::NONE`] is the broadcast link.
    Congested(NodeAddr),
}

/// Reason why a message was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// There is no link to the destination node, or no socket is bound to the destination range.
    #[error("destination unreachable")]
    Unreachable,
    /// The message is too large for the path.
    #[error("message too large")]
    TooLarge,
    /// The node's queues are full.
    #[error("no buffer space")]
    NoBuffers,
}

/// Reason why a binding was not made or withdrawn.
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
    /// The socket is connected, or the port is unknown.
    #[error("a connected or closed socket cannot be bound")]
    InvalidState,
    /// The socket already has this binding, or has no keys left.
    #[error("address in use")]
    InUse,
    /// The node has reached its limit of bindings.
    #[error("too many bindings on this node")]
    TooMany,
    /// There is no such binding to withdraw.
    #[error("the socket has no such binding")]
    NotBound,
    /// The socket is in a group.
    #[error("a socket in a group makes no other bindings (leave the group, or use another socket)")]
    InGroup,
}

/// The node of an endpoint. It must not pass messages submitted for the own node to the same endpoint before the call
/// in progress returns.
pub trait Uplink {
    /// Address of this node; [`NodeAddr::NONE`] until it has one.
    fn own_node(&self) -> NodeAddr;
    /// Looks up an anycast to `to`, limited to `domain` (0: everywhere); `None` if no socket is bound. Spec: tipc.md
    /// §1.4.
    fn resolve(&mut self, to: ServiceAddr, domain: NodeAddr) -> Option<Resolved>;
    /// Capability bits of a node ([`crate::limits::capability`]); the own node has all of them.
    fn capabilities(&self, node: NodeAddr) -> u16;
    /// Largest message to `node` that is not fragmented, bytes; for the own node, the largest message.
    fn mss(&self, node: NodeAddr) -> usize;
    /// True for the own node and for nodes with a working link.
    fn is_reachable(&self, node: NodeAddr) -> bool;
    /// True if the link to a node ([`NodeAddr::NONE`]: the broadcast link) would take a message of this importance
    /// beyond its limit only. Asked only of users without memory.
    fn is_congested(&self, node: NodeAddr, importance: Importance) -> bool {
        let _ = (node, importance);
        false
    }
    /// True if a socket of this node has to wait for its turn before it sends to another one: other senders wait for
    /// the receiver. Its wake-up comes with the own node's address.
    fn must_wait(&mut self, sender: u32, to: PortId) -> bool {
        let _ = (sender, to);
        false
    }
    /// A buffer for a message of `size` bytes, header included; its contents are undefined.
    fn memory(&mut self, size: usize) -> Vec<u8> {
        Vec::with_capacity(size)
    }
    /// Moves a message that waits to the memory of a user.
    ///
    /// # Errors
    /// The message: its user, or the node, has no memory left.
    fn keep(&mut self, user: UserId, message: Vec<u8>) -> Result<Vec<u8>, Vec<u8>> {
        let _ = user;
        Ok(message)
    }
    /// Recycles a message that was read.
    fn recycle(&mut self, message: Message) {
        drop(message);
    }
    /// Sends a message to node `to` (a 24-byte header does not hold it); [`NodeAddr::NONE`] is this node. The origin
    /// port selects the link.
    ///
    /// # Errors
    /// See [`SubmitError`]; the message is dropped.
    fn submit(&mut self, to: NodeAddr, msg: Message) -> Result<Submitted, SubmitError>;
    /// Sends a multicast to every socket bound in the range in its header, including local ones.
    ///
    /// # Errors
    /// See [`SubmitError`]; [`SubmitError::Unreachable`] if no socket is bound.
    fn submit_multicast(&mut self, msg: Message) -> Result<Submitted, SubmitError>;
    /// [`Uplink::submit_multicast`] without the sockets of this node.
    ///
    /// # Errors
    /// As there.
    fn submit_multicast_elsewhere(&mut self, msg: Message) -> Result<Submitted, SubmitError>;
    /// The bindings of a type with this scope, for a socket that joins a group: the socket and the lower end of each,
    /// oldest first. Of many, the socket learns the rest step by step (`Endpoint::group_found`).
    fn group_bindings(&mut self, port: u32, service: u32, scope: Scope) -> Vec<(PortId, u32)>;
    /// Sends a message to the members of a group: on this node if `local`, and on other `nodes`, by `replicast` or as
    /// the node chooses. Members whose node is not reachable any more are left out.
    ///
    /// # Errors
    /// See [`SubmitError`]; no member gets the message.
    fn submit_group(
        &mut self,
        msg: Message,
        local: bool,
        nodes: &[NodeAddr],
        replicast: bool,
    ) -> Result<Submitted, SubmitError>;
    /// Tells all members of a group on this node with this scope, step by step, that a socket leaves; false if the node
    /// does not do that, and the socket sends to each one.
    fn tell_group(&mut self, service: u32, scope: Scope, control: GroupControl) -> bool {
        let _ = (service, scope, control);
        false
    }
    /// Sets the method for all further multicasts of `port`; `None` leaves the choice to the node.
    fn multicast_method(&mut self, port: u32, forced: Option<Method>);
    /// Binds `port` to a range.
    ///
    /// # Errors
    /// See [`BindError`].
    fn bind(&mut self, port: u32, range: ServiceRange, scope: Scope) -> Result<(), BindError>;
    /// Withdraws one binding of `port`, or all of them.
    ///
    /// # Errors
    /// [`BindError::NotBound`] if there is no such binding.
    fn unbind(&mut self, port: u32, which: Option<(ServiceRange, Scope)>) -> Result<(), BindError>;
    /// Registers the connection of `port` to `peer`: when contact with the peer's node is lost, the endpoint gets a
    /// message from the peer with error NO_NODE.
    fn register_connection(&mut self, port: u32, peer: PortId);
    /// The connection of `port` has ended.
    fn unregister_connection(&mut self, port: u32);
}
