//! What a node tells about itself and its neighbours.

pub use utipc_core::{LinkInfo, LinkProperty, PeerInfo};
pub use utipc_node::Counters;
