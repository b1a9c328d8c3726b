//! What a node tells about itself and its neighbours.

pub use utipc_core::{LinkInfo, PeerInfo};
pub use utipc_node::Counters;
