//! Waits, before the program ends, until other nodes have received everything sent to them.
//!
//! When a node ends, messages that its links have not delivered are lost. So the program sends a last message
//! to a socket that does not exist. The other node returns it, after receiving everything that was sent earlier on the
//! same link.

use std::time::{Duration, Instant};

use anyhow::Result;
use utipc::{Error, Node, NodeAddr, PortId};

/// Longest wait for a node that does not answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Interval in which the node is looked up.
const LOOK: Duration = Duration::from_millis(50);
/// A port number that no socket has.
const NOBODY: u32 = 0xffff_fff1;

/// Waits until `to` has received everything that the socket with the number `port` has sent to it.
///
/// # Errors
/// The node does not reply, or no socket can be opened.
pub fn wait(node: &Node, port: u32, to: NodeAddr) -> Result<()> {
    if to == node.address() || to.is_none() {
        return Ok(());
    }
    // The link that the socket's messages use: of two links, the lowest bit of its number chooses one.
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
    let unconfirmed = |error| {
        anyhow::Error::new(error)
            .context(format!("node {to} does not confirm that it has received everything"))
    };
    match probe.send_to(b"?", PortId { port: NOBODY, node: to }) {
        Ok(_) => {}
        // A node that has left cannot receive anything more.
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
        // The other node left as soon as it had received what it wanted.
        if !node.peers().iter().any(|peer| peer.addr == to && peer.up) {
            return Ok(());
        }
    }
}
