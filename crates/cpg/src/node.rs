//! The node of the process: started at first use, and again after a fork or the end of its daemon.

use std::cell::RefCell;
use std::io::Write;
use std::sync::Once;

use utipc::Node;
use utipc_os::fork::{self, Hooks};

use crate::handles::{self, Held, hold};

thread_local! {
    /// The lock of a thread that forks.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// The table of handles is locked during a fork, so that no child finds it locked for ever.
static HOOKS: Hooks = Hooks {
    before: || {
        let held = hold();
        let _ = HELD.try_with(|slot| slot.replace(Some(held)));
    },
    parent: release,
    child: release,
};

fn release() {
    let _ = HELD.try_with(|slot| slot.take());
}

extern "C" fn at_exit() {
    let _ = std::panic::catch_unwind(handles::abandon_all);
}

/// Leaves the groups at `exit`.
fn leave_at_exit() {
    static ONCE: Once = Once::new();
    // SAFETY: the function lives as long as the program, which cannot unload this library, and does not unwind. If
    // memory for it is missing, the other members wait longer.
    ONCE.call_once(|| _ = unsafe { libc::atexit(at_exit) });
}

/// The node, started if necessary.
pub(crate) fn own() -> utipc::Result<Node> {
    fork::add_hooks(&HOOKS)?;
    leave_at_exit();
    let generation = fork::generation();
    let known = hold().node.clone().filter(|(of, _)| *of == generation);
    if let Some((_, node)) = known {
        return Ok(node);
    }
    let node = Node::start()?;
    let mut table = hold();
    if let Some((_, first)) = table.node.clone().filter(|(of, _)| *of == generation) {
        // Another thread was faster. Its node serves both.
        return Ok(first);
    }
    let old = table.node.replace((generation, node.clone()));
    drop(table);
    // The parent's node does not work in a child, which lacks the threads to end it.
    std::mem::forget(old);
    Ok(node)
}

/// Reports why a call fails, once: the error code does not tell, and programs repeat failing calls for ever.
pub(crate) fn report(call: &str, error: &utipc::Error) {
    static ONCE: Once = Once::new();
    if std::env::var_os("UTIPC_LOG").is_none_or(|level| level != "off") {
        ONCE.call_once(|| _ = writeln!(std::io::stderr(), "libcpg: {call}: {error}"));
    }
}

/// Forgets the node after its daemon has ended, so that the next handle starts another one.
pub(crate) fn forget() {
    let old = hold().node.take();
    drop(old);
}
