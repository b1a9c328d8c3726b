//! The topology service: who is where, and told when that changes. Spec: tipc.md §10.
//!
//! [`TopologyServer`] is the server's side for any number of connections; what an application sends and receives
//! stands in [`Subscription`] and [`TopologyEvent`].

mod server;

#[cfg(test)]
mod tests;

pub use crate::wire::{
    ByteOrder, EVENT_LEN, EventKind, FOREVER, Filter, SUBSCRIPTION_LEN, Subscription, TopologyEvent,
};
pub use server::{Close, TopologyServer, TopologyStats};

/// Subscriptions on one node. Spec: tipc.md §10.2.
pub const MAX_SUBSCRIPTIONS: usize = 65_535;
/// Subscriptions of one connection, so that no single one can use up the node's. Ours. Spec: tipc.md §14.2.
pub const MAX_CONNECTION_SUBSCRIPTIONS: usize = 16_384;
/// Connections to the server. Ours.
pub const MAX_CONNECTIONS: usize = 4096;
/// Connections of the processes of one other node, so that no peer can shut the others out. Ours. Spec: tipc.md §14.2.
pub const MAX_NODE_CONNECTIONS: usize = 256;
/// Events that wait for one connection, 48 bytes each. Ours: twice the bindings that one node can own.
pub const MAX_WAITING_EVENTS: usize = 131_072;
/// Events that wait for all connections together, 48 bytes each. Ours: 48 MiB.
pub const MAX_ALL_WAITING_EVENTS: usize = 1 << 20;
