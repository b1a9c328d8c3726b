//! Information about a node, its peers, links and bindings.

pub use utipc_core::{LinkInfo, LinkProperty, PeerInfo};
pub use utipc_node::Counters;
