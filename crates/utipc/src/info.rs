//! Information that a node gives about itself and its peers.

pub use utipc_core::{LinkInfo, LinkProperty, PeerInfo};
pub use utipc_node::Counters;
