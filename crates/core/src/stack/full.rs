//! Full receivers: their local senders wait and take turns, and links from their remote senders are held, until they
//! have room again or the time for it is over. Spec: tipc.md §8.7, decisions 22 and 32.

use super::Stack;
use crate::addr::NodeAddr;
use crate::limits::MESSAGE_OVERHEAD;
use crate::socket::Endpoint;
use crate::switch::{Origin, Room, Waits};
use crate::time::Time;
use crate::wire::{ErrorCode, Message};

/// What senders see of a receiver.
pub(super) fn room(endpoint: &Endpoint) -> Room {
    let (charged, limit) = endpoint.queue_usage();
    Room { is_full: endpoint.is_full(), charged, limit }
}

impl Stack {
    /// Passes a message to a socket of this node. If the socket is full, the sender waits, or the link from its node.
    pub(super) fn handle_local(&mut self, now: Time, port: u32, message: Message) {
        let (node, from) = (message.prev_node(), message.origin_port());
        let (is_sent, charge) = (message.error_code() == ErrorCode::Ok, message.size() + MESSAGE_OVERHEAD);
        let room = self.with_endpoint(now, port, |endpoint, uplink| {
            endpoint.handle_message(now, message, uplink);
            room(endpoint)
        });
        let Some(room) = room else { return };
        let own = self.own_node();
        if !node.is_none() && node != own {
            if room.is_full {
                self.switch.senders.waiters.hold(node, port);
                self.switch.hold(node);
            }
        } else if is_sent
            && (room.is_full || self.switch.senders.waiters.has_senders())
            && let Some(sender) = self.endpoints.get(&from)
            && !sender.kind().is_connection_oriented()
        {
            // The next anycast may go to another receiver.
            let waits = if sender.chooses() { Waits::ForAny } else { Waits::ForAll };
            if self.switch.senders.waiters.sent(now, (from, waits), port, charge, room)
                && waits == Waits::ForAll
            {
                self.with_endpoint(now, from, |sender, _| sender.congestion_mut().begin(own));
            }
        }
    }

    /// Notes the state of a receiver after a call; `None` if it is closed.
    pub(super) fn note_room(&mut self, port: u32, is_closed: bool) {
        if self.switch.senders.waiters.is_empty() {
            return;
        }
        let room = self.endpoints.get(&port).filter(|_| !is_closed).map(room);
        self.switch.senders.waiters.note(port, room);
    }

    /// Wakes senders to one receiver that has room again; false if there is no such receiver.
    pub(super) fn release_next(&mut self, now: Time) -> bool {
        if let Some(senders) = self.switch.senders.waiters.next_turn(now) {
            self.wake_senders(senders);
            return true;
        }
        let Some(nodes) = self.switch.senders.waiters.next_relieved() else { return false };
        for node in nodes {
            if !self.waits_for_room(node) && !self.switch.spreads.contains(Origin::Node(node)) {
                self.switch.resume(node);
            }
        }
        true
    }

    /// Whether messages of another node wait for a full receiver.
    pub(super) fn waits_for_room(&self, node: NodeAddr) -> bool {
        self.switch.senders.waiters.holds(node)
    }

    /// Ends turns of senders whose time is over.
    pub(super) fn waiters_timeout(&mut self, now: Time) {
        while let Some(senders) = self.switch.senders.waiters.handle_timeout(now) {
            self.wake_senders(senders);
        }
    }

    fn wake_senders(&mut self, senders: Vec<u32>) {
        let own = self.own_node();
        senders.into_iter().for_each(|sender| self.switch.senders.wake(sender, own));
    }
}
