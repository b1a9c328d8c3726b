//! Connections of local sockets to other nodes, which break when contact with the node is lost.

use std::collections::{BTreeMap, BTreeSet};

use crate::addr::{NodeAddr, PortId};

/// The connections of this node's sockets.
#[derive(Debug, Default)]
pub(super) struct Connections {
    peers: BTreeMap<u32, PortId>,
    by_node: BTreeSet<(NodeAddr, u32)>,
}

impl Connections {
    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// A socket is connected; an earlier connection of it has ended.
    pub(super) fn insert(&mut self, port: u32, peer: PortId) {
        self.remove(port);
        self.peers.insert(port, peer);
        self.by_node.insert((peer.node, port));
    }

    pub(super) fn remove(&mut self, port: u32) {
        if let Some(peer) = self.peers.remove(&port) {
            self.by_node.remove(&(peer.node, port));
        }
    }

    /// The sockets with a connection to a node, and its ends there.
    pub(super) fn to(&self, node: NodeAddr) -> Vec<(u32, PortId)> {
        let ports = self.by_node.range((node, 0)..=(node, u32::MAX)).map(|(_, port)| *port);
        ports.filter_map(|port| Some((port, *self.peers.get(&port)?))).collect()
    }
}
