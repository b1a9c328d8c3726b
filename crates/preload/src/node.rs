//! The daemon's node; the process attaches to it when it opens or claims its first socket.

use std::sync::OnceLock;

use utipc_client::{Node, Place, Spin};

use crate::errno::{Code, code};

static NODE: OnceLock<Node> = OnceLock::new();

/// Whether waiting calls spin or sleep: `UTIPC_SPIN` is `adaptive`, `busy` or `parked`.
pub(crate) fn spin() -> Spin {
    match std::env::var("UTIPC_SPIN").as_deref() {
        Ok("busy") => Spin::Busy,
        Ok("parked") => Spin::Parked,
        _ => Spin::Adaptive,
    }
}

/// The node. Without a daemon, the errno is that of a kernel without TIPC.
pub(crate) fn node() -> Result<&'static Node, Code> {
    if let Some(node) = NODE.get() {
        return Ok(node);
    }
    let node = Node::attach(Place::usual(), spin()).map_err(|error| {
        if std::env::var_os("UTIPC_LOG").is_some_and(|level| level != "off") {
            eprintln!("utipc: cannot open a TIPC socket: {error}");
        }
        code(&error)
    })?;
    Ok(NODE.get_or_init(|| node))
}
