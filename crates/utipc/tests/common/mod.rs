//! Nodes on addresses of 127.0.0.0/8 that no other test uses.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use utipc::{Builder, Change, Node, NodeAddr};

/// Far beyond what anything takes on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

const PORT: u16 = 6118;

/// Builders of two nodes that know each other's UDP address.
pub(crate) fn builders() -> [Builder; 2] {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let first = 2 * NEXT.fetch_add(1, Ordering::Relaxed) + 1;
    // 127.64.0.0/10: real services of a host are elsewhere.
    let addresses =
        [first, first + 1].map(|last| IpAddr::from(Ipv4Addr::new(127, 64 | high & 63, low, last)));
    let build = |own: usize, other: usize| {
        Node::builder().udp_peers(addresses[own], [SocketAddr::new(addresses[other], PORT)])
    };
    [build(0, 1), build(1, 0)]
}

/// Two nodes with a link, and with the explicit addresses 1 and 2: they need no trial period.
pub(crate) fn pair() -> [Node; 2] {
    let [red, blue] = builders();
    join([red.address(NodeAddr(1)), blue.address(NodeAddr(2))])
}

/// Starts two nodes and waits for their link.
pub(crate) fn join(builders: [Builder; 2]) -> [Node; 2] {
    let nodes = builders.map(|builder| builder.start().unwrap());
    meet(&nodes[0], &nodes[1]);
    meet(&nodes[1], &nodes[0]);
    nodes
}

/// Waits until `node` sees `other`.
pub(crate) fn meet(node: &Node, other: &Node) {
    let mut topology = node.topology().unwrap();
    topology.nodes().unwrap();
    let wanted = Change::NodeUp(other.address());
    assert!(topology.events(LIMIT).any(|event| event.unwrap().change == wanted), "the nodes do not meet");
}
