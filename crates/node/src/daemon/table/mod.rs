//! The replica of the binding table that processes read, and the congestion state.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use utipc_attach::Failure;
use utipc_core::addr::NodeAddr;
use utipc_core::stack::Stack;

use crate::table::SharedTable;

/// The replica; absent if the system has refused the memory. Then processes ask the daemon for every lookup.
#[derive(Debug)]
pub(super) struct Replica {
    table: Option<SharedTable>,
    /// The congested levels of each node that processes see, a bit each.
    congested: BTreeMap<NodeAddr, u8>,
}

impl Replica {
    pub(super) fn new(stack: &mut Stack) -> Self {
        let table = SharedTable::share(stack).inspect_err(|error| {
            tracing::warn!(
                "processes will ask for every lookup: the binding table cannot be shared: {error}"
            );
        });
        Self { table: table.ok(), congested: BTreeMap::new() }
    }

    /// Descriptors of the memory where the table is now.
    pub(super) fn descriptors(&self) -> Result<Vec<OwnedFd>, Failure> {
        let publisher = self.table.as_ref().ok_or(Failure::State)?.publisher();
        let copies = publisher.descriptors().into_iter().map(|fd| fd.try_clone_to_owned());
        copies.collect::<Result<_, _>>().map_err(|_| Failure::State)
    }

    /// Updates the congestion state that processes check before they send. True if a level of a node is no longer
    /// congested: then processes that sleep until it is are to be woken.
    pub(super) fn update_congestion(&mut self, stack: &mut Stack) -> bool {
        let Some(nodes) = stack.take_congestion() else { return false };
        // Without a table, sends of processes return would-block.
        let Some(publisher) = self.table.as_ref().map(SharedTable::publisher) else { return false };
        let mut cleared = false;
        self.congested.retain(|node, levels| {
            let now = nodes.get(node).copied().unwrap_or(0);
            for level in (0..8).filter(|level| (*levels & !now) >> level & 1 != 0) {
                publisher.set_congested(node.0, level, false);
                cleared = true;
            }
            *levels &= now;
            *levels != 0
        });
        for (node, levels) in nodes {
            let published = self.congested.entry(*node).or_default();
            // If the table has no word left for a node, no process waits for it: the node accepts its messages
            // and queues them.
            let new = levels & !*published;
            for level in (0..8).filter(|level| new >> level & 1 != 0) {
                if publisher.set_congested(node.0, level, true) {
                    *published |= 1 << level;
                }
            }
        }
        cleared
    }
}
