//! Which nodes have full queues, told where processes look before they send (DESIGN L7).

use std::collections::BTreeMap;

use utipc_core::addr::NodeAddr;

use crate::daemon::dispatcher::Dispatcher;

/// The levels of each node that processes were told of, a bit each.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Told(BTreeMap<NodeAddr, u8>);

impl Dispatcher {
    /// Brings the words of the shared table up to date, and wakes those who sleep until one is clear.
    pub(in crate::daemon) fn tell_congestion(&mut self) {
        let Some(nodes) = self.driver.stack.take_congestion() else { return };
        // Who cannot look is told by would-block.
        let Some(publisher) = self.table.as_ref().map(|table| table.publisher()) else { return };
        let mut cleared = false;
        let told = &mut self.congestion.0;
        told.retain(|node, levels| {
            let now = nodes.get(node).copied().unwrap_or(0);
            for level in (0..8).filter(|level| (*levels & !now) >> level & 1 != 0) {
                publisher.set_congested(node.0, level, false);
                cleared = true;
            }
            *levels &= now;
            *levels != 0
        });
        for (node, levels) in nodes {
            let told = told.entry(*node).or_default();
            // Where there is no word left nobody waits: the node takes these messages, and holds them back itself.
            let new = levels & !*told;
            for level in (0..8).filter(|level| new >> level & 1 != 0) {
                if publisher.set_congested(node.0, level, true) {
                    *told |= 1 << level;
                }
            }
        }
        if cleared {
            self.broker.pairs.ring_all();
        }
    }
}
