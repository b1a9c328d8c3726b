//! Before the program ends: that other nodes have got what was sent to them.
//!
//! A node that ends takes along what its links have not delivered. A message to a socket that does not exist comes back from
//! the other node, behind everything that went there before it by the same link: when it is back, all has arrived.

use std::time::{Duration, Instant};

use anyhow::Result;
use utipc::{Error, Node, NodeAddr, PortId};

/// For a node that does not answer any more.
const LIMIT: Duration = Duration::from_secs(10);
/// How often is looked whether it is there at all.
const LOOK: Duration = Duration::from_millis(50);
/// No socket has this number: the node itself does.
const NOBODY: u32 = 0xffff_fff1;

/// Waits until `to` has got what a socket with the number `port` has sent to it.
pub(crate) fn wait(node: &Node, port: u32, to: NodeAddr) -> Result<()> {
    if to == node.address() || to.is_none() {
        return Ok(());
    }
    // Of two links, the one that the socket's messages take: it is chosen by the lowest bit of its number.
    let mut others = Vec::new();
    let probe = loop {
        let socket = node.rdm()?;
        if socket.port().port & 1 == port & 1 || others.len() > 16 {
            break socket;
        }
        others.push(socket);
    };
    probe.set_returned(true)?;
    probe.set_send_timeout(Some(LIMIT));
    probe.set_receive_timeout(Some(LOOK));
    let unconfirmed =
        |error| anyhow::Error::new(error).context(format!("node {to} does not confirm what was sent to it"));
    match probe.send_to(b"?", PortId { port: NOBODY, node: to }) {
        Ok(_) => {}
        // Who has left does not lack anything that could still be sent.
        Err(Error::Send { .. }) => return Ok(()),
        Err(error) => return Err(unconfirmed(error)),
    }
    let start = Instant::now();
    loop {
        match probe.receive() {
            Ok(_) => return Ok(()),
            Err(error) if error.is_temporary() && start.elapsed() < LIMIT => {}
            Err(error) => return Err(unconfirmed(error)),
        }
        // It left as soon as it had all that it wanted.
        if !node.peers().iter().any(|peer| peer.addr == to && peer.up) {
            return Ok(());
        }
    }
}
