//! The daemon's node; the process attaches to it when it opens or claims its first socket.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use once_cell::race::{OnceBool, OnceBox};
use utipc_client::{Error, Node, Place, Spin};
use utipc_manage::{Entry, Request, entries};

use crate::errno::{Code, code};

/// Set by one step: a child would wait for ever for a thread of its parent that a fork has interrupted at the second.
static NODE: OnceBox<Node> = OnceBox::new();

/// Whether waiting calls spin or sleep: `UTIPC_SPIN` is `adaptive`, `busy` or `parked`.
pub(crate) fn spin() -> Spin {
    match std::env::var("UTIPC_SPIN").as_deref() {
        Ok("busy") => Spin::Busy,
        Ok("parked") => Spin::Parked,
        _ => Spin::Adaptive,
    }
}

/// Whether the end of a connection hangs a polled descriptor up at once, as in the kernel: `UTIPC_EXACT_HUP` is `1`.
pub(crate) fn exact_hang_up() -> bool {
    static EXACT: OnceBool = OnceBool::new();
    EXACT.get_or_init(|| std::env::var("UTIPC_EXACT_HUP").as_deref() == Ok("1"))
}

/// Whether to report errors on standard error: `UTIPC_LOG` is set, and not `off`.
fn logs() -> bool {
    std::env::var_os("UTIPC_LOG").is_some_and(|level| level != "off")
}

/// Reports why the daemon's silence fails calls, once.
pub(crate) fn report(error: &Error) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Relaxed) && logs() {
        eprintln!("utipc: {error}");
    }
}

/// Whether connectionless sockets and listeners go on with the next daemon: `UTIPC_RESUME` is `1`.
fn resumes() -> bool {
    std::env::var("UTIPC_RESUME").as_deref() == Ok("1")
}

/// The node. Without a daemon, the errno is that of a kernel without TIPC.
pub(crate) fn node() -> Result<&'static Node, Code> {
    if let Some(node) = NODE.get() {
        return Ok(node);
    }
    let node = Node::attach(Place::usual(), spin()).map_err(|error| {
        if logs() {
            eprintln!("utipc: cannot open a TIPC socket: {error}");
        }
        code(&error)
    })?;
    Ok(NODE.get_or_init(|| Box::new(node.resuming(resumes()))))
}

/// A list of the daemon's node.
pub(crate) fn list(request: &Request) -> Result<Vec<Entry>, Code> {
    let reply = node()?.manage(&request.to_daemon()).map_err(|error| code(&error))?;
    entries(&reply).map_err(|refusal| refusal.errno.0)
}
