//! The topology service: reports bindings and nodes, and their changes. Spec: tipc.md §10.
//!
//! [`TopologyServer`] is the server's side for any number of connections; applications send [`Subscription`]s and
//! receive [`TopologyEvent`]s.

mod announce;
mod announcements;
mod initial;
mod interests;
mod server;
mod waiting;

#[cfg(test)]
mod announce_tests;
#[cfg(test)]
mod initial_tests;
#[cfg(test)]
mod tests;

pub use crate::wire::{
    ByteOrder, EVENT_LEN, EventKind, FOREVER, Filter, SUBSCRIPTION_LEN, Subscription, TopologyEvent,
};
pub use announcements::Party;
pub use server::{Close, TopologyServer, TopologyStats};

/// Maximum number of subscriptions on one node. Spec: tipc.md §10.2.
pub const MAX_SUBSCRIPTIONS: usize = 65_535;
/// Maximum number of subscriptions of one connection, so that a single one cannot use up the node's. Ours. Spec:
/// tipc.md §14.2.
pub const MAX_CONNECTION_SUBSCRIPTIONS: usize = 16_384;
/// Maximum number of connections to the server. Ours.
pub const MAX_CONNECTIONS: usize = 4096;
/// Maximum number of connections from one other node, so that a peer cannot lock out the others. Ours. Spec: tipc.md
/// §14.2.
pub const MAX_NODE_CONNECTIONS: usize = 256;
/// Maximum number of events waiting for one connection, 48 bytes each. Ours: twice the bindings that one node can own.
pub const MAX_WAITING_EVENTS: usize = 131_072;
/// Maximum number of events waiting for all connections together, 48 bytes each. Ours: 48 MiB.
pub const MAX_ALL_WAITING_EVENTS: usize = 1 << 20;
/// Maximum number of changes of bindings that a party has not been told of, 56 bytes each. Ours.
pub const MAX_WAITING_CHANGES: usize = 16_384;
/// Maximum number of changes for all parties together. Ours: 14 MiB.
pub const MAX_ALL_WAITING_CHANGES: usize = 1 << 18;
/// Visits that the end of a subscription counts as, because it takes that much longer.
const FREE_VISITS: usize = 4;
/// Visits that the end of a connection counts as.
const CLOSE_VISITS: usize = 64;
/// Subscriptions that one call of [`TopologyServer::handle_timeout`] ends. Ours: about a millisecond.
const TIMEOUTS_PER_CALL: usize = 1024;
