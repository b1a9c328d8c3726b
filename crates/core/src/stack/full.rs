//! Full receivers: their local senders wait, and links from their remote senders are held, until they have room again
//! or the time for it is over. Spec: tipc.md §8.7, decision 22.

use std::collections::{BTreeMap, BTreeSet};

use super::Stack;
use crate::addr::NodeAddr;
use crate::time::Time;
use crate::wire::Message;

/// The local sockets and the peers that wait for one receiver. The number of sockets and of peers bounds them.
#[derive(Debug, Default)]
struct Waiters {
    ports: BTreeSet<u32>,
    nodes: BTreeSet<NodeAddr>,
}

/// The receivers that are full, by port.
#[derive(Debug, Default)]
pub(super) struct FullReceivers {
    waiters: BTreeMap<u32, Waiters>,
    /// Those of them that are not full any more.
    relieved: BTreeSet<u32>,
}

impl FullReceivers {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Notes the state of a receiver after a call.
    pub(super) fn note(&mut self, port: u32, is_full: bool) {
        if !self.waiters.contains_key(&port) {
            return;
        }
        if is_full {
            self.relieved.remove(&port);
        } else {
            self.relieved.insert(port);
        }
    }

    fn awaits(&self, found: impl Fn(&Waiters) -> bool) -> bool {
        self.waiters.values().any(found)
    }
}

impl Stack {
    /// Passes a message to a socket of this node. If the socket is full, the sender waits, or the link from its node.
    pub(super) fn handle_local(&mut self, now: Time, port: u32, message: Message) {
        let (node, from) = (message.prev_node(), message.origin_port());
        let is_full = self.with_endpoint(now, port, |endpoint, uplink| {
            endpoint.handle_message(now, message, uplink);
            endpoint.is_full()
        });
        if is_full != Some(true) {
            return;
        }
        let own = self.own_node();
        let waiters = self.full.waiters.entry(port).or_default();
        if !node.is_none() && node != own {
            waiters.nodes.insert(node);
            self.switch.hold(node);
        } else if self.endpoints.get(&from).is_some_and(|sender| !sender.kind().is_connection_oriented()) {
            waiters.ports.insert(from);
            self.with_endpoint(now, from, |sender, _| sender.wait_for_receiver(own));
        }
    }

    /// Wakes the waiters of one receiver that is not full any more; false if there is no such receiver.
    pub(super) fn release_next(&mut self) -> bool {
        let Some(port) = self.full.relieved.pop_first() else { return false };
        let Some(Waiters { ports, nodes }) = self.full.waiters.remove(&port) else { return true };
        let own = self.own_node();
        for sender in ports {
            if !self.full.awaits(|others| others.ports.contains(&sender)) {
                self.switch.woken.push_back((sender, own));
            }
        }
        for node in nodes {
            if !self.full.awaits(|others| others.nodes.contains(&node)) {
                self.switch.resume(node);
            }
        }
        true
    }
}
