//! What senders of this node learn about queues: who may send again, and which links are congested.

use std::collections::{BTreeMap, VecDeque};

use super::full::FullReceivers;
use crate::addr::NodeAddr;

/// Senders of this node that wait, and what they wait for.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    /// Those that wait for full receivers.
    pub(crate) receivers: FullReceivers,
    /// Sockets that may send to a node again.
    woken: VecDeque<(u32, NodeAddr)>,
    /// The congested nodes and their levels; see [`crate::node::peer::Peer::congestion`].
    congested: BTreeMap<NodeAddr, u8>,
    /// True if they have changed since the last query.
    changed: bool,
    /// A message was queued behind a link's window since the last query.
    backlogged: bool,
}

impl Senders {
    /// A socket may send to a node again.
    pub(crate) fn wake(&mut self, port: u32, node: NodeAddr) {
        self.woken.push_back((port, node));
    }

    /// The next socket that may send again, and to which node.
    pub(crate) fn next_woken(&mut self) -> Option<(u32, NodeAddr)> {
        self.woken.pop_front()
    }

    /// Notes the congested levels of a node's links.
    pub(super) fn note_congestion(&mut self, node: NodeAddr, levels: u8) {
        self.changed = true;
        match levels {
            0 => self.congested.remove(&node),
            _ => self.congested.insert(node, levels),
        };
    }

    /// Whether a link is congested.
    pub(super) fn has_congestion(&self) -> bool {
        !self.congested.is_empty()
    }

    /// The congested nodes, if they have changed since the last call.
    pub(crate) fn take_congestion(&mut self) -> Option<&BTreeMap<NodeAddr, u8>> {
        core::mem::take(&mut self.changed).then_some(&self.congested)
    }

    /// Notes whether a message waits behind a link's window.
    pub(crate) fn note_backlog(&mut self, waits: bool) {
        self.backlogged |= waits;
    }

    /// Whether one has waited since the last call.
    pub(crate) fn take_backlogged(&mut self) -> bool {
        core::mem::take(&mut self.backlogged)
    }
}
