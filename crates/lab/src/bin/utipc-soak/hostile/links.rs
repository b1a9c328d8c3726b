//! The links of a daemon under attack, as an honest program sees them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use utipc::{Change, Node, NodeAddr, Topology};

use crate::daemon::attach;

/// Time for the last events.
const REST: Duration = Duration::from_millis(500);

/// A subscription to the links of a daemon.
pub(super) struct Links {
    topology: Topology,
    _node: Node,
}

/// Losses of links.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Links to honest nodes.
    pub(super) honest: u32,
    /// Links to the hostile node, which may itself give them up.
    pub(super) hostile: u32,
}

impl Links {
    pub(super) fn of(socket: &Path) -> Result<Self> {
        let node = attach(socket)?;
        let mut topology = node.topology().context("watch links")?;
        topology.links().context("watch links")?;
        Ok(Self { topology, _node: node })
    }

    /// The losses since the beginning.
    pub(super) fn lost(mut self, hostile: NodeAddr) -> Result<Lost> {
        let mut lost = Lost::default();
        while let Some(event) = self.topology.next(REST).context("watch links")? {
            match event.change {
                Change::LinkDown(node) if node == hostile => lost.hostile += 1,
                Change::LinkDown(_) => lost.honest += 1,
                _ => {}
            }
        }
        Ok(lost)
    }
}
