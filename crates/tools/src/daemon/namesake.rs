//! Reports other nodes of the cluster that have this node's identity: hosts with one name, or a copied state file.
//!
//! Such nodes get different addresses, because each checks its address first; but after a restart they may swap
//! addresses, their links have the same name, and commands that take an identity mean either.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Duration;

use anyhow::{Context, Result};
use utipc::daemon::Daemon;
use utipc::{NodeAddr, NodeId};

/// Time between two looks at the nodes of the cluster.
const INTERVAL: Duration = Duration::from_secs(2);

/// A thread that looks at the nodes until [`Watch::end`].
pub(super) struct Watch {
    /// Dropped to end the thread.
    going: Mutex<Option<Sender<()>>>,
}

impl Default for Watch {
    fn default() -> Self {
        Self { going: Mutex::new(None) }
    }
}

impl Watch {
    /// Starts the thread.
    pub(super) fn start<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        daemon: &'scope Daemon,
        identity: NodeId,
    ) -> Result<()> {
        let (going, ended) = channel();
        let look = move || look(daemon, identity, &ended);
        Builder::new().name("namesakes".to_owned()).spawn_scoped(scope, look).context("start a thread")?;
        *self.going.lock().unwrap_or_else(PoisonError::into_inner) = Some(going);
        Ok(())
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.going.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn look(daemon: &Daemon, identity: NodeId, ended: &Receiver<()>) {
    let mut reported = BTreeSet::new();
    while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let namesakes = daemon.with(move |stack, _| -> Vec<NodeAddr> {
            stack.nodes().iter().filter(|node| node.id == identity).map(|node| node.addr).collect()
        });
        for node in namesakes.unwrap_or_default() {
            if reported.insert(node) {
                tracing::error!(
                    "node {node} has the identity of this node too, \"{identity}\": two hosts share a name or a \
                     copied state file (give one of them another, with `utipcd --identity NAME` or node.identity)"
                );
            }
        }
    }
}
